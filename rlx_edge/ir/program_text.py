"""A compiled ``Program`` as JSON: one document, the same bytes every time.

``digest`` covers everything else in the document but the binary code, ``kernels_digest`` covers
that, and ``ir_digest`` names the placed module that the program was made from. The code is base64:
under ``wasm`` a WebAssembly module, under ``code`` that of a target whose kernels have ``entries``.
In a bundle it is a file of its own and absent here. JavaScript reads the same document: integers
stay below 2**53.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from rlx_edge.ir.commands import Command, Free, Receive, Run, Send, Wait
from rlx_edge.ir.core import Binding, Guard
from rlx_edge.ir.digest import bytes_digest, check_digest
from rlx_edge.ir.dims import parse_dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.plan import OPCODES, RELATIONS, PlanGuard, PlanProgram
from rlx_edge.ir.program import Choice, EdgePort, Entry, LaunchInfo, Port, Program, Upload
from rlx_edge.ir.token_reader import parse_type

HEADER = "rlx.program"
VERSION = "1.0"
MAX_TEXT = 256 << 20
MAX_INTEGER = (1 << 53) - 1
PHASES = ("compile", "execute")

_COMMANDS: dict[str, tuple[type[Command], tuple[str, ...]]] = {
    "run": (Run, ("begin", "end")),
    "send": (Send, ("edge",)),
    "receive": (Receive, ("edge",)),
    "wait": (Wait, ("edge",)),
    "free": (Free, ("buffer",)),
}

T = TypeVar("T")
Json = dict[str, object]


# ---- writing ---------------------------------------------------------------------------------


def dump_program(program: Program, *, with_code: bool = True) -> str:
    """The JSON document of ``program``, with its binary code or for a file beside it."""
    body = _body(program)
    content: Json = {HEADER: VERSION, "digest": _digest(body), **body}
    if with_code:
        key = "code" if program.entries else "wasm"
        content[key] = base64.b64encode(program.code).decode("ascii")
    lines = [f" {json.dumps(key)}: {_compact(value)}" for key, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _digest(body: Json) -> str:
    return bytes_digest(_compact(body).encode("ascii"))


def _body(program: Program) -> Json:
    plan = program.plan
    entries = [
        [item.name, item.threads, item.words, *([item.library] if item.library else [])]
        for item in program.entries
    ]
    choices = [[item.key, item.sizes, *item.starts] for item in program.choices]
    return {
        "ir_digest": program.ir_digest,
        "source_digest": program.source_digest,
        "target": program.target,
        "kernels_digest": program.kernels_digest,
        "inputs": [[port.name, str(port.type)] for port in program.inputs],
        "outputs": [[port.name, str(port.type)] for port in program.outputs],
        "bindings": [[item.symbol, item.parameter, item.position] for item in program.bindings],
        "guards": [
            [str(item.left), item.relation, str(item.right), item.reason] for item in program.guards
        ],
        "uploads": [[item.digest, item.address, item.nbytes] for item in program.uploads],
        "resident": program.resident,
        "prepare": [_command(item) for item in program.prepare],
        "execute": [_command(item) for item in program.execute],
        "launches": [
            [item.op, item.value, item.kernel, item.phase, *([] if item.waits else [False])]
            for item in program.launches
        ],
        **({"entries": entries} if entries else {}),
        **({"choices": choices} if choices else {}),
        **({"part": _part(program)} if program.device else {}),
        "plan": {
            "symbols": list(plan.symbols),
            "instructions": [list(item) for item in plan.instructions],
            "guards": [[item.left, item.relation, item.right, item.text] for item in plan.guards],
            "words": list(plan.words),
            "writes": [list(item) for item in plan.writes],
            "block_address": plan.block_address,
            "peak": plan.peak,
            "inputs": [[address, list(dims)] for address, dims in plan.inputs],
            "outputs": [[address, list(dims)] for address, dims in plan.outputs],
        },
    }


def _part(program: Program) -> Json:
    """What a program has that is one device's part of the IR."""
    return {
        "device": program.device,
        "graph_digest": program.graph_digest,
        "transfers": [
            [port.edge, "send" if port.is_send else "receive", port.name, str(port.type)]
            for port in program.transfers
        ],
        "places": [[address, list(dims)] for address, dims in program.plan.transfers],
    }


