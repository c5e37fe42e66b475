"""Loop kernels to compute shaders: invocations stride over the flattened loops, one store each,
or workgroups take rows with reductions that they compute together (``workgroups.spread``)."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.codegen.kernel_form import canonical, primitive
from rlx_edge.compile.codegen.spirv.emit_expression import Emission
from rlx_edge.compile.codegen.spirv.emit_index import emit_index
from rlx_edge.compile.codegen.spirv.emit_rows import emit_rows, row_teams
from rlx_edge.compile.codegen.spirv.interface import Interface, Shared, check_device
from rlx_edge.compile.codegen.spirv.region import Region, StructuredLoop
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars
from rlx_edge.compile.codegen.spirv.words import Words
from rlx_edge.compile.targets.vulkan import VulkanTarget
from rlx_edge.compile.workgroups import FLAT_THREADS, TEAM, spread
from rlx_edge.ir.expression import walk
from rlx_edge.ir.kernel import Loop, LoopKernel
from rlx_edge.ir.program import Entry
from rlx_edge.ir.types import U32


def emit_loop_kernel(shared: Shared, kernel: LoopKernel, name: str) -> Entry:
    """Add the entry point of a loop kernel.

    ``RlxError`` where a type or operator has no code or the device lacks it.
    """
    form, spreading = canonical(kernel), spread(kernel)
    module, workgroup = shared.module, flat_workgroup(shared.target)
    kinds = dict.fromkeys([*form.buffers, *(node.dtype for node in walk(form.value))])
    check_device(shared.target, [kind for kind in kinds if kind.name != "index"], name)
    root = Region(module.code())
    first = root.code.label
    words = len(form.buffers) + form.parameters
    io = Interface(shared, root, form.buffers, words)
    em = Emission(io)
    extents = [_extent(io, loop, root) for loop in form.loops]
    teams = row_teams(spreading, shared)
    if teams:
        workgroup = TEAM * teams
        together = [primitive(node) for node in spreading.shared]
        emit_rows(em, spreading, teams, primitive(spreading.kernel.value), together, extents)
    elif form.loops:
        total, step, start = _total(root, extents), _step(io, workgroup), io.input(_ID)
        s = Scalars(root.code)
        loop = StructuredLoop(root.code, [(s.type(U32), start)])
        inner = Region(loop.body, root, _positions(loop, form.loops, extents))
        _store(em, form, inner)
        condition = Scalars(loop.check).test("ULessThan", loop.carried[0], total)
        loop.close(condition, [Scalars(loop.body).op("IAdd", U32, loop.carried[0], step)])
    else:
        _store(em, form, root)
    root.code.do("Return")
    function = module.function(root.code, first)
    add_entry(shared, function, name, workgroup, io.inputs)
    return Entry(name, workgroup, words)


_ID = "GlobalInvocationId"


def flat_workgroup(target: VulkanTarget) -> int:
    """Invocations of a workgroup: what the plan counts on, or what the device takes."""
    return min(FLAT_THREADS, target.most_invocations)


def _extent(io: Interface, loop: Loop, root: Region) -> int:
    """A loop's extent, 0 where it is below."""
    value = emit_index(io, loop.extent, root)
    if loop.extent.is_constant:
        return value
    s = Scalars(root.code)
    zero = s.const(0, U32)
    return s.select(U32, s.test("SLessThan", value, zero), zero, value)


def _total(root: Region, extents: Sequence[int]) -> int:
    s = Scalars(root.code)
    total = extents[0]
    for extent in extents[1:]:
        total = s.op("IMul", U32, total, extent)
    return total


def _step(io: Interface, workgroup: int) -> int:
    """Invocations of the launch."""
    s = Scalars(io.root.code)
    return s.op("IMul", U32, io.input("NumWorkgroups"), s.const(workgroup, U32))


def _positions(
    loop: StructuredLoop, loops: Sequence[Loop], extents: Sequence[int]
) -> dict[str, int]:
    """Loop variables from the flattened position, the innermost fastest."""
    w, place = Words(loop.body), loop.carried[0]
    names: dict[str, int] = {}
    for position in range(len(loops) - 1, 0, -1):
        place, names[loops[position].var] = w.divided(place, extents[position])
    names[loops[0].var] = place
    return names


def _store(em: Emission, form: LoopKernel, region: Region) -> None:
    value = em.value(form.value, region)
    at = emit_index(em.io, form.offset, region)
    em.io.store(region.code, 0, at, value)


def add_entry(
    shared: Shared, function: int, name: str, workgroup: int, inputs: Sequence[int]
) -> None:
    """Declare an entry point with its workgroup and the float controls that the device has."""
    module, target = shared.module, shared.target
    module.name(function, name)
    module.entry_point(function, name, inputs)
    module.mode(function, "LocalSize", workgroup, 1, 1)
    widths = {"": (), "32": (32,), "all": (16, 32, 64)}[target.denormals]
    controls = {
        "DenormPreserve": widths,
        "SignedZeroInfNanPreserve": (32,) * target.special_values,
        "RoundingModeRTE": (32,) * target.round_even,
    }
    for control, present in controls.items():
        for width in present:
            module.capability(control)
            module.mode(function, control, width)
