"""A fused operation that no processor can hold: more live values than a thread has registers."""

from __future__ import annotations

from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.types import F64, tensor_type

LINKS = 150
"""Roots that are all alive when the first product is made: 300 registers of 255."""
REGION = 2 * LINKS
"""What ``fuse.MAX_REGION`` has to be for one kernel to take all of it in."""


def oversized(links: int = LINKS) -> Module:
    """``x ** (1/2) * x ** (1/4) * …``, the products in the opposite order of the roots."""
    x = Value("x", tensor_type(F64, "n"))
    function = Function("oversized", [x], [], [])
    builder = Builder(function)
    roots = [builder.op("rlxc::sqrt", [x], {}, hint="root")]
    while len(roots) < links:
        roots.append(builder.op("rlxc::sqrt", [roots[-1]], {}, hint="root"))
    product = roots.pop()
    while roots:
        product = builder.op("rlxc::mul", [product, roots.pop()], {}, hint="product")
    function.returns = [product]
    return Module("oversized", function)
