"""The transpose of a 4 x 4 tile that is held in four vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_edge.compile.codegen.wasm.encoder import Body

PAIRS = ((0, 4, 1, 5), (2, 6, 3, 7))
HALVES = ((0, 1, 4, 5), (2, 3, 6, 7))


def transpose_lanes(body: Body, rows: Sequence[int], temp: Callable[[], int]) -> list[int]:
    """Locals of the four columns of the locals ``rows``; ``temp`` gives fresh v128 locals."""

    def shuffled(a: int, b: int, lanes: tuple[int, int, int, int]) -> int:
        local = temp()
        body.local_get(a).local_get(b).i32x4_shuffle(lanes).local_set(local)
        return local

    pairs = [shuffled(rows[at], rows[at + 1], lanes) for at in (0, 2) for lanes in PAIRS]
    return [shuffled(pairs[at], pairs[at + 2], lanes) for at in (0, 1) for lanes in HALVES]
