"""Text form → ``Module``.

::

    module    = 'rlx.module' 'version' '=' STRING function
    function  = 'func' @name '(' [%name ':' type, …] ')' '->' '(' [name ':'] type, … ')' '{'
                (bind | guard)* operation* 'return' %name, … '}'
    bind      = 'bind' size '=' %name '[' INT ']'
    guard     = 'guard' dim relation dim ['{' 'reason' '=' STRING '}']
    operation = [%name, … '='] dialect::op '(' %name, … ')' ['{' name '=' value, … '}']
                [':' type, …]

An operation starts a line. Names that are not plain are quoted: ``%"x:0"``. Comments run from
``//`` to the end of the line, outside of ``( )`` and ``[ ]``, and never mean anything.

The parser resolves names, so a value is defined before it is used and defined once; attributes
are read as their ``OpDef`` declares them. Everything else is the verifier's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rlx_edge.ir.attributes import EPILOGUE, PLACEMENT, Attribute, AttributeDef
from rlx_edge.ir.core import (
    SCHEMA_VERSION,
    Binding,
    Function,
    Guard,
    Module,
    Op,
    Value,
)
from rlx_edge.ir.dims import symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, round_f32
from rlx_edge.ir.expression_parser import Operand, Scope, parse_expression
from rlx_edge.ir.expression_tokens import Place, loaded_slots
from rlx_edge.ir.lexer import HEADER, Token
from rlx_edge.ir.opdef import InferContext, OpDef
from rlx_edge.ir.ops import OPS, check_operands, count_root_operands, is_fused, lookup
from rlx_edge.ir.plan import RELATIONS
from rlx_edge.ir.source import OpSpan, SourceFile, Span
from rlx_edge.ir.spelling import near_name, near_operators, right_attribute, right_operator
from rlx_edge.ir.token_reader import TokenReader, shown
from rlx_edge.ir.types import F64, TensorType

MAX_OPS = 200_000


def parse_module(text: str, name: str = "<text>") -> Module:
    """The module of its text; ``name`` is what messages call the file.

    ``ParseError`` with ``excerpt``: codes ``parse.token``, ``.syntax``, ``.limit``, ``.name``,
    ``.operator``, ``.attribute``, ``.type``, ``.dim``, ``.expression``, ``.version``.
    """
    return _ModuleReader(SourceFile(name, text)).module()


class _ModuleReader(TokenReader):
    def __init__(self, file: SourceFile) -> None:
        super().__init__(file)
        self.values: dict[str, Value] = {}
        self.sizes: tuple[str, ...] = ()
        self.definitions: dict[str, OpDef] = {}

    # ---- module and function -----------------------------------------------------------------

    def module(self) -> Module:
        if self.token.kind != "header":
            self.unexpected(f"'{HEADER} version = \"{SCHEMA_VERSION}\"' at the beginning")
        self.take()
        self.keyword("version")
        self.expect("=")
        version = self.expect("string", "the schema version in quotes")
        if version.text != SCHEMA_VERSION:
            self.fail(
                version,
                "this schema version is not supported",
                version.text,
                SCHEMA_VERSION,
                code="parse.version",
            )
        function = self.function()
        self.finish()
        return Module(function.name, function, version=version.text)

    def function(self) -> Function:
        first = self.keyword("func")
        name = self.expect("function", "the function's name, @name").text
        self.expect("(")
        params = self.items(")", self.parameter)
        self.expect("->")
        self.expect("(")
        outputs = self.items(")", self.output)
        function = Function(name, params, [], [], span=self.since(first))
        self.expect("{")
        function.output_names = self.output_names(outputs)
        self.conditions(function)
        while self.token.kind in ("value", "op"):
            if len(function.ops) == MAX_OPS:
                self.fail(
                    self.token,
                    "too many operations",
                    allowed=f"at most {MAX_OPS}",
                    code="parse.limit",
                )
            function.ops.append(self.operation())
        if not self.at("name", "return"):
            self.unexpected("an operation, or return")
        self.returns(function, outputs)
        self.expect("}", "'}' at the function's end")
        return function

    def parameter(self) -> Value:
        name = self.expect("value", "a parameter, %name: type")
        self.expect(":", "':' and the parameter's type")
        value = self.define(name, self.type())
        value.span = self.since(name)
        return value

    def output(self) -> tuple[str | None, TensorType, Span]:
        """An output's public name, where given, and its type."""
        first = self.token
        name: str | None = None
        if first.kind in ("string", "name"):
            name = self.take().text
            if first.kind == "name" and not self.at(":"):
                type = self.type_of(first)
                return None, type, self.since(first)
            self.expect(":", "':' and the output's type")
        type = self.type()
        return name, type, self.since(first)

    def output_names(self, outputs: list[tuple[str | None, TensorType, Span]]) -> list[str]:
        names = [name for name, _, _ in outputs if name is not None]
        if names and len(names) != len(outputs):
            self.fail(outputs[0][2], "either all outputs have a name or none has one")
        return names

    def conditions(self, function: Function) -> None:
        """Bindings and guards; they also settle which names are sizes."""
        while self.at("name", "bind") or self.at("name", "guard"):
            first = self.take()
            if first.text == "bind":
                function.bindings.append(self.binding(first))
            else:
                function.guards.append(self.guard(first))
        sizes = {binding.symbol: None for binding in function.bindings}
        for param in function.params:
            for dim in param.type.shape:
                sizes.update(dict.fromkeys(dim.symbols()))
        self.sizes = tuple(sizes)

    def binding(self, first: Token) -> Binding:
        name = self.expect("name", "the name of the value symbol")
        try:
            symbol(name.text)
        except RlxError as error:
            self.fail(name, error.what, error.found, error.allowed, code="parse.name")
        self.expect("=")
        parameter = self.use(self.expect("value", "an integer parameter, %name"))
        self.expect("[")
        position = self.expect("int", "the element's position").text
        self.expect("]")
        return Binding(name.text, parameter.name, int(position), self.since(first))

    def guard(self, first: Token) -> Guard:
        left = self.dim()
        if self.token.kind not in RELATIONS:
            self.unexpected(RELATIONS, _division_hint(self.token))
        relation = self.take().kind
        right = self.dim()
        reason = ""
        if self.accept("{"):
            self.keyword("reason")
            self.expect("=")
            reason = self.string()
            self.expect("}")
        return Guard(left, relation, right, reason, self.since(first))

    def returns(
        self, function: Function, outputs: list[tuple[str | None, TensorType, Span]]
    ) -> None:
        first = self.take()
        tokens: list[Token] = []
        if self.at("value"):
            tokens.append(self.take())
            while self.accept(","):
                tokens.append(self.expect("value", "a value, %name"))
        function.returns = [self.use(token) for token in tokens]
        if len(tokens) != len(outputs):
            self.fail(
                self.since(first),
                "the function's outputs and what it returns do not agree",
                f"{len(tokens)} values",
                f"{len(outputs)} values",
            )
        for token, value, (_, type, span) in zip(tokens, function.returns, outputs, strict=True):
            if value.type != type:
                self.fail(
                    span,
                    f"the output's type is not that of %{token.text}",
                    type,
                    value.type,
                    code="parse.type",
                )

    # ---- values ------------------------------------------------------------------------------

    def define(self, token: Token, type: TensorType) -> Value:
        if token.text in self.values:
            self.fail(token, f"%{token.text} is defined twice", code="parse.name")
        value = Value(token.text, type)
        self.values[token.text] = value
        return value

    def use(self, token: Token) -> Value:
        value = self.values.get(token.text)
        if value is None:
            near = near_name(token.text, self.values)
            self.fail(
                token,
                "this value is not defined above",
                f"%{token.text}",
                hint=f"did you mean %{near}?" if near else None,
                code="parse.name",
            )
        return value

    # ---- operations --------------------------------------------------------------------------

    def operation(self) -> Op:
        first = self.token
        if not first.first:
            self.fail(first, "an operation starts a line", shown(first))
        names = self.result_names()
        name = self.expect("op", "an operator, dialect::name")
        definition = self.definition(name)
        self.expect("(", "'(' and the operands")
        operands = self.items(")", self.operand)
        parts: dict[str, Span] = {"operator": self.span(name)}
        attrs, epilogue = self.attributes(name.text, definition, parts)
        types: list[TensorType] = []
        if names:
            self.expect(":", "':' and the result's type")
            types.append(self.type())
            while self.accept(","):
                types.append(self.type())
        if len(types) != len(names):
            self.fail(
                self.since(first), "results and their types do not agree", len(types), len(names)
            )
        if types:
            self.elements(definition, attrs, types[0], parts)
        op = Op(name.text, operands, attrs, [])
        op.span = OpSpan(self.file, first.start, self.end, parts)
        if epilogue is not None:
            attrs[EPILOGUE.name] = self.epilogue(op, definition, name, epilogue)
        for token, type in zip(names, types, strict=True):
            value = self.define(token, type)
            value.producer = op
            op.results.append(value)
        return op

    def result_names(self) -> list[Token]:
        names: list[Token] = []
        while self.at("value"):
            names.append(self.take())
            if not self.accept(","):
                self.expect("=")
                break
        return names

    def operand(self) -> Value:
        return self.use(self.expect("value", "a value, %name"))

    def definition(self, name: Token) -> OpDef:
        found = self.definitions.get(name.text)
        if found is None:
            try:
                found = lookup(name.text)
            except RlxError as error:
                right = right_operator(name.text, OPS)
                self.fail(
                    name,
                    error.what,
                    name.text,
                    None if right else near_operators(name.text, OPS),
                    hint=f"the right spelling is {right}" if right else None,
                    code="parse.operator",
                )
            self.definitions[name.text] = found
        return found

    def attributes(
        self, name: str, definition: OpDef, parts: dict[str, Span]
    ) -> tuple[dict[str, Attribute], Token | None]:
        """Attributes as declared; the epilogue's token is read once all others are known."""
        declared = {item.name: item for item in declared_attributes(name, definition)}
        attrs: dict[str, Attribute] = {}
        epilogue: list[Token] = []

        def read() -> None:
            first = self.expect("name", "an attribute")
            item = self.declared(first, declared, name)
            if item.name in attrs or (epilogue and item is EPILOGUE):
                self.fail(first, f"attribute {item.name} is given twice", code="parse.attribute")
            self.expect("=", f"'=' and a value of kind {item.kind}")
            if item is EPILOGUE:
                epilogue.append(self.expect("string", "an expression in quotes"))
            else:
                attrs[item.name] = self.value(item.kind)
            parts[f"attribute {item.name}"] = self.since(first)

        if self.accept("{"):
            self.items("}", read)
        return attrs, epilogue[0] if epilogue else None

    def declared(self, token: Token, declared: Mapping[str, AttributeDef], op: str) -> AttributeDef:
        item = declared.get(token.text)
        if item is None:
            right = right_attribute(token.text, declared)
            self.fail(
                token,
                f"{op} has no such attribute",
                token.text,
                None if right else list(declared),
                hint=f"the right spelling is {right}" if right else None,
                code="parse.attribute",
            )
        return item

    def elements(
        self,
        definition: OpDef,
        attrs: dict[str, Attribute],
        type: TensorType,
        parts: Mapping[str, Span],
    ) -> None:
        """Make attributes of kind ``number`` elements of the result's type, where it is float."""
        for item in definition.attrs:
            value = attrs.get(item.name)
            if item.kind != "number" or not type.dtype.is_float or isinstance(value, bool):
                continue
            if isinstance(value, (int, float)):
                rounded = float(value) if type.dtype is F64 else round_f32(value)
                if math.isinf(rounded) and not math.isinf(value):
                    place = parts[f"attribute {item.name}"]
                    self.fail(place, f"a number is too large for {type.dtype}", value)
                attrs[item.name] = rounded

    # ---- epilogues ---------------------------------------------------------------------------

    def epilogue(self, op: Op, definition: OpDef, name: Token, token: Token) -> Expr:
        place = self.string_place(token)
        names = [value.name for value in op.operands]
        loaded = loaded_slots(token.text, names, place)
        count = count_root_operands(definition, len(names), loaded)
        types = [value.type for value in op.operands]
        try:
            check_operands(op.name, definition, types[:count])
            for item in definition.attrs:
                if item.name not in op.attrs and not item.optional:
                    raise RlxError("op.attribute", f"attribute {item.name} is missing")
            root = definition.infer(InferContext(op.name, types[:count], op.attrs))
        except RlxError as error:
            self.fail(name, error.what, error.found, error.allowed, code="parse.operator")
        operands = [Operand(value.name, value.type) for value in op.operands]
        scope = Scope(operands, root.dtype, root.rank, self.sizes)
        return parse_expression(token.text, scope, place)

    def string_place(self, token: Token) -> Place:
        """Maps a range of a string's text to the file; to the whole string if it has escapes."""
        exact = token.end - token.start == len(token.text) + 2

        def place(start: int, end: int) -> Span:
            if not exact:
                return self.span(token)
            begin = token.start + 1
            return Span(self.file, begin + start, min(begin + end, token.end))

        return place


def declared_attributes(name: str, definition: OpDef) -> Iterable[AttributeDef]:
    """What an op may carry, in printing order: its own, the epilogue of a fused op, placement."""
    yield from definition.attrs
    if is_fused(name):
        yield EPILOGUE
    yield from PLACEMENT


def _division_hint(token: Token) -> str | None:
    if token.kind == "value":
        return "outside of brackets % starts a value; write (h % 2) for a remainder"
    return None
