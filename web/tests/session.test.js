/** Sessions over the program that was made by hand: `y = x * (2 * w) + k` for `k < 100`. */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { GuardError, InputError, RlxError } from "../runtime/errors.js";
import { InferenceSession } from "../runtime/session.js";
import { Tensor } from "../runtime/tensor.js";
import { expected, handMade } from "./golden.js";

/**
 * @param {number} n
 * @param {number | bigint} [k]
 */
function feeds(n, k = 3) {
  const x = Float32Array.from({ length: 4 * n }, (_, i) => Math.sin(i + 1));
  return { x: new Tensor("float32", x, [n, 4]), k: new Tensor("int64", [k], [1]) };
}

/**
 * A session of the program, changed by `edit`.
 *
 * @param {import("../runtime/session.js").SessionOptions} [options]
 * @param {(document: any) => void} [edit]
 */
function open(options = {}, edit = undefined) {
  const { text, weights } = handMade();
  const program = JSON.parse(text);
  edit?.(program);
  const verify = edit ? false : options.verify;
  return InferenceSession.create({ program, weights, name: "hand" }, { ...options, verify });
}

/** @param {any} document */
function repeatLaunches(document) {
  document.execute = Array.from({ length: 400 }, () => ["run", 1, 3]);
}

/** @param {any} document */
function writeBeyondMemory(document) {
  document.plan.writes[2] = [10, 11]; // the product is said to have 2^28 bytes
}

test("the result, for shapes and values in any order", async () => {
  const session = await open();
  for (const [n, k] of [[1, 3], [5, -2], [1, 3], [3, 99]]) {
    const given = feeds(n, k);
    const { y } = await session.run(given);
    assert.deepEqual([y.type, y.dims], ["float32", [n, 4]]);
    assert.deepEqual(y.data, expected(/** @type {Float32Array} */ (given.x.data), k));
  }
  assert.equal(session.planCount, 3);
  await session.release();
});

test("inputs and outputs as onnxruntime-web describes them", async () => {
  const session = await open();
  assert.deepEqual(session.inputNames, ["x", "k"]);
  assert.deepEqual(session.outputNames, ["y"]);
  assert.deepEqual(session.inputMetadata, [
    { name: "x", isTensor: true, type: "float32", shape: ["n", 4] },
    { name: "k", isTensor: true, type: "int64", shape: [1] },
  ]);
  assert.deepEqual(session.outputMetadata[0].shape, ["n", 4]);
  await session.release();
});

test("tensors of another library are taken", async () => {
  const session = await open();
  const { x, k } = feeds(2);
  const foreign = { type: x.type, dims: [...x.dims], data: x.data, location: "cpu" };
  const { y } = await session.run({ x: foreign, k });
  assert.deepEqual(y.data, expected(/** @type {Float32Array} */ (x.data), 3));
  await session.release();
});

test("which outputs", async () => {
  const session = await open();
  for (const fetches of [["y"], { y: null }, null, undefined]) {
    assert.deepEqual(Object.keys(await session.run(feeds(1), fetches)), ["y"]);
  }
  assert.deepEqual(Object.keys(await session.run(feeds(1), [])), []);
  await assert.rejects(session.run(feeds(1), ["z"]), { code: "output.name", message: /'z'.*y/ });
  await assert.rejects(session.run(feeds(1), /** @type {any} */ ("y")), { code: "output.names" });
  await session.release();
});

test("mistakes leave a session that works", async () => {
  const session = await open();
  const { x, k } = feeds(2);
  const wrong = new Tensor("float32", new Float32Array(6), [2, 3]);
  /** @type {[any, typeof RlxError, string][]} */
  const cases = [
    [{ x: wrong, k }, InputError, "input.shape"],
    [{ x }, InputError, "input.name"],
    [{ x, k, z: k }, InputError, "input.name"],
    [{ x: k, k }, InputError, "input.dtype"],
    [{ x: [1, 2], k }, InputError, "input.array"],
    [[x, k], InputError, "input.feeds"],
    [feeds(2, 100), GuardError, "session.guard"],
    [feeds(2, 1n << 62n), GuardError, "session.guard"],
    [feeds(2, -(1n << 40n)), RlxError, "plan.range"],
  ];
  for (const [given, kind, code] of cases) {
    await assert.rejects(session.run(given), (error) => {
      assert.ok(error instanceof kind);
      assert.equal(error.code, code);
      return true;
    });
    assert.equal((await session.run(feeds(2))).y.size, 8);
  }
  await assert.rejects(session.run(feeds(2, 100)), {
    message: "hand: the model does not cover these inputs; found k = 100, n = 2; " +
      "allowed: k < 100 (a small k)",
  });
  await session.release();
});

