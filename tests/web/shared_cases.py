"""What Python and JavaScript must do alike: cases with Python's answers, as JSON for both.

Integers beyond 2**53 - 1 are written as text. A case's answer is what came out, or
``{"error": code, "message": text}``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlx_edge.ir.core import Binding
from rlx_edge.ir.dims import parse_dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.plan import OPCODES, PlanGuard, PlanProgram
from rlx_edge.ir.program import Port
from rlx_edge.ir.program_text import _digest, dump_program, load_program
from rlx_edge.ir.token_reader import parse_type
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.executor import check_commands
from rlx_edge.runtime.feeds import FeedChecker
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.units import NullUnit
from tests.runtime import hand_made
from tests.runtime.test_executor import read_commands

Json = dict[str, Any]
SAFE = (1 << 53) - 1


def document(cases: list[Json]) -> str:
    """One case a line."""
    lines = ",\n".join(json.dumps(plain(case), ensure_ascii=False) for case in cases)
    return f"[\n{lines}\n]\n"


def plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str, float)):
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    number = int(value)
    return number if abs(number) <= SAFE else str(number)


def answer(work: Callable[[], Any]) -> Json:
    try:
        return {"result": work()}
    except RlxError as error:
        return {"error": error.code, "message": str(error)}


# ---- plans -----------------------------------------------------------------------------------


class Numbers:
    """The same numbers everywhere and always: a linear congruential generator."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, limit: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.state >> 33) % limit


def random_plan(numbers: Numbers) -> PlanProgram:
    """Arithmetic without sense over two symbols, some of it beyond 2**53."""
    instructions: list[tuple[str, int, int]] = [("symbol", 0, 0), ("symbol", 1, 0)]
    for _ in range(3):
        size = 1 << numbers.below(52)
        instructions.append(("const", numbers.below(2 * size) - size, 0))
    for _ in range(16):
        opcode = OPCODES[2 + numbers.below(len(OPCODES) - 2)]
        count = len(instructions)
        instructions.append((opcode, numbers.below(count), numbers.below(count)))
    last = len(instructions) - 1
    return PlanProgram(
        symbols=("n", "m"),
        instructions=tuple(instructions),
        guards=(PlanGuard(last, "!=", 0, "the last is not n"),),
        words=(7, 0, 0),
        writes=((1, 0), (2, last)),
        block_address=1024,
        peak=2,
        inputs=(),
        outputs=(),
    )


def plan_cases() -> Iterator[Json]:
    numbers = Numbers(20)
    for _ in range(60):
        plan = random_plan(numbers)
        symbols = {"n": numbers.below(1 << 31), "m": 1 + numbers.below(100)}
        yield plan_case(plan, (), (), symbols)
    program = hand_made.PROGRAM
    for n, k in ((1, 3), (7, -5), ((1 << 28) - 1, 0), ((1 << 28) + 1, 0), (1, 1 << 40), (0, 0)):
        yield plan_case(program.plan, program.inputs, program.outputs, {"n": n, "k": k})
    for outputs in (((9, (0, 9)),), ((10, (0, 9)),), ((7, (0, 9)),)):
        yield plan_case(
            PlanProgram(**{**fields(program.plan), "outputs": outputs}),
            program.inputs,
            program.outputs,
            {"n": 2, "k": 0},
        )


def fields(plan: PlanProgram) -> Json:
    return {name: getattr(plan, name) for name in PlanProgram.__dataclass_fields__}


def plan_case(
    plan: PlanProgram, inputs: tuple[Port, ...], outputs: tuple[Port, ...], symbols: dict[str, int]
) -> Json:
    def work() -> Json:
        program = replace(
            hand_made.PROGRAM, plan=plan, inputs=inputs, outputs=outputs, bindings=(), guards=()
        )
        runner = ProgramRunner(program, hand_made.constants(), NullUnit(), DeviceContext("null:0"))
        found = runner.plan(symbols)
        return {
            "words": list(found.words),
            "peak": found.peak,
            "inputs": [[place.address, list(place.shape)] for place in found.inputs],
            "outputs": [[place.address, list(place.shape)] for place in found.outputs],
        }

    rows = fields(plan) | {
        "guards": [[g.left, g.relation, g.right, g.text] for g in plan.guards],
        "blockAddress": plan.block_address,
    }
    del rows["block_address"]
    return {
        "plan": rows,
        "inputs": [[port.name, str(port.type)] for port in inputs],
        "outputs": [[port.name, str(port.type)] for port in outputs],
        "symbols": symbols,
        **answer(work),
    }


