"""The rules of the language, checked on a whole module.

``verify`` reports every finding (20 at most), each with the place in the text, or with the
operations around it when the module was built in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from rlx_edge.ir.core import SCHEMA_VERSION, Binding, Function, Module, Op, Value
from rlx_edge.ir.errors import VerifyError
from rlx_edge.ir.lexer import MAX_NAME
from rlx_edge.ir.op_rules import Report, constant_problems, op_problems
from rlx_edge.ir.plan import RELATIONS
from rlx_edge.ir.printer import (
    attribute_items,
    binding_text,
    guard_text,
    op_text,
    signature_text,
    value_text,
)
from rlx_edge.ir.size_scope import SizeScope
from rlx_edge.ir.source import OpSpan, Span
from rlx_edge.ir.transfer_rules import transfer_problems

MAX_FINDINGS = 20
NEIGHBOURS = 5
"""Operations shown either side of a culprit that has no place in a text."""
MAX_SHOWN = 160

_HALF = re.compile("[\ud800-\udfff]")


def verify(module: Module, *, strict: bool = False) -> None:
    """``VerifyError`` unless the module keeps all rules; its ``findings`` are all of them.

    ``strict`` also wants every constant's bytes to be there and nothing to be left over: no
    constant without a use, no operation whose results nobody reads.
    """
    found = findings(module, strict=strict)
    if not found:
        return
    first = found[0]
    more = len(found) - 1
    count = f"{more} more finding{'s' if more > 1 else ''}" if more else None
    excerpts = [first.excerpt, *(f"{item}\n{item.excerpt}".rstrip() for item in found[1:])]
    error = VerifyError(
        first.code,
        first.what,
        found=first.found,
        allowed=first.allowed,
        where=first.where,
        hint="; ".join(text for text in (first.hint, count) if text) or None,
        excerpt="\n".join(excerpt for excerpt in excerpts if excerpt),
    )
    error.findings = tuple(found)
    raise error


def findings(module: Module, *, strict: bool = False) -> list[VerifyError]:
    """What breaks a rule, in the order of the text, ``MAX_FINDINGS`` at most."""
    check = _Check(module)
    rules: tuple[Callable[[_Check], Iterator[VerifyError]], ...] = (
        _version,
        _parameters,
        _conditions,
        _operations,
        _transfers,
        _returns,
        _constants,
    )
    if strict:
        rules = (*rules, _leftovers)
    return list(islice((finding for rule in rules for finding in rule(check)), MAX_FINDINGS))


@dataclass(slots=True)
class _Check:
    """What the rules share: names seen so far, known sizes, dims that are sound."""

    module: Module
    names: dict[str, Value] = field(default_factory=dict)
    defined: set[Value] = field(default_factory=set)
    sizes: SizeScope = field(init=False)
    place: int = 0
    """Position of the operation under test."""

    def __post_init__(self) -> None:
        names = dict.fromkeys(self.function.size_symbols())
        names.update(dict.fromkeys(binding.symbol for binding in self.function.bindings))
        self.sizes = SizeScope(names)

    @property
    def function(self) -> Function:
        return self.module.function

    def finding(
        self,
        code: str,
        what: str,
        found: object = None,
        allowed: object = None,
        *,
        span: Span | None = None,
        line: str = "",
    ) -> VerifyError:
        """About a part of the function: at its place in the text, or with the ``line`` printed."""
        excerpt = f"  {line}\n  {'^' * len(line)}" if line and len(line) <= MAX_SHOWN else line
        return VerifyError(
            code,
            what,
            found=found,
            allowed=allowed,
            where=f"@{self.function.name}" if span is None else str(span),
            excerpt=excerpt if span is None else span.excerpt(),
        )

    def at_op(self, op: Op, report: Report) -> VerifyError:
        """About one operation, or one part of it."""
        where, excerpt = self.op_place(op, report.part)
        notes = "".join(f"\nnote: {note}" for note in report.notes)
        return VerifyError(
            report.code,
            report.what,
            found=report.found,
            allowed=report.allowed,
            where=where,
            hint=report.hint,
            excerpt=f"{excerpt}{notes}",
        )

    def op_place(self, op: Op, part: str) -> tuple[str, str]:
        if op.span is None:
            return f"@{self.function.name}, operation {self.place}", self.neighbours(op, part)
        span = op.span
        if isinstance(span, OpSpan):
            span = span.parts.get(part, span)
        return str(span), span.excerpt()

    def neighbours(self, op: Op, part: str) -> str:
        """The operations around ``op``, it or its part underlined."""
        ops = self.function.ops
        lines: list[str] = []
        first = max(0, self.place - NEIGHBOURS)
        for place in range(first, min(len(ops), self.place + NEIGHBOURS + 1)):
            text = " ".join(op_text(ops[place]).split("\n"))
            lines.append(f"  {text[:MAX_SHOWN]}{' …' if len(text) > MAX_SHOWN else ''}")
            if ops[place] is op:
                start, length = _underline(op, text, part)
                lines.append(f"  {' ' * start}{'^' * length}")
        return "\n".join(lines)


def _underline(op: Op, text: str, part: str) -> tuple[int, int]:
    """Column and length of a part of an operation's text, of all of it when that is not shown."""
    if part == "operator":
        start = text.find(op.name)
        return start, len(op.name)
    if part.startswith("attribute "):
        name = part.removeprefix("attribute ")
        for item in attribute_items(op):
            start = text.find(item)
            if item.startswith(f"{name} = ") and 0 <= start and start + len(item) <= MAX_SHOWN:
                return start, len(item)
    return 0, min(len(text), MAX_SHOWN)