test("memory grows and keeps the weights", async () => {
  const session = await open();
  await session.run(feeds(1));
  const before = session.memorySize;
  const given = feeds(20_000);
  const { y } = await session.run(given);
  assert.ok(session.memorySize > before);
  assert.deepEqual(y.data, expected(/** @type {Float32Array} */ (given.x.data), 3));
  assert.equal((await session.run(feeds(1))).y.size, 4);
  await session.release();
});

test("outputs are copies", async () => {
  const session = await open();
  const { y: first } = await session.run(feeds(1));
  const kept = Float32Array.from(/** @type {Float32Array} */ (first.data));
  await session.run(feeds(1, 50));
  assert.deepEqual(first.data, kept);
  await session.release();
});

test("plans are remembered and bounded", async () => {
  const session = await open({ plans: 2 });
  for (const n of [1, 2, 1, 2]) await session.run(feeds(n));
  assert.equal(session.planCount, 2);
  for (const n of [3, 2]) await session.run(feeds(n));
  assert.equal(session.planCount, 3);
  await session.run(feeds(1));
  assert.equal(session.planCount, 4);
  await session.release();
});

test("the trace has Python's fields", async () => {
  const session = await open();
  const loaded = session.lastProfile.map(({ kind, phase }) => `${kind} ${phase}`);
  assert.deepEqual(loaded, ["load dispatch", "load dispatch", "upload compile"]);
  await session.run(feeds(1));
  assert.deepEqual(
    session.lastProfile.map(({ kind, phase, name }) => `${kind} ${phase} ${name}`.trim()),
    [
      "plan dispatch",
      "run compile rlxc::mul",
      "input execute x",
      "input execute k",
      "run execute rlxc::mul",
      "run execute rlxc::add",
      "output execute y",
    ],
  );
  const [event] = session.lastProfile;
  assert.deepEqual(Object.keys(event), [
    ...["kind", "device", "phase", "start", "duration", "name", "begin", "end", "edge", "nbytes"],
  ]);
  assert.equal(event.device, "wasm:0");
  assert.equal(event.edge, -1);
  assert.ok(Number.isSafeInteger(event.start) && event.duration >= 0);
  await session.run(feeds(1));
  const phases = new Set(session.lastProfile.map(({ phase }) => phase));
  assert.deepEqual([...phases], ["execute"]);
  await session.release();
});

test("profiling times every launch", async () => {
  const session = await open({}, (document) => {
    document.execute = [["run", 1, 3]];
  });
  await session.run(feeds(1));
  const runs = () => session.lastProfile.filter(({ kind }) => kind === "run");
  assert.equal(runs().length, 2); // prepare, then both launches in one slice
  session.startProfiling();
  await session.run(feeds(1));
  assert.deepEqual(
    runs().map(({ name, begin, end }) => [name, begin, end]),
    [["rlxc::mul", 1, 2], ["rlxc::add", 2, 3]],
  );
  session.endProfiling();
  await session.run(feeds(1));
  assert.equal(runs().length, 1);
  await session.release();
});

test("the event loop gets its turn between slices", async () => {
  const session = await open({ slice: 0 }, repeatLaunches);
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 0);
  /** @type {string[]} */
  const steps = [];
  await session.run(feeds(50_000), null, {
    onProgress: ({ step, done, total }) => steps.push(`${step} ${done} of ${total}`),
  });
  clearInterval(timer);
  assert.ok(turns > 3, `${turns} turns`);
  assert.ok(steps.includes("run 1 of 2") && steps.includes("prepare 1 of 1"), steps[0]);
  await session.release();
});

test("a cancel ends a run, and the next one is right", async () => {
  const session = await open({ slice: 1 }, repeatLaunches);
  const given = feeds(20_000);
  for (const delay of [0, 5, 20]) {
    const controller = new AbortController();
    const run = session.run(given, { signal: controller.signal });
    await sleep(delay);
    controller.abort("changed my mind");
    await assert.rejects(run, (/** @type {any} */ error) => {
      assert.equal(error.name, "AbortError");
      assert.equal(error.code, "session.cancelled");
      assert.equal(error.cause, "changed my mind");
      return true;
    });
  }
  const again = await open();
  const { y } = await again.run(given);
  assert.deepEqual(y.data, expected(/** @type {Float32Array} */ (given.x.data), 3));
  const { y: other } = await session.run(given);
  assert.equal(other.size, y.size);
  await Promise.all([session.release(), again.release()]);
});