# ---- dims ------------------------------------------------------------------------------------

DIMS = (
    "7",
    "n",
    "n + m",
    "n - m - 3",
    "2 * n * m - n",
    "(n - 1) // 2 + 1",
    "(n + 64) // 128 - 1",
    "-n",
    "-(n * m) // 7",
    "n % 5",
    "-n % 5",
    "(-n) // 4 * 4",
    "n // -3",
    "n % (-3)",
    "max(n, m)",
    "min(n + 1, max(m, 4)) * 3",
    "((((n + 1) // 2 + 1) // 2 + 1) // 2 + 1) // 6",
    "n * n * n * n * n * n",
    "n * n * n * n * n * n // (m * m) % 1000003",
    "9007199254740993 - n",
)


def dim_cases() -> Iterator[Json]:
    for text in DIMS:
        for n, m in ((1, 1), (48, 320), (100003, 7), (2147483647, 65536)):
            symbols = {"n": n, "m": m}
            yield {"text": text, "symbols": symbols, "result": parse_dim(text).evaluate(symbols)}


# ---- feeds -----------------------------------------------------------------------------------

PORTS = (
    ("image", "f32[batch, 3, height, 2 * height]"),
    ("mask", "bool[batch]"),
    ("rate", "i64[]"),
)
BINDINGS = (("rate", "rate", 0),)
GOOD: Json = {
    "image": {"dtype": "f32", "dims": [2, 3, 4, 8]},
    "mask": {"dtype": "bool", "dims": [2]},
    "rate": {"dtype": "i64", "dims": [], "values": [16000]},
}


def feed_cases() -> Iterator[Json]:
    def other(**changes: Json | None) -> Json:
        return {key: item for key, item in (GOOD | changes).items() if item is not None}

    def image(*dims: int, dtype: str = "f32") -> Json:
        return other(image={"dtype": dtype, "dims": list(dims)})

    every = (PORTS, BINDINGS)
    yield feed_case(*every, GOOD)
    yield feed_case(*every, other(rate={"dtype": "i64", "dims": [], "values": [-(1 << 62)]}))
    yield feed_case(*every, other(picture={"dtype": "f32", "dims": [1]}))
    yield feed_case(*every, other(mask=None))
    yield feed_case(*every, other(mask=None, rate=None))
    yield feed_case(*every, {})
    for dims in ((2, 3, 4), (2, 1, 4, 8), (2, 3, 4, 9), (0, 3, 4, 8), (2, 3, 4, 8, 1), ()):
        yield feed_case(*every, image(*dims))
    for dtype in ("f64", "i64", "u8", "f16"):
        yield feed_case(*every, image(2, 3, 4, 8, dtype=dtype))
    yield feed_case(*every, other(mask={"dtype": "u8", "dims": [2]}))
    yield feed_case(*every, other(mask={"dtype": "bool", "dims": [5]}))
    yield feed_case(*every, other(rate={"dtype": "f32", "dims": []}))
    yield feed_case((("k", "i64[n]"),), (("k", "k", 2),), {"k": {"dtype": "i64", "dims": [2]}})
    yield feed_case((("x", "f32[2 * n]"),), (), {"x": {"dtype": "f32", "dims": [4]}})
    yield feed_case((), (), {})
    yield feed_case((), (), {"x": {"dtype": "f32", "dims": [1]}})
    yield feed_case(
        (("x", "i32[constructor, toString]"),), (), {"x": {"dtype": "i32", "dims": [4, 5]}}
    )


