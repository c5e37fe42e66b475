/** Exact integers against `BigInt`, and relations against its order. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  add,
  DivisionByZero,
  floordiv,
  integer,
  max,
  min,
  mod,
  mul,
  RELATIONS,
  sub,
} from "../runtime/integers.js";

const EDGES = [0n, 1n, 2n, 3n, 7n, 64n, 1n << 31n, 1n << 32n, (1n << 52n) - 1n, (1n << 53n) - 2n];
const VALUES = [...EDGES, (1n << 53n) - 1n, 1n << 53n, (1n << 53n) + 1n, 1n << 60n, 1n << 90n];
const ALL = [...VALUES, ...VALUES.map((value) => -value)];

/** @type {(a: bigint, b: bigint) => bigint} */
const floor = (a, b) => a / b - (a % b !== 0n && a < 0n !== b < 0n ? 1n : 0n);

/** @type {[typeof add, (a: bigint, b: bigint) => bigint][]} */
const OPERATIONS = [
  [add, (a, b) => a + b],
  [sub, (a, b) => a - b],
  [mul, (a, b) => a * b],
  [max, (a, b) => (a > b ? a : b)],
  [min, (a, b) => (a < b ? a : b)],
  [floordiv, floor],
  [mod, (a, b) => a - floor(a, b) * b],
];

test("every operation has the exact result in the one form", () => {
  for (const [operation, exact] of OPERATIONS) {
    for (const a of ALL) {
      for (const b of ALL) {
        if (b === 0n && (operation === floordiv || operation === mod)) continue;
        const found = operation(integer(a), integer(b));
        const what = `${operation.name}(${a}, ${b}): ${found}`;
        assert.ok(Object.is(found, integer(exact(a, b))), what);
        assert.ok(typeof found === "bigint" || Number.isSafeInteger(found));
      }
    }
  }
});

test("relations hold as for BigInt", () => {
  for (const a of ALL) {
    for (const b of ALL) {
      const [x, y] = [integer(a), integer(b)];
      assert.equal(RELATIONS["=="](x, y), a === b);
      assert.equal(RELATIONS["!="](x, y), a !== b);
      assert.equal(RELATIONS["<"](x, y), a < b);
      assert.equal(RELATIONS[">"](x, y), a > b);
      assert.equal(RELATIONS["<="](x, y), a <= b);
      assert.equal(RELATIONS[">="](x, y), a >= b);
    }
  }
});

test("division by zero is told", () => {
  for (const zero of [0, 0n]) {
    assert.throws(() => floordiv(7, zero), DivisionByZero);
    assert.throws(() => mod(7n << 70n, zero), DivisionByZero);
  }
});
