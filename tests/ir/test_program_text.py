"""Compiled programs as JSON: what is written, read, and refused."""

# covers R10, R14

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.ir.commands import Free, Receive, Run, Send, Wait
from rlx_edge.ir.core import Binding, Guard
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.errors import DigestError, ModelError, RlxError
from rlx_edge.ir.plan import PlanGuard, PlanProgram, evaluate
from rlx_edge.ir.program import LaunchInfo, Port, Program, Upload
from rlx_edge.ir.program_text import dump_program, load_program
from rlx_edge.ir.types import F32, I64, tensor_type

WASM = b"\0asm\1\0\0\0"


def program() -> Program:
    plan = PlanProgram(
        symbols=("batch", "rate"),
        instructions=(
            ("symbol", 0, 0),
            ("const", 16, 0),
            ("mul", 0, 1),
            ("symbol", 1, 0),
            ("const", 16000, 0),
            ("const", -8, 0),
        ),
        guards=(PlanGuard(3, "==", 4, "rate == 16000"),),
        words=(1032, 1040, 0, -1),
        writes=((2, 2),),
        block_address=1024,
        peak=2,
        inputs=((1, (0, 1)), (1, ())),
        outputs=((2, (0,)),),
    )
    return Program(
        ir_digest="sha256:" + "1" * 64,
        source_digest="sha256:" + "3" * 64,
        target="wasm",
        kernels_digest=bytes_digest(WASM),
        code=WASM,
        plan=plan,
        inputs=(Port("x:0", tensor_type(F32, "batch", 16)), Port("sr", tensor_type(I64))),
        outputs=(Port("y", tensor_type(F32, "batch // 2 + 1")),),
        uploads=(Upload("sha256:" + "2" * 64, 2048, 64),),
        prepare=(Run(0, 1),),
        execute=(Wait(0), Receive(0), Run(1, 2), Send(1), Free(3)),
        launches=(
            LaunchInfo("rlxc::mul", "w", 0, "compile"),
            LaunchInfo("rlxc::fused_conv2d_relu", "é", 1, "execute"),
        ),
        bindings=(Binding("rate", "sr", 0),),
        guards=(Guard(as_dim("rate"), "==", as_dim(16000), "If"),),
        resident=4096,
    )


def test_a_program_reads_back() -> None:
    text = dump_program(program())
    again = load_program(text, "p.json")
    assert again == program()
    assert dump_program(again) == text
    text.encode("ascii")
    assert evaluate(again.plan, {"batch": 3, "rate": 16000}).words[2] == 48


def test_the_code_may_lie_beside_the_document() -> None:
    text = dump_program(program(), with_code=False)
    assert '"wasm": ' not in text
    assert load_program(text, code=WASM) == program()
    with pytest.raises(DigestError, match="kernels"):
        load_program(text, code=WASM + b" ")
    with pytest.raises(ModelError, match="wasm"):
        load_program(text)


def test_the_document(golden: Any) -> None:
    golden.check("program/small.json", dump_program(program()))


def test_a_command_of_another_kind_is_a_mistake() -> None:
    broken = program()
    object.__setattr__(broken, "execute", ("run",))
    with pytest.raises(TypeError, match="not a command"):
        dump_program(broken)


def signed(change: Callable[[dict[str, Any]], object]) -> str:
    """The document with a change, its digest made right again."""
    content = json.loads(dump_program(program()))
    change(content)
    outside = ("rlx.program", "digest", "wasm")
    body = {key: value for key, value in content.items() if key not in outside}
    compact = json.dumps(body, separators=(",", ":"))
    if content.get("digest") != 7:
        content["digest"] = bytes_digest(compact.encode())
    return json.dumps(content)