# ---- module and function ---------------------------------------------------------------------


def _version(check: _Check) -> Iterator[VerifyError]:
    module = check.module
    if module.version != SCHEMA_VERSION:
        yield check.finding(
            "module.version", "unsupported schema version", module.version, SCHEMA_VERSION
        )
    if module.name != module.function.name:
        yield check.finding(
            "module.name", "the module's name is its function's", module.name, module.function.name
        )
    problem = name_problem(module.function.name)
    if problem:
        yield check.finding("module.name", f"the function's name {problem}")


def _parameters(check: _Check) -> Iterator[VerifyError]:
    for param in check.function.params:

        def say(report: Report, param: Value = param) -> VerifyError:
            line = f"{value_text(param)}: {param.type}"
            return check.finding(
                report.code, report.what, report.found, report.allowed, span=param.span, line=line
            )

        yield from _value(check, param, say)
        if param.producer is not None:
            yield check.finding("value.parameter", f"parameter {param} has a producer")


def _conditions(check: _Check) -> Iterator[VerifyError]:
    bound: set[str] = set()
    sizes = check.function.size_symbols()
    for binding in check.function.bindings:
        line = binding_text(binding)
        for code, what, found, allowed in _binding_problems(check, binding):
            yield check.finding(code, what, found, allowed, span=binding.span, line=line)
        if binding.symbol in bound or binding.symbol in sizes:
            yield check.finding(
                "bind.symbol",
                "a value symbol has one meaning",
                f"{binding.symbol} twice",
                span=binding.span,
                line=line,
            )
        bound.add(binding.symbol)
    for guard in check.function.guards:
        line = guard_text(guard)
        if guard.relation not in RELATIONS:
            yield check.finding(
                "guard.relation",
                "unknown relation",
                guard.relation,
                RELATIONS,
                span=guard.span,
                line=line,
            )
        for dim in (guard.left, guard.right):
            problem = check.sizes.dim_problem(dim)
            if problem:
                yield check.finding("guard.dim", problem, span=guard.span, line=line)


def _binding_problems(check: _Check, binding: Binding) -> Iterator[tuple[str, str, object, object]]:
    if binding.symbol.startswith("_"):
        yield "bind.symbol", "a symbol must not start with _", binding.symbol, None
    by_name = {param.name: param.type for param in check.function.params}
    type = by_name.get(binding.parameter)
    if type is None:
        what = f"{binding.symbol} is bound to something that is not a parameter"
        found, allowed = f"%{binding.parameter}", [f"%{name}" for name in by_name]
        yield "bind.parameter", what, found, allowed
        return
    if not type.dtype.is_integer and type.dtype.kind != "bool":
        what = f"{binding.symbol} must be bound to integers"
        yield "bind.parameter", what, type, "an integer type"
    size = type.size
    if binding.position < 0 or (size.is_constant and binding.position >= size.value):
        what = f"{binding.symbol} is bound to an element that does not exist"
        place = f"%{binding.parameter}[{binding.position}]"
        yield "bind.position", what, place, f"an element of {type}"


