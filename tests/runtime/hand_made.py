"""A program written by hand: three kernels in WebAssembly text, a plan of sixteen instructions.

``y = x * (2 * w) + k`` for ``x: f32[n, 4]``, ``w: f32[4]`` and the value ``k`` of an integer input.
Launch 0 (``prepare``) doubles the weights, 1 multiplies, 2 adds ``k``.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import wasmtime

from rlx_edge.ir.commands import Run
from rlx_edge.ir.core import Binding, Constant, Guard, Module
from rlx_edge.ir.digest import module_digest
from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.module_file import save_module
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.plan import PlanGuard, PlanProgram
from rlx_edge.ir.program import LaunchInfo, Port, Program, Upload
from rlx_edge.ir.program_text import dump_program
from rlx_edge.ir.types import F32, I64, tensor_type
from rlx_edge.ir.verifier import verify

WEIGHTS = np.array([0.5, 1.0, -2.0, 4.0], "<f4")
BLOCK = 1024
WEIGHTS_AT = 1152
PACKED_AT = 1168
RESIDENT = 1184
WIDTH = 4

TEXT = """
(module
  (memory (export "memory") 1 65536)
  (func $word (param $record i32) (param $index i32) (result i32)
    (i32.load (i32.add (local.get $record) (i32.mul (local.get $index) (i32.const 4)))))
  (func $double (param $r i32) (local $i i32)
    (loop $next
      (f32.store
        (i32.add (call $word (local.get $r) (i32.const 1)) (local.get $i))
        (f32.mul (f32.const 2)
          (f32.load (i32.add (call $word (local.get $r) (i32.const 2)) (local.get $i)))))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $i) (i32.const 16)))))
  (func $multiply (param $r i32) (local $i i32)
    (loop $next
      (f32.store
        (i32.add (call $word (local.get $r) (i32.const 1)) (local.get $i))
        (f32.mul
          (f32.load (i32.add (call $word (local.get $r) (i32.const 2)) (local.get $i)))
          (f32.load (i32.add (call $word (local.get $r) (i32.const 3))
                             (i32.and (local.get $i) (i32.const 15))))))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $i) (call $word (local.get $r) (i32.const 4))))))
  (func $add (param $r i32) (local $i i32)
    (loop $next
      (f32.store
        (i32.add (call $word (local.get $r) (i32.const 1)) (local.get $i))
        (f32.add
          (f32.load (i32.add (call $word (local.get $r) (i32.const 1)) (local.get $i)))
          (f32.convert_i32_s (call $word (local.get $r) (i32.const 3)))))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $i) (call $word (local.get $r) (i32.const 2))))))
  (table funcref (elem $double $multiply $add))
  (type $kernel (func (param i32)))
  (func (export "run") (param $block i32) (param $begin i32) (param $end i32) (param $thread i32)
    (local $record i32)
    (loop $next
      (local.set $record
        (i32.load (i32.add (local.get $block) (i32.mul (local.get $begin) (i32.const 4)))))
      (call_indirect (type $kernel) (local.get $record) (i32.load (local.get $record)))
      (local.set $begin (i32.add (local.get $begin) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $begin) (local.get $end))))))
