"""`python -m bench.summation`: the rounding error of contractions by how their sums are cut.

Products of normal matrices in float32, relative to float64: root mean square of the difference over
that of the result. `chain` is one sum in order, `chains of n` are sums of n products added in
order (the numerics contract has n = 128); the last column is numpy's own product.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]

DEPTHS = (120, 480, 1152, 4320)
LENGTHS = (32, 64, 128, 256)
SIDE = 64


def chained(a: Matrix, b: Matrix, length: int) -> Matrix:
    """`a @ b` as sums of `length` products, each step rounded twice."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for first in range(0, a.shape[1], length):
        chain = np.zeros_like(total)
        for k in range(first, min(first + length, a.shape[1])):
            chain = chain + a[:, k : k + 1] * b[k]
        total = chain if first == 0 else total + chain
    return total


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{'k':>5} {'chain':>9}", *(f"{f'by {n}':>9}" for n in LENGTHS), f"{'numpy':>9}")
    for depth in DEPTHS:
        a = rng.standard_normal((SIDE, depth), dtype=np.float32)
        b = rng.standard_normal((depth, SIDE), dtype=np.float32)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        scale = np.sqrt(np.mean(exact**2))
        results = [chained(a, b, depth), *(chained(a, b, length) for length in LENGTHS), a @ b]
        errors = [np.sqrt(np.mean((result - exact) ** 2)) / scale for result in results]
        print(f"{depth:5}", *(f"{error:9.2e}" for error in errors))


if __name__ == "__main__":
    main()
