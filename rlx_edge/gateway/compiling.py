"""Compiling for clients, each time in a process of its own that is killed when it takes too long.

Nothing of what a client sent is parsed in the gateway's process; what comes back is a program
document, which its reader checks number by number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys

from rlx_edge.compile.targets.record import target_fields
from rlx_edge.compile.targets.target import Target
from rlx_edge.gateway.limits import Limits
from rlx_edge.ir import errors
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.program import Program
from rlx_edge.ir.program_text import load_program
from rlx_edge.ir.task_graph import TaskGraph, load_task_graph

MAX_ANSWER = 256 << 20
MODULE = "rlx_edge.gateway.compile_process"
PATIENCE = 10
"""How much longer than on a machine of its own a compiler process may take."""


class Compiler:
    """At most ``limits.compilers`` processes at a time; further requests wait."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._places = asyncio.Semaphore(limits.compilers)

    async def compile(self, text: bytes, device: str, target: Target) -> tuple[Program, TaskGraph]:
        """The program of ``device``'s part of the placed ``text``, for what it is, and the task
        graph.

        What the parser, verifier and compiler refuse; ``LimitError`` ``compile.timeout`` or
        ``compile.memory``, ``DeviceError`` ``compile.failed`` where the process ends otherwise.
        """
        async with self._places:
            answer = await self._ask(text, device, target)
        head, _, rest = answer.partition(b"\n")
        try:
            told = json.loads(head)
            if "error" in told:
                raise _error(told["error"])
            size = int(told["program"])
            documents = rest.decode("ascii")
            return load_program(documents[:size]), load_task_graph(documents[size:])
        except (ValueError, KeyError, TypeError) as error:
            raise failure("compile.failed", reason=repr(error)[:200]) from None

    async def _ask(self, text: bytes, device: str, target: Target) -> bytes:
        limits = self._limits
        request = {
            "device": device,
            "target": target_fields(target),
            "length": len(text),
            "bytes": limits.compile_bytes,
            "seconds": math.ceil(limits.compile_seconds),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        try:
            # The processor's time is what counts; a busy machine refuses nobody.
            async with asyncio.timeout(PATIENCE * limits.compile_seconds):
                answer, noise = await process.communicate(
                    json.dumps(request).encode() + b"\n" + text
                )
        except TimeoutError:
            raise failure("compile.timeout", seconds=f"{limits.compile_seconds:g}") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode == -24:  # SIGXCPU
            raise failure("compile.timeout", seconds=f"{limits.compile_seconds:g}")
        if process.returncode != 0 or len(answer) > MAX_ANSWER:
            last = noise.decode("utf-8", "replace").strip().splitlines()[-1:]
            if last and last[0].startswith("MemoryError"):
                raise failure("compile.memory", nbytes=limits.compile_bytes)
            reason = last[0][:200] if last else f"exit {process.returncode}"
            raise failure("compile.failed", reason=reason)
        return answer


def _error(told: dict[str, str]) -> RlxError:
    """The error that the process told, of its own class."""
    kind = getattr(errors, str(told["kind"]), RlxError)
    if not (isinstance(kind, type) and issubclass(kind, RlxError)):
        kind = RlxError
    return kind(
        told["code"],
        told["what"],
        found=told["found"] or None,
        allowed=told["allowed"] or None,
        where=told["where"] or None,
    )
