"""Golden text of the hottest functions, so that a change of their code is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlx_edge.compile.codegen.wasm.dump import dump
from rlx_edge.compile.codegen.wasm.module import ModuleBuilder
from rlx_edge.compile.codegen.wasm.sections import Limits
from rlx_edge.compile.templates.contraction import emit_micro_kernel
from rlx_edge.compile.templates.depthwise_chains import emit_run_chains
from rlx_edge.compile.templates.offsets import QUADS, STRIDE
from rlx_edge.compile.templates.tiles import variants
from tests.conftest import Golden

CRANELIFT, V8 = variants("cranelift")[0], variants("v8")[0]
FUNCTIONS: dict[str, Callable[[ModuleBuilder], int]] = {
    "contract_cranelift": lambda module: emit_micro_kernel(module, CRANELIFT, 3, 3, STRIDE),
    "contract_v8": lambda module: emit_micro_kernel(module, V8, 4, 2, STRIDE),
    "contract_in_place": lambda module: emit_micro_kernel(module, variants("v8")[1], 4, 2, QUADS),
    "depthwise_runs": lambda module: emit_run_chains(module, 3, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_code_is_as_reviewed(name: str, golden: Golden) -> None:
    module = ModuleBuilder()
    module.memory(Limits(1))
    FUNCTIONS[name](module)
    golden.check(f"wasm/{name}.dump", dump(module.encode()))
