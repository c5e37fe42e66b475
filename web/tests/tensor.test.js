/** Tensors: what they take, what they refuse. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Tensor } from "../runtime/tensor.js";

test("typed arrays are kept, lists are copied", () => {
  const data = new Float32Array(6);
  const tensor = new Tensor("float32", data, [2, 3]);
  assert.equal(tensor.data, data);
  assert.deepEqual([tensor.type, tensor.dims, tensor.size], ["float32", [2, 3], 6]);
  assert.deepEqual(new Tensor("int64", [1, 2n]).data, BigInt64Array.of(1n, 2n));
  assert.deepEqual(new Tensor("bool", [true, false], [2]).data, Uint8Array.of(1, 0));
  assert.deepEqual(new Tensor("uint8", [7], []).dims, []);
});

test("an array tells its type", () => {
  assert.equal(new Tensor(new Float32Array(2)).type, "float32");
  assert.equal(new Tensor(new BigInt64Array(2), [2, 1]).type, "int64");
  assert.equal(new Tensor(new Uint8Array(2)).type, "uint8");
  assert.equal(new Tensor(new Uint16Array(2)).type, "uint16");
  assert.equal(new Tensor([true, false]).type, "bool");
});

test("shape and data belong together", () => {
  const tensor = new Tensor("float32", new Float32Array(6), [2, 3]);
  assert.deepEqual(tensor.reshape([6, 1]).dims, [6, 1]);
  assert.throws(() => tensor.reshape([4]), { code: "tensor.size", message: /6 elements.*4 elem/ });
  assert.throws(() => new Tensor("float32", [1, 2], [3]), { code: "tensor.size" });
  assert.throws(() => new Tensor("float32", [1], [0.5]), { code: "tensor.dims" });
  assert.throws(() => new Tensor("float32", [], [-1]), { code: "tensor.dims" });
});

test("element types", () => {
  const create = (/** @type {any[]} */ ...parts) => new Tensor(parts[0], parts[1], parts[2]);
  assert.throws(() => create("f32", [1]), { code: "tensor.type", message: /'f32'.*float32/ });
  assert.throws(() => create("constructor", [1]), { code: "tensor.type" });
  assert.throws(() => create("string", ["a"]), { code: "tensor.type" });
  assert.throws(() => create("float32", new Float64Array(1)), { code: "tensor.data" });
  assert.throws(() => create("float32", 7), { code: "tensor.data" });
  assert.throws(() => create({ data: 1 }), { code: "tensor.type" });
});

test("a tensor that was disposed of has no data", async () => {
  const tensor = new Tensor("float32", new Float32Array(1));
  assert.equal(await tensor.getData(), tensor.data);
  tensor.dispose();
  assert.equal(tensor.location, "none");
  assert.throws(() => tensor.data, { code: "tensor.disposed" });
});