def put(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        place: Any = content
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


def test_signing_alone_changes_nothing() -> None:
    assert load_program(signed(lambda content: None)) == program()


def test_a_change_by_hand_is_noticed() -> None:
    text = dump_program(program())
    with pytest.raises(DigestError) as caught:
        load_program(text.replace("1032", "1033", 1), "p.json")
    assert str(caught.value).startswith("p.json: ")
    assert str(caught.value).count("sha256:") == 2


def test_stale_kernels_are_noticed() -> None:
    with pytest.raises(DigestError, match="kernels"):
        load_program(signed(put("wasm", value="AGFzbQIAAAA=")))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (put("rlx.program", value="0.1"), "0.1"),
        (put("digest", value=7), "digest cannot be this"),
        (lambda content: content.pop("target"), "without target"),
        (lambda content: content["plan"].pop("words"), "without words"),
        (put("target", value=None), "target"),
        (put("plan", value=[]), "plan"),
        (put("wasm", value="@@@"), "base64"),
        (put("wasm", value=3), "wasm"),
        (put("resident", value=-1), "resident"),
        (put("resident", value=True), "resident"),
        (put("resident", value=2**53), "resident"),
        (put("resident", value=1.5), "resident"),
        (put("inputs", value={}), "inputs"),
        (put("inputs", value=[]), "plan.inputs"),
        (put("inputs", 0, value=["x"]), "a port"),
        (put("inputs", 0, 1, value="f32[batch"), "a text"),
        (put("inputs", 0, 1, value="f32[batch // 0, 1]"), "a text"),
        (put("inputs", 0, 1, value="f32[batch]"), "plan.inputs"),
        (put("outputs", 0, 1, value="f32[]"), "plan.outputs"),
        (put("bindings", 0, 1, value="nobody"), "a binding"),
        (put("guards", 0, 1, value="="), "a word"),
        (put("guards", 0, 0, value="rate ="), "a text"),
        (put("uploads", 0, value=1), "an upload"),
        (put("launches", 0, 3, value="later"), "a word"),
        (put("execute", 2, value=["run", 1, 3]), "a run"),
        (put("execute", 2, value=["run", 2, 1]), "a run"),
        (put("execute", 2, value=["run", 1]), "command run"),
        (put("execute", 2, value=["jump", 1]), "a word"),
        (put("execute", 2, value=[]), "a word"),
        (put("execute", 2, value="run"), "a command"),
        (put("execute", 2, value=["run", 1, "2"]), "run"),
        (put("plan", "instructions", 2, value=["mul", 0, 2]), "mul"),
        (put("plan", "instructions", 2, value=["mul", 0]), "an instruction"),
        (put("plan", "instructions", 2, value=["pow", 0, 1]), "a word"),
        (put("plan", "instructions", 0, value=["symbol", 2, 0]), "symbol"),
        (put("plan", "instructions", 0, value=["const", 0.5, 0]), "a constant"),
        (put("plan", "symbols", 0, value=0), "a symbol"),
        (put("plan", "words", 0, value=2**31), "i32"),
        (put("plan", "words", 0, value="1"), "a word"),
        (put("plan", "writes", 0, value=[4, 0]), "a written word"),
        (put("plan", "writes", 0, value=[0, 6]), "a plan value"),
        (put("plan", "peak", value=6), "a plan value"),
        (put("plan", "guards", 0, 0, value=-1), "a plan value"),
        (put("plan", "guards", 0, 1, value="~"), "a word"),
        (put("plan", "inputs", 0, value=[1]), "a place"),
        (put("plan", "inputs", 0, 1, value=[9, 9]), "a plan value"),
    ],
)
def test_what_is_refused(change: Callable[[dict[str, Any]], object], word: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_program(signed(change), "p.json")
    assert caught.value.code in ("program.syntax", "program.value")
    assert word in str(caught.value)
    assert str(caught.value).startswith("p.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "null", '{"rlx.program": "1.0"}'])
def test_documents_that_are_none(text: str) -> None:
    with pytest.raises(ModelError):
        load_program(text)


def test_numbers_are_finite() -> None:
    text = dump_program(program()).replace('"resident": 4096', '"resident": NaN')
    with pytest.raises(ModelError, match="finite"):
        load_program(text)


def test_documents_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_edge.ir.program_text.MAX_TEXT", 10)
    with pytest.raises(ModelError, match="at most 10"):
        load_program(dump_program(program()))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from(("run", "", "f32[]", "==")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("a"), inner),
    max_leaves=4,
)


@settings(max_examples=120)
@given(st.data())
def test_spoiled_documents_fail_only_in_words(data: st.DataObject) -> None:
    """A document with any value replaced is refused, or is a program that can be written."""

    def change(content: dict[str, Any]) -> None:
        place: Any = content
        while True:
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                return
            step = data.draw(st.sampled_from(list(keys)))
            inner = place[step]
            if not isinstance(inner, (dict, list)) or not inner or data.draw(st.booleans()):
                place[step] = data.draw(_JSON)
                return
            place = inner

    try:
        found = load_program(signed(change))
    except RlxError as error:
        assert "\n" not in str(error)
    else:
        assert load_program(dump_program(found)) == found
