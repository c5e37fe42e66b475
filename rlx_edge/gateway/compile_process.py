"""The process that parses, verifies and compiles what a client sent, and nothing else.

One request on standard input, one answer on standard output, then it ends. Each is a line of JSON
(its length is bounded by the reader), the answer followed by the program's document and that of the
task graph. Memory and processor time are bounded before the text is looked at.
"""

from __future__ import annotations

import json
import resource
import sys

from rlx_edge.compile import compile_part
from rlx_edge.compile.schedule import schedule
from rlx_edge.compile.targets.record import target_of
from rlx_edge.compile.targets.target import Target
from rlx_edge.ir.core import Constant, Module
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.program_text import dump_program
from rlx_edge.ir.sidecar import constant_types
from rlx_edge.ir.task_graph import dump_task_graph
from rlx_edge.ir.verifier import verify


def main() -> int:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.readline())
    nbytes, seconds = int(request["bytes"]), int(request["seconds"])
    resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # SIGXCPU says why
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    text = sys.stdin.buffer.read(int(request["length"]))
    try:
        program, graph = compiled(text, str(request["device"]), target_of(request["target"]))
        answer: dict[str, object] = {"program": len(program), "graph": len(graph)}
    except RlxError as error:
        answer, program, graph = {"error": _told(error)}, "", ""
    except MemoryError:
        answer = {"error": _told(failure("compile.memory", nbytes=nbytes))}
        program = graph = ""
    except RecursionError:
        answer = {"error": _told(failure("compile.failed", reason="nested too deeply"))}
        program = graph = ""
    sys.stdout.write(json.dumps(answer) + "\n" + program + graph)
    sys.stdout.flush()
    return 0


def compiled(text: bytes, device: str, target: Target) -> tuple[str, str]:
    """Documents of the program of ``device``'s part for ``target``, and of the task graph."""
    try:
        module = parse_module(text.decode("utf-8"), "shard.rlx")
    except UnicodeDecodeError as error:
        raise failure("compile.text", found=f"byte {error.start}") from None
    module.constants = absent_constants(module)
    verify(module)
    program = compile_part(module, device, target)
    return dump_program(program), dump_task_graph(schedule(module))


def absent_constants(module: Module) -> dict[str, Constant]:
    """The constants that the text names, without their bytes: compiling reads none."""
    nothing = MemorySource(b"")
    return {
        digest: Constant(digest, type, nothing, 0, type.nbytes.value)
        for digest, type in constant_types(module).items()
        if type.is_static
    }


def _told(error: RlxError) -> dict[str, str]:
    def text(value: object) -> str:
        items = value if isinstance(value, list | tuple) else [value]
        return "" if value is None else ", ".join(map(str, items))[:1000]

    return {
        "kind": type(error).__name__,
        "code": error.code,
        "what": error.what[:1000],
        "found": text(error.found),
        "allowed": text(error.allowed),
        "where": text(error.where),
    }


if __name__ == "__main__":
    sys.exit(main())
