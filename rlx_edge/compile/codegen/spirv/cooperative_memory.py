"""What kernels on cooperative matrices share: arrays in workgroup memory, and who is who."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.interface import Interface, Shared
from rlx_edge.compile.codegen.spirv.opcodes import BUILT_INS
from rlx_edge.compile.codegen.spirv.words import Words
from rlx_edge.compile.templates.cooperative import LANES, CooperativeTile


class WorkgroupArray:
    """``length`` vectors of four words, of type ``element``; kernels with as long ones share it."""

    def __init__(self, shared: Shared, element: int, length: int, name: str) -> None:
        module = shared.module
        self.vector = module.type("Vector", element, LANES)
        self._pointer = module.pointer("Workgroup", self.vector)
        key = f"{name} {length}"
        if key not in shared.variables:
            shared.variables[key] = module.variable("Workgroup", module.array(self.vector, length))
            module.name(shared.variables[key], f"{name}_{length}")
        self._array = shared.variables[key]

    def at(self, code: Code, place: int) -> int:
        """A pointer to one vector."""
        return code.op("AccessChain", self._pointer, self._array, place)


@dataclass(init=False, slots=True)
class Subgroups:
    """Where an invocation stands, in words.

    ``bringing`` is the part that it brings operands in for, and ``local`` its number there: by
    invocations, of which nothing says which subgroup they are in. ``number`` is that of its
    subgroup, ``part`` the part whose products that adds up, ``in_part`` its number there, ``row``
    and ``column`` the first of it in a tile, ``lane`` the invocation's number in it.
    """

    bringing: int
    local: int
    number: int
    part: int
    in_part: int
    row: int
    column: int
    lane: int

    def __init__(self, io: Interface, tile: CooperativeTile) -> None:
        matrices = io.shared.target.matrix_shape
        assert matrices is not None
        w = Words(io.root.code)
        self.bringing, self.local = w.c(0), io.input("LocalInvocationId")
        self.number, self.lane = (
            _scalar(io, name) for name in ("SubgroupId", "SubgroupLocalInvocationId")
        )
        self.part, self.in_part = w.c(0), self.number
        if tile.parts > 1:
            self.bringing, self.local = w.split(self.local, tile.part_subgroups * matrices.subgroup)
            self.part, self.in_part = w.split(self.number, tile.part_subgroups)
        down, across = w.split(self.in_part, tile.across)
        self.row, self.column = w.scaled(down, tile.sub_rows), w.scaled(across, tile.sub_columns)


def _scalar(io: Interface, name: str) -> int:
    """A built-in input of one word."""
    module = io.module
    word = module.int_type(32, False)
    variable = io.shared.variables.get(name)
    if variable is None:
        variable = io.shared.variables[name] = module.variable("Input", word)
        module.decorate(variable, "BuiltIn", BUILT_INS[name])
        module.name(variable, name)
    io.inputs.append(variable)
    return io.root.code.op("Load", word, variable)
