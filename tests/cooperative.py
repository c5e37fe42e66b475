"""Cooperative matrices laid open: a module in which every invocation has whole matrices.

Each cooperative type becomes an array, each matrix a variable that every invocation has for itself,
and each operation a function with loops over elements. What invocations of a subgroup do together
they then do each, with the same result. Subgroups are neighbouring invocations, whatever the
device's are, and wait for the whole workgroup where they wait for each other. Everything else of
the module stays as it is: a device without matrix units runs the kernels' own indices, stages,
barriers and epilogues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_edge.compile.codegen.spirv.assembler import (
    Code,
    Instruction,
    Module,
    decode,
    encode,
    string_words,
)
from rlx_edge.compile.codegen.spirv.memory_model import NON_PRIVATE
from rlx_edge.compile.codegen.spirv.opcodes import BUILT_INS, BY_NUMBER, ENUMS, OPCODES
from rlx_edge.compile.codegen.spirv.region import StructuredLoop
from rlx_edge.compile.codegen.spirv.words import WORKGROUP_SCOPE, Words

# Instructions that the project's own modules do not have.
FUNCTION, PARAMETER, END, CALL = 54, 55, 56, 57
UNPACK_HALVES = 62
LOCAL_INDEX = 29
GONE = ENUMS["Capability"]["CooperativeMatrixKHR"], b"SPV_KHR_cooperative_matrix"


def laid_open(code: bytes, subgroup: int) -> bytes:
    """A module without cooperative matrices that computes the same; its subgroups have so many
    invocations."""
    return _Opened(code, subgroup).code()


def _name(item: Instruction) -> str:
    return BY_NUMBER[item[0]].name


class _Opened:
    """Rewrites one module. Every matrix is a variable of the storage class ``Private``; sums are
    loaded, added to and stored at once, as the emitter writes it."""

    def __init__(self, code: bytes, subgroup: int) -> None:
        self.items, bound = decode(code)
        self.subgroup = subgroup
        self.built_in = {
            item[3]: item[1]
            for item in self.items
            if _name(item) == "Decorate" and item[2] == ENUMS["Decoration"]["BuiltIn"]
        }
        self.module = module = Module(bound)
        self.kinds: dict[int, tuple[int, int, int]] = {}
        """Cooperative type → component type, rows, columns."""
        self.types: dict[int, int] = {}
        self.definitions: dict[int, Instruction] = {}
        self.variables: dict[int, int] = {}
        """Matrix, or variable of one → the variable that stands for it."""
        self.made: dict[tuple[object, ...], int] = {}
        self.has_set = any(_name(item) == "ExtInstImport" for item in self.items)
        for item in self.items:
            name, result = _name(item), _result(item)
            self.definitions[result] = item
            if BY_NUMBER[item[0]].typed:
                self.types[result] = item[1]
            if name == "TypeCooperativeMatrixKHR":
                rows, columns = (self.definitions[at][3] for at in item[4:6])
                self.kinds[result] = (item[2], rows, columns)
            elif name == "ExtInstImport":
                module.imports["GLSL.std.450"] = result
            elif name.startswith("Type"):
                module._known[("type", name.removeprefix("Type"), item[2:])] = result
            elif name == "Constant":
                module._known[("constant", item[1], item[3:])] = result

    def code(self) -> bytes:
        head: list[Instruction] = []
        functions: list[Instruction] = []
        for item in self.items:
            name = _name(item)
            if name == "TypeCooperativeMatrixKHR":
                _, rows, columns = self.kinds[item[1]]
                length = self.module.integer(rows * columns, signed=False)
                kind = OPCODES["TypeArray"].number
                head.append((kind, item[1], self.module.float_type(), length))
            elif functions or name == "Function":
                functions += self._opened(item)
            elif not self._is_gone(item):
                head.append(self._by_invocation(item))
        if not self.has_set:
            place = next(at for at, item in enumerate(head) if _name(item) == "MemoryModel")
            number = OPCODES["ExtInstImport"].number
            head[place:place] = [
                (number, result, *string_words(name))
                for name, result in self.module.imports.items()
            ]
        every = [*_in_order([*head, *self.module.globals]), *functions, *self.module.functions]
        return encode(every, self.module.bound)

    def _is_gone(self, item: Instruction) -> bool:
        words = b"".join(word.to_bytes(4, "little") for word in item[1:])
        return (
            (_name(item) == "Capability" and item[1] == GONE[0])
            or (_name(item) == "Extension" and words.rstrip(b"\0") == GONE[1])
            or (_name(item) == "ConstantComposite" and item[1] in self.kinds)
            or (_name(item) == "TypePointer" and item[3] in self.kinds)
            or (_name(item) in ("Name", "Decorate") and item[1] == self.lane)
            or (_name(item) == "Variable" and item[2] == self.lane)
        )

    @property
    def lane(self) -> int | None:
        return self.built_in.get(BUILT_INS["SubgroupLocalInvocationId"])

    @property
    def number(self) -> int | None:
        return self.built_in.get(BUILT_INS["SubgroupId"])

    def _by_invocation(self, item: Instruction) -> Instruction:
        """The number of a subgroup becomes that of an invocation."""
        if _name(item) == "Decorate" and item[1] == self.number:
            return (*item[:3], LOCAL_INDEX)
        if _name(item) == "EntryPoint":
            return tuple(word for word in item if word != self.lane)
        return item

    def _opened(self, item: Instruction) -> Sequence[Instruction]:
        name, kind = _name(item), (*item, 0)[1]
        if name == "Load" and item[3] in (self.number, self.lane):
            step = OPCODES["UDiv" if item[3] == self.number else "UMod"].number
            index, size = self.module.id(), self.module.integer(self.subgroup, signed=False)
            assert self.number is not None
            return ((item[0], kind, index, self.number), (step, kind, item[2], index, size))
        if name == "ControlBarrier":
            scope = self.module.integer(WORKGROUP_SCOPE, signed=False)
            return ((item[0], scope, scope, item[3]),)
        if name == "CooperativeMatrixLoadKHR":
            _, _, result, pointer, layout, stride, operand = item
            assert operand == NON_PRIVATE
            array, place = self.definitions[pointer][3:]
            how = kind, array, bool(self.definitions[layout][3])
            make = self._function(("load", how), lambda: self._load(*how))
            return self._call(make, self._variable(result, kind), place, stride)
        if name == "CooperativeMatrixStoreKHR":
            _, pointer, value, layout, stride, operand = item
            assert operand == NON_PRIVATE
            array, place = self.definitions[pointer][3:]
            how = self.types[value], array, bool(self.definitions[layout][3])
            make = self._function(("store", how), lambda: self._store(*how))
            return self._call(make, self.variables[value], place, stride)
        if name == "CooperativeMatrixMulAddKHR":
            _, _, result, a, b, c = item
            kinds = kind, self.types[a], self.types[b]
            assert self.types[c] == kind
            self.variables[result] = self.variables[c]
            make = self._function(("multiply", kinds), lambda: self._multiply(*kinds))
            return self._call(make, *(self.variables[matrix] for matrix in (c, a, b)))
        if name == "Variable" and self.definitions[kind][3] in self.kinds:
            self._variable(item[2], self.definitions[kind][3])
            return ()
        if name == "Load" and kind in self.kinds:
            self.variables[item[2]] = self.variables[item[3]]
            return ()
        if name == "Store" and self.types.get(item[2]) in self.kinds:
            kind = self.types[item[2]]
            if item[2] in self.variables:
                assert self.variables[item[2]] == self.variables[item[1]], "added in place"
                return ()
            value = self.definitions[item[2]][3]
            make = self._function(("fill", kind), lambda: self._fill(kind))
            return self._call(make, self.variables[item[1]], value)
        return (item,)

    def _variable(self, result: int, kind: int) -> int:
        self.variables[result] = self.module.variable("Private", kind)
        return self.variables[result]

    def _function(self, key: tuple[object, ...], make: Callable[[], int]) -> int:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def _call(self, function: int, *arguments: int) -> Sequence[Instruction]:
        return ((CALL, self.module.void_type(), self.module.id(), function, *arguments),)

    # ---- functions ---------------------------------------------------------------------------

    def _load(self, kind: int, array: int, by_columns: bool) -> int:
        component, rows, columns = self.kinds[kind]
        word, _ = self._words()
        body = _Body(self.module, [self._held(kind), word, word])
        matrix, place, stride = body.parameters
        loop = _count(body.code, rows * columns)
        at = Words(loop.body).split(loop.carried[0], columns)
        value = self._read(
            loop.body, component, array, place, stride, at[::-1] if by_columns else at
        )
        loop.body.do("Store", self._element(loop.body, matrix, loop.carried[0]), value)
        _next(loop, rows * columns)
        return body.end()

    def _read(
        self, code: Code, component: int, array: int, place: int, stride: int, at: tuple[int, int]
    ) -> int:
        """An element in workgroup memory as f32; memory may hold two halves a word."""
        word, real = self._words()
        if self._held_as(array) != word or component == real:
            pointer = self._shared(code, array, place, stride, at)
            value = code.op("Load", component, pointer, NON_PRIVATE)
            return value if component == real else code.op("FConvert", real, value)
        w = Words(code)
        pair, odd = w.split(at[1], 2)
        both = code.op(
            "Load", word, self._shared(code, array, place, stride, (at[0], pair)), NON_PRIVATE
        )
        low = code.op("ShiftRightLogical", word, both, w.scaled(odd, 16))
        vector = self.module.vector_type(2)
        found = code.op("ExtInst", vector, self.module.import_set(), UNPACK_HALVES, low)
        return code.op("CompositeExtract", real, found, 0)

    def _store(self, kind: int, array: int, by_columns: bool) -> int:
        component, rows, columns = self.kinds[kind]
        word, real = self._words()
        assert component == real == self._held_as(array)
        body = _Body(self.module, [self._held(kind), word, word])
        matrix, place, stride = body.parameters
        loop = _count(body.code, rows * columns)
        value = loop.body.op("Load", real, self._element(loop.body, matrix, loop.carried[0]))
        at = Words(loop.body).split(loop.carried[0], columns)
        pointer = self._shared(loop.body, array, place, stride, at[::-1] if by_columns else at)
        loop.body.do("Store", pointer, value, NON_PRIVATE)
        _next(loop, rows * columns)
        return body.end()

    def _fill(self, kind: int) -> int:
        _, rows, columns = self.kinds[kind]
        _, real = self._words()
        body = _Body(self.module, [self._held(kind), real])
        matrix, value = body.parameters
        loop = _count(body.code, rows * columns)
        loop.body.do("Store", self._element(loop.body, matrix, loop.carried[0]), value)
        _next(loop, rows * columns)
        return body.end()

    def _multiply(self, sums: int, left: int, right: int) -> int:
        (_, rows, depth), (_, again, columns) = self.kinds[left], self.kinds[right]
        assert depth == again and self.kinds[sums][1:] == (rows, columns)
        _, real = self._words()
        body = _Body(self.module, [self._held(kind) for kind in (sums, left, right)])
        total, a, b = body.parameters
        outer = _count(body.code, rows * columns)
        row, column = Words(outer.body).split(outer.carried[0], columns)
        place = self._element(outer.body, total, outer.carried[0])
        inner = _count(outer.body, depth, [(real, outer.body.op("Load", real, place))])
        w, (k, before) = Words(inner.body), inner.carried
        factors = [
            inner.body.op("Load", real, self._element(inner.body, matrix, at))
            for matrix, at in (
                (a, w.add(w.scaled(row, depth), k)),
                (b, w.add(w.scaled(k, columns), column)),
            )
        ]
        after = inner.body.op("FAdd", real, before, inner.body.op("FMul", real, *factors))
        _next(inner, depth, [after])
        outer.body.do("Store", place, inner.carried[1])
        _next(outer, rows * columns)
        return body.end()

    def _words(self) -> tuple[int, int]:
        return self.module.int_type(32, False), self.module.float_type()

    def _held(self, kind: int) -> int:
        """The type of a pointer to a matrix."""
        return self.module.pointer("Private", kind)

    def _element(self, code: Code, matrix: int, place: int) -> int:
        pointer = self.module.pointer("Private", self.module.float_type())
        return code.op("AccessChain", pointer, matrix, place)

    def _held_as(self, array: int) -> int:
        """The type of the components that workgroup memory is made of."""
        kind = self.definitions[self.definitions[self.types[array]][3]][2]
        vector = self.definitions[kind]
        return vector[2] if _name(vector) == "TypeVector" else kind

    def _shared(self, code: Code, array: int, place: int, stride: int, at: tuple[int, int]) -> int:
        """Pointer to component ``at`` (line, place in it) of what begins at element ``place`` of
        workgroup memory."""
        element = self.definitions[self.definitions[self.definitions[self.types[array]][3]][2]]
        lanes = element[3] if _name(element) == "TypeVector" else 1
        w, (line, number) = Words(code), at
        vector, lane = w.split(number, lanes)
        spot = w.add(place, w.mul(line, stride), vector)
        pointer = self.module.pointer("Workgroup", self._held_as(array))
        return code.op("AccessChain", pointer, array, spot, *((lane,) if lanes > 1 else ()))


class _Body:
    """A function with parameters and without a result."""

    def __init__(self, module: Module, parameters: Sequence[int]) -> None:
        self.module, self.kinds = module, parameters
        self.parameters = [module.id() for _ in parameters]
        self.code = module.code()
        self.first = self.code.label

    def end(self) -> int:
        """The function's id."""
        module, void = self.module, self.module.void_type()
        kind, found = module.type("Function", void, *self.kinds), module.id()
        pairs = zip(self.kinds, self.parameters, strict=True)
        module.functions += [
            (FUNCTION, void, found, 0, kind),
            *((PARAMETER, type_, parameter) for type_, parameter in pairs),
            (OPCODES["Label"].number, self.first),
            *self.code.instructions,
            (OPCODES["Return"].number,),
            (END,),
        ]
        return found


