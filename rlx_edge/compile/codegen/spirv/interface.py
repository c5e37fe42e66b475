"""What a kernel is given: its words, and memory at the addresses that they hold.

A record's words, a slot's address in units of 16 bytes each and then the parameters, are push
constants where they fit; longer records stay in the parameter block, and the only push constant
is the place of the record's first such word in memory, counted in words of four bytes. Memory is
one range of bytes: reached through its device address, which the push constants begin with, or as
one storage buffer (set 0, binding 0), declared once for each element type.

Elements narrower than 32 bits are loads and stores of their own width where the device has them;
otherwise words are taken apart, and two atomic operations put a narrow element into its word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlx_edge.compile.codegen.spirv.assembler import Code, Module
from rlx_edge.compile.codegen.spirv.opcodes import BUILT_INS
from rlx_edge.compile.codegen.spirv.region import Region
from rlx_edge.compile.codegen.spirv.scalar_table import SIGNED, Scalars, check_type
from rlx_edge.compile.targets.vulkan import UNIT, VulkanTarget
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.kernel import PUSHED_WORDS
from rlx_edge.ir.types import BOOL, F64, I64, U32, U64, DType

ALIGNED = 2
"""Memory operand: an alignment follows."""
DEVICE_SCOPE = 1
RELAXED = 0


@dataclass(eq=False, slots=True)
class Shared:
    """What the kernels of one module have in common."""

    module: Module
    target: VulkanTarget
    variables: dict[str, int] = field(default_factory=dict)

    @property
    def by_pointer(self) -> bool:
        return self.target.addressing == "pointer"

    @property
    def header(self) -> int:
        """Members of the push constants before the words."""
        return 1 if self.by_pointer else 0

    def pushed(self) -> int:
        """The push constants: the memory's address where kernels need it, then the words."""
        found = self.variables.get("push")
        if found is None:
            module = self.module
            words = module.strided(module.int_type(32, False), 4, PUSHED_WORDS)
            members = [(words, 0)]
            if self.by_pointer:
                members = [(module.int_type(64, False), 0), (words, 8)]
            block = module.block(members, "push")
            found = self.variables["push"] = module.variable("PushConstant", block)
            module.name(found, "push")
        return found

    def built_in(self, name: str) -> int:
        """An input of three words."""
        found = self.variables.get(name)
        if found is None:
            vector = self.module.type("Vector", self.module.int_type(32, False), 3)
            found = self.variables[name] = self.module.variable("Input", vector)
            self.module.decorate(found, "BuiltIn", BUILT_INS[name])
            self.module.name(found, name)
        return found

    def memory(self, element: int, nbytes: int, name: str) -> int:
        """The storage buffer as elements of one type."""
        found = self.variables.get(f"memory {name}")
        if found is None:
            module = self.module
            block = module.block([(module.strided(element, nbytes), 0)], "memory")
            found = self.variables[f"memory {name}"] = module.variable("StorageBuffer", block)
            module.decorate(found, "DescriptorSet", 0)
            module.decorate(found, "Binding", 0)
            module.decorate(found, "Aliased")
            module.name(found, f"memory_{name}")
        return found


