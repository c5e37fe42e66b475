/**
 * Frames: what a page and a gateway say to each other. The bytes are those of
 * `rlx_edge/gateway/protocol.py`, which describes them; golden frames that both read pin it.
 *
 * A frame is one binary message: 16 bytes of header (magic, version, kind, lengths), a JSON control
 * part padded to a multiple of 8, a payload. No I/O and no state.
 *
 * @typedef {Record<string, any>} Control
 * @typedef {{kind: KindName, control: Control, payload: Uint8Array<ArrayBuffer>}} Frame
 * @typedef {keyof typeof KINDS} KindName
 */

import { failure } from "./errors.js";

const MAGIC = "RLX1";
export const VERSION = 1;
const HEADER_BYTES = 16;
export const MAX_CONTROL = 64 << 10;
export const MAX_PAYLOAD = 64 << 10;
const MAX_STRING = 4096;
/** Offered and chosen in the WebSocket handshake. */
export const SUBPROTOCOL = "rlx.1";
/** A page cannot set headers: it offers the token as a second subprotocol, base64url behind this. */
export const TOKEN_PREFIX = "rlx.token.";

/** Names of frames to their numbers. */
export const KINDS = /** @type {const} */ ({
  HELLO: 1,
  WELCOME: 2,
  SHARD: 3,
  NEED: 4,
  BLOB: 5,
  READY: 6,
  RUN: 7,
  TENSOR: 8,
  TENSOR_AT: 9,
  DONE: 10,
  CANCEL: 11,
  CANCELLED: 12,
  ERROR: 13,
  PING: 14,
  PONG: 15,
  RELEASE: 16,
  BYE: 17,
});
const NAMES = /** @type {Record<number, KindName>} */ (
  Object.fromEntries(Object.entries(KINDS).map(([name, number]) => [number, name]))
);

/**
 * Kind → field → form, in the order in which fields are written.
 *
 * @type {Record<KindName, Record<string, string>>}
 */
export const FIELDS = {
  HELLO: { versions: "ints", client: "string", capabilities: "strings" },
  WELCOME: {
    version: "int",
    session: "string",
    ticket: "string",
    devices: "strings",
    models: "strings",
    limits: "sizes",
    heartbeat_ms: "int",
  },
  SHARD: {
    shard: "int",
    device: "string",
    ir: "string",
    graph: "string",
    model: "string",
    values: "lists",
  },
  NEED: { shard: "int", digests: "strings" },
  BLOB: { digest: "string", offset: "int", total: "int" },
  READY: { shard: "int", ir: "string", graph: "string", kernels: "string", resident: "int" },
  RUN: { run: "int", shard: "int", graph: "string", symbols: "sizes" },
  TENSOR: { run: "int", edge: "int", offset: "int", total: "int" },
  TENSOR_AT: { run: "int", edge: "int", id: "string", total: "int" },
  DONE: { run: "int", device: "string", events: "rows" },
  CANCEL: { run: "int" },
  CANCELLED: { run: "int" },
  ERROR: {
    code: "string",
    what: "string",
    found: "string",
    allowed: "string",
    where: "string",
    run: "int",
    shard: "int",
    fatal: "int",
  },
  PING: { sent: "int" },
  PONG: { sent: "int", received: "int", replied: "int" },
  RELEASE: { shard: "int" },
  BYE: { reason: "string" },
};
/** @type {readonly KindName[]} */
const WITH_PAYLOAD = ["BLOB", "TENSOR"];

/**
 * A frame of its fields, in the declared order.
 *
 * @param {KindName} kind
 * @param {Control} fields
 * @param {Uint8Array<ArrayBuffer>} [payload]
 * @returns {Frame}
 */
export function frame(kind, fields, payload = new Uint8Array(0)) {
  const control = Object.fromEntries(Object.keys(FIELDS[kind]).map((name) => [name, fields[name]]));
  return { kind, control, payload };
}

/**
 * The bytes of a frame, the same every time. `LimitError` `frame.limit`.
 *
 * @param {Frame} frame
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function encode({ kind, control, payload }) {
  const text = new TextEncoder().encode(JSON.stringify(control));
  const size = Math.ceil(text.length / 8) * 8;
  for (const [found, allowed] of [
    [size, MAX_CONTROL],
    [payload.length, MAX_PAYLOAD],
  ]) {
    if (found > allowed) throw failure("frame.limit", { found, allowed });
  }
  const bytes = new Uint8Array(HEADER_BYTES + size + payload.length);
  const header = new DataView(bytes.buffer);
  for (let i = 0; i < MAGIC.length; i += 1) header.setUint8(i, MAGIC.charCodeAt(i));
  header.setUint8(4, VERSION);
  header.setUint8(5, KINDS[kind]);
  header.setUint32(8, size, true);
  header.setUint32(12, payload.length, true);
  bytes.set(text, HEADER_BYTES);
  bytes.fill(0x20, HEADER_BYTES + text.length, HEADER_BYTES + size);
  bytes.set(payload, HEADER_BYTES + size);
  return bytes;
}

/**
 * The frame of one message; its payload is a view. `PeerError` `frame.magic`, `frame.version`,
 * `frame.kind`, `frame.length`, `frame.control`; `LimitError` `frame.limit`.
 *
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Frame}
 */
