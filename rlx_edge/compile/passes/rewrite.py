"""The one driver of rewrite rules.

A rule is a named function ``rule(op, rewriter) -> Value | None``. It looks at one operation and
either leaves it (``None``) or returns the value that takes the place of the operation's only
result: an existing value, or one built through the rewriter, whose operations are inserted in
front of ``op``. A rule changes nothing else. The driver replaces the uses, erases what became
dead, keeps the old value's name on a new one, and visits again whatever may have changed, until no
rule applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlx_edge.compile.passes.graph import (
    CONST,
    SPLAT,
    drop_unread_constants,
    rename,
    replace_returns,
)
from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Module, Op, Value
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.types import TensorType

REWRITES_PER_OP = 64
"""Bound on applications: this many for each operation at the start, and as many once more."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One entry of a log: the rule and the text of the operations before and after."""

    rule: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.before}  =>  {self.after or '(nothing)'}"


class Rewriter(Builder):
    """What a rule sees of its surroundings, and how it builds the replacement."""

    def __init__(self, module: Module) -> None:
        super().__init__(module.function, [])
        self.module = module
        self._users: dict[Value, dict[Op, None]] = {value: {} for value in module.function.values()}
        self._constant: dict[Value, bool] = {}
        for op in module.function.ops:
            self._attach(op)

    def is_constant(self, value: Value) -> bool:
        """Whether the value follows from ``tensor::const`` and ``tensor::splat`` alone."""
        return self._constant.get(value, False)

    def users(self, value: Value) -> list[Op]:
        """The operations that read ``value``, each once."""
        return list(self._users[value])

    def is_returned(self, value: Value) -> bool:
        return value in self.function.returns

    def read_once(self, value: Value) -> bool:
        """Whether exactly one operation reads the value and the function does not return it."""
        return len(self._users[value]) == 1 and not self.is_returned(value)

    def op(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: Mapping[str, Attribute] | None = None,
        *,
        hint: str | None = None,
        type: TensorType | None = None,
    ) -> Value:
        value = super().op(name, operands, attrs, hint=hint and self._stem(hint), type=type)
        self._users[value] = {}
        assert value.producer is not None
        self._attach(value.producer)
        return value

    def again(self, op: Op, operands: Sequence[Value], **changed: Attribute) -> Value:
        """``op`` with other operands and some attributes changed, its type inferred anew."""
        return self.op(op.name, operands, {**op.attrs, **changed}, hint=op.result.name)

    def _stem(self, hint: str) -> str:
        """``scale`` of ``scale_1`` where ``scale`` exists: counters do not pile up."""
        stem, _, count = hint.rpartition("_")
        return stem if count.isdigit() and stem in self.names else hint

    def _attach(self, op: Op) -> None:
        for operand in op.operands:
            self._users[operand][op] = None
        self._judge(op)

    def _judge(self, op: Op) -> None:
        """Note whether the results of ``op`` are constant, and of what reads them."""
        waiting = [op]
        while waiting:
            current = waiting.pop()
            constant = current.name in (CONST, SPLAT) or (
                bool(current.operands) and all(map(self.is_constant, current.operands))
            )
            for result in current.results:
                if self._constant.get(result) is not constant:
                    self._constant[result] = constant
                    waiting.extend(self._users.get(result, ()))

    def _detach(self, op: Op) -> None:
        for operand in op.operands:
            self._users[operand].pop(op, None)


Rule: TypeAlias = Callable[[Op, Rewriter], Value | None]


def rewrite(module: Module, rules: Sequence[Rule], log: list[Applied] | None = None) -> int:
    """Apply ``rules`` to ``module`` in place until none applies; the number of applications.

    The first rule of the tuple that applies wins. ``RlxError`` ``pass.loop`` names the rules when
    they undo each other or exceed the bound, ``pass.type`` when a rule changes a value's type.
    """
    return _Driver(module, rules, log).run()


