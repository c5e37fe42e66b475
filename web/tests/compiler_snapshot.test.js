import assert from "node:assert/strict";
import { test } from "node:test";
import { roomFor } from "../compiler/snapshot.js";

/** What `roomFor` sees of Pyodide's module: a heap that grows to `most` bytes. */
function moduleWith(/** @type {number} */ size, /** @type {number} */ most) {
  const module = {
    HEAP8: new Int8Array(size),
    _emscripten_resize_heap(/** @type {number} */ wanted) {
      if (wanted > most) return false;
      module.HEAP8 = new Int8Array(wanted + 16);
      return true;
    },
  };
  return module;
}

test("a heap that is too small grows, another stays", async () => {
  const small = await roomFor(async () => moduleWith(32, 128), 64)({});
  assert.equal(small.HEAP8.length, 80);
  const large = await roomFor(async () => moduleWith(96, 128), 64)({});
  assert.equal(large.HEAP8.length, 96);
});

test("a heap that cannot grow is told", async () => {
  const create = roomFor(async () => moduleWith(32, 48), 64);
  await assert.rejects(create({}), /no memory of 64 bytes/);
});
