"""``--input``: from the words on the command line to arrays."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.cli.arguments import parse_shape
from rlx_edge.ir.errors import InputError
from rlx_edge.ir.program import Port
from rlx_edge.ir.types import BOOL
from rlx_edge.runtime.arrays import numpy_dtype

Array = npt.NDArray[Any]
FORMS = "NAME=FILE.npy, NAME=FILE.npz, NAME=random[:SHAPE], NAME=value:V,V,... or FILE.npz"


@dataclass(frozen=True, slots=True)
class Random:
    """Values from a seeded generator; ``shape`` is ``None`` where the declared one serves."""

    name: str
    shape: tuple[int, ...] | None
    spec: str


@dataclass(frozen=True, slots=True)
class Literal:
    """Values written on the command line."""

    name: str
    text: str
    spec: str


@dataclass(frozen=True, slots=True)
class InputSpecs:
    """Arrays that were read, and what can only be made once the model's inputs are known."""

    arrays: Mapping[str, Array]
    later: tuple[Random | Literal, ...]


def read_specs(specs: Sequence[str]) -> InputSpecs:
    """Parse all specs and read all files, before any long work.

    ``InputError``: ``cli.input`` for another form or a name given twice, ``cli.file`` for a file
    that cannot be read, ``cli.npz`` for an archive without the array.
    """
    arrays: dict[str, Array] = {}
    later: list[Random | Literal] = []
    names: list[str] = []
    for spec in specs:
        name, equals, text = spec.partition("=")
        if not equals:
            archive = read_archive(spec)
            arrays.update(archive)
            names += archive
        else:
            names.append(name)
            if text == "random" or text.startswith("random:"):
                shape = parse_shape(text.removeprefix("random:"), spec) if ":" in text else None
                later.append(Random(name, shape, spec))
            elif text.startswith("value:"):
                later.append(Literal(name, text.removeprefix("value:"), spec))
            elif name and _may_be_file(text):
                arrays[name] = read_array(Path(text), name)
            else:
                raise InputError("cli.input", "not an input", found=repr(spec), allowed=FORMS)
    for position, name in enumerate(names):
        if name in names[:position]:
            raise InputError("cli.input", f"the input '{name}' is given twice", allowed="once")
    return InputSpecs(arrays, tuple(later))


def complete(specs: InputSpecs, inputs: Sequence[Port], seed: int) -> dict[str, Array]:
    """Feeds for a model with these inputs. Names that it does not have are left to its check."""
    ports = {port.name: port for port in inputs}
    feeds = dict(specs.arrays)
    sizes = _known_sizes(feeds, ports)
    for item in specs.later:
        port = ports.get(item.name)
        if port is None:
            raise InputError(
                "input.name", "no such input", found=repr(item.name), allowed=list(ports) or "none"
            )
        if isinstance(item, Literal):
            feeds[item.name] = _literal(item, port)
        else:
            shape = item.shape or _declared_shape(item, port, sizes)
            position = list(ports).index(item.name)
            feeds[item.name] = random_array(port, shape, seed, position)
    return feeds


def random_array(port: Port, shape: tuple[int, ...], seed: int, position: int) -> Array:
    """Normal floats; integers are 0 or 1, which indices, masks and counts all allow."""
    if prod(shape) * 8 >= 1 << 63:
        raise InputError(
            "cli.random", f"no memory holds the input '{port.name}'", found=list(shape)
        )
    generator = np.random.default_rng([seed, position])
    if port.type.dtype.is_float:
        return generator.standard_normal(shape).astype(numpy_dtype(port.type.dtype))
    return generator.integers(0, 2, shape).astype(numpy_dtype(port.type.dtype))


def read_array(path: Path, name: str) -> Array:
    """The array of an ``.npy`` file, or the one called ``name`` (else the only one) of an
    ``.npz``."""
    with _opened(path) as loaded:
        if isinstance(loaded, np.ndarray):
            return loaded
        if name not in loaded.files and len(loaded.files) != 1:
            raise InputError(
                "cli.npz",
                f"the archive has no array '{name}'",
                found=loaded.files or "an empty archive",
                where=str(path),
            )
        return np.asarray(loaded[name if name in loaded.files else loaded.files[0]])


def read_archive(spec: str) -> dict[str, Array]:
    """Every array of an ``.npz`` file by name."""
    path = Path(spec)
    if not _may_be_file(spec):
        raise InputError("cli.input", "not an input", found=repr(spec), allowed=FORMS)
    with _opened(path) as loaded:
        if isinstance(loaded, np.ndarray):
            raise InputError(
                "cli.input", "an .npy file needs the name of its input", found=spec, allowed=FORMS
            )
        return {name: np.asarray(loaded[name]) for name in loaded.files}


def _may_be_file(text: str) -> bool:
    """Whether it is there or is called as arrays are; else another form may have been meant."""
    return Path(text).suffix in (".npy", ".npz") or os.path.exists(text)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """What numpy finds in the file, to be read inside the block."""
    try:
        with path.open("rb") as file:
            yield np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise InputError("cli.file", "no such file", where=str(path)) from None
    except OSError as error:
        reason = error.strerror or "not a numpy file"
        raise InputError("cli.file", f"cannot read the file ({reason})", where=str(path)) from None
    except (ValueError, EOFError, zipfile.BadZipFile, NotImplementedError):
        raise _unreadable(path) from None


def _unreadable(path: Path) -> InputError:
    return InputError(
        "cli.file",
        "cannot read the file",
        found="something else, a damaged file, or Python objects",
        allowed="numpy arrays of numbers (.npy, .npz)",
        where=str(path),
    )


def _known_sizes(feeds: Mapping[str, Array], ports: Mapping[str, Port]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, array in feeds.items():
        port = ports.get(name)
        if port is not None and array.ndim == port.type.rank:
            for dim, size in zip(port.type.shape, array.shape, strict=True):
                if dim.symbols() == (str(dim),):
                    sizes.setdefault(str(dim), size)
    return sizes


def _declared_shape(item: Random, port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    unknown = sorted({n for dim in port.type.shape for n in dim.symbols() if n not in sizes})
    if unknown:
        raise InputError(
            "cli.random",
            f"the size {', '.join(unknown)} of input '{item.name}' is open",
            found=repr(item.spec),
            allowed=f"{item.name}=random:SHAPE for {port.type}",
        )
    return tuple(dim.evaluate(sizes) for dim in port.type.shape)


def _literal(item: Literal, port: Port) -> Array:
    dtype = port.type.dtype
    try:
        parse: type[int] | type[float] = float if dtype.is_float else int
        numbers = [parse(part) for part in item.text.split(",")]
        array = np.array(numbers, numpy_dtype(dtype))
    except (ValueError, OverflowError):
        raise InputError(
            "cli.value", "not values", found=repr(item.spec), allowed=f"{dtype} separated by commas"
        ) from None
    if dtype is BOOL and not set(numbers) <= {0, 1}:
        raise InputError("cli.value", "not values", found=repr(item.spec), allowed="0 and 1")
    if port.type.rank == 0 and array.size == 1:
        return array.reshape(())
    if port.type.is_static and array.size == port.type.size.value:
        return array.reshape(port.type.static_shape)
    return array
