/**
 * Task graphs: the JSON document of `rlx_edge/ir/task_graph.py`. Both sides of a run derive it from
 * the same placed IR; its digest says that they mean the same.
 *
 * @typedef {object} Task
 * @property {number} device a position in the graph's devices
 * @property {string} phase
 * @property {[number, number][]} ops ranges of positions in the placed function
 * @property {string[]} inputs
 * @property {string[]} outputs
 * @property {number[]} receives edges that it waits for
 * @typedef {object} Edge
 * @property {number} edge
 * @property {string} name of the value
 * @property {number} source a task
 * @property {number} target
 * @property {string} protocol
 * @property {string} bulkProtocol of payloads of more than `bulkBytes` bytes
 * @property {number} bulkBytes
 * @property {string} type
 * @property {string} nbytes a dim
 * @typedef {{digest: string, irDigest: string, devices: string[], tasks: Task[], edges: Edge[]}}
 *   TaskGraph
 */

import { jsonDigest } from "./digests.js";
import { failure } from "./errors.js";

const HEADER = "rlx.task_graph";
const VERSION = "1.0";

/**
 * The graph of its document. `ModelError` `graph.syntax` for another document, `DigestError` where
 * digest and content do not belong together.
 *
 * @param {string} text
 * @param {string} [where]
 * @returns {Promise<TaskGraph>}
 */
export async function readTaskGraph(text, where = "task graph") {
  const fail = (/** @type {string} */ field, /** @type {unknown} */ found) =>
    failure("graph.syntax", { field, found: String(found).slice(0, 120), allowed: "see task_graph.py" }, { where });
  let content;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw fail("the document", /** @type {Error} */ (error).message);
  }
  if (content?.[HEADER] !== VERSION) throw fail("the document", content?.[HEADER]);
  const { [HEADER]: _, digest, ...body } = content;
  const found = await jsonDigest(body);
  if (found !== digest) {
    const what = "the task graph's digest and its content";
    throw failure("digest.mismatch", { what, found, expected: digest }, { where });
  }
  const rows = (/** @type {string} */ name, /** @type {number} */ length) => {
    const list = body[name];
    if (!Array.isArray(list)) throw fail(name, list);
    for (const row of list) if (!Array.isArray(row) || row.length !== length) throw fail(name, row);
    return list;
  };
  return {
    digest,
    irDigest: body.ir_digest,
    devices: body.devices,
    tasks: rows("tasks", 6).map(([device, phase, ops, inputs, outputs, receives]) => ({
      device, phase, ops, inputs, outputs, receives,
    })),
    edges: rows("edges", 9).map(
      ([edge, name, source, target, protocol, bulkProtocol, bulkBytes, type, nbytes]) => ({
        edge, name, source, target, protocol, bulkProtocol, bulkBytes, type, nbytes,
      }),
    ),
  };
}

/**
 * Which protocol carries a payload of this many bytes.
 *
 * @param {Edge} edge
 * @param {number} nbytes
 */
export function protocolFor({ protocol, bulkProtocol, bulkBytes }, nbytes) {
  return nbytes > bulkBytes ? bulkProtocol : protocol;
}