# ---- values ----------------------------------------------------------------------------------


def name_problem(name: str) -> str | None:
    """Why ``name`` cannot be a name."""
    if not name:
        return "is empty"
    if len(name) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    return "holds half of a surrogate pair" if _HALF.search(name) else None


def _value(
    check: _Check, value: Value, say: Callable[[Report], VerifyError]
) -> Iterator[VerifyError]:
    """A definition: its name is new and usable, its type makes sense."""
    problem = name_problem(value.name)
    if problem:
        yield say(Report("value.name", f"a value's name {problem}"))
    if value.name in check.names:
        yield say(Report("value.name", f"%{value.name} is defined twice"))
    problem = check.sizes.type_problem(value.type)
    if problem:
        yield say(Report("value.type", f"%{value.name}: {problem}", found=value.type))
    check.names.setdefault(value.name, value)
    check.defined.add(value)


# ---- operations ------------------------------------------------------------------------------


def _operations(check: _Check) -> Iterator[VerifyError]:
    placed = is_placed(check.function)
    for place, op in enumerate(check.function.ops):
        check.place = place

        def say(report: Report, op: Op = op) -> VerifyError:
            return check.at_op(op, report)

        for operand in op.operands:
            if operand not in check.defined:
                yield say(
                    Report(
                        "value.undefined",
                        f"operand {operand} is not defined before it is used",
                        hint=_other_meaning(check, operand),
                    )
                )
        for report in op_problems(op, check.sizes, placed):
            yield say(report)
        for value in op.results:
            if value.producer is not op:
                yield say(Report("value.producer", f"{value} does not know this as its producer"))
            yield from _value(check, value, say)


def _other_meaning(check: _Check, value: Value) -> str | None:
    same = check.names.get(value.name)
    return f"another value is called {same}" if same is not None and same is not value else None


def is_placed(function: Function) -> bool:
    """Whether any operation says where it runs or how it is joined."""
    return any("target_device_set" in op.attrs or "sync_mode" in op.attrs for op in function.ops)


def _transfers(check: _Check) -> Iterator[VerifyError]:
    ops = check.function.ops
    for place, report in transfer_problems(check.function):
        check.place = place
        yield check.at_op(ops[place], report)


def _returns(check: _Check) -> Iterator[VerifyError]:
    function = check.function

    def say(code: str, what: str, found: object = None, allowed: object = None) -> VerifyError:
        line = signature_text(function)
        return check.finding(code, what, found, allowed, span=function.span, line=line)

    if not function.returns:
        yield say("return.none", "a function returns at least one value")
    for value in function.returns:
        if value not in check.defined:
            yield say("value.undefined", f"the returned {value} is not defined")
    names = function.output_names
    if names and len(names) != len(function.returns):
        yield say(
            "return.names",
            "there are not as many output names as outputs",
            len(names),
            f"{len(function.returns)}, or none",
        )
    for problem in filter(None, map(name_problem, names)):
        yield say("return.names", f"an output's name {problem}")
    public = names or [value.name for value in function.returns]
    for position, name in enumerate(public):
        if name in public[:position]:
            yield say("return.names", "two outputs have one name", repr(name))


# ---- constants -------------------------------------------------------------------------------


def _constants(check: _Check) -> Iterator[VerifyError]:
    for place, op in enumerate(check.function.ops):
        check.place = place
        for report in constant_problems(op, check.module.constants):
            yield check.at_op(op, report)


def _leftovers(check: _Check) -> Iterator[VerifyError]:
    function = check.function
    used = {id(value) for op in function.ops for value in op.operands}
    used.update(id(value) for value in function.returns)
    digests: dict[str, None] = {}
    for place, op in enumerate(function.ops):
        check.place = place
        if op.results and not any(id(value) in used for value in op.results):
            yield check.at_op(op, Report("value.unused", "nobody reads this operation's result"))
        digest = op.attrs.get("digest")
        if op.name == "tensor::const" and isinstance(digest, str):
            digests[digest] = None
    for digest in digests:
        if not check.module.constants:
            yield check.finding("const.missing", "a constant's bytes are not there", digest)
    for digest in check.module.constants:
        if digest not in digests:
            yield check.finding("const.unused", "no operation reads this constant", digest)
