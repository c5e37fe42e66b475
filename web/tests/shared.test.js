/** Cases that Python and JavaScript answer alike; `tests/web/shared_cases.py` has them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { evaluateDim, parseDim, parseType } from "../runtime/dims.js";
import { checkCommands, Executor } from "../runtime/executor.js";
import { FeedChecker } from "../runtime/feeds.js";
import { evaluate } from "../runtime/plan.js";
import { checkDigest, readProgram } from "../runtime/program.js";
import { Tensor, TYPE_NAMES } from "../runtime/tensor.js";
import { answer, handMade, integers, listFolder, readJson, readText } from "./golden.js";

/** @type {(row: [string, string]) => import("../runtime/program.js").Port} */
const port = ([name, type]) => {
  const found = parseType(type);
  const dimTexts = type.slice(type.indexOf("[") + 1, -1).split(", ");
  return { name, type, dtype: found.dtype, shape: found.shape, dimTexts };
};

/** @type {(line: string) => any} */
const words = (line) => line.split(" ").map((word) => (/^\d+$/.test(word) ? Number(word) : word));

test("plans: values, guards and errors are Python's", () => {
  const cases = readJson("shared/plans.json");
  assert.ok(cases.length > 60);
  for (const { plan, inputs, outputs, symbols, ...rest } of cases) {
    const program = { plan: integers(plan), inputs: inputs.map(port), outputs: outputs.map(port) };
    const found = answer(() => {
      const { words: block, peak, ...places } = evaluate(program, integers(symbols));
      const pairs = (/** @type {import("../runtime/plan.js").Placement[]} */ list) =>
        list.map(({ address, shape }) => [address, shape]);
      return {
        words: [...block],
        peak,
        inputs: pairs(places.inputs),
        outputs: pairs(places.outputs),
      };
    });
    assert.deepEqual(found, integers(rest), JSON.stringify({ plan, symbols }));
  }
});

test("dims: texts have Python's values", () => {
  const cases = readJson("shared/dims.json");
  assert.ok(cases.length > 60);
  for (const { text, symbols, result } of cases) {
    assert.equal(evaluateDim(parseDim(text), symbols), integers(result), text);
  }
});

test("feeds: symbols and errors are Python's", () => {
  const cases = readJson("shared/feeds.json");
  assert.ok(cases.length > 20);
  for (const { ports, bindings, feeds, ...rest } of cases) {
    const rows = bindings.map(
      (/** @type {[string, string, number]} */ [symbol, parameter, position]) => ({
        symbol,
        parameter,
        position,
      }),
    );
    const tensors = Object.fromEntries(
      Object.entries(feeds).map(([name, { dtype, dims, values = [] }]) => {
        const size = dims.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
        const type = TYPE_NAMES[dtype];
        const data = Array.from({ length: size }, (_, i) => BigInt(values[i] ?? 0));
        const isBig = type.endsWith("int64");
        return [name, new Tensor(type, isBig ? data : data.map(Number), dims)];
      }),
    );
    const found = answer(() => new FeedChecker(ports.map(port), rows).bind(tensors).symbols);
    if ("result" in found) Object.setPrototypeOf(found.result, Object.prototype);
    assert.deepEqual(found, integers(rest), JSON.stringify({ ports, feeds }));
  }
});

test("programs: what Python refuses is refused for the same reason", () => {
  const good = JSON.parse(handMade().text);
  const cases = readJson("shared/programs.json");
  assert.ok(cases.length > 30);
  for (const { path, value, result, error } of cases) {
    const document = structuredClone(good);
    if (path) {
      const parents = path.startsWith("rlx.") ? [path] : path.split(".");
      const last = parents.pop();
      let place = document;
      for (const key of parents) place = place[key];
      if (value === null) delete place[last];
      else place[last] = value;
    }
    const found = answer(() => readProgram(document, "hand_made.program").target);
    assert.equal(found.error, error, `${path} = ${JSON.stringify(value)}: ${found.message}`);
    assert.equal(found.result, result);
  }
});

test("programs: the digest of the content is Python's", async () => {
  const { text } = handMade();
  await checkDigest(text);
  const edited = text.replace('"a small k"', '"a small ü"');
  assert.notEqual(edited, text);
  await assert.rejects(checkDigest(edited), { code: "digest.mismatch" });
});

test("command lists: what cannot work", () => {
  for (const { commands, ...rest } of readJson("shared/commands.json")) {
    const rows = commands.split("; ").map(words);
    assert.deepEqual(answer(() => checkCommands(rows) ?? null), rest, commands);
  }
});

test("executor: golden logs", async () => {
  const names = (await listFolder("executor/")).filter((name) => name.endsWith(".events"));
  assert.ok(names.length >= 6);
  for (const name of names) {
    const log = replay(readText(`executor/${name}`));
    assert.equal(log, readText(`executor/${name.replace(".events", ".log")}`), name);
  }
});

/**
 * The script with what the executor answers to each event.
 *
 * @param {string} script
 */
function replay(script) {
  /** @type {string[]} */
  const lines = [];
  /** @type {Executor | undefined} */
  let executor;
  for (const line of script.trimEnd().split("\n")) {
    if (!line || line.startsWith("#")) {
      lines.push(line);
    } else if (!executor) {
      const commands = line.replace("commands:", "").split(";").map((part) => words(part.trim()));
      checkCommands(commands);
      executor = new Executor(commands);
      lines.push(line);
    } else {
      lines.push(`> ${line}`);
      const [word] = line.split(" ", 1);
      const rest = line.slice(word.length + 1);
      const event = /** @type {any} */ (word === "failed" ? [word, rest] : words(line));
      try {
        for (const action of executor.handle(event)) lines.push(`< ${action.join(" ")}`);
      } catch (error) {
        lines.push(`! ${/** @type {Error} */ (error).message.replace(/; found .*/, "")}`);
      }
    }
  }
  return [...lines, `= ${executor?.state}`, ""].join("\n");
}