def _command(command: Command) -> list[object]:
    for name, (kind, fields) in _COMMANDS.items():
        if isinstance(command, kind):
            return [name, *(getattr(command, field) for field in fields)]
    raise TypeError(f"not a command: {command!r}")


# ---- reading ---------------------------------------------------------------------------------


def load_program(text: str, name: str = "<program>", code: bytes | None = None) -> Program:
    """The program of its document, every number in range and both digests right.

    ``code`` is the binary code of a document that has none.
    ``ModelError`` ``program.syntax`` for another document, ``program.value`` for a field that
    cannot be, ``DigestError`` where digest and content do not belong together. The caller checks
    ``ir_digest`` against the module that the program is to run.
    """
    return _ProgramReader(name, code).program(text)


class _ProgramReader:
    def __init__(self, name: str, code: bytes | None) -> None:
        self.name = name
        self.code = code

    def fail(
        self, field: str, found: object, allowed: object, code: str = "program.value"
    ) -> NoReturn:
        text = found if isinstance(found, str) else repr(found)
        raise failure(
            code,
            where=self.name,
            field=field,
            found=text if len(text) <= 120 else text[:120] + "…",
            allowed=allowed,
        )

    def program(self, text: str) -> Program:
        if len(text) > MAX_TEXT:
            self.fail("the document", f"{len(text)} characters", f"at most {MAX_TEXT}")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            self.fail("the document", str(error), "JSON", "program.syntax")
        if not isinstance(content, dict) or content.get(HEADER) != VERSION:
            found = content.get(HEADER) if isinstance(content, dict) else type(content).__name__
            self.fail("the document", found, f'"{HEADER}": "{VERSION}"', "program.syntax")
        body = {key: value for key, value in content.items() if key not in (HEADER, "digest")}
        key = "code" if "entries" in body else "wasm"
        stored = body.pop(key, None)
        try:
            found_digest = _digest(body)
        except (ValueError, RecursionError) as error:
            self.fail("the document", str(error), "finite numbers", "program.syntax")
        check_digest(
            "the program's digest and its content",
            self.text(content.get("digest"), "digest"),
            found_digest,
            where=self.name,
        )
        beside = stored is None and self.code is not None
        code = self.code if beside and self.code is not None else self.binary(stored, key)
        return self.body(body, code)

    def body(self, body: Json, code: bytes) -> Program:
        def get(key: str) -> object:
            if key not in body:
                self.fail(f"a program without {key}", sorted(body), "all fields", "program.syntax")
            return body[key]

        launches = self.items(get("launches"), "launches", self.launch)
        part = self.part(body["part"]) if "part" in body else ("", "", ())
        plan = self.plan(get("plan"), body.get("part"))
        program = Program(
            ir_digest=self.text(get("ir_digest"), "ir_digest"),
            source_digest=self.text(get("source_digest"), "source_digest"),
            target=self.text(get("target"), "target"),
            kernels_digest=self.text(get("kernels_digest"), "kernels_digest"),
            code=code,
            plan=plan,
            inputs=self.items(get("inputs"), "inputs", self.port),
            outputs=self.items(get("outputs"), "outputs", self.port),
            uploads=self.items(get("uploads"), "uploads", self.upload),
            prepare=self.items(get("prepare"), "prepare", self.command),
            execute=self.items(get("execute"), "execute", self.command),
            launches=launches,
            bindings=self.items(get("bindings"), "bindings", self.binding),
            guards=self.items(get("guards"), "guards", self.guard),
            resident=self.size(get("resident"), "resident"),
            entries=self.items(body.get("entries", []), "entries", self.entry),
            choices=self.items(body.get("choices", []), "choices", self.alternatives),
            device=part[0],
            graph_digest=part[1],
            transfers=part[2],
        )
        self.check(program)
        return program

    def part(self, value: object) -> tuple[str, str, tuple[EdgePort, ...]]:
        fields = ("device", "graph_digest", "transfers", "places")
        if not isinstance(value, dict) or sorted(value) != sorted(fields):
            self.fail("part", value, fields)
        device = self.text(value["device"], "a device")
        graph = self.text(value["graph_digest"], "a digest")
        return device, graph, self.items(value["transfers"], "part.transfers", self.edge_port)

    def edge_port(self, item: object) -> EdgePort:
        edge, end, name, type = self.row(item, "a transfer", 4)
        text = self.text(type, "a type")
        return EdgePort(
            self.size(edge, "an edge"),
            self.choice(end, ("send", "receive")) == "send",
            self.text(name, "a value's name"),
            self.placed(lambda: parse_type(text)),
        )

    def check(self, program: Program) -> None:
        """What concerns several fields."""
        check_digest(
            "the kernels' digest and their bytes",
            program.kernels_digest,
            bytes_digest(program.code),
            where=self.name,
        )
        for ports, places, what in (
            (program.inputs, program.plan.inputs, "inputs"),
            (program.outputs, program.plan.outputs, "outputs"),
            (program.transfers, program.plan.transfers, "transfers"),
        ):
            ranks = [port.type.rank for port in ports]
            if ranks != [len(dims) for _, dims in places]:
                self.fail(f"plan.{what}", [len(dims) for _, dims in places], ranks)
        for command in (*program.prepare, *program.execute):
            if isinstance(command, Run) and not (
                0 <= command.begin <= command.end <= len(program.launches)
            ):
                self.fail("a run", f"{command}", f"launches 0 to {len(program.launches)}")
        if program.entries:
            for launch in program.launches:
                self.below(launch.kernel, "a launch's kernel", len(program.entries))
        for choice in program.choices:
            self.below(choice.starts[-1] - 1, "a choice's launch", len(program.launches))
        parameters = [port.name for port in program.inputs]
        for binding in program.bindings:
            if binding.parameter not in parameters:
                self.fail("a binding", binding.parameter, parameters)

    # ---- plan --------------------------------------------------------------------------------

    def plan(self, value: object, part: object) -> PlanProgram:
        if not isinstance(value, dict):
            self.fail("plan", type(value).__name__, "an object")

        def get(key: str) -> object:
            if key not in value:
                self.fail(f"a plan without {key}", sorted(value), "all fields", "program.syntax")
            return value[key]

        symbols = self.items(get("symbols"), "plan.symbols", lambda v: self.text(v, "a symbol"))
        instructions: list[tuple[str, int, int]] = []
        for item in self.sequence(get("instructions"), "plan.instructions"):
            instructions.append(self.instruction(item, len(instructions), len(symbols)))
        count = len(instructions)
        words = self.items(get("words"), "plan.words", self.word)

        def ssa(item: object) -> int:
            return self.below(item, "a plan value", count)

        def place(item: object) -> tuple[int, tuple[int, ...]]:
            address, dims = self.row(item, "a place", 2)
            return ssa(address), self.items(dims, "sizes of a place", ssa)

        def write(item: object) -> tuple[int, int]:
            word, source = self.row(item, "a write", 2)
            return self.below(word, "a written word", len(words)), ssa(source)

        def guard(item: object) -> PlanGuard:
            left, relation, right, text = self.row(item, "a plan guard", 4)
            return PlanGuard(
                ssa(left), self.choice(relation, RELATIONS), ssa(right), self.text(text, "a text")
            )

        return PlanProgram(
            symbols,
            tuple(instructions),
            self.items(get("guards"), "plan.guards", guard),
            words,
            self.items(get("writes"), "plan.writes", write),
            self.size(get("block_address"), "plan.block_address"),
            ssa(get("peak")),
            self.items(get("inputs"), "plan.inputs", place),
            self.items(get("outputs"), "plan.outputs", place),
            self.items(part["places"], "part.places", place) if isinstance(part, dict) else (),
        )

    def instruction(self, item: object, position: int, symbols: int) -> tuple[str, int, int]:
        opcode, a, b = self.row(item, "an instruction", 3)
        name = self.choice(opcode, OPCODES)
        if name == "const":
            return name, self.integer(a, "a constant"), self.integer(b, "an operand")
        limit = symbols if name == "symbol" else position
        second = self.integer(b, "an operand") if name == "symbol" else self.below(b, name, limit)
        return name, self.below(a, name, limit), second

    # ---- rows --------------------------------------------------------------------------------

    def port(self, item: object) -> Port:
        name, type = self.row(item, "a port", 2)
        text = self.text(type, "a type")
        return Port(self.text(name, "a port's name"), self.placed(lambda: parse_type(text)))

    def binding(self, item: object) -> Binding:
        symbol, parameter, position = self.row(item, "a binding", 3)
        return Binding(
            self.text(symbol, "a symbol"),
            self.text(parameter, "a parameter"),
            self.size(position, "a position"),
        )

    def guard(self, item: object) -> Guard:
        left, relation, right, reason = self.row(item, "a guard", 4)
        texts = self.text(left, "a dim"), self.text(right, "a dim")
        a, b = (self.placed(lambda text=text: parse_dim(text)) for text in texts)  # type: ignore[misc]
        return Guard(a, self.choice(relation, RELATIONS), b, self.text(reason, "a reason"))

    def upload(self, item: object) -> Upload:
        digest, address, nbytes = self.row(item, "an upload", 3)
        return Upload(
            self.text(digest, "a digest"),
            self.size(address, "an address"),
            self.size(nbytes, "a length"),
        )

    def launch(self, item: object) -> LaunchInfo:
        fields = self.sequence(item, "a launch")
        op, value, kernel, phase, *waits = self.row(item, "a launch", 5 if len(fields) == 5 else 4)
        if waits not in ([], [False]):
            self.fail("whether a launch waits", waits[0], "false, or nothing")
        return LaunchInfo(
            self.text(op, "an operator"),
            self.text(value, "a value"),
            self.size(kernel, "a kernel"),
            self.choice(phase, PHASES),
            not waits,
        )

    def entry(self, item: object) -> Entry:
        fields = self.sequence(item, "an entry")
        name, threads, words, *library = self.row(item, "an entry", 4 if len(fields) == 4 else 3)
        return Entry(
            self.text(name, "an entry's name"),
            self.size(threads, "threads"),
            self.size(words, "words"),
            self.text(library[0], "a library's routine") if library else "",
        )

    def alternatives(self, item: object) -> Choice:
        fields = self.sequence(item, "a choice")
        key, sizes, *launches = fields if len(fields) > 1 else (None, None)
        starts = [self.size(value, "a launch") for value in launches]
        if len(starts) < 3 or starts != sorted(set(starts)):
            self.fail("a choice", starts, "ascending launches of two ways or more")
        return Choice(
            tuple(starts), self.text(key, "a choice's key"), self.size(sizes, "a choice's sizes")
        )

    def command(self, item: object) -> Command:
        values = self.sequence(item, "a command")
        name = self.choice(values[0] if values else None, tuple(_COMMANDS))
        kind, fields = _COMMANDS[name]
        operands = self.row(item, f"command {name}", 1 + len(fields))[1:]
        return kind(*(self.size(value, name) for value in operands))

    # ---- values ------------------------------------------------------------------------------

    def placed(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (RlxError, ZeroDivisionError) as error:
            self.fail("a text", str(error), "a type or dim")

    def sequence(self, value: object, field: str) -> Sequence[object]:
        if not isinstance(value, list):
            self.fail(field, value, "a list")
        return value

    def items(self, value: object, field: str, read: Callable[[object], T]) -> tuple[T, ...]:
        return tuple(read(item) for item in self.sequence(value, field))

    def row(self, value: object, field: str, count: int) -> Sequence[object]:
        values = self.sequence(value, field)
        if len(values) != count:
            self.fail(field, value, f"a list of {count}")
        return values

    def text(self, value: object, field: str) -> str:
        if not isinstance(value, str):
            self.fail(field, value, "a text")
        return value

    def choice(self, value: object, choices: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in choices:
            self.fail("a word", value, choices)
        return value

    def integer(self, value: object, field: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INTEGER:
            self.fail(field, value, f"an integer up to {MAX_INTEGER}")
        return value

    def size(self, value: object, field: str) -> int:
        number = self.integer(value, field)
        if number < 0:
            self.fail(field, value, "at least 0")
        return number

    def below(self, value: object, field: str, limit: int) -> int:
        number = self.size(value, field)
        if number >= limit:
            self.fail(field, value, f"below {limit}")
        return number

    def word(self, value: object) -> int:
        number = self.integer(value, "a word")
        if not -(1 << 31) <= number < 1 << 31:
            self.fail("a word", value, "an i32")
        return number

    def binary(self, value: object, key: str) -> bytes:
        try:
            return base64.b64decode(self.text(value, key), validate=True)
        except (binascii.Error, ValueError) as error:
            self.fail(key, str(error), "base64")
