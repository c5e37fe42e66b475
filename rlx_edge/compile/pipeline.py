"""The pass table and pipeline strings.

A pipeline is text: ``canonicalize,fold,place{device=wasm:0},layout``. The same string serves code,
command line and golden files. Passes are looked up by name in one table and imported when used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import quote

from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.ir.core import Module
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.errors import RlxError

if TYPE_CHECKING:
    from rlx_edge.compile.backends import Backend

PASSES: dict[str, str] = {
    "canonicalize": "rlx_edge.compile.passes.canonicalize:Canonicalize",
    "revalue": "rlx_edge.compile.passes.revalue:Revalue",
    "fuse-attention": "rlx_edge.compile.passes.fuse_attention:FuseAttention",
    "decompose": "rlx_edge.compile.passes.decompose:Decompose",
    "share": "rlx_edge.compile.passes.share:Share",
    "fold": "rlx_edge.compile.passes.fold:Fold",
    "eliminate-dead": "rlx_edge.compile.passes.eliminate_dead:EliminateDead",
    "fuse": "rlx_edge.compile.passes.fuse:Fuse",
    "place": "rlx_edge.compile.passes.place:Place",
    "layout": "rlx_edge.compile.passes.layout:Layout",
    "borders": "rlx_edge.compile.passes.borders:Borders",
    "split": "rlx_edge.compile.passes.split:Split",
    "hold": "rlx_edge.compile.passes.hold:Hold",
}
"""Name → ``module:Class`` of a frozen dataclass with ``name``, options and ``run``."""

NATIVE_PIPELINE = (
    "canonicalize,revalue,decompose,canonicalize,share,fold,eliminate-dead,"
    "fuse,place{{device={device}}},layout,borders"
)
"""From imported graph IR to placed IR on one device; ``format(device=…)`` completes it."""


def native_pipeline(device: str, precision: str = "fixed") -> str:
    """``NATIVE_PIPELINE`` for a device, whose contractions may do what ``precision`` allows.

    Attention becomes one operation where the device has a kernel for it; in ``fixed`` precision the
    parts give the bits.
    """
    if precision == "fixed":
        return _with_rows(NATIVE_PIPELINE.format(device=device), device)
    text = _with_rows(NATIVE_PIPELINE.format(device=f"{device},precision={precision}"), device)
    if offers_attention(device):
        fused = f"fuse-attention{{precision={precision}}},decompose{{attention={precision}}}"
        text = text.replace("decompose", fused, 1)
    return text


def offers_attention(device: str) -> bool:
    """Whether the row of the device's kind has a template for attention."""
    backend = _backend(device)
    return backend is not None and "rlxc::attention" in backend.offers.claims


def _with_rows(pipeline: str, device: str) -> str:
    """With as many reductions over a row in one kernel as the device's row of the table takes."""
    backend = _backend(device)
    if backend is None or backend.reductions == 1:
        return pipeline
    return with_options(pipeline, "fuse", reductions=backend.reductions)


def _backend(device: str) -> Backend | None:
    from rlx_edge.compile.backends import BACKENDS, backend_named

    kind = parse_device(device).kind
    return backend_named(kind) if kind in BACKENDS else None


def with_options(pipeline: str, name: str, **options: int | str) -> str:
    """``pipeline`` whose passes called ``name`` have these options as well."""
    added = tuple((key, str(value)) for key, value in options.items())
    steps = (
        Step(step.name, (*step.options, *added)) if step.name == name else step
        for step in parse_pipeline(pipeline)
    )
    return ",".join(map(str, steps))


def with_regions_apart(pipeline: str, values: Sequence[str]) -> str:
    """``pipeline`` whose fusion takes the regions that end with these values apart; a value that
    is named several times is halved as often."""
    if not values:
        return pipeline
    return with_options(pipeline, "fuse", apart="+".join(quote(name, safe="") for name in values))


class Pass(Protocol):
    """A valid module in, a new valid module out; nothing of the argument is changed."""

    @property
    def name(self) -> str: ...

    def run(self, module: Module, log: list[Applied] | None = None) -> Module: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One element of a pipeline: a pass and its options as text."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        inside = ",".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name}{{{inside}}}" if inside else self.name


_STEP = re.compile(r"\s*([a-z][a-z0-9-]*)\s*(?:\{([^{}]*)\})?\s*(?:,|\Z)")


def parse_pipeline(text: str) -> tuple[Step, ...]:
    """The steps of a pipeline string; ``RlxError`` ``pipeline.syntax`` or ``pipeline.pass``."""
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise RlxError(
                "pipeline.syntax",
                "cannot read the pipeline",
                found=repr(text[position:]),
                allowed="pass,pass{option=value},…",
            )
        name = match[1]
        if name not in PASSES:
            raise RlxError("pipeline.pass", "unknown pass", found=name, allowed=list(PASSES))
        steps.append(Step(name, tuple(_options(match[2] or "", name))))
        position = match.end()
    return tuple(steps)


def _options(text: str, name: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, (item.strip() for item in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise RlxError(
                "pipeline.syntax",
                f"cannot read an option of {name}",
                found=repr(part),
                allowed="option=value",
            )
        yield key.strip(), value.strip()


def make_pass(step: Step) -> Pass:
    """The pass of a step; ``RlxError`` ``pipeline.option`` for unknown or unfit options."""
    module_name, _, class_name = PASSES[step.name].partition(":")
    kind = getattr(import_module(module_name), class_name)
    known = {item.name: item.type for item in fields(kind) if item.name != "name"}
    options: dict[str, int | str] = {}
    for key, value in step.options:
        if key not in known:
            raise RlxError(
                "pipeline.option",
                f"pass {step.name} has no such option",
                found=key,
                allowed=list(known) or "no options",
            )
        options[key] = _convert(step.name, key, value, str(known[key]))
    return cast(Pass, kind(**options))


def _convert(name: str, key: str, value: str, kind: str) -> int | str:
    if kind != "int":
        return value
    try:
        return int(value)
    except ValueError:
        raise RlxError(
            "pipeline.option",
            f"option {key} of pass {name} is a number",
            found=repr(value),
            allowed="an integer",
        ) from None


def run_passes(
    module: Module,
    pipeline: str,
    *,
    check: bool | None = None,
    log: list[Applied] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Module:
    """Run ``pipeline`` over ``module``, which stays as it is.

    ``check`` verifies before the first and after every pass (default: the environment variable
    ``RLX_CHECK`` is ``1``); ``log`` collects what each pass did; ``progress`` is told each pass's
    name before it runs. Raises what the passes raise.
    """
    checked = os.environ.get("RLX_CHECK") == "1" if check is None else check
    steps = parse_pipeline(pipeline)
    if checked:
        _verify(module, "the given module")
    for step in steps:
        if progress is not None:
            progress(step.name)
        module = make_pass(step).run(module, log)
        if checked:
            _verify(module, f"the module after pass {step}")
    return module


def _verify(module: Module, what: str) -> None:
    from rlx_edge.ir.verifier import verify

    try:
        verify(module)
    except RlxError as error:
        raise RlxError(
            "pass.invalid",
            f"{what} is not valid: {error.what}",
            found=error.found,
            allowed=error.allowed,
            where=error.where,
            hint=error.hint,
            excerpt=error.excerpt,
        ) from error
