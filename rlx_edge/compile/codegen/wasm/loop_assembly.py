"""Loops around finished bodies: entry values, bounds, increments, branches."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.codegen.wasm.emit_address import counter, index_local, push_index
from rlx_edge.compile.codegen.wasm.emit_region import Emission, Family, Induction, Region

Stage = tuple[Region, int]
"""A loop body and how many steps of the variable one iteration takes."""


def control(em: Emission, family: Family) -> Induction:
    """The induction that a family's loops test: one with a constant step, else the counter."""
    for induction in family.inductions.values():
        if induction.step.is_constant and induction.step.value != 0:
            return induction
    counter(em, family)
    return next(reversed(family.inductions.values()))


def prepare(em: Emission, family: Family, stages: Sequence[Stage]) -> None:
    """Compute the steps of all loops in front of them: inside their blocks it would be too late."""
    for induction in family.inductions.values():
        for _, steps in stages:
            if not induction.step.is_constant:
                index_local(em, induction.step * steps, family.parent)


def enter(family: Family) -> None:
    """Give every induction its entry value, in the region around the loops."""
    body = family.parent.body
    for induction in family.inductions.values():
        if induction.start is None:
            body.i32_const(0)
        else:
            body.local_get(induction.start)
        body.local_set(induction.local)


def bound(
    em: Emission,
    family: Family,
    test: Induction,
    count: int,
    multiple: int,
    relative: bool = False,
) -> int:
    """The value of ``test`` after the local ``count``, rounded down to a multiple, more steps.

    Counted from where ``test`` stands now if ``relative``, else from the loops' entry.
    """
    body = family.parent.body
    offset = test.start is not None or relative
    if offset:
        body.local_get(test.local)
    body.local_get(count)
    if multiple > 1:
        body.i32_const(-multiple).i32_and()
    step = test.step.value
    if step > 0 and step & (step - 1) == 0:
        if step > 1:
            body.i32_const(step.bit_length() - 1).i32_shl()
    else:
        body.i32_const(step).i32_mul()
    if offset:
        body.i32_add()
    end = em.counter()
    body.local_set(end)
    return end


def run(em: Emission, family: Family, test: Induction, end: int, stage: Stage) -> None:
    """One loop that ends when ``test`` reaches ``end``; at least one iteration."""
    region, steps = stage
    moves = [item for item in family.inductions.values() if item is not test]
    body = family.parent.body.loop("next").raw(bytes(region.body.code))
    for induction in moves:
        body.local_get(induction.local)
        push_index(em, induction.step * steps, family.parent)
        body.i32_add().local_set(induction.local)
    body.local_get(test.local).i32_const(test.step.value * steps).i32_add().local_tee(test.local)
    body.local_get(end).i32_ne().br_if("next").end()


def run_guarded(em: Emission, family: Family, test: Induction, end: int, stage: Stage) -> None:
    """As ``run``, possibly without any iteration."""
    body = family.parent.body
    body.local_get(test.local).local_get(end).i32_ne().if_()
    run(em, family, test, end, stage)
    body.end()


def close(
    em: Emission, family: Family, stages: Sequence[Stage], count: int, nonempty: bool
) -> None:
    """Append the loops of a family, widest stage first, to the region around them.

    ``count`` is a local with the extent (not negative; at least 1 if ``nonempty``).
    """
    test = control(em, family)
    prepare(em, family, stages)
    enter(family)
    ends = [bound(em, family, test, count, steps) for _, steps in stages]
    for stage, end in zip(stages, ends, strict=True):
        if nonempty and len(stages) == 1:
            run(em, family, test, end, stage)
        else:
            run_guarded(em, family, test, end, stage)
