"""Argument forms that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from rlx_edge.compile.targets.vulkan import QUIRKS
from rlx_edge.ir.attributes import FIXED, PRECISIONS
from rlx_edge.ir.errors import InputError

INPUT_HELP = (
    "an input: NAME=FILE.npy, NAME=FILE.npz, NAME=random, NAME=random:2x3x48x320 or "
    "NAME=value:V,V,...; FILE.npz alone gives every array in it; repeatable"
)


def add_model_run(parser: argparse.ArgumentParser) -> None:
    """What every command that runs something takes."""
    parser.add_argument("--input", action="append", default=[], metavar="SPEC", help=INPUT_HELP)
    parser.add_argument("--output", metavar="OUT.npz", help="where the outputs are written")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="for random inputs")
    parser.add_argument(
        "--repeat", type=positive, default=1, metavar="N", help="timed runs, one by default"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON report")


def add_vulkan_driver(parser: argparse.ArgumentParser) -> None:
    """The option that takes a driver's quirks for the Vulkan device's."""
    parser.add_argument(
        "--vulkan-driver",
        choices=tuple(QUIRKS),
        metavar="NAME",
        help=f"Vulkan code with the quirks of this driver ({', '.join(QUIRKS)})",
    )


def add_precision(parser: argparse.ArgumentParser) -> None:
    """The option that lets contractions round operands or reorder sums."""
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=FIXED,
        help="what matrix products and convolutions may do; fixed, the default, gives the same "
        "bits on every device",
    )


def style_of(options: argparse.Namespace, style: str = "cranelift") -> str:
    """What kernels are tuned for: the forced Vulkan driver, else an engine's style.

    ``InputError`` ``cli.driver`` for a driver with another kind of device.
    """
    if options.vulkan_driver is None:
        return style
    if not options.device.startswith("vulkan:"):
        raise InputError(
            "cli.driver",
            "--vulkan-driver is for Vulkan devices",
            found=options.device,
            allowed="--device vulkan:N",
        )
    return str(options.vulkan_driver)


def check_fixed(options: argparse.Namespace, what: str) -> None:
    """For ``what`` nothing is compiled to a device's code here: words about that are refused.

    ``InputError`` ``cli.precision``, or ``cli.driver`` for a Vulkan driver.
    """
    style_of(options)
    if options.precision != FIXED:
        raise InputError(
            "cli.precision",
            f"{what} has no other precision",
            found=options.precision,
            allowed=FIXED,
        )


def add_import(parser: argparse.ArgumentParser) -> None:
    """What every command that imports takes."""
    parser.add_argument(
        "--value",
        action="append",
        default=[],
        metavar="NAME=V[,V...]",
        help="the content of an integer input that the model branches on; repeatable",
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1x3x48x320",
        help="sizes of an input; repeatable",
    )


def natural(text: str) -> int:
    """An integer of at least 0, for argparse."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def parse_values(specs: list[str]) -> dict[str, tuple[int, ...]]:
    """``NAME=V`` and ``NAME=V,V,…``: integers that an input will hold."""
    values: dict[str, tuple[int, ...]] = {}
    for spec in specs:
        name, _, text = spec.partition("=")
        _check_once(name, values, "cli.value")
        try:
            values[name] = tuple(int(part) for part in text.split(","))
        except ValueError:
            raise InputError(
                "cli.value", "not a value", found=repr(spec), allowed="NAME=INTEGER[,INTEGER...]"
            ) from None
        if not name:
            raise InputError(
                "cli.value", "a value without a name", found=repr(spec), allowed="NAME=INTEGER"
            )
    return values


def parse_shape(text: str, spec: str) -> tuple[int, ...]:
    """``1x3x48x320``; ``InputError`` ``cli.shape`` names the whole argument."""
    try:
        shape = tuple(int(part) for part in text.split("x"))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise InputError(
            "cli.shape", "not a shape", found=repr(spec), allowed="sizes like 1x3x48x320"
        )
    return shape


def parse_shapes(specs: list[str]) -> dict[str, tuple[int, ...]]:
    """``NAME=1x3x48x320`` by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for spec in specs:
        name, equals, text = spec.rpartition("=")
        if not equals or not name:
            raise InputError(
                "cli.shape", "not a shape", found=repr(spec), allowed="NAME=1x3x48x320"
            )
        _check_once(name, shapes, "cli.shape")
        shapes[name] = parse_shape(text, spec)
    return shapes


def _check_once(name: str, given: Mapping[str, object], code: str) -> None:
    """``rlx compile`` makes variants of several; elsewhere only one of them could count."""
    if name in given:
        raise InputError(code, f"the input '{name}' is given twice", allowed="once")
