"""The limit that kernels are measured against: a loop over vector registers only.

It touches no memory, so it shows what the engine and the machine can do per second with 128-bit
vectors. `fused` uses relaxed multiply-add, two operations in one instruction; the other form is
the multiplication and the addition that the fixed numerics contract asks for.
"""

from __future__ import annotations

from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import ModuleBuilder
from rlx_edge.compile.codegen.wasm.sections import Limits

CHAINS = 12
UNROLL = 4
LANES = 4


def build(fused: bool, iterations: int) -> tuple[bytes, int]:
    """A module with `run()` and an exported memory; and the operations of one call.

    The chains are summed into memory at the end, so that no engine may drop them.
    """
    module = ModuleBuilder("reference_loop")
    module.export_memory("memory", module.memory(Limits(1)))
    body = module.function("run", [], [])
    factor, addend = body.local(V128, "factor"), body.local(V128, "addend")
    chains = body.local_array(V128, "chain", CHAINS)
    count = body.local(I32, "count")
    body.f32_const(0.999).f32x4_splat().local_set(factor)
    body.f32_const(1e-6).f32x4_splat().local_set(addend)
    for chain in chains:
        body.f32_const(1.0).f32x4_splat().local_set(chain)
    body.i32_const(iterations).local_set(count)
    body.loop("again")
    for _ in range(UNROLL):
        for chain in chains:
            body.local_get(chain).local_get(factor)
            if fused:
                body.local_get(addend).f32x4_relaxed_madd()
            else:
                body.f32x4_mul().local_get(addend).f32x4_add()
            body.local_set(chain)
    body.local_get(count).i32_const(1).i32_sub().local_tee(count).br_if("again")
    body.end()
    body.i32_const(0).local_get(chains[0])
    for chain in chains[1:]:
        body.local_get(chain).f32x4_add()
    body.v128_store()
    module.export_function("run", body.index)
    return module.encode(), iterations * UNROLL * CHAINS * LANES * 2