test("a cancel while prepare runs brings the weights again", async () => {
  const session = await open({ slice: 0 }, (document) => {
    document.prepare = Array.from({ length: 50 }, () => ["run", 0, 1]);
  });
  const controller = new AbortController();
  const run = session.run(feeds(1), {
    signal: controller.signal,
    onProgress: ({ step }) => step === "prepare" && controller.abort(),
  });
  await assert.rejects(run, { code: "session.cancelled", message: /is loaded/ });
  const given = feeds(2);
  const { y } = await session.run(given);
  assert.deepEqual(y.data, expected(/** @type {Float32Array} */ (given.x.data), 3));
  await session.release();
});

test("a signal that was aborted before", async () => {
  const signal = AbortSignal.abort();
  await assert.rejects(open({ signal }), { name: "AbortError" });
  const session = await open();
  await assert.rejects(session.run(feeds(1), { signal }), { name: "AbortError" });
  await session.release();
});

test("cancel while weights come and while kernels compile", async () => {
  for (const stop of ["fetch", "load", "weights"]) {
    const controller = new AbortController();
    const opening = open({
      signal: controller.signal,
      onProgress: ({ step, done }) => step === stop && done && controller.abort(),
    });
    await assert.rejects(opening, { code: "session.cancelled" }, stop);
  }
});

test("a kernel that traps is named, and the session recovers", async () => {
  const session = await open({}, writeBeyondMemory);
  await assert.rejects(session.run(feeds(1)), (/** @type {any} */ error) => {
    assert.equal(error.code, "wasm.trap");
    assert.match(error.message, /launch 1 \(%product rlxc::mul\): a kernel trapped; found memory/);
    return true;
  });
  assert.equal(session.memorySize, 0);
  await assert.rejects(session.run(feeds(1)), { code: "wasm.trap" });
  await session.release();
});

test("calls take turns", async () => {
  const session = await open({ slice: 0 });
  const given = [1, 7, 2, 7].map((n) => feeds(n, n));
  const results = await Promise.all(given.map((item) => session.run(item)));
  results.forEach(({ y }, i) => {
    const { x } = given[i];
    assert.deepEqual(y.data, expected(/** @type {Float32Array} */ (x.data), x.dims[0]));
  });
  await session.release();
});

test("a released session frees its memory and says so", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  /** @type {WeakRef<object>[]} */
  const references = [];
  const original = WebAssembly.instantiate;
  WebAssembly.instantiate = /** @type {any} */ (
    async (/** @type {any} */ module, /** @type {any} */ imports) => {
      const instance = /** @type {any} */ (await original(module, imports));
      references.push(new WeakRef(module), new WeakRef(instance));
      references.push(new WeakRef(instance.exports.memory));
      references.push(new WeakRef(instance.exports.memory.buffer));
      return instance;
    }
  );
  const session = await open();
  WebAssembly.instantiate = original;
  const { y } = await session.run(feeds(100_000));
  assert.equal(references.length, 4);
  await session.release();
  await session.release();
  for (let round = 0; round < 10 && references.some((item) => item.deref()); round += 1) {
    await sleep(10);
    collect();
  }
  assert.deepEqual(references.map((item) => item.deref()), references.map(() => undefined));
  assert.equal(session.memorySize, 0);
  assert.equal(y.size, 400_000);
  await assert.rejects(session.run(feeds(1)), {
    message: "hand: the session was closed and cannot be used any more",
  });
});

test("release ends what is running", async () => {
  const session = await open({ slice: 0 }, repeatLaunches);
  const run = session.run(feeds(50_000));
  const waiting = session.run(feeds(1));
  const ends = [
    assert.rejects(run, { code: "session.closed" }),
    assert.rejects(waiting, { code: "session.closed" }),
  ];
  await sleep(5);
  await session.release();
  await Promise.all(ends);
});

test("programs, kernels and weights that do not belong together", async () => {
  const { text, weights, bytes, digest } = handMade();
  const other = JSON.parse(text);
  const wasm = Uint8Array.from(atob(other.wasm), (unit) => unit.charCodeAt(0));
  wasm[wasm.length - 1] ^= 1;
  delete other.wasm;
  const create = InferenceSession.create;
  await assert.rejects(create({ program: other, weights }), { code: "session.model" });
  await assert.rejects(create({ program: other, wasm, weights }), (/** @type {any} */ error) => {
    assert.equal(error.code, "digest.mismatch");
    assert.equal(error.message.match(/sha256:/g).length, 2);
    return true;
  });
  await assert.rejects(
    create({ program: text.replace('"hand', '"hand').replace("a small k", "a big k"), weights }),
    { code: "digest.mismatch" },
  );
  await assert.rejects(create({ program: text }), { code: "program.constant", message: /none/ });
  const short = { ...weights, constants: { [digest]: { file: "all", offset: 0, length: 8 } } };
  await assert.rejects(create({ program: text, weights: short }), { code: "program.constant" });
  const cut = { ...weights, files: { all: bytes.subarray(0, 12) } };
  await assert.rejects(create({ program: text, weights: cut }), {
    code: "weights.short",
    message: /found 12 bytes; allowed: 16 bytes/,
  });
  const changed = { ...weights, files: { all: bytes.map((byte) => byte ^ 1) } };
  const unchecked = await create({ program: text, weights: changed });
  await unchecked.release();
  await assert.rejects(create({ program: text, weights: changed }, { verify: "weights" }), {
    code: "weights.digest",
  });
  await assert.rejects(open({}, (document) => (document.target = "cuda-sm_90")), {
    code: "program.target",
    message: /cuda-sm_90; allowed: wasm32/,
  });
  const noCode = new TextEncoder().encode("not code");
  await assert.rejects(create({ program: other, wasm: noCode, weights }, { verify: false }), {
    code: "wasm.invalid",
  });
  const empty = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0);
  await assert.rejects(create({ program: other, wasm: empty, weights }, { verify: false }), {
    code: "wasm.interface",
    message: /'memory'; found no exports/,
  });
});

