/** Runs that exchange tensors: mailboxes, transfers between memory and a link, task graphs. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { failure } from "../runtime/errors.js";
import { Executor } from "../runtime/executor.js";
import { Mailbox } from "../runtime/links.js";
import { protocolFor, readTaskGraph } from "../runtime/task_graph.js";
import { Trace } from "../runtime/trace.js";
import { checkTransfers, Transfers } from "../runtime/transfers.js";
import { readText } from "./golden.js";

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

const bytes = (/** @type {number[]} */ ...items) => Uint8Array.from(items);

/** @param {[number, boolean, number][]} rows edge, whether it is sent, bytes */
function parts(rows) {
  const memory = new Uint8Array(64);
  const unit = {
    download: (/** @type {number} */ at, /** @type {number} */ n) => memory.slice(at, at + n).buffer,
    upload: (/** @type {number} */ at, /** @type {Bytes} */ data) => memory.set(data, at),
  };
  const transfers = rows.map(([edge, isSend]) => ({ edge, isSend, name: `v${edge}` }));
  const places = rows.map(([, , nbytes], i) => ({ address: 16 * i, shape: [nbytes], nbytes }));
  return { memory, unit, program: { transfers }, plan: { transfers: places } };
}

/**
 * @param {[number, boolean, number][]} rows
 * @param {Partial<import("../runtime/links.js").RunLink>} link
 */
function transfers(rows, link) {
  const { memory, unit, program, plan } = parts(rows);
  const whole = { send: async () => {}, receive: async () => bytes(), end: async () => {}, abort: () => {}, ...link };
  const trace = new Trace("browser:0");
  const made = /** @type {any} */ ([unit, program, plan, whole, trace]);
  return { memory, trace, made: new Transfers(...(/** @type {[any, any, any, any, any]} */ (made))) };
}

test("bytes wait for whoever asks, and whoever asks for bytes", async () => {
  const box = new Mailbox();
  box.arrive(1, bytes(1));
  const later = box.receive(2);
  box.arrive(2, bytes(2));
  assert.deepEqual([await box.receive(1), await later], [bytes(1), bytes(2)]);
  assert.throws(() => box.arrive(1, bytes(1)), { code: "edge.unknown" });
});

test("a failure reaches whoever waits now or later, and what has come stays", async () => {
  const box = new Mailbox();
  const waiting = box.receive(1);
  box.arrive(2, bytes(2));
  box.fail(failure("peer.lost", { reason: "first" }));
  box.fail(failure("peer.lost", { reason: "second" }));
  await assert.rejects(waiting, /first/);
  await assert.rejects(box.receive(3), /first/);
  assert.deepEqual(await box.receive(2), bytes(2));
});

test("what is sent leaves as it was then, what arrives is stored", async () => {
  /** @type {[number, number[]][]} */
  const sent = [];
  const { memory, trace, made } = transfers([[0, true, 3], [1, false, 2]], {
    send: async (edge, data) => {
      await null;
      sent.push([edge, [...data]]);
    },
    receive: async () => bytes(8, 9),
  });
  memory.set([1, 2, 3]);
  const executor = new Executor([["send", 0], ["receive", 1], ["wait", 1]]);
  for (const action of executor.handle(["started"])) made.carryOut(/** @type {any} */ (action));
  memory.set([7, 7, 7]);
  while (executor.state === "active") executor.handle(await made.next());
  assert.equal(executor.state, "finished");
  assert.deepEqual(sent, [[0, [1, 2, 3]]]);
  assert.deepEqual([...memory.slice(16, 18)], [8, 9]);
  const kinds = trace.take().map(({ kind, edge, nbytes }) => `${kind} ${edge} ${nbytes}`);
  assert.deepEqual(kinds.sort(), ["receive 1 2", "send 0 3", "wait 1 0"]);
});

test("a payload of another length, and a link that fails, end the run", async () => {
  const short = transfers([[1, false, 2]], { receive: async () => bytes(1) });
  short.made.carryOut(["receive", 1]);
  await assert.rejects(short.made.next(), { code: "edge.bytes" });
  const lost = transfers([[0, true, 2]], {
    send: async () => {
      throw failure("peer.lost", { reason: "gone" });
    },
  });
  lost.made.carryOut(["send", 0]);
  await assert.rejects(lost.made.next(), { code: "peer.lost" });
});

test("a cancel is an event like others; nothing is stored after the end", async () => {
  let aborted = 0;
  /** @type {(data: Bytes) => void} */
  let arrive = () => {};
  const { memory, made } = transfers([[1, false, 2]], {
    receive: () => new Promise((resolve) => (arrive = resolve)),
    abort: () => {
      aborted += 1;
    },
  });
  const controller = new AbortController();
  made.carryOut(["receive", 1]);
  const next = made.next(controller.signal);
  controller.abort();
  assert.deepEqual(await next, ["cancelled"]);
  made.close();
  arrive(bytes(5, 5));
  await null;
  await null;
  assert.deepEqual([aborted, ...memory.slice(0, 2)], [1, 0, 0]);
});

test("commands and transfers have to agree", () => {
  const { program } = parts([[0, true, 1], [1, false, 1]]);
  const check = (/** @type {any[]} */ execute, /** @type {any[]} */ prepare = []) =>
    checkTransfers(/** @type {any} */ ({ ...program, execute, prepare }));
  check([["send", 0], ["receive", 1]]);
  for (const [execute, prepare] of [
    [[["send", 0]], []],
    [[["receive", 0], ["send", 1]], []],
    [[["send", 0], ["receive", 1], ["send", 2]], []],
    [[["receive", 1]], [["send", 0]]],
  ]) {
    assert.throws(() => check(execute, prepare), { code: "program.transport" });
  }
});

test("a task graph is read, and held to its digest", async () => {
  const text = readText("task_graph/shared_constant.json");
  const graph = await readTaskGraph(text);
  assert.equal(graph.digest, JSON.parse(text).digest);
  assert.ok(graph.edges.length >= 2 && graph.tasks.every(({ device }) => device < graph.devices.length));
  const [edge] = graph.edges;
  assert.equal(protocolFor(edge, edge.bulkBytes), edge.protocol);
  assert.equal(protocolFor(edge, edge.bulkBytes + 1), edge.bulkProtocol);
  const other = text.replace(/"bulk|"http"/, '"memcpy"');
  await assert.rejects(readTaskGraph(other), { code: "digest.mismatch" });
  for (const wrong of ["{", "[]", text.replace('"1.0"', '"9.0"')]) {
    await assert.rejects(readTaskGraph(wrong), { code: "graph.syntax" });
  }
});
