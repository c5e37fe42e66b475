"""The reference interpreter: modules evaluated from the operators' own definitions.

Slow and exact: the bits are those that every compiled target must give. Placement attributes,
layouts and transfers between devices do not change values. Constant folding uses ``evaluate_op``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import GuardError, InputError, LimitError, RlxError
from rlx_edge.ir.evaluator import Source, evaluate
from rlx_edge.ir.expression import substitute
from rlx_edge.ir.opdef import Decomposition
from rlx_edge.ir.ops import definition_expression, lookup, root_name
from rlx_edge.ir.ops.communication import RECV, SEND
from rlx_edge.ir.ops.premises import premises
from rlx_edge.ir.scalar_functions import expand
from rlx_edge.ir.tensor import Tensor, store, zeros
from rlx_edge.ir.types import TensorType

ELEMENT_LIMIT = 1 << 27
"""Elements of one tensor; a larger one is refused."""


def interpret(module: Module, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Outputs of ``module`` by name for ``feeds`` by parameter name.

    ``InputError`` for wrong names, element types or shapes, ``GuardError`` when a guard of the
    module does not hold, ``LimitError`` for sizes that are out of an interpreter's reach.
    """
    function = module.function
    env = bind_symbols(function, feeds)
    check_guards(function, env)
    values: dict[Value, Tensor] = {param: feeds[param.name] for param in function.params}
    last_use = _last_uses(function)
    carried: dict[object, Tensor] = {}
    for position, op in enumerate(function.ops):
        operands = [values[operand] for operand in op.operands]
        if op.name == SEND:
            carried[op.attrs["edge"]] = operands[0]
        elif op.name == RECV:
            values[op.result] = carried.pop(op.attrs["edge"])
        elif op.name == "tensor::const":
            values[op.result] = _constant(module, op)
        else:
            values[op.result] = evaluate_op(op, operands, env)
        for operand in op.operands:
            if last_use[operand] == position:
                values.pop(operand, None)
    names = function.output_names or [value.name for value in function.returns]
    return {name: values[value] for name, value in zip(names, function.returns, strict=True)}


def evaluate_op(op: Op, operands: Sequence[Tensor], env: Mapping[str, int]) -> Tensor:
    """The result of one op; ``env`` gives the sizes that its types and attributes mention.

    ``GuardError`` when these sizes make it read outside an operand (``ops/premises.py``).
    """
    definition = lookup(op.name)
    _check_premises(op, env)
    shape = concrete_shape(op.result.type, env)
    if op.name == "tensor::alloc":
        return zeros(op.result.type.dtype, shape)
    if "view" in definition.traits and "epilogue" not in op.attrs:
        return Tensor(op.result.type.dtype, shape, operands[0].data)
    if isinstance(definition.define, Decomposition):
        return _evaluate_decomposition(op, definition.define, operands, env)
    _, expr = definition_expression(op)
    variables = [(f"_i{axis}", extent) for axis, extent in enumerate(shape)]
    sources: list[Source] = [(item.elements(), item.shape, item.dtype) for item in operands]
    elements = evaluate(substitute(expand(expr), dict(env)), variables, sources)
    return store(op.result.type.dtype, shape, elements)


def _check_premises(op: Op, env: Mapping[str, int]) -> None:
    types = [value.type for value in op.operands]
    guards = premises(root_name(op.name), types, op.attrs, op.result.type, frozenset(env))
    for guard in guards:
        try:
            holds = guard.holds(dict(env))
        except KeyError as missing:
            raise _unknown_symbol(guard, missing) from None
        if not holds:
            raise GuardError(
                "guard",
                f"{op}: these sizes break it: {guard} does not hold",
                found=f"{guard.left.evaluate(env)} and {guard.right.evaluate(env)}",
                hint=guard.reason,
            )


def _unknown_symbol(text: object, missing: KeyError) -> InputError:
    return InputError("input.symbol", f"{text} is unknown because no input gives {missing.args[0]}")