def _count(code: Code, count: int, carried: Sequence[tuple[int, int]] = ()) -> StructuredLoop:
    word = code.module.int_type(32, False)
    return StructuredLoop(code, [(word, Words(code).c(0)), *carried])


def _next(loop: StructuredLoop, count: int, carried: Sequence[int] = ()) -> None:
    w = Words(loop.check)
    following = Words(loop.body).plus(loop.carried[0], 1)
    loop.close(w.below(loop.carried[0], w.c(count)), [following, *carried])


def _result(item: Instruction) -> int:
    """The id that an instruction defines, 0 where it has none."""
    opcode = BY_NUMBER[item[0]]
    return item[1 + opcode.typed] if opcode.result else 0


def _in_order(items: Sequence[Instruction]) -> list[Instruction]:
    """Types, constants and variables behind what they are made of."""
    made = {_result(item): item for item in items if _result(item)}
    found: list[Instruction] = []
    done: set[int] = set()

    def add(item: Instruction) -> None:
        result, opcode = _result(item), BY_NUMBER[item[0]]
        if result in done:
            return
        words = item[1 + opcode.typed + opcode.result :]
        kinds = opcode.operands
        needed = [item[1]] if opcode.typed else []
        for number, word in enumerate(words):
            if kinds[min(number, len(kinds) - 1)].startswith("id"):
                needed.append(word)
        for word in needed if result else ():
            if word in made:
                add(made[word])
        if result:
            done.add(result)
        found.append(item)

    for item in items:
        add(item)
    return found
