/** Ranges of files into memory: every kind of file, any order, piece by piece. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";

import { checkConstants, checkRanges, copyWeights } from "../runtime/weights.js";

const SIZE = 5 << 20;
const LARGEST = 2 << 20;

const data = new Uint8Array(SIZE);
for (let i = 0, state = 1; i < SIZE; i += 1) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  data[i] = state >>> 24;
}

const folder = mkdtempSync(join(tmpdir(), "weights-"));
const path = join(folder, "weights.bin");
writeFileSync(path, data);

const server = createServer((request, response) => {
  const asked = request.url === "/ranges" && /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? "");
  response.writeHead(asked ? 206 : 200);
  response.end(asked ? data.subarray(Number(asked[1]), Number(asked[2]) + 1) : data);
});
let origin = "";

before(async () => {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  origin = `http://127.0.0.1:${port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
  rmSync(folder, { recursive: true });
});

/** @type {[string, () => import("../runtime/files.js").ByteFile][]} */
const KINDS = [
  ["bytes", () => data],
  ["a buffer", () => data.buffer],
  ["a Blob", () => new Blob([data])],
  ["a URL with ranges", () => new URL(`${origin}/ranges`)],
  ["a URL without ranges", () => `${origin}/whole`],
  ["a file", () => pathToFileURL(path)],
];

/** Ranges that touch, overlap, repeat and leave gaps, in no order; the last one is cut in two. */
const RANGES = [
  [4_000_000, 5],
  [0, 1],
  [1, 70_000],
  [60_000, 40_000],
  [3_000_000, 1_000_000],
  [60_000, 40_000],
  [SIZE - 3, 3],
  [200_000, 0],
];

for (const [name, file] of KINDS) {
  test(`from ${name}`, async () => {
    const memory = new Uint8Array(2 * SIZE);
    const expected = new Uint8Array(2 * SIZE);
    /** @type {import("../runtime/weights.js").WeightRanges["constants"]} */
    const constants = {};
    /** @type {import("../runtime/program.js").Upload[]} */
    const uploads = [];
    let address = 16;
    RANGES.forEach(([offset, length], i) => {
      constants[`sha256:${i}`] = { file: "all", offset, length };
      uploads.push({ digest: `sha256:${i}`, address, nbytes: length });
      expected.set(data.subarray(offset, offset + length), address);
      address += length + 3;
    });
    constants.cut = [
      { file: "all", offset: 2_000_000, length: 100 },
      { file: "all", offset: 10, length: 50 },
    ];
    uploads.push({ digest: "cut", address, nbytes: 150 });
    expected.set(data.subarray(2_000_000, 2_000_100), address);
    expected.set(data.subarray(10, 60), address + 100);
    const weights = checkRanges({ files: { all: file() }, constants });
    checkConstants(weights, uploads);
    let largest = 0;
    await copyWeights(weights, uploads, (at, bytes) => {
      largest = Math.max(largest, bytes.length);
      memory.set(bytes, at);
    });
    assert.ok(Buffer.from(memory.buffer).equals(Buffer.from(expected.buffer)));
    assert.ok(largest < LARGEST, `a piece of ${largest} bytes`);
  });

  test(`${name} that ends too early`, async () => {
    const constants = { a: { file: "all", offset: SIZE - 4, length: 10 } };
    const uploads = [{ digest: "a", address: 0, nbytes: 10 }];
    const weights = { files: { all: file() }, constants };
    await assert.rejects(
      copyWeights(weights, uploads, () => {}),
      { code: "weights.short" },
    );
  });
}

test("one failure ends the other transfers", async () => {
  const constants = {
    short: { file: "short", offset: 0, length: 10 },
    long: { file: "long", offset: 0, length: SIZE },
  };
  const uploads = [
    { digest: "short", address: 0, nbytes: 10 },
    { digest: "long", address: 16, nbytes: SIZE },
  ];
  let copied = 0;
  const files = { short: new Uint8Array(4), long: new Blob([data]) };
  const put = (/** @type {number} */ _, /** @type {Uint8Array} */ bytes) => {
    copied += bytes.length;
  };
  await assert.rejects(copyWeights({ files, constants }, uploads, put), { code: "weights.short" });
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.ok(copied < SIZE / 2, `${copied} bytes`);
});

test("ranges that cannot be", () => {
  const files = { all: data };
  const range = { file: "all", offset: 0, length: 4 };
  for (const constants of [
    { a: { ...range, file: "toString" } },
    { a: { ...range, offset: -1 } },
    { a: { ...range, length: 0.5 } },
    { a: [range, { ...range, offset: "0" }] },
  ]) {
    assert.throws(() => checkRanges({ files, constants }), { code: "weights.source" });
  }
  for (const value of [null, 7, {}, { files }, { constants: {} }]) {
    assert.throws(() => checkRanges(value), { code: "weights.source" });
  }
  const uploads = [{ digest: "constructor", address: 0, nbytes: 4 }];
  assert.throws(() => checkConstants(checkRanges({ files, constants: {} }), uploads), {
    code: "program.constant",
  });
});
