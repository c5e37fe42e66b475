"""The Vulkan target: what a device offers to compute shaders, and quirks of its driver."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from rlx_edge.compile.targets.target import Memory, Rates
from rlx_edge.compile.targets.wasm import STYLES
from rlx_edge.ir.errors import RlxError

UNIT = 16
"""Bytes a unit of the addresses in a parameter block."""
ELEMENTS = (1 << 31) - 1
"""Indices are 32-bit signed integers."""
ADDRESSING = ("pointer", "descriptor")


@dataclass(frozen=True, slots=True)
class Quirks:
    """What a driver needs done differently.

    ``extract_depth``: indices that one ``OpCompositeExtract`` may have; deeper ones are split with
    temporaries. ``invocations``: most invocations of a workgroup, below what the device reports.
    ``refine_roots``: f32 square roots are off by one unit and need a step with a fused residual.
    ``compare_words``: f32 denormals compare and widen as zeros, so their bits are compared.
    """

    extract_depth: int | None = None
    invocations: int | None = None
    refine_roots: bool = False
    compare_words: bool = False


NO_QUIRKS = Quirks()
QUALCOMM = 0x5143
NVIDIA = 0x10DE
QUIRKS: dict[str, Quirks] = {
    "adreno": Quirks(extract_depth=8, invocations=128),
    "turnip": Quirks(invocations=512),
    "nvidia": Quirks(refine_roots=True, compare_words=True),
}
"""Driver → quirks. Sampled images are no concern: kernels read buffers only."""
DRIVERS: dict[tuple[int, int], str] = {
    (QUALCOMM, 8): "adreno",  # VK_DRIVER_ID_QUALCOMM_PROPRIETARY
    (NVIDIA, 4): "nvidia",  # VK_DRIVER_ID_NVIDIA_PROPRIETARY
    (QUALCOMM, 18): "turnip",  # VK_DRIVER_ID_MESA_TURNIP
}
"""``(vendor id, driver id)`` → name in ``QUIRKS``."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """What subgroups of so many invocations multiply together: f16 matrices of ``rows`` × ``depth``
    and ``depth`` × ``columns``, with sums in f32."""

    rows: int
    columns: int
    depth: int
    subgroup: int

    @property
    def text(self) -> str:
        """Such as ``16x16x16@32``."""
        return f"{self.rows}x{self.columns}x{self.depth}@{self.subgroup}"


_MATRICES = re.compile(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)@([1-9]\d*)")


def parse_matrices(text: str) -> Matrices:
    """``Matrices`` of such a text; ``RlxError`` ``target.matrices``."""
    found = _MATRICES.fullmatch(text)
    if found is None:
        raise RlxError(
            "target.matrices",
            "not a shape of matrices and a size of subgroups",
            found=text,
            allowed="rows x columns x depth @ invocations, such as 16x16x16@32",
        )
    return Matrices(*map(int, found.groups()))


@dataclass(frozen=True, slots=True)
class VulkanTarget:
    """Features and limits of a device; the defaults are what lavapipe and desktop GPUs share.

    ``addressing``: ``pointer`` through buffer device addresses, or ``descriptor``, one storage
    buffer of at most ``range`` bytes. ``storage8``/``storage16``: buffers of narrow elements,
    else words are taken apart. ``int64``/``float64``: types of values. ``special_values``,
    ``round_even``: float controls that the device can promise for f32; ``denormals``: the widths
    for which it keeps them, ``""``, ``"32"`` or, where it cannot tell widths apart, ``"all"``.
    ``matrices``: the f16 matrices with f32 sums that its subgroups multiply (``Matrices.text``),
    rounded to nearest even, or nothing. ``driver`` is a name of ``QUIRKS`` or empty.
    """

    addressing: str = "pointer"
    storage8: bool = True
    storage16: bool = True
    int64: bool = True
    float64: bool = True
    denormals: str = ""
    special_values: bool = True
    round_even: bool = True
    invocations: int = 256
    shared: int = 32768
    range: int = 1 << 27
    matrices: str = ""
    driver: str = ""
    quirks: Quirks = field(init=False, default=NO_QUIRKS, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.addressing not in ADDRESSING:
            raise RlxError(
                "target.addressing",
                "unknown way to address memory",
                found=self.addressing,
                allowed=ADDRESSING,
            )
        if self.driver and self.driver not in QUIRKS:
            raise RlxError(
                "target.driver",
                "no quirks are known of this driver",
                found=self.driver,
                allowed=list(QUIRKS),
            )
        if self.addressing == "pointer" and not self.int64:
            raise RlxError(
                "target.addressing", "pointers need 64-bit integers", found="int64 = False"
            )
        if self.matrices:
            parse_matrices(self.matrices)
        object.__setattr__(self, "quirks", QUIRKS.get(self.driver, NO_QUIRKS))

    @staticmethod
    def driver_of(vendor: int, driver: int) -> str:
        """A driver's name in the table of quirks, ``""`` where it has none."""
        return DRIVERS.get((vendor, driver), "")

    def forced(self, driver: str) -> VulkanTarget:
        """The same device with the quirks of another driver; itself for a style of WebAssembly.

        ``RlxError`` ``target.driver`` for a name that the table does not have.
        """
        return self if driver in STYLES else replace(self, driver=driver)

    def takes(self, target: str) -> bool:
        """Whether code for the target of that name runs here: quirks make no difference."""
        return any(replace(self, driver=driver).name == target for driver in ("", *QUIRKS))

    @property
    def kind(self) -> str:
        return "vulkan"

    @property
    def memory(self) -> Memory:
        if self.addressing == "pointer":
            return Memory(1 << 32, UNIT, ELEMENTS)
        return Memory(min(self.range, ELEMENTS), UNIT, ELEMENTS)

    @property
    def rates(self) -> Rates:
        """A few per cent of a desktop GPU: whole models are one segment or a few."""
        return Rates(template=1000, loop=50)

    @property
    def most_invocations(self) -> int:
        """Most invocations of any workgroup, the driver's limit included."""
        limit = self.quirks.invocations
        return self.invocations if limit is None else min(self.invocations, limit)

    @property
    def matrix_shape(self) -> Matrices | None:
        """The matrices that kernels may multiply; narrow elements must need no atomic operations,
        whose scope the memory model of such modules would change."""
        if not (self.matrices and self.storage8 and self.storage16):
            return None
        return parse_matrices(self.matrices)

    @property
    def name(self) -> str:
        """The record's text, part of the kernels digest."""
        flags = [
            name
            for name in (
                *("storage8", "storage16", "int64", "float64"),
                *("special_values", "round_even"),
            )
            if getattr(self, name)
        ]
        if self.denormals:
            flags.append(f"denormals_{self.denormals}")
        limits = f"{self.invocations}-{self.shared}-{self.range}"
        matrices = f"-f16_{self.matrices}" if self.matrices else ""
        driver = f"-{self.driver}" if self.driver else ""
        return f"vulkan-{self.addressing}-{'+'.join(flags)}-{limits}{matrices}{driver}"
