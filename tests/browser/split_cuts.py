"""Cuts of a model in Chromium: the page's own compiler, runtime and gateway client, cut by cut."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge import InferenceSession
from tests.browser.chromium import AppPage
from tests.browser.digests import content_digest

Array = npt.NDArray[Any]

MOST_VALUES = 3
AT_ONCE = 4
"""Cuts in one call of the page."""

RUNNER = """
async ({ model, digest, feeds, values, cuts, token }) => {
  const { GatewayClient, InferenceSession, Tensor } = await import("/runtime/index.js");
  const { contentDigest, arrayFor } = await import("/app/npy.js");
  const file = await (await fetch(`models/${model}.onnx`)).blob();
  const worker = new Worker("compiler/worker.js", { type: "module" });
  const ask = (message) => new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.kind === "failed") reject(new Error(`${data.code}: ${data.message}`));
      else if (data.kind !== "progress") resolve(data);
    };
    worker.postMessage({ id: 1, kind: "compile", file, name: model, values, ...message });
  });
  const tensors = Object.fromEntries(feeds.map(([name, type, dims, data]) => {
    const { buffer } = Uint8Array.from(atob(data), (unit) => unit.charCodeAt(0));
    return [name, new Tensor(type, new (arrayFor(type))(buffer), dims)];
  }));
  if (cuts === null) {
    const { cuts: found } = await ask({ device: "local" });
    worker.terminate();
    return found.map(([after, crossing]) => [after, crossing.length]);
  }
  const gateway = new GatewayClient(location.href, { token, client: "cuts" });
  const rows = [];
  try {
    for (const after of cuts) {
      const device = after === "" ? "remote" : "split";
      const part = await ask({ device, after });
      const weights = { files: { model: file, extra: part.extra }, constants: part.constants };
      const { peer, ir_digest, task_graph, placed, program, kernels } = part;
      const asked = { device: peer, ir: placed, irDigest: ir_digest, taskGraph: task_graph };
      await gateway.add({ ...asked, weights, model: digest, values });
      const compiled = { program, wasm: kernels, weights };
      const session = await InferenceSession.create(compiled, { peer: gateway });
      const outputs = await session.run(tensors);
      const digests = {};
      for (const [name, output] of Object.entries(outputs)) {
        digests[name] = await contentDigest(output);
      }
      const works = ({ kind, phase }) => kind === "run" && phase === "execute";
      const count = (events) => events.filter(works).length;
      const { events, graph, uncertainty } = gateway.lastRun;
      rows.push({
        after, digests, uncertainty,
        here: count(session.lastProfile), there: count(events),
        edges: graph.edges.length, graph: graph.digest,
        program: JSON.parse(program).part.graph_digest,
      });
      await session.release();
    }
  } finally {
    await gateway.close();
    worker.terminate();
  }
  return rows;
}
"""


@dataclass(frozen=True)
class CutRuns:
    """What became of a model's cuts: how many there are, and a row for each that was run."""

    model: str
    cuts: int
    rows: list[dict[str, Any]]
    expected: Mapping[str, str]

    @property
    def wrong(self) -> list[str]:
        """The cuts whose outputs are not those of one device."""
        return [str(row["after"]) for row in self.rows if row["digests"] != self.expected]

    @property
    def both(self) -> int:
        """How many ran kernels on both sides."""
        return sum(row["here"] > 0 and row["there"] > 0 for row in self.rows)


def run_cuts(
    app: AppPage,
    model: str,
    path: Path,
    feeds: Mapping[str, Array],
    *,
    digest: str,
    token: str,
    sample: int = 0,
    seed: int = 0,
    chosen: Sequence[str] | None = None,
    values: Mapping[str, Sequence[int]] | None = None,
) -> CutRuns:
    """The ``chosen`` cuts, or a seeded sample of those that at most three values cross, everything
    on the gateway among them. ``digest`` is the file's, or ``""`` to upload."""
    names = {np.dtype("<f4"): "float32", np.dtype("<i8"): "int64"}
    rows = [
        [name, names[array.dtype], list(array.shape), base64.b64encode(array.tobytes()).decode()]
        for name, array in feeds.items()
    ]
    job = {
        "model": model,
        "digest": digest,
        "feeds": rows,
        "values": {name: list(items) for name, items in (values or {}).items()},
        "token": token,
    }
    all_cuts = app.page.evaluate(RUNNER, {**job, "cuts": None})
    # Behind the last operation nothing is left for the gateway.
    possible = [after for after, crossing in all_cuts[:-1] if crossing <= MOST_VALUES]
    if chosen is None:
        chosen = possible
        if len(possible) > sample:
            chosen = ["", *sorted(random.Random(seed).sample(possible[1:], sample - 1))]
    if unknown := sorted(set(chosen) - set(possible)):
        raise ValueError(f"the page has no cut behind {unknown}")
    found: list[dict[str, Any]] = []
    for start in range(0, len(chosen), AT_ONCE):
        found += app.page.evaluate(RUNNER, {**job, "cuts": chosen[start : start + AT_ONCE]})
    with InferenceSession(path) as session:
        outputs = session.run(None, dict(feeds))
        expected = {
            node.name: content_digest(array)
            for node, array in zip(session.get_outputs(), outputs, strict=True)
        }
    return CutRuns(model, len(possible), found, expected)
