/** The entry of the runtime. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import * as runtime from "../runtime/index.js";

const FOLDER = new URL("../runtime/", import.meta.url);

test("the entry names every module", () => {
  const text = readFileSync(new URL("index.js", FOLDER), "utf8");
  const named = [...text.matchAll(/"\.\/(\w+\.js)"/g)].map(([, name]) => name);
  const files = readdirSync(FOLDER).filter((name) => name.endsWith(".js") && name !== "index.js");
  assert.deepEqual(named.sort(), files.sort());
});

test("modules import nothing but each other, and node's own where a file is read", () => {
  for (const name of readdirSync(FOLDER).filter((file) => file.endsWith(".js"))) {
    const text = readFileSync(new URL(name, FOLDER), "utf8");
    for (const [, target] of text.matchAll(/(?:from|import\()\s*"([^"]+)"/g)) {
      const isNode = name === "files.js" && target.startsWith("node:");
      assert.ok(target.startsWith("./") || isNode, `${name} imports ${target}`);
    }
  }
});

test("what users import", () => {
  assert.deepEqual(Object.keys(runtime).sort(), [
    ...["DeviceError", "DigestError", "GatewayClient", "GuardError", "InferenceSession"],
    ...["InputError", "LimitError", "ModelError", "PeerError", "RlxError", "Tensor", "Trace"],
  ]);
});