"""
WASM = bytes(wasmtime.wat2wasm(TEXT))

# Records: double(out, in), multiply(out, x, w, bytes), add(out, bytes, k).
STARTS = (3, 6, 11)
WORDS = (
    *(BLOCK + 4 * start for start in STARTS),
    *(0, PACKED_AT, WEIGHTS_AT),
    *(1, 0, 0, PACKED_AT, 0),
    *(2, 0, 0, 0),
)
INSTRUCTIONS = (
    ("symbol", 0, 0),  # 0: n
    ("const", 16, 0),
    ("mul", 0, 1),  # 2: bytes of x and of y
    ("const", RESIDENT, 0),  # 3: x
    ("add", 3, 2),  # 4: y
    ("add", 4, 2),  # 5: k
    ("const", 16, 0),
    ("add", 5, 6),  # 7: peak
    ("symbol", 1, 0),  # 8: the value k
    ("const", WIDTH, 0),
    ("const", 1, 0),
    ("const", 1 << 28, 0),
)
PLAN = PlanProgram(
    symbols=("n", "k"),
    instructions=INSTRUCTIONS,
    guards=(PlanGuard(0, "<=", 11, "n <= 268435456"),),
    words=WORDS,
    writes=((7, 4), (8, 3), (10, 2), (12, 4), (13, 2), (14, 8)),
    block_address=BLOCK,
    peak=7,
    inputs=((3, (0, 9)), (5, (10,))),
    outputs=((4, (0, 9)),),
)
DIGEST = "sha256:" + hashlib.sha256(WEIGHTS.tobytes()).hexdigest()

PROGRAM = Program(
    ir_digest="sha256:" + "0" * 64,
    source_digest="sha256:" + "0" * 64,
    target="wasm32-simd128-cranelift",
    kernels_digest="sha256:" + hashlib.sha256(WASM).hexdigest(),
    code=WASM,
    plan=PLAN,
    inputs=(Port("x", tensor_type(F32, "n", WIDTH)), Port("k", tensor_type(I64, 1))),
    outputs=(Port("y", tensor_type(F32, "n", WIDTH)),),
    uploads=(Upload(DIGEST, WEIGHTS_AT, WEIGHTS.nbytes),),
    prepare=(Run(0, 1),),
    execute=(Run(1, 2), Run(2, 3)),
    launches=(
        LaunchInfo("rlxc::mul", "doubled", 0, "compile"),
        LaunchInfo("rlxc::mul", "product", 1, "execute"),
        LaunchInfo("rlxc::add", "y", 2, "execute"),
    ),
    bindings=(Binding("k", "k", 0),),
    guards=(Guard(as_dim("k"), "<", as_dim(100)),),
    resident=RESIDENT,
)


def constants(weights: np.ndarray = WEIGHTS) -> dict[str, Constant]:
    """The program's constants; other weights under the same digest are a mistake on purpose."""
    data = weights.astype("<f4").tobytes()
    type_ = tensor_type(F32, weights.size)
    return {DIGEST: Constant(DIGEST, type_, MemorySource(data), 0, len(data), "hand.bin")}


def with_wasm(text: str) -> Program:
    """The program with another module."""
    return replace(PROGRAM, code=bytes(wasmtime.wat2wasm(text)))


def expected(x: np.ndarray, k: int) -> np.ndarray:
    """What the program computes, in f32."""
    return (x * (np.float32(2) * WEIGHTS) + np.float32(k)).astype(np.float32)


def feeds(n: int, k: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "x": generator.standard_normal((n, WIDTH)).astype(np.float32),
        "k": np.array([k], np.int64),
    }


IR_TEXT = f"""rlx.module version = "1.0"

func @hand(%x: f32[n, 4], %k: i64[1]) -> (f32[n, 4]) {{
  bind k = %k[0]
  guard k < 100 {{ reason = "a small k" }}
  %w = tensor::const() {{ digest = "{DIGEST}", PLACED }} : f32[4]
  %doubled = rlxc::add(%w, %w) {{ phase = "compile", PLACED }} : f32[4]
  %product = rlxc::mul(%x, %doubled) {{ phase = "execute", PLACED }} : f32[n, 4]
  %offset = rlxc::cast(%k) {{ dtype = f32, phase = "execute", PLACED }} : f32[1]
  %y = rlxc::add(%product, %offset) {{ phase = "execute", PLACED }} : f32[n, 4]
  return %y
}}
""".replace("PLACED", 'target_device_set = ["wasm:0"], sync_mode = "none"')


def module() -> Module:
    """The placed IR that the program stands for."""
    found = parse_module(IR_TEXT, "hand.rlx")
    found.constants = constants()
    verify(found)
    return found


def program() -> Program:
    """The program bound to ``module()``."""
    digest = module_digest(module())
    return replace(PROGRAM, ir_digest=digest, source_digest=digest, guards=tuple(_GUARDS))


_GUARDS = [Guard(as_dim("k"), "<", as_dim(100), "a small k")]


def write_files(folder: Path) -> tuple[Path, Path]:
    """``hand.rlx`` with its weights beside it, and ``hand.program``."""
    text, compiled = folder / "hand.rlx", folder / "hand.program"
    save_module(module(), text)
    compiled.write_text(dump_program(program()))
    return text, compiled