export function decode(bytes) {
  if (bytes.length < HEADER_BYTES || String.fromCharCode(...bytes.subarray(0, 4)) !== MAGIC) {
    const head = Array.from(bytes.subarray(0, 8), (byte) => byte.toString(16).padStart(2, "0"));
    const found = `${bytes.length} bytes, ${head.join("") || "nothing"}`;
    throw failure("frame.magic", { found });
  }
  const header = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [version, number] = [header.getUint8(4), header.getUint8(5)];
  const zero = header.getUint16(6, true);
  if (version !== VERSION) throw failure("frame.version", { found: version, allowed: VERSION });
  if (!Object.hasOwn(NAMES, number) || zero) {
    throw failure("frame.kind", { found: [number, zero], allowed: Object.keys(KINDS) });
  }
  const kind = NAMES[number];
  const [size, payload] = [header.getUint32(8, true), header.getUint32(12, true)];
  if (size > MAX_CONTROL || payload > MAX_PAYLOAD) {
    throw failure("frame.limit", { found: Math.max(size, payload), allowed: MAX_PAYLOAD });
  }
  const total = HEADER_BYTES + size + payload;
  if (bytes.length !== total || size % 8 || (payload && !WITH_PAYLOAD.includes(kind))) {
    throw failure("frame.length", { found: `${bytes.length} bytes`, allowed: `${total} bytes` });
  }
  const control = readControl(kind, bytes.subarray(HEADER_BYTES, HEADER_BYTES + size));
  return { kind, control, payload: bytes.subarray(HEADER_BYTES + size) };
}

/**
 * @param {KindName} kind
 * @param {Uint8Array} bytes
 * @returns {Control}
 */
function readControl(kind, bytes) {
  let value;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(text);
    // JSON.parse makes 1.0 and 1e3 integers.
    const numbers = text.replace(/"(?:[^"\\]|\\.)*"|true|false/g, "");
    if (/[.eE]/.test(numbers)) throw new SyntaxError("a number with a fraction or an exponent");
  } catch (error) {
    const found = /** @type {Error} */ (error).message.slice(0, 120);
    throw failure("frame.control", { kind, found, allowed: "JSON" });
  }
  const fields = FIELDS[kind];
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  const [given, wanted] = [isObject ? Object.keys(value).sort() : [], Object.keys(fields)];
  if (!isObject || String(given) !== String([...wanted].sort())) {
    const found = isObject ? given.slice(0, 20) : typeof value;
    throw failure("frame.control", { kind, found, allowed: wanted });
  }
  for (const [name, form] of Object.entries(fields)) {
    if (FORMS[form](value[name])) continue;
    const found = `${name} = ${JSON.stringify(value[name]).slice(0, 80)}`;
    throw failure("frame.control", { kind, found, allowed: `${name} of form ${form}` });
  }
  return value;
}

/** @typedef {(value: unknown) => boolean} Test */

/** @param {unknown} value */
const isInt = (value) => Number.isSafeInteger(value);

/** @param {unknown} value */
const isString = (value) =>
  typeof value === "string" && (value.length <= MAX_STRING || [...value].length <= MAX_STRING);

/** @type {(test: Test) => Test} */
const listOf = (test) => (value) => Array.isArray(value) && value.every(test);

/** @type {(test: Test) => Test} */
const mapOf = (test) => (value) =>
  typeof value === "object" &&
  value !== null &&
  !Array.isArray(value) &&
  Object.entries(value).every(([name, item]) => isString(name) && test(item));

/** @type {Record<string, Test>} */
const FORMS = {
  int: isInt,
  string: isString,
  ints: listOf(isInt),
  strings: listOf(isString),
  sizes: mapOf(isInt),
  lists: mapOf(listOf(isInt)),
  rows: listOf(listOf((item) => isInt(item) || isString(item))),
};

/** Collects the pieces of one thing, which follow each other. */
export class Pieces {
  /** @type {Uint8Array<ArrayBuffer>[]} */
  #pieces = [];
  #known = 0;

  /**
   * @param {string} what
   * @param {number} total
   * @param {number} limit
   */
  constructor(what, total, limit) {
    if (!(total >= 0 && total <= limit)) {
      throw failure("upload.limit", { found: `${total} bytes`, allowed: `${limit} bytes` });
    }
    this.what = what;
    this.total = total;
  }

  /**
   * All bytes once they are complete; `PeerError` `upload.order`.
   *
   * @param {number} offset
   * @param {number} total
   * @param {Uint8Array<ArrayBuffer>} piece
   * @returns {Uint8Array<ArrayBuffer> | null}
   */
  add(offset, total, piece) {
    const { what } = this;
    const known = this.#known;
    if (offset !== known || total !== this.total || known + piece.length > total) {
      const found = `${piece.length} bytes at ${offset} of ${total}`;
      throw failure("upload.order", { what, found, allowed: `at ${known} of ${this.total}` });
    }
    this.#pieces.push(piece);
    this.#known += piece.length;
    if (this.#known < total) {
      if (piece.length) return null;
      throw failure("upload.order", { what, found: "an empty piece", allowed: "some bytes" });
    }
    const bytes = new Uint8Array(total);
    let end = 0;
    for (const part of this.#pieces) {
      bytes.set(part, end);
      end += part.length;
    }
    return bytes;
  }
}

/**
 * What every frame with a payload carries of `total` bytes; one piece where there are none.
 *
 * @param {number} total
 * @returns {Generator<[number, number]>} begin and end
 */
export function* pieceRanges(total) {
  for (let begin = 0; begin < Math.max(total, 1); begin += MAX_PAYLOAD) {
    yield [begin, Math.min(total, begin + MAX_PAYLOAD)];
  }
}

/**
 * The token as a subprotocol to offer.
 *
 * @param {string} token
 */
export function tokenSubprotocol(token) {
  const bytes = String.fromCharCode(...new TextEncoder().encode(token));
  return TOKEN_PREFIX + btoa(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
