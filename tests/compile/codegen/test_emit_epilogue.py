"""Epilogues on vectors of chains give the bits of the same expression on elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from rlx_edge.compile.codegen.wasm.emit_epilogue import epilogue, is_vector_epilogue
from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import ModuleBuilder
from rlx_edge.ir.dims import as_dim, symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import (
    Expr,
    acc,
    binary,
    bitcast,
    cast,
    const,
    index,
    load,
    reduce,
    replace_acc,
    replace_loads,
    select,
    unary,
)
from rlx_edge.ir.kernel import Loop, LoopKernel
from rlx_edge.ir.types import F32, F64
from rlx_edge.ir.types import I32 as INT32
from tests.kernel_host import KernelHost
from tests.kernel_oracle import evaluate_kernel, same_bits

ACC = acc()


def extra(position: int) -> Expr:
    return load(position, F32, ())


def clip(x: Expr, low: float, high: float) -> Expr:
    return binary("min", binary("max", x, low), high)


EPILOGUES: dict[str, Expr] = {
    "bias_relu": select(ACC + extra(0) < 0.0, 0.0, ACC + extra(0)),
    "relu6": clip(ACC, 0.0, 6.0),
    "hard_swish": ACC * clip(ACC / 6.0 + 0.5, 0.0, 1.0),
    "residual": (ACC + extra(0)) * extra(1) - extra(0),
    "sigmoid": unary("sigmoid", ACC + extra(1)),
    "gelu": ACC * 0.5 * (unary("erf", ACC * 0.70710677) + 1.0),
    "softplus": unary("softplus", ACC),
    "integers": cast(binary("and", bitcast(ACC, INT32), const(0x7FFF00FF, INT32)), F32),
    "shift": bitcast(binary("shl", bitcast(ACC, INT32), const(1, INT32)), F32),
    "mask": select(binary("and", ACC < extra(0), extra(1) >= 0.0), ACC, -1.0),
    "minimum": binary("min", ACC, extra(0)),
    "bare": ACC,
}
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -3.5, 7.25, 88.0, -104.0)


def emitter(expression: Expr) -> Callable[[ModuleBuilder], int]:
    """A kernel that applies the epilogue to vectors: out, acc, extra 0, extra 1, count."""

    def emit(module: ModuleBuilder) -> int:
        body = module.function("kernel", [("args", I32), ("thread", I32)])
        at, kept = body.local(I32, "at"), body.local(V128, "kept")

        def push(word: int) -> None:
            body.local_get(0).i32_load(4 * word).local_get(at).i32_add().v128_load()

        body.loop("next")
        body.local_get(0).i32_load().local_get(at).i32_add()
        push(1)
        body.local_set(kept)
        epilogue(expression)(body, kept, [partial(push, 2), partial(push, 3)])
        body.v128_store().local_get(at).i32_const(16).i32_add().local_tee(at)
        body.local_get(0).i32_load(16).i32_lt_u().br_if("next").end()
        return body.index

    return emit


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue(name: str) -> None:
    expression = EPILOGUES[name]
    random = np.random.default_rng(5)
    count = 512
    operands = [random.standard_normal(count).astype(np.float32) * 4 for _ in range(3)]
    for operand in operands:
        operand[::5] = random.choice(np.array(SPECIAL, np.float32), len(operand[::5]))
    out = np.zeros(count, np.float32)
    (actual,) = KernelHost(emitter(expression)).run([out, *operands], [4 * count])
    at = symbol("_v0")
    moved = replace_loads(expression, lambda slot, _, dtype: load(slot + 2, dtype, [at]))
    value = replace_acc(moved, load(1, F32, [at]))
    kernel = LoopKernel((Loop("_v0", as_dim(count)),), (F32,) * 4, at, value)
    assert same_bits(actual, evaluate_kernel(kernel, [out, *operands]))


@pytest.mark.parametrize(
    "expression",
    [
        cast(cast(ACC, F64), F32),
        ACC + load(0, F32, ["_v0"]),
        ACC * cast(index(symbol("_v0")), F32),
        reduce("sum", ["_r0"], [3], ACC),
        cast(binary("div", bitcast(ACC, INT32), const(3, INT32)), F32),
    ],
    ids=["f64", "indexed load", "index", "reduction", "division"],
)
def test_without_vector_form(expression: Expr) -> None:
    assert not is_vector_epilogue(expression)
    with pytest.raises(RlxError) as caught:
        epilogue(expression)
    assert caught.value.code == "codegen.epilogue"
