/** What this browser can do, found by validating tiny modules. */

import { Trace } from "../runtime/trace.js";
import { h } from "./dom.js";

const HEAD = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
/** One function type without parameters and results, one function of it. */
const FUNCTION = [1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0];

/**
 * A module whose only function has this body.
 *
 * @param {number[]} body
 */
function code(body) {
  const entry = [0, ...body, 0x0b];
  return [...HEAD, ...FUNCTION, 10, entry.length + 2, 1, entry.length, ...entry];
}

const V128_ZERO = [0xfd, 0x0c, ...Array(16).fill(0)];

/** @type {[string, string, number[]][]} */
const FEATURES = [
  ["SIMD (f32x4)", "what the kernels are made of", code([...V128_ZERO, 0x1a])],
  ["relaxed SIMD", "fused multiply-add", code([...V128_ZERO, ...V128_ZERO, ...V128_ZERO, 0xfd, 0x85, 0x02, 0x1a])],
  ["bulk memory", "memory.fill, memory.copy", [...HEAD, ...FUNCTION, 5, 3, 1, 0, 1, 10, 13, 1, 11, 0, 0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 0x0b, 0, 0x0b]],
  ["threads", "shared memory", [...HEAD, 5, 4, 1, 3, 1, 1]],
  ["memory64", "memories beyond 4 GiB", [...HEAD, 5, 3, 1, 4, 1]],
];

/** Names of the features that are there. */
export function features() {
  return FEATURES.filter(([, , bytes]) => WebAssembly.validate(Uint8Array.from(bytes))).map(([name]) => name);
}

/** A list for people. */
export function capabilitiesView() {
  const found = features();
  const isolated = globalThis.crossOriginIsolated;
  const rows = [
    ...FEATURES.map(([name, what]) => [name, what, found.includes(name) ? "yes" : "no"]),
    ["isolated page", "threads may share memory (COOP and COEP)", isolated ? "yes" : "no"],
    ["secure context", "digests are checked, compiled models are kept", globalThis.isSecureContext ? "yes" : "no"],
    ["processors", "that the browser reports", String(navigator.hardwareConcurrency ?? "unknown")],
    ["clock", "smallest step", `${(Trace.resolution() / 1000).toFixed(0)} µs`],
    ["WebGPU", "not used yet", "gpu" in navigator ? "yes" : "no"],
  ];
  return h(
    "table",
    { class: "capabilities", id: "capabilities" },
    h("caption", {}, "This browser"),
    h(
      "tbody",
      {},
      rows.map(([name, what, value]) =>
        h("tr", { "data-name": name }, h("th", { scope: "row" }, name), h("td", {}, value), h("td", { class: "hint" }, what)),
      ),
    ),
  );
}
