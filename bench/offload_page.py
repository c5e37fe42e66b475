"""What offloading costs a page on loopback: the figures of `bench.offload`, from Chromium.

usage: python -m bench.offload_page [--rounds N] [--output DIR]

One operation (`relu`) runs on the gateway on a tensor of each size, driven by the JavaScript
runtime on the main thread of a page that does nothing else. Latency is the whole run less the
gateway's kernels; throughput counts the bytes both ways over the same difference.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.chromium_tab import Tab, chromium_tab
from bench.offload import MODEL, SECONDS, SIZES, TRANSPORTS, Row, markdown
from rlx_edge.compile import WasmTarget, compile_part, place_module
from rlx_edge.compile.passes.split import Split
from rlx_edge.compile.schedule import schedule
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.program_text import dump_program
from rlx_edge.ir.task_graph import dump_task_graph
from rlx_edge.offload import GATEWAY, HOME
from tests.browser.gateway import require_site, running_gateway

TOKEN = "token-of-the-bench"
MEASURE = """
async ({ part, url, token, nbytes, rounds, seconds }) => {
  const { GatewayClient, InferenceSession, Tensor } = await import("/runtime/index.js");
  const gateway = new GatewayClient(url, { token, client: "bench" });
  const weights = { files: {}, constants: {} };
  await gateway.add({ ...part, weights });
  const wasm = Uint8Array.from(atob(part.kernels), (unit) => unit.charCodeAt(0));
  const model = { program: part.program, wasm, weights };
  const session = await InferenceSession.create(model, { peer: gateway });
  const x = new Float32Array(nbytes / 4);
  for (let i = 0; i < x.length; i += 1) x[i] = i;
  const feeds = { x: new Tensor("float32", x, [x.length]) };
  const beyond = [];
  const kernels = [];
  try {
    for (let i = 0; i < 2; i += 1) {
      const { y } = await session.run(feeds);
      const { data } = y;
      for (let at = 0; at < x.length; at += 1) {
        if (data[at] !== x[at]) throw new Error("other bytes came back");
      }
    }
    const end = performance.now() + seconds * 1000;
    while (beyond.length < rounds && (beyond.length < 3 || performance.now() < end)) {
      const start = performance.now();
      await session.run(feeds);
      const wall = performance.now() - start;
      const kernel = gateway.lastRun.events
        .filter(({ kind }) => kind === "run")
        .reduce((sum, { duration }) => sum + duration / 1e6, 0);
      kernels.push(kernel);
      beyond.push(wall - kernel);
    }
  } finally {
    await session.release();
    await gateway.close();
  }
  return { beyond, kernels };
}
"""


def compiled(bulk_bytes: int) -> dict[str, Any]:
    """The page's part of the one-operation model, everything on the gateway."""
    module = Split(bulk_bytes=bulk_bytes).run(place_module(parse_module(MODEL)))
    graph = schedule(module)
    program = compile_part(module, HOME, WasmTarget("v8"))
    return {
        "device": GATEWAY,
        "ir": print_module(module),
        "irDigest": graph.ir_digest,
        "taskGraph": dump_task_graph(graph),
        "program": dump_program(program, with_code=False),
        "kernels": base64.b64encode(program.code).decode("ascii"),
    }


def measure(tab: Tab, url: str, transport: str, rounds: int) -> Iterator[Row]:
    """One row a size."""
    part = compiled(TRANSPORTS[transport])
    for nbytes in SIZES:
        job = {"part": part, "url": url, "token": TOKEN, "nbytes": nbytes}
        found = tab.evaluate(MEASURE, {**job, "rounds": rounds, "seconds": SECONDS})
        beyond, kernels = sorted(found["beyond"]), sorted(found["kernels"])
        p50 = beyond[len(beyond) // 2]
        yield Row(
            transport,
            nbytes,
            len(beyond),
            p50,
            beyond[min(len(beyond) - 1, int(0.99 * len(beyond)))],
            kernels[len(kernels) // 2],
            2 * nbytes / 1e3 / p50,
        )


def measure_all(rounds: int) -> Sequence[Row]:
    """Both transports at every size."""
    require_site()
    arguments = ("--offload", "--token", TOKEN, "--models", "digits")
    # An address without scripts of its own: nothing else runs in the page.
    with running_gateway(*arguments) as url, chromium_tab(f"{url}healthz") as tab:
        return [row for name in TRANSPORTS for row in measure(tab, url, name, rounds)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--output", type=Path, default=Path("build/bench"))
    options = parser.parse_args(arguments)
    rows = measure_all(options.rounds)
    text = markdown(rows).replace("loopback", "loopback from Chromium", 1)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "offload_page.md").write_text(text, encoding="utf-8")
    content = json.dumps([asdict(row) for row in rows], indent=1)
    (options.output / "offload_page.json").write_text(content + "\n", encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
