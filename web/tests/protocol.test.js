/** Frames: the bytes that Python writes, and bytes that are no frames. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  decode,
  encode,
  FIELDS,
  frame,
  KINDS,
  MAX_PAYLOAD,
  pieceRanges,
  Pieces,
  tokenSubprotocol,
} from "../runtime/protocol.js";
import { readJson } from "./golden.js";

/** @param {string} hex */
const bytes = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));

test("frames have the golden bytes, and are read back from them", () => {
  const rows = readJson("protocol/frames.json");
  assert.deepEqual(rows.map((/** @type {any} */ row) => [row.kind, row.number]), Object.entries(KINDS));
  for (const { kind, control, payload, frame: golden } of rows) {
    const made = frame(kind, control, bytes(payload));
    assert.deepEqual(encode(made), bytes(golden), kind);
    const read = decode(bytes(golden));
    assert.deepEqual([read.kind, read.control], [kind, control]);
    assert.deepEqual([...read.payload], [...bytes(payload)]);
    assert.deepEqual(Object.keys(read.control), Object.keys(FIELDS[read.kind]));
  }
});

test("what is no frame is refused for the reason that Python gives", () => {
  const rows = readJson("protocol/bad_frames.json");
  assert.ok(rows.length >= 20);
  for (const { name, frame: hex, code } of rows) {
    assert.throws(() => decode(bytes(hex)), { code }, name);
  }
});

test("numbers with fractions are no integers, also where they have none", () => {
  const text = '{"sent":1.0}    ';
  const head = encode(frame("PING", { sent: 12345 })).slice(0, 16);
  const data = new Uint8Array([...head, ...new TextEncoder().encode(text)]);
  assert.equal(head.length + text.length, data.length);
  assert.throws(() => decode(data), { code: "frame.control" });
});

test("frames have limits", () => {
  const piece = new Uint8Array(MAX_PAYLOAD + 1);
  assert.throws(() => encode(frame("TENSOR", { run: 0, edge: 0, offset: 0, total: 1 }, piece)), {
    code: "frame.limit",
  });
  const digests = Array.from({ length: 1000 }, () => "sha256:".padEnd(71, "0"));
  assert.throws(() => encode(frame("NEED", { shard: 0, digests })), { code: "frame.limit" });
});

test("pieces follow each other", () => {
  const data = Uint8Array.from({ length: 2 * MAX_PAYLOAD + 5 }, (_, i) => i * 7);
  const pieces = new Pieces("edge 1", data.length, 1 << 20);
  const ranges = [...pieceRanges(data.length)];
  assert.deepEqual(ranges.map(([begin, end]) => end - begin), [MAX_PAYLOAD, MAX_PAYLOAD, 5]);
  const found = ranges.map(([begin, end]) => pieces.add(begin, data.length, data.subarray(begin, end)));
  assert.deepEqual(found, [null, null, data]);
  assert.deepEqual([...pieceRanges(0)], [[0, 0]]);
  assert.deepEqual(new Pieces("none", 0, 0).add(0, 0, new Uint8Array(0)), new Uint8Array(0));
  const empty = new Uint8Array(0);
  for (const [offset, total, piece] of /** @type {[number, number, Uint8Array<ArrayBuffer>][]} */ ([
    [1, 8, data.slice(0, 4)],
    [0, 9, data.slice(0, 4)],
    [0, 8, data.slice(0, 9)],
    [0, 8, empty],
  ])) {
    assert.throws(() => new Pieces("edge 1", 8, 8).add(offset, total, piece), { code: "upload.order" });
  }
  assert.throws(() => new Pieces("edge 1", 9, 8), { code: "upload.limit" });
});

test("a token becomes a subprotocol that HTTP allows", () => {
  assert.match(tokenSubprotocol("a token? ünd more >>"), /^rlx\.token\.[A-Za-z0-9_-]+$/);
});
