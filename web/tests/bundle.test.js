/** Bundles from a server: what arrives, what is damaged, and cancels on the way. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { InferenceSession } from "../runtime/session.js";
import { Tensor } from "../runtime/tensor.js";
import { expected, handMade } from "./golden.js";

const PAGE = "<!doctype html>\n<title>Not found</title>";

/**
 * @typedef {{status?: number, type?: string, body: string | Uint8Array, length?: number,
 *   stall?: boolean, ranges?: boolean}} Answer
 */

/**
 * A server of `answers` by path; `requests` are the paths with the ranges that were asked for.
 *
 * @param {Record<string, Answer>} answers
 */
async function serve(answers) {
  /** @type {string[]} */
  const requests = [];
  const server = createServer((request, response) => {
    const { range } = request.headers;
    requests.push(`${request.url}${range ? ` ${range}` : ""}`);
    const found = answers[(request.url ?? "").slice(1)] ?? { status: 404, body: PAGE };
    const { status = 200, type = "application/octet-stream", length, stall, ranges = true } = found;
    let body = Buffer.from(found.body);
    const asked = ranges && /bytes=(\d+)-(\d+)/.exec(range ?? "");
    if (asked) body = body.subarray(Number(asked[1]), Number(asked[2]) + 1);
    response.writeHead(asked ? 206 : status, {
      "content-type": type,
      ...(length === undefined ? {} : { "content-length": length }),
    });
    response.write(body);
    if (!stall && length === undefined) response.end();
    else if (!stall) response.destroy();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${port}/`, requests, close };
}

/** The files of a bundle of the program that was made by hand. */
function files() {
  const { text, bytes, digest } = handMade();
  const { wasm, ...program } = JSON.parse(text);
  const manifest = {
    "rlx.bundle": "1.0",
    model: "hand.onnx",
    variants: [{ program: "program.json", kernels: "kernels.wasm" }],
    weights: {
      files: ["a.bin", "b.bin"],
      constants: {
        [digest]: [
          { file: "a.bin", offset: 2, length: 6 },
          { file: "b.bin", offset: 0, length: 10 },
        ],
      },
    },
  };
  /** @type {Record<string, Answer>} */
  const found = {
    "manifest.json": { type: "application/json", body: JSON.stringify(manifest) },
    "program.json": { type: "application/json", body: JSON.stringify(program) },
    "kernels.wasm": { body: Buffer.from(wasm, "base64") },
    "a.bin": { body: Uint8Array.of(9, 9, ...bytes.subarray(0, 6), 9) },
    "b.bin": { body: bytes.subarray(6) },
  };
  return found;
}

/**
 * What a session on these files gives.
 *
 * @param {Record<string, Answer>} answers
 * @param {import("../runtime/session.js").SessionOptions} [options]
 */
async function tryBundle(answers, options = {}) {
  const server = await serve(answers);
  try {
    const session = await InferenceSession.create(server.url, { verify: "weights", ...options });
    const x = Float32Array.of(1, -2, 3.5, 0.25);
    const { y } = await session.run({
      x: new Tensor("float32", x, [1, 4]),
      k: new Tensor("int64", [7], [1]),
    });
    assert.deepEqual(y.data, expected(x, 7));
    await session.release();
    return server.requests;
  } finally {
    server.close();
  }
}

test("a bundle: every file is asked for once", async () => {
  const requests = await tryBundle(files());
  assert.deepEqual(requests.sort(), [
    ...["/a.bin bytes=2-7", "/b.bin", "/kernels.wasm", "/manifest.json", "/program.json"],
  ]);
});

test("a server without ranges, and without lengths", async () => {
  const answers = files();
  answers["a.bin"].ranges = false;
  await tryBundle(answers);
});

test("addresses of a bundle", async () => {
  const server = await serve(files());
  try {
    for (const address of [
      server.url.slice(0, -1),
      `${server.url}manifest.json`,
      new URL(server.url),
    ]) {
      const session = await InferenceSession.create(address, { preload: false });
      assert.deepEqual(session.inputNames, ["x", "k"]);
      assert.equal(session.memorySize, 0);
      await session.release();
    }
  } finally {
    server.close();
  }
});

/** @type {[string, string, Partial<Answer>, RegExp][]} */
const DAMAGED = [
  ["manifest.json", "bundle.fetch", { status: 404, body: PAGE }, /HTTP 404/],
  ["manifest.json", "bundle.html", { type: "text/html", body: PAGE }, /in place of the manifest/],
  ["manifest.json", "bundle.syntax", { body: "{" }, /JSON/],
  ["manifest.json", "bundle.syntax", { body: "{}" }, /rlx.bundle/],
  ["program.json", "bundle.html", { body: PAGE }, /in place of the program.*<!doctype html>/],
  ["program.json", "program.syntax", { body: "{" }, /document/],
  ["kernels.wasm", "bundle.html", { type: "text/html", body: PAGE }, /in place of the kernels/],
  ["kernels.wasm", "bundle.html", { body: PAGE }, /in place of the kernels.*<!doctype html>/],
  ["kernels.wasm", "digest.mismatch", { body: "something" }, /sha256:.*sha256:/],
  ["kernels.wasm", "bundle.fetch", { status: 500, body: "" }, /HTTP 500/],
  ["b.bin", "weights.short", { body: "1234" }, /b.bin: the weights are cut short; found 4 bytes/],
  ["b.bin", "weights.short", { body: "" }, /found 0 bytes; allowed: 10 bytes/],
  ["b.bin", "bundle.fetch", { body: "1234", length: 10 }, /b.bin/],
  ["b.bin", "bundle.html", { type: "text/html; charset=utf-8", body: PAGE }, /of the weights/],
  ["b.bin", "weights.digest", { body: "0123456789" }, /weights are not the ones/],
];

for (const [name, code, answer, words] of DAMAGED) {
  test(`${name} damaged: ${code} ${words.source}`, async () => {
    const answers = files();
    answers[name] = { ...answers[name], ...answer };
    await assert.rejects(tryBundle(answers), (/** @type {any} */ error) => {
      assert.equal(error.code, code, error.message);
      assert.match(error.message, words);
      assert.match(error.message, /^http:\/\/127\.0\.0\.1/);
      return true;
    });
  });
}

test("values that the bundle was not compiled for", async () => {
  const server = await serve(files());
  try {
    const session = await InferenceSession.create(server.url);
    const feeds = {
      x: new Tensor("float32", [1, 2, 3, 4], [1, 4]),
      k: new Tensor("int64", [100], [1]),
    };
    await assert.rejects(session.run(feeds), {
      code: "session.variant",
      message: "hand.onnx: no compiled variant covers these inputs; found k = 100, n = 1; " +
        "allowed: k < 100 (a small k); " +
        "compile the bundle with a --value or --shape for them as well",
    });
    await session.release();
  } finally {
    server.close();
  }
});

test("names of files stay inside the bundle", async () => {
  for (const name of ["../secret", "https://example.org/x", "/etc/passwd", "a/../../b", 7]) {
    const answers = files();
    const manifest = JSON.parse(String(answers["manifest.json"].body));
    manifest.variants[0].kernels = name;
    answers["manifest.json"].body = JSON.stringify(manifest);
    await assert.rejects(tryBundle(answers), { code: "bundle.syntax" }, String(name));
  }
});

test("no server", async () => {
  const { url, close } = await serve({});
  close();
  await assert.rejects(InferenceSession.create(url), { code: "bundle.fetch" });
});

for (const name of ["manifest.json", "program.json", "kernels.wasm", "b.bin"]) {
  test(`a cancel while ${name} is on its way`, async () => {
    const answers = files();
    answers[name] = { ...answers[name], body: answers[name].body.slice(0, 4), stall: true };
    const server = await serve(answers);
    const controller = new AbortController();
    const opening = InferenceSession.create(server.url, { signal: controller.signal });
    const waited = async () => {
      while (!server.requests.some((path) => path.startsWith(`/${name}`))) {
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
      controller.abort();
    };
    try {
      await Promise.all([
        waited(),
        assert.rejects(opening, { name: "AbortError", message: /while the model is fetched/ }),
      ]);
    } finally {
      server.close();
    }
  });
}
