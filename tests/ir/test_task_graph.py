"""Task graphs: their document, its digest, and documents that are none."""

# covers R24

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rlx_edge.compile.passes.split import Split
from rlx_edge.compile.schedule import schedule
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.task_graph import TaskGraph, dump_task_graph, load_task_graph
from rlx_edge.ir.task_graph_picture import task_graph_dot, task_graph_svg
from tests.conftest import Golden


@pytest.fixture
def graph(golden: Golden) -> TaskGraph:
    text = golden.read("split/shared_constant.rlx").partition("\n")[2]
    return schedule(Split(after="y").run(parse_module(text)))


def test_document(golden: Golden, graph: TaskGraph) -> None:
    text = dump_task_graph(graph)
    golden.check("task_graph/shared_constant.json", text)
    assert load_task_graph(text) == graph
    assert json.loads(text)["digest"] == graph.digest


def test_pictures(golden: Golden, graph: TaskGraph) -> None:
    golden.check("task_graph/shared_constant.dot", task_graph_dot(graph))
    golden.check("task_graph/shared_constant.svg", task_graph_svg(graph))


def test_protocol_follows_the_payload(graph: TaskGraph) -> None:
    edge = graph.edges[0]
    assert (edge.protocol_for(edge.bulk_bytes), edge.protocol_for(edge.bulk_bytes + 1)) == (
        "websocket",
        "http",
    )


SPOILED: dict[str, Callable[[str], str]] = {
    "not JSON": lambda text: text[:-3],
    "a list": lambda text: "[]",
    "another version": lambda text: text.replace(
        '"rlx.task_graph": "1.0"', '"rlx.task_graph": "2"'
    ),
    "another digest": lambda text: text.replace('"digest": "sha256:', '"digest": "sha256:0', 1),
    "a further field": lambda text: text.replace("{\n", '{\n"extra": 1,\n', 1),
    "an unknown device": lambda text: text.replace('[1,"execute"', '[7,"execute"', 1),
    "an unknown phase": lambda text: text.replace('"execute"', '"later"', 1),
    "a float": lambda text: text.replace("262144", "262144.5", 1),
    "wrong bytes": lambda text: text.replace('"16 * n"', '"17 * n"', 1),
    "an unknown protocol": lambda text: text.replace('"http"', '"pigeon"', 1),
    "an unreadable type": lambda text: text.replace("f32[n, 4]", "f32[n, ", 1),
    "an absent edge": lambda text: text.replace(",[0,1]]", ",[0,9]]", 1),
}


@pytest.mark.parametrize("name", SPOILED)
def test_other_documents_are_refused(graph: TaskGraph, name: str) -> None:
    text = dump_task_graph(graph)
    spoiled = SPOILED[name](text)
    assert spoiled != text
    with pytest.raises(RlxError) as error:
        load_task_graph(spoiled, "graph.json")
    assert error.value.code in ("graph.syntax", "digest.mismatch")
    assert str(error.value).startswith("graph.json: ")