class _Driver:
    def __init__(self, module: Module, rules: Sequence[Rule], log: list[Applied] | None) -> None:
        self.rewriter = Rewriter(module)
        self.module = module
        self.rules = rules
        self.log = log
        self.pending = set(module.function.ops)  # membership only: order comes from the list
        self.erased: set[Op] = set()
        self.seen: dict[tuple[str, str, tuple[tuple[str, Attribute], ...]], None] = {}
        self.bound = REWRITES_PER_OP * (len(self.pending) + 1)

    def run(self) -> int:
        function = self.module.function
        while self.pending:
            done: list[Op] = []
            for op in function.ops:
                self._visit(op, done)
            function.ops = [op for op in done if op not in self.erased]
            self.pending -= self.erased
        drop_unread_constants(self.module)
        return len(self.seen)

    def _visit(self, op: Op, done: list[Op]) -> None:
        """Rewrite ``op`` and what replaces it, in order, appending the outcome to ``done``."""
        queue = [op]
        while queue:
            current = queue.pop(0)
            if current in self.erased:
                continue
            if current in self.pending:
                self.pending.discard(current)
                fresh = self._apply(current)
                if fresh is not None:
                    queue[:0] = fresh
                    continue
            done.append(current)

    def _apply(self, op: Op) -> list[Op] | None:
        if len(op.results) != 1:
            return None
        for rule in self.rules:
            fresh: list[Op] = []
            self.rewriter.ops = fresh
            value = rule(op, self.rewriter)
            if value is None:
                self._discard(fresh)
                continue
            before = str(op)
            self._check(rule, op, value)
            self._replace(op, value, fresh)
            self._record(rule, op, before, value, fresh)
            return fresh
        return None

    def _discard(self, fresh: list[Op]) -> None:
        """Forget operations that a rule built before it gave up."""
        for op in fresh:
            self.erased.add(op)
            self.rewriter._detach(op)

    def _check(self, rule: Rule, op: Op, value: Value) -> None:
        if value.type != op.result.type:
            raise RlxError(
                "pass.type",
                f"rule {rule.__name__} changes the type of {op}",
                found=value.type,
                allowed=op.result.type,
            )

    def _replace(self, op: Op, value: Value, fresh: list[Op]) -> None:
        old = op.result
        for user in self.rewriter.users(old):
            user.operands = [value if operand is old else operand for operand in user.operands]
            self.rewriter._users[value][user] = None
            self.rewriter._judge(user)
            self._touch(user)
        self.rewriter._users[old] = {}
        replace_returns(self.module.function, old, value)
        if value.producer is not None and value.producer in fresh:
            rename(self.module.function, value, old.name)
        self._erase(op)
        for item in reversed(fresh):
            self._erase_unused(item)
        for item in fresh:
            if item not in self.erased:
                item.span = item.span or op.span
                self.pending.add(item)

    def _touch(self, op: Op) -> None:
        """Visit ``op`` and its readers again: rules look at an operation and its operands' ops."""
        self.pending.add(op)
        for result in op.results:
            self.pending.update(self.rewriter.users(result))

    def _erase(self, op: Op) -> None:
        self.erased.add(op)
        self.rewriter._detach(op)
        for operand in dict.fromkeys(op.operands):
            self.pending.update(self.rewriter.users(operand))
            if operand.producer is not None:
                self._erase_unused(operand.producer)
                if operand.producer not in self.erased:
                    self.pending.add(operand.producer)

    def _erase_unused(self, op: Op) -> None:
        if op in self.erased:
            return
        if any(self.rewriter.users(item) or self.rewriter.is_returned(item) for item in op.results):
            return
        self._erase(op)

    def _record(self, rule: Rule, op: Op, before: str, value: Value, fresh: list[Op]) -> None:
        key = (rule.__name__, before, tuple(op.attrs.items()))
        if key in self.seen or len(self.seen) >= self.bound:
            raise RlxError(
                "pass.loop",
                "rewrite rules do not come to an end",
                found=f"rule {rule.__name__} at {before}",
                allowed=f"each rewrite once, at most {self.bound} in all",
                hint=f"last rules: {', '.join(name for name, _, _ in list(self.seen)[-8:])}",
            )
        self.seen[key] = None
        if self.log is not None:
            after = "; ".join(_texts(fresh, value, self.erased))
            self.log.append(Applied(rule.__name__, before, after))


def _texts(fresh: Iterable[Op], value: Value, erased: set[Op]) -> list[str]:
    kept = [str(op) for op in fresh if op not in erased]
    return kept or [str(value)]