test("models that are none, and options that cannot be", async () => {
  const create = /** @type {any} */ (InferenceSession.create);
  for (const model of ["model.onnx", new Uint8Array(4), new ArrayBuffer(4), 7, null, {}]) {
    await assert.rejects(create(model), { code: "session.model", message: /bundle/ });
  }
  await assert.rejects(create({ variants: [] }), { code: "session.model" });
  await assert.rejects(open({ plans: 0 }), { code: "session.option" });
  await assert.rejects(open({ slice: NaN }), { code: "session.option" });
  await assert.rejects(open({ verify: /** @type {any} */ ("all") }), { code: "session.option" });
  await assert.rejects(open({ valueHint: { z: 1 } }), { code: "input.name" });
  await assert.rejects(open({ valueHint: { k: 100 } }), { code: "session.variant" });
});

test("weights from files of every kind", async () => {
  const { text, bytes, digest } = handMade();
  const padded = new Uint8Array(bytes.length + 7);
  padded.set(bytes, 3);
  const range = { file: "all", offset: 3, length: bytes.length };
  const halves = [
    { file: "all", offset: 3, length: 6 },
    { file: "all", offset: 9, length: 10 },
  ];
  const shifted = new Uint8Array(40);
  shifted.set(padded, 8);
  for (const file of [padded, padded.buffer, new Blob([padded]), shifted.subarray(8)]) {
    for (const constant of [range, halves]) {
      const weights = { files: { all: file }, constants: { [digest]: constant } };
      const session = await InferenceSession.create({ program: text, weights }, {
        verify: "weights",
      });
      const given = feeds(1);
      const { y } = await session.run(given);
      assert.deepEqual(y.data, expected(/** @type {Float32Array} */ (given.x.data), 3));
      await session.release();
    }
  }
  const beyond = { files: { all: padded }, constants: { [digest]: { ...range, file: "other" } } };
  await assert.rejects(InferenceSession.create({ program: text, weights: beyond }), {
    code: "weights.source",
  });
});

test("a missing variant is compiled on demand", async () => {
  const { text, weights } = handMade();
  const larger = JSON.parse(text);
  larger.guards = [["k", ">=", "100", "a large k"]];
  /** @type {import("../runtime/session.js").VariantRequest[]} */
  const requests = [];
  const session = await InferenceSession.create({ program: text, weights }, {
    verify: false,
    compile: async (request) => {
      requests.push(request);
      return { program: larger, weights };
    },
  });
  for (const k of [3, 100, 5, 200]) {
    const given = feeds(2, k);
    const { y } = await session.run(given);
    assert.deepEqual(y.data, expected(/** @type {Float32Array} */ (given.x.data), k));
  }
  assert.deepEqual(requests, [{ values: { k: [100] }, shapes: { x: [2, 4], k: [1] } }]);
  assert.equal(session.compileCount, 1);
  assert.equal(session.programs.length, 2);
  await session.release();
});

test("several variants: guards choose, and what none covers is listed", async () => {
  const { text, weights } = handMade();
  const middle = JSON.parse(text);
  middle.guards = [["k", "==", "500", ""]];
  const session = await InferenceSession.create(
    { variants: [{ program: text }, { program: middle }], weights },
    { verify: false, valueHint: { k: 500 } },
  );
  for (const k of [500, 3]) {
    const given = feeds(1, k);
    const { y } = await session.run(given);
    assert.deepEqual(y.data, expected(/** @type {Float32Array} */ (given.x.data), k));
  }
  await assert.rejects(session.run(feeds(1, 200)), {
    code: "session.variant",
    message: /found k = 200, n = 1; allowed: k < 100 \(a small k\) or k == 500; compile/,
  });
  await session.release();
});