def concrete_shape(type: TensorType, env: Mapping[str, int]) -> tuple[int, ...]:
    """A type's shape in integers; ``LimitError`` when it is absurdly large."""
    shape = tuple(_size(dim, env) for dim in type.shape)
    if prod(shape) > ELEMENT_LIMIT:
        raise LimitError(
            "interpreter.elements",
            "a tensor is too large for the interpreter",
            found=f"{type.dtype}{list(shape)}",
            allowed=f"at most {ELEMENT_LIMIT} elements",
        )
    return shape


def _size(dim: Dim, env: Mapping[str, int]) -> int:
    try:
        size = dim.evaluate(env)
    except KeyError as missing:
        raise _unknown_symbol(f"the size {dim}", missing) from None
    if size < 0:
        raise InputError(
            "input.shape", f"the size {dim} is negative", found=size, allowed="at least 0"
        )
    return size


def _evaluate_decomposition(
    op: Op, define: Decomposition, operands: Sequence[Tensor], env: Mapping[str, int]
) -> Tensor:
    params = [Value(f"x{slot}", value.type) for slot, value in enumerate(op.operands)]
    function = Function("decomposition", params, [], [])
    builder = Builder(function)
    result = define.fn(builder, Op(op.name, list(params), op.attrs, op.results))
    values = dict(zip(params, operands, strict=True))
    for part in function.ops:
        values[part.result] = evaluate_op(part, [values[value] for value in part.operands], env)
    return values[result]


def _constant(module: Module, op: Op) -> Tensor:
    digest = op.attrs["digest"]
    constant = module.constants.get(digest) if isinstance(digest, str) else None
    if constant is None:
        raise RlxError("const.missing", f"{op}: the module has no such constant", found=digest)
    return Tensor(op.result.type.dtype, op.result.type.static_shape, constant.read())


def _last_uses(function: Function) -> dict[Value, int]:
    """Value → position of the op that reads it last; returned values live on."""
    last: dict[Value, int] = {}
    for position, op in enumerate(function.ops):
        for operand in op.operands:
            last[operand] = position
    last.update(dict.fromkeys(function.returns, len(function.ops)))
    return last


# ---- inputs ----------------------------------------------------------------------------------


def bind_symbols(function: Function, feeds: Mapping[str, Tensor]) -> dict[str, int]:
    """Sizes and value symbols that ``feeds`` give; checks names, element types and shapes."""
    params = {param.name: param for param in function.params}
    for name in feeds:
        if name not in params:
            raise InputError("input.name", "unknown input", found=name, allowed=list(params))
    for name, param in params.items():
        if name not in feeds:
            raise InputError("input.missing", f"input {name} is missing", allowed=list(params))
        _check_feed(name, param.type, feeds[name])
    env = {
        symbol: feeds[name].shape[axis] for symbol, (name, axis) in function.size_symbols().items()
    }
    for binding in function.bindings:
        value = feeds[binding.parameter].values()[binding.position]
        env[binding.symbol] = int(value)
    for name, param in params.items():
        wanted = concrete_shape(param.type, env)
        if feeds[name].shape != wanted:
            raise InputError(
                "input.shape",
                f"input {name} has the wrong shape",
                found=list(feeds[name].shape),
                allowed=f"{param.type}, here {list(wanted)}",
            )
    return env


def _check_feed(name: str, type: TensorType, feed: Tensor) -> None:
    if feed.dtype is not type.dtype:
        raise InputError(
            "input.dtype",
            f"input {name} has the wrong element type",
            found=feed.dtype,
            allowed=type.dtype,
        )
    if len(feed.shape) != type.rank or 0 in feed.shape:
        raise InputError(
            "input.shape", f"input {name} has the wrong shape", found=list(feed.shape), allowed=type
        )


def check_guards(function: Function, env: dict[str, int]) -> None:
    """``GuardError`` naming the first guard that does not hold."""
    for guard in function.guards:
        if not guard.holds(env):
            raise GuardError(
                "guard",
                f"these sizes need another variant of the module: {guard} does not hold",
                found=", ".join(f"{name} = {value}" for name, value in sorted(env.items())),
                hint=guard.reason or None,
            )
