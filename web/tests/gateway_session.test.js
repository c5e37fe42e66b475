/** The client's machine: what it says, and what it makes of what a gateway says. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { GatewaySession } from "../runtime/gateway_session.js";
import { decode, encode, frame } from "../runtime/protocol.js";
import { answer, readJson } from "./golden.js";

const IR = `sha256:${"1".repeat(64)}`;
const GRAPH = `sha256:${"2".repeat(64)}`;
const WELCOME = {
  version: 1,
  session: "client-1",
  ticket: "t",
  devices: ["cpu:0@gateway"],
  models: [],
  limits: { shards: 8 },
  heartbeat_ms: 2000,
};

/** @param {number[]} [times] what the clock shows once it is open, one reading after the other */
function opened(times = []) {
  let isOpen = false;
  const session = new GatewaySession("test", () => (isOpen && times.shift()) || 0);
  session.take();
  const events = session.received(encode(frame("WELCOME", WELCOME)));
  isOpen = true;
  return { session, events };
}

/**
 * @param {GatewaySession} session
 * @param {import("../runtime/protocol.js").KindName} kind
 * @param {Record<string, unknown>} control
 * @param {Uint8Array<ArrayBuffer>} [payload]
 */
const told = (session, kind, control, payload) =>
  session.received(encode(frame(kind, control, payload)));

/** @param {GatewaySession} session */
const said = (session) => session.take().map((bytes) => decode(bytes));

test("hello comes first, and nothing before the welcome", () => {
  const session = new GatewaySession("test", () => 0);
  const [hello] = said(session);
  assert.deepEqual(hello.control, { versions: [1], client: "test", capabilities: ["websocket", "http"] });
  assert.throws(() => session.run(0, {}), { code: "peer.state" });
  assert.throws(() => told(session, "NEED", { shard: 0, digests: [] }), { code: "peer.state" });
  const again = new GatewaySession("test", () => 0);
  const other = { ...WELCOME, version: 2 };
  assert.throws(() => told(again, "WELCOME", other), { code: "peer.version" });
});

test("a shard, a run and its tensors", () => {
  const { session, events } = opened();
  assert.equal(events[0].kind, "welcomed");
  session.askShard(3, { device: "cpu:0@gateway", ir: IR, graph: GRAPH });
  assert.deepEqual(told(session, "NEED", { shard: 3, digests: [IR] }), [
    { kind: "needed", shard: 3, digests: [IR] },
  ]);
  const ready = { shard: 3, ir: IR, graph: GRAPH, kernels: IR, resident: 5 };
  assert.deepEqual(told(session, "READY", ready), [
    { kind: "ready", shard: 3, kernels: IR, resident: 5 },
  ]);
  const run = session.run(3, { batch: 2 });
  const data = Uint8Array.from({ length: 70_000 }, (_, i) => i);
  session.sendTensor(run, 0, data);
  const frames = said(session).map(({ kind, control, payload }) => [kind, control.offset, payload.length]);
  assert.deepEqual(frames, [
    ["SHARD", undefined, 0],
    ["RUN", undefined, 0],
    ["TENSOR", 0, 65_536],
    ["TENSOR", 65_536, 4_464],
  ]);
  const part = (/** @type {number} */ offset, /** @type {number} */ end) =>
    told(session, "TENSOR", { run, edge: 1, offset, total: data.length }, data.slice(offset, end));
  assert.deepEqual(part(0, 60_000), []);
  assert.deepEqual(part(60_000, 70_000), [{ kind: "arrived", run, edge: 1, data }]);
  assert.throws(() => part(5, 10), { code: "upload.order" });
  const offer = { run, edge: 2, id: "x", total: 9 };
  assert.deepEqual(told(session, "TENSOR_AT", offer), [
    { kind: "offered", run, edge: 2, id: "x", nbytes: 9 },
  ]);
  const done = { run, device: "cpu:0@gateway", events: [["run", 1]] };
  assert.deepEqual(told(session, "DONE", done), [{ kind: "done", ...done }]);
  assert.deepEqual(part(0, 10), [], "a run that has ended takes nothing");
  session.cancel(run);
  assert.deepEqual(said(session), [], "nor is it cancelled");
});

test("another digest than was asked for is refused", () => {
  const { session } = opened();
  session.askShard(0, { device: "cpu:0@gateway", ir: IR, graph: GRAPH });
  for (const wrong of [{ ir: GRAPH }, { graph: IR }]) {
    const ready = { shard: 0, ir: IR, graph: GRAPH, kernels: IR, resident: 5, ...wrong };
    assert.throws(() => told(session, "READY", ready), { code: "digest.mismatch" });
  }
});

test("errors have the class that their code has here", () => {
  const { session } = opened();
  const control = { code: "queue.full", what: "too much", found: "9", allowed: "8", where: "", run: 2, shard: -1, fatal: 0 };
  const [event] = told(session, "ERROR", control);
  assert.ok(event.kind === "refused" && event.run === 2 && !event.fatal);
  const { error } = event;
  assert.deepEqual([error.name, error.code], ["LimitError", "queue.full"]);
  assert.equal(error.message, "gateway: too much; found 9; allowed: 8");
  const [last] = told(session, "ERROR", { ...control, code: "parse.type", fatal: 1 });
  assert.ok(last.kind === "refused" && last.fatal && last.error.name === "RlxError");
  assert.equal(session.state, "closed");
});

test("clocks: the offset lies in the middle of the trip", () => {
  const { session } = opened([1000, 1600, 1600]);
  session.ping();
  assert.deepEqual(said(session)[0].control, { sent: 1000 });
  const [read] = told(session, "PONG", { sent: 1000, received: 51_200, replied: 51_300 });
  assert.deepEqual(read, { kind: "clock", offset: 49_950, uncertainty: 250 });
});

test("a heartbeat is answered with our clock", () => {
  const { session } = opened([7, 7, 8]);
  assert.deepEqual(told(session, "PING", { sent: 5 }), []);
  const [{ kind, control }] = said(session);
  assert.deepEqual([kind, control], ["PONG", { sent: 5, received: 7, replied: 8 }]);
});

test("what only clients say is refused", () => {
  const { session } = opened();
  assert.throws(() => told(session, "RELEASE", { shard: 0 }), { code: "peer.state" });
  assert.deepEqual(told(session, "BYE", { reason: "stopping" }), [{ kind: "ended", reason: "stopping" }]);
  assert.equal(session.state, "closed");
});

test("who is silent for too long, as Python says", () => {
  const scenarios = readJson("protocol/silence.json");
  assert.ok(scenarios.length >= 8);
  for (const { name, steps } of scenarios) {
    let now = 0;
    const session = new GatewaySession("test", () => now);
    /** @type {Record<string, (step: any) => void>} */
    const acts = {
      frame: ({ kind, control }) => session.received(encode(frame(kind, control))),
      heard: () => session.heard(),
      body_begins: () => session.bodyBegins(),
      body_ends: () => session.bodyEnds(),
      tick: ({ late }) => session.tick(late),
    };
    for (const [number, step] of steps.entries()) {
      now = step.at;
      const found = answer(() => (acts[step.do](step), null));
      assert.deepEqual(found, step.answer, `${name}, step ${number}`);
    }
  }
});