def feed_case(
    ports: tuple[tuple[str, str], ...], bindings: tuple[tuple[str, str, int], ...], feeds: Json
) -> Json:
    def array(item: Json) -> Any:
        found = np.zeros(item["dims"], numpy_dtype(parse_type(f"{item['dtype']}[]").dtype))
        found.reshape(-1)[: len(item.get("values", ()))] = item.get("values", ())
        return found

    def work() -> dict[str, int]:
        checker = FeedChecker(
            [Port(name, parse_type(text)) for name, text in ports],
            [Binding(*binding) for binding in bindings],
        )
        return checker.bind({name: array(item) for name, item in feeds.items()}).symbols

    return {"ports": ports, "bindings": bindings, "feeds": feeds, **answer(work)}


# ---- programs and command lists --------------------------------------------------------------

PATCHES: tuple[tuple[str, Any], ...] = (
    ("", None),
    ("rlx.program", "0.9"),
    ("plan", 3),
    ("plan.words", "many"),
    ("plan.words.0", 1 << 31),
    ("plan.words.0", 1.5),
    ("plan.words.0", True),
    ("plan.writes.0", [15, 0]),
    ("plan.writes.0", [7, 12]),
    ("plan.writes.0", [7]),
    ("plan.instructions.2", ["pow", 0, 1]),
    ("plan.instructions.2", ["mul", 2, 1]),
    ("plan.instructions.2", ["mul", 0, -1]),
    ("plan.instructions.0", ["symbol", 2, 0]),
    ("plan.instructions.1", ["const", 1 << 53, 0]),
    ("plan.guards.0", [0, "~", 1, "text"]),
    ("plan.peak", 12),
    ("plan.block_address", -1),
    ("plan.inputs", []),
    ("plan.outputs.0", [4, [0]]),
    ("inputs.0", ["x"]),
    ("inputs.0", ["x", "f31[n]"]),
    ("inputs.0", ["x", "f32[n"]),
    ("inputs.0", ["x", "f32[n //]"]),
    ("inputs.0", [3, "f32[n, 4]"]),
    ("guards.0", ["k", "<", "100 +", "a small k"]),
    ("guards.0", ["k", "=", "100", "a small k"]),
    ("bindings.0", ["k", "z", 0]),
    ("uploads.0", ["sha256:00", -4, 16]),
    ("execute.0", ["run", 1, 9]),
    ("execute.0", ["run", 2, 1]),
    ("execute.0", ["jump", 1, 2]),
    ("execute.0", ["run", 1]),
    ("execute.0", ["send", 1, 2]),
    ("launches.0", ["rlxc::mul", "doubled", 0, "later"]),
    ("resident", None),
    ("wasm", "????"),
)


def program_cases() -> Iterator[Json]:
    """A document with one field replaced (deleted for ``None``), and the code of the refusal."""
    good = json.loads(dump_program(hand_made.program()))
    for path, value in PATCHES:
        content = patched(good, path, value)
        body = {key: item for key, item in content.items() if key not in ("rlx.program", "wasm")}
        body.pop("digest")
        content["digest"] = _digest(body)
        found = answer(lambda content=content: load_program(json.dumps(content)).target)  # type: ignore[misc]
        found.pop("message", None)  # it shows values as the language writes them
        yield {"path": path, "value": value, **found}


def patched(content: Json, path: str, value: Any) -> Json:
    found = copy.deepcopy(content)
    if not path:
        return found
    *parents, last = [int(word) if word.isdigit() else word for word in split(path)]
    place: Any = found
    for word in parents:
        place = place[word]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return found


def split(path: str) -> list[str]:
    return [path] if path.startswith("rlx.") else path.split(".")


COMMAND_LISTS = (
    "run 0 1; free 3; send 1; wait 1; receive 2; wait 2; wait 2",
    "run 3 3",
    "run 3 2",
    "send 1; receive 1",
    "wait 4",
    "send 1; receive 7; wait 4",
    "free 0; free 0",
)


def command_cases() -> Iterator[Json]:
    for text in COMMAND_LISTS:
        yield {"commands": text, **answer(lambda text=text: check_commands(read_commands(text)))}  # type: ignore[misc]


FILES: dict[str, Callable[[], Iterator[Json]]] = {
    "plans.json": plan_cases,
    "dims.json": dim_cases,
    "feeds.json": feed_cases,
    "programs.json": program_cases,
    "commands.json": command_cases,
}
"""Golden files under ``shared/``, and what fills them."""
