"""Encoder: bytes against wabt's reading of them, behaviour under wasmtime, dumps as golden text."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.compile.codegen.wasm import opcodes
from rlx_edge.compile.codegen.wasm.dump import dump
from rlx_edge.compile.codegen.wasm.encoder import (
    EXTERNREF,
    F32,
    FUNCREF,
    I32,
    I64,
    V128,
    Body,
    i32_expression,
    signed_leb,
)
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.codegen.wasm.opcodes import INSTRUCTIONS, Instruction, unsigned_leb
from rlx_edge.compile.codegen.wasm.sections import (
    MAGIC,
    CodeSection,
    CustomSection,
    ElementSection,
    FunctionSection,
    Limits,
    StartSection,
    TypeSection,
    encode_module,
)
from rlx_edge.ir.errors import RlxError
from tests.kernel_host import validate

ENABLED = ("--enable-threads", "--enable-relaxed-simd")


def wabt(program: str, *arguments: str, wasm: bytes, folder: Path) -> str:
    found = shutil.which(program)
    assert found is not None, f"{program} (package wabt) is needed"
    path = folder / "module.wasm"
    path.write_bytes(wasm)
    done = subprocess.run([found, *arguments, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(wasm: bytes) -> None:
    with pytest.raises(AssertionError):
        validate(wasm)


# ---- the instruction table ---------------------------------------------------------------------

OPERANDS: dict[str, tuple[object, ...]] = {
    "br_table": ([0, 0], 0),
    "br": (0,),
    "br_if": (0,),
    "i32.const": (1,),
    "i64.const": (1,),
    "f32.const": (1.0,),
    "f64.const": (1.0,),
    "v128.const": (bytes(range(16)),),
    "i8x16.shuffle": (list(range(16)),),
    "ref.null": (FUNCREF,),
    "select_typed": ([I32],),
    "call_indirect": (0, 0),
}
COUNTS = {
    opcodes.LANE: 1,
    opcodes.LOCAL: 1,
    opcodes.GLOBAL: 1,
    opcodes.FUNCTION: 1,
    opcodes.TABLE: 0,
    opcodes.DATA: 1,
    opcodes.ELEMENT: 1,
}
STRUCTURE = ("block", "loop", "if", "else", "end")


def emit_each(body: Body, row: Instruction) -> None:
    operands = OPERANDS.get(row.name)
    if operands is None:
        operands = (0,) * sum(COUNTS.get(kind, 0) for kind in row.immediates)
    getattr(body, row.method)(*operands)


def test_wabt_reads_every_instruction_by_its_name(tmp_path: Path) -> None:
    rows = [row for row in INSTRUCTIONS.values() if row.name not in STRUCTURE]
    module = ModuleBuilder()
    module.memory(Limits(1, 1, shared=True))
    module.table(Limits(1))
    module.global_i32(0)
    body = module.function("all", [("a", I32)])
    for row in rows:
        emit_each(body, row)
    module.elements(0, [0])
    module.passive_data(b"x")
    text = wabt("wasm-objdump", "-d", wasm=module.encode(), folder=tmp_path)
    listed = re.findall(r"^ [0-9a-f]+: [0-9a-f ]+\| +([a-z0-9_.]+)", text, re.MULTILINE)
    # wabt 1.0.34 still prints the proposal's first names of the two relaxed dot products.
    expected = [row.name.removesuffix("_typed").replace("relaxed_dot", "dot") for row in rows]
    listed = [name.replace("relaxed_dot", "dot") for name in listed]
    assert [name for name in listed if not name.startswith("local[")] == [*expected, "end"]


def test_the_table_is_complete_and_unambiguous() -> None:
    assert len({row.opcode for row in INSTRUCTIONS.values()}) == len(INSTRUCTIONS)
    assert len({row.method for row in INSTRUCTIONS.values()}) == len(INSTRUCTIONS)
    prefixes = [row.opcode[0] for row in INSTRUCTIONS.values()]
    # 236 fixed-width instructions and 20 relaxed ones; 67 atomics; bulk memory and saturation.
    assert prefixes.count(opcodes.PREFIX_VECTOR) == 236 + 20
    assert prefixes.count(opcodes.PREFIX_ATOMIC) == 67
    assert prefixes.count(opcodes.PREFIX_BULK) == 18
    for row in INSTRUCTIONS.values():
        assert callable(getattr(Body, row.method))


# ---- integers ----------------------------------------------------------------------------------


def read_leb(data: bytes, signed: bool) -> int:
    value = 0
    for position, byte in enumerate(data):
        assert (byte >= 0x80) == (position < len(data) - 1)
        value |= (byte & 0x7F) << 7 * position
    if signed and data[-1] & 0x40:
        value -= 1 << 7 * len(data)
    return value


@given(st.integers(0, 2**64 - 1))
def test_unsigned_integers(value: int) -> None:
    data = unsigned_leb(value)
    assert read_leb(data, signed=False) == value
    assert len(data) == max(1, -(-value.bit_length() // 7))


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_integers(value: int) -> None:
    data = signed_leb(value)
    assert read_leb(data, signed=True) == value
    assert len(data) == (value.bit_length() + 7 if value >= 0 else (~value).bit_length() + 7) // 7


def test_negative_unsigned_integer_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        unsigned_leb(-1)


# ---- behaviour ---------------------------------------------------------------------------------


def instantiate(module: ModuleBuilder, *imports: Callable[[int], None]) -> Callable[..., object]:
    wasm = module.encode()
    validate(wasm)
    store = wasmtime.Store()
    types = wasmtime.FuncType([wasmtime.ValType.i32()], [])
    functions = [wasmtime.Func(store, types, function) for function in imports]
    instance = wasmtime.Instance(store, wasmtime.Module(store.engine, wasm), functions)
    run = instance.exports(store)["run"]
    assert isinstance(run, wasmtime.Func)
    return lambda *arguments: run(store, *arguments)


def exported(module: ModuleBuilder, results: tuple[int, ...] = (I32,)) -> FunctionBuilder:
    body = module.function("run", [("n", I32)], results)
    module.export_function("run", body.index)
    return body


@given(st.integers(0, 100))
def test_loops_branch_to_labels(n: int) -> None:
    module = ModuleBuilder()
    body = exported(module)
    total = body.local(I32, "total")
    body.block("done").loop("again").local_get(0).i32_eqz().br_if("done")
    body.local_get(total).local_get(0).i32_add().local_set(total)
    body.local_get(0).i32_const(1).i32_sub().local_set(0).br("again").end().end()
    body.local_get(total)
    assert instantiate(module)(n) == n * (n + 1) // 2


def test_same_label_means_the_innermost_block() -> None:
    body = Body()
    body.block("a").block("b").loop("a")
    assert (body.depth("a"), body.depth("b"), body.depth(7)) == (0, 1, 7)
    body.end()
    assert body.depth("a") == 1
    with pytest.raises(ValueError, match="no open block is labelled 'c'"):
        body.br("c")


def test_arms_and_block_results() -> None:
    module = ModuleBuilder()
    body = exported(module)
    body.local_get(0).i32_const(10).i32_lt_s().if_(result=I32).i32_const(-1).else_()
    body.block("value", I32).i32_const(5).local_get(0).br_if("value").drop().i32_const(6).end()
    body.end()
    run = instantiate(module)
    assert [run(n) for n in (3, 12)] == [-1, 5]


def test_tables_imports_globals_and_data() -> None:
    module = ModuleBuilder("parts")
    seen: list[int] = []
    report = module.import_function("host", "report", [I32])
    module.memory(Limits(1, 2))
    module.table(Limits(3, 3))
    counter = module.global_i32(7)
    double = module.function("double", [("x", I32)], [I32])
    double.local_get(0).i32_const(2).i32_mul()
    square = module.function("square", [("x", I32)], [I32])
    square.local_get(0).local_get(0).i32_mul()
    start = module.function("start")
    start.i32_const(100).global_set(counter)
    module.start(start.index)
    module.elements(1, [double.index, square.index])
    module.data(16, (3).to_bytes(4, "little"))
    body = exported(module)
    body.global_get(counter).call(report)
    body.i32_const(0).i32_load(16).local_get(0)
    body.call_indirect(module.type([I32], [I32])).i32_const(20).i32_const(9).i32_const(4)
    body.memory_fill().i32_const(24).i32_const(20).i32_const(4).memory_copy()
    body.i32_const(0).i32_load(24).i32_const(0x09090909).i32_eq().i32_add()
    run = instantiate(module, seen.append)
    assert [run(n) for n in (1, 2)] == [6 + 1, 9 + 1]
    assert seen == [100, 100]


def test_vectors_lanes_and_constants() -> None:
    module = ModuleBuilder()
    module.memory(Limits(1))
    module.passive_data(bytes([1, 2, 3, 4]))
    body = exported(module)
    value = body.local(V128, "value")
    body.f32x4_const((1.0, 2.0, 3.0, 4.0)).f32_const(0.5).f32x4_splat().f32x4_mul()
    body.local_tee(value).local_get(value).i32x4_shuffle((3, 2, 5, 4)).local_set(value)
    body.local_get(0).local_get(value).v128_store32_lane(0, 4)
    body.local_get(0).f32_load(4).i32_reinterpret_f32()
    body.i32x4_const((-1, 0, 1, 0x7FFFFFFF)).i32x4_extract_lane(0).i32_add()
    body.i32_const(0).i32_const(0).i32_const(4).memory_init(0).data_drop(0)
    body.i32_const(0).i32_load(0, 0).i32_const(0x04030201).i32_eq().i32_add()
    # The bits of f32 2.0, minus one, plus one.
    assert instantiate(module)(64) == 0x40000000


def test_constants_take_unsigned_values_and_bits() -> None:
    module = ModuleBuilder()
    body = exported(module)
    body.i32_const(0xFFFFFFFF).f32_const_bits(0x7FC01234).i32_reinterpret_f32().i32_xor()
    body.i64_const(0xFFFFFFFFFFFFFFFF).i64_const(-1).i64_eq().i32_add()
    assert instantiate(module)(0) == -1 - 0x7FC01234 + 1


# ---- locals, indices, sections -----------------------------------------------------------------


def test_released_locals_are_reused_by_unnamed_ones_of_their_type() -> None:
    body = ModuleBuilder().function("f", [("p", I32)])
    first, vector = body.local(I32), body.local(V128)
    body.release(first, vector)
    assert body.local(F32) == 3
    assert body.local(I32, "named") == 4
    assert body.local(V128) == vector
    assert body.local(I32) == first
    assert body.parameter("p") == 0
    assert body.declared_types == [I32, V128, F32, I32]
    with pytest.raises(ValueError, match="named"):
        body.parameter("named")


def test_locals_are_declared_in_runs() -> None:
    section = CodeSection().function([I32, I32, V128, I32], b"")
    assert section.entries == [bytes([8, 3, 2, I32, 1, V128, 1, I32, 0x0B])]


def test_equal_types_are_one() -> None:
    module = ModuleBuilder()
    assert module.type([I32]) == module.type([I32]) == 0
    assert module.type([I32], [I32]) == 1


def test_once_emits_the_first_time_only() -> None:
    module = ModuleBuilder()
    indices = [module.once("key", lambda: module.function("f")) for _ in range(2)]
    assert indices == [0, 0]
    assert module.function("g").index == 1


def test_imports_come_before_definitions() -> None:
    module = ModuleBuilder()
    module.function("f")
    module.memory(Limits(1))
    module.table(Limits(1))
    with pytest.raises(ValueError, match="after the first defined function"):
        module.import_function("host", "late", [])
    with pytest.raises(ValueError, match="after the first definition"):
        module.import_memory("host", "memory", Limits(1))
    with pytest.raises(ValueError, match="after the first definition"):
        module.import_table("host", "table", Limits(1))


def test_imported_memory_and_table_shift_the_index_spaces() -> None:
    module = ModuleBuilder()
    assert module.import_memory("host", "memory", Limits(1, 4, shared=True)) == 0
    assert module.import_table("host", "table", Limits(1)) == 0
    assert module.table(Limits(2)) == 1
    assert module.import_function("host", "f", []) == 0
    assert module.function("g").index == 1
    module.export_memory("memory")
    module.export_table("table", 1)
    validate(module.encode())


def test_open_block_is_refused() -> None:
    module = ModuleBuilder()
    module.function("f").block()
    with pytest.raises(ValueError, match="function f has 1 blocks without end"):
        module.encode()


def test_wrong_number_of_indices_is_refused() -> None:
    with pytest.raises(TypeError, match="call_indirect takes indices"):
        Body().call_indirect()
    with pytest.raises(TypeError, match=r"memory\.fill takes indices"):
        Body().memory_fill(0, 0)


def test_invalid_modules_can_be_built() -> None:
    module = ModuleBuilder()
    module.function("f", [], [I32]).f32_const(1.0)
    refused(module.encode())
    types, functions = TypeSection().function([], []), FunctionSection().function(0)
    code = CodeSection().function([], b"")
    validate(encode_module([types, functions, code]))
    refused(encode_module([functions, types, code]))
    refused(encode_module([types, functions, CodeSection().function([], b"\xff")]))
    Body().end().br(9)


def test_names_are_for_debugging_only(tmp_path: Path) -> None:
    module = ModuleBuilder("named module")
    body = module.function("some.function", [("first", I32)])
    body.local(I64, "counter")
    text = wabt("wasm-objdump", "-x", "-j", "name", wasm=module.encode(), folder=tmp_path)
    for name in ("named module", "some.function", "first", "counter"):
        assert f"<{name}>" in text
    bare = module.encode(debug_names=False)
    validate(bare)
    assert b"counter" not in bare


def sample() -> bytes:
    """A module with every kind of section and the main kinds of immediates."""
    module = ModuleBuilder("sample")
    report = module.import_function("host", "report", [I32])
    module.memory(Limits(1, 2))
    module.table(Limits(2, 2))
    counter = module.global_i32(-5)
    body = module.function("step", [("n", I32)], [I32])
    value = body.local(V128, "value")
    body.block("done").loop("again").local_get(0).call(report)
    body.local_get(0).br_table(["again", "done"], "done").end().end()
    body.local_get(0).v128_load32_splat(16).local_tee(value).local_get(value)
    body.i32x4_shuffle((0, 1, 6, 7)).local_get(value).i8x16_shuffle(range(1, 17)).f32x4_const(
        (1, -0.0, 0.5, 2)
    )
    body.f32x4_mul().local_set(value).local_get(0).local_get(value).v128_store(32, 4)
    body.local_get(0).local_get(value).v128_store32_lane(3, 8)
    body.local_get(0).if_(result=I32).i32_const(1).else_().global_get(counter).end()
    body.f64_const(0.1).i64_trunc_sat_f64_s().i64_const(-9).i64_add().i32_wrap_i64().i32_add()
    body.i32_const(0).i32_const(0).i32_const(3).memory_init(1).ref_null(EXTERNREF).drop()
    body.local_get(0).local_get(0).select_typed([I32])
    body.i32_const(1).call_indirect(module.type([I32], [I32])).i32_const(0).f32_load().drop()
    module.export_function("step", body.index)
    module.start(module.function("start").index)
    module.elements(1, [body.index])
    module.data(64, b"abc")
    module.passive_data(b"0123456789abcdef")
    return module.encode()


def test_dump_of_every_section(golden: object) -> None:
    wasm = sample()
    validate(wasm)
    golden.check("wasm/sections.dump", dump(wasm))  # type: ignore[attr-defined]


def test_encoding_is_deterministic() -> None:
    assert sample() == sample()


def test_dump_names_the_byte_of_a_broken_binary() -> None:
    with pytest.raises(RlxError, match="not a WebAssembly binary"):
        dump(b"\x7fELF....")
    with pytest.raises(RlxError, match=r"byte 0x[0-9a-f]+: the binary ends early"):
        dump(MAGIC + b"\x01\x02\x01\x60")
    with pytest.raises(RlxError, match="an integer is too long"):
        dump(MAGIC + b"\x01" + b"\x80" * 11)
    with pytest.raises(RlxError, match="a section ends behind the binary"):
        dump(MAGIC + b"\x01\x04\x00")
    with pytest.raises(RlxError, match="the binary ends early"):
        dump(sample()[:-3])
    with pytest.raises(RlxError, match="unknown section"):
        dump(MAGIC + b"\x0f\x00")
    types, functions = TypeSection().function([], []), FunctionSection().function(0)
    with pytest.raises(RlxError, match="unknown opcode; found ff"):
        dump(encode_module([types, functions, CodeSection().function([], b"\xff")]))


def test_dump_of_sections_that_the_builder_does_not_make() -> None:
    sections = [
        StartSection(3),
        ElementSection().declarative([1]).active(i32_expression(2), [4]),
        CustomSection("producer", b"x"),
    ]
    text = dump(encode_module(sections))
    for part in ("start function 3", "declarative: 1", "at i32.const 2: 4", "custom 'producer'"):
        assert part in text


@given(data=st.data())
def test_dump_survives_changed_bytes(data: st.DataObject) -> None:
    wasm = bytearray(sample())
    for _ in range(data.draw(st.integers(1, 4))):
        wasm[data.draw(st.integers(8, len(wasm) - 1))] = data.draw(st.integers(0, 255))
    try:
        dump(bytes(wasm))
    except RlxError as error:
        assert error.code == "dump.binary"