@dataclass(eq=False, slots=True)
class Interface:
    """One kernel's words and slots. ``root`` is the region that the kernel begins with."""

    shared: Shared
    root: Region
    buffers: Sequence[DType]
    words: int
    inputs: list[int] = field(default_factory=list)
    """Built-in variables that the kernel reads."""

    @property
    def module(self) -> Module:
        return self.shared.module

    def input(self, name: str) -> int:
        """The first component of a built-in input."""
        key = f"input {name}"
        found = self.root.known.get(key)
        if found is None:
            module, code = self.module, self.root.code
            variable = self.shared.built_in(name)
            if variable not in self.inputs:
                self.inputs.append(variable)
            word = module.int_type(32, False)
            pointer = code.op(
                "AccessChain", module.pointer("Input", word), variable,
                module.integer(0, signed=False),
            )  # fmt: skip
            found = self.root.known[key] = code.op("Load", word, pointer)
        return found

    # ---- words -------------------------------------------------------------------------------

    def word(self, position: int) -> int:
        """Word ``position`` of the record."""
        key = ("word", position)
        found = self.root.known.get(key)
        if found is None:
            if self.words <= PUSHED_WORDS:
                found = self._pushed_word(position)
            else:
                found = self._stored_word(position)
            self.root.known[key] = found
        return found

    def parameter(self, position: int) -> int:
        """Parameter ``position``."""
        return self.word(len(self.buffers) + position)

    def _pushed_word(self, position: int) -> int:
        module, code = self.module, self.root.code
        word = module.int_type(32, False)
        places = [module.integer(at, signed=False) for at in (self.shared.header, position)]
        pointer = module.pointer("PushConstant", word)
        return code.op("Load", word, code.op("AccessChain", pointer, self.shared.pushed(), *places))

    def _stored_word(self, position: int) -> int:
        key = "record"
        record = self.root.known.get(key)
        if record is None:
            first = self._pushed_word(0)
            if self.shared.by_pointer:
                first = self._pointer(self._byte_offset(first, 4), U32)
            record = self.root.known[key] = first
        code, module = self.root.code, self.module
        at = module.integer(position, signed=False)
        if self.shared.by_pointer:
            return self._load(code, self._element_of(code, record, at, U32), U32)
        word = code.op("IAdd", module.int_type(32, False), record, at)
        return self._load(code, self._element_in(code, word, U32), U32)

    # ---- memory ------------------------------------------------------------------------------

    def load(self, code: Code, slot: int, index: int) -> int:
        """The value of element ``index`` of a slot."""
        dtype = self.buffers[slot]
        check_type(dtype)
        scalars = Scalars(code)
        if dtype.bytes >= 4:
            return self._load(code, self._element(code, slot, index, dtype), dtype)
        if self._has_narrow(dtype):
            raw = self._load(code, self._element(code, slot, index, dtype), dtype)
            value = scalars.op("SConvert" if dtype in SIGNED else "UConvert", U32, raw)
        else:
            value = self._narrow_from_word(scalars, slot, index, dtype)
        if dtype is BOOL:
            return scalars.test("INotEqual", value, scalars.const(0, U32))
        return value

    def store(self, code: Code, slot: int, index: int, value: int) -> None:
        """Set element ``index`` of a slot."""
        dtype = self.buffers[slot]
        check_type(dtype)
        scalars = Scalars(code)
        if dtype is BOOL:
            value = scalars.select(U32, value, scalars.const(1, U32), scalars.const(0, U32))
        if dtype.bytes >= 4:
            self._store(code, self._element(code, slot, index, dtype), value, dtype)
        elif self._has_narrow(dtype):
            kind = self.module.storage_int(8 * dtype.bytes, False)
            narrow = code.op("UConvert", kind, value)
            self._store(code, self._element(code, slot, index, dtype), narrow, dtype)
        else:
            self._narrow_into_word(scalars, slot, index, value, dtype)

    def load_vector(self, code: Code, slot: int, quad: int) -> int:
        """Elements ``4 * quad`` … of an f32 slot as a vector; it must begin at 16 bytes."""
        pointer = self._vector(code, slot, quad)
        alignment = (ALIGNED, 16) if self.shared.by_pointer else ()
        return code.op("Load", self.module.vector_type(4), pointer, *alignment)

    def load_four(self, code: Code, slot: int, quad: int) -> list[int]:
        """The four values of ``load_vector``."""
        vector = self.load_vector(code, slot, quad)
        real = self.module.float_type()
        return [code.op("CompositeExtract", real, vector, lane) for lane in range(4)]

    def store_vector(self, code: Code, slot: int, quad: int, value: int) -> None:
        """Set elements ``4 * quad`` … of an f32 slot."""
        alignment = (ALIGNED, 16) if self.shared.by_pointer else ()
        code.do("Store", self._vector(code, slot, quad), value, *alignment)

    def _vector(self, code: Code, slot: int, quad: int) -> int:
        module, vector = self.module, self.module.vector_type(4)
        zero = module.integer(0, signed=False)
        if self.shared.by_pointer:
            key = ("vectors", slot)
            base = self.root.known.get(key)
            if base is None:
                offset = self._byte_offset(self.word(slot), UNIT)
                base = self.root.known[key] = self._pointer_to(offset, vector, 16)
            kind = module.pointer("PhysicalStorageBuffer", vector)
            return code.op("AccessChain", kind, base, zero, quad)
        memory = self.shared.memory(vector, 16, "vec4")
        place = code.op("IAdd", module.int_type(32, False), self.word(slot), quad)
        return code.op("AccessChain", module.pointer("StorageBuffer", vector), memory, zero, place)

    def _has_narrow(self, dtype: DType) -> bool:
        target = self.shared.target
        return target.storage8 if dtype.bytes == 1 else target.storage16

    def _narrow_place(self, s: Scalars, slot: int, index: int, dtype: DType) -> tuple[int, int]:
        """Pointer to the word around an element, and how many bits it is shifted there."""
        per_word = 4 // dtype.bytes
        step = s.const(per_word.bit_length() - 1, U32)
        word = s.op("ShiftRightLogical", U32, index, step)
        inside = s.op("BitwiseAnd", U32, index, s.const(per_word - 1, U32))
        shift = s.op("IMul", U32, inside, s.const(8 * dtype.bytes, U32))
        return self._element(s.code, slot, word, U32), shift

    def _narrow_from_word(self, s: Scalars, slot: int, index: int, dtype: DType) -> int:
        pointer, shift = self._narrow_place(s, slot, index, dtype)
        word = s.op("ShiftRightLogical", U32, self._load(s.code, pointer, U32), shift)
        spare = s.const(32 - 8 * dtype.bytes, U32)
        name = "ShiftRightArithmetic" if dtype in SIGNED else "ShiftRightLogical"
        return s.op(name, U32, s.op("ShiftLeftLogical", U32, word, spare), spare)

    def _narrow_into_word(
        self, s: Scalars, slot: int, index: int, value: int, dtype: DType
    ) -> None:
        pointer, shift = self._narrow_place(s, slot, index, dtype)
        mask = s.const((1 << 8 * dtype.bytes) - 1, U32)
        placed_mask = s.op("ShiftLeftLogical", U32, mask, shift)
        placed = s.op("ShiftLeftLogical", U32, s.op("BitwiseAnd", U32, value, mask), shift)
        how = s.const(DEVICE_SCOPE, U32), s.const(RELAXED, U32)
        s.op("AtomicAnd", U32, pointer, *how, s.op("Not", U32, placed_mask))
        s.op("AtomicOr", U32, pointer, *how, placed)

    # ---- pointers ----------------------------------------------------------------------------

    def _storage_type(self, dtype: DType) -> int:
        if dtype.bytes < 4:
            return self.module.storage_int(8 * dtype.bytes, False)
        return Scalars(self.root.code).type(dtype)

    def _element(self, code: Code, slot: int, index: int, dtype: DType) -> int:
        """Pointer to element ``index`` of a slot, seen as elements of ``dtype``."""
        base = self._slot(slot, dtype)
        if self.shared.by_pointer:
            return self._element_of(code, base, index, dtype)
        place = code.op("IAdd", self.module.int_type(32, False), base, index)
        return self._element_in(code, place, dtype)

    def _slot(self, slot: int, dtype: DType) -> int:
        """A slot's base: a pointer to its block, or the number of its first element."""
        key = ("slot", slot, _view(dtype))
        found = self.root.known.get(key)
        if found is None:
            word = self.word(slot)
            if self.shared.by_pointer:
                found = self._pointer(self._byte_offset(word, UNIT), dtype)
            else:
                scalars = Scalars(self.root.code)
                factor = scalars.const(UNIT // dtype.bytes, U32)
                found = scalars.op("IMul", U32, word, factor)
            self.root.known[key] = found
        return found

    def _byte_offset(self, word: int, unit: int) -> int:
        """``unit * word`` in 64 bits."""
        s = Scalars(self.root.code)
        return s.op("IMul", U64, s.op("UConvert", U64, word), s.const(unit, U64))

    def _pointer(self, offset: int, dtype: DType) -> int:
        """Pointer to a block of elements ``offset`` bytes into memory."""
        return self._pointer_to(offset, self._storage_type(dtype), dtype.bytes)

    def _pointer_to(self, offset: int, element: int, nbytes: int) -> int:
        module, code = self.module, self.root.code
        module.capability("PhysicalStorageBufferAddresses")
        module.addressing = "PhysicalStorageBuffer64"
        wide = module.int_type(64, False)
        base = self.root.known.get("base")
        if base is None:
            place = module.integer(0, signed=False)
            pointer = module.pointer("PushConstant", wide)
            base = code.op(
                "Load", wide, code.op("AccessChain", pointer, self.shared.pushed(), place)
            )
            self.root.known["base"] = base
        block = module.block([(module.strided(element, nbytes), 0)], "pointed")
        kind = module.pointer("PhysicalStorageBuffer", block)
        return code.op("ConvertUToPtr", kind, code.op("IAdd", wide, base, offset))

    def _element_of(self, code: Code, block: int, index: int, dtype: DType) -> int:
        module = self.module
        kind = module.pointer("PhysicalStorageBuffer", self._storage_type(dtype))
        return code.op("AccessChain", kind, block, module.integer(0, signed=False), index)

    def _element_in(self, code: Code, place: int, dtype: DType) -> int:
        module, element = self.module, self._storage_type(dtype)
        memory = self.shared.memory(element, dtype.bytes, _view(dtype))
        kind = module.pointer("StorageBuffer", element)
        return code.op("AccessChain", kind, memory, module.integer(0, signed=False), place)

    def _load(self, code: Code, pointer: int, dtype: DType) -> int:
        alignment = (ALIGNED, dtype.bytes) if self.shared.by_pointer else ()
        return code.op("Load", self._storage_type(dtype), pointer, *alignment)

    def _store(self, code: Code, pointer: int, value: int, dtype: DType) -> None:
        alignment = (ALIGNED, dtype.bytes) if self.shared.by_pointer else ()
        code.do("Store", pointer, value, *alignment)


def _view(dtype: DType) -> str:
    """The name of what an element is in memory: signs are no part of it."""
    if dtype.is_float:
        return dtype.name
    return {1: "u8", 2: "u16", 4: "u32", 8: "u64"}[dtype.bytes]


def check_device(target: VulkanTarget, buffers: Sequence[DType], where: str) -> None:
    """``RlxError`` code ``target.type``: an element type that the device does not compute with."""
    for dtype in buffers:
        check_type(dtype)
        lacking = (dtype in (I64, U64) and not target.int64) or (
            dtype is F64 and not target.float64
        )
        if lacking:
            raise RlxError(
                "target.type",
                "the device cannot compute with this element type",
                found=f"{dtype}",
                where=where,
            )
