/**
 * Bundles on a static host: what `rlx compile MODEL -o bundle/` writes. `manifest.json` names the
 * files; names carry digests, so a cache never mixes two bundles.
 *
 * @typedef {object} Manifest
 * @property {string} model for people
 * @property {{program: string, kernels: string}[]} variants
 * @property {import("./weights.js").WeightRanges} weights
 */

import { failure } from "./errors.js";
import { fetchBytes, looksLikeHtml, resolveUrl } from "./files.js";
import { kindOf } from "./tensor.js";
import { checkRanges } from "./weights.js";

const HEADER = "rlx.bundle";
const VERSION = "1.0";
const MANIFEST = "manifest.json";
const FILE_NAME = /^[\w-][\w.-]*(\/[\w-][\w.-]*)*$/;

/**
 * The manifest of the bundle in the folder `location`, or of the file if that ends with `.json`,
 * with its files as URLs.
 *
 * @param {string | URL} location
 * @param {AbortSignal} [signal]
 * @returns {Promise<Manifest>}
 */
export async function fetchManifest(location, signal) {
  let url = resolveUrl(location);
  if (!url.pathname.endsWith(".json")) {
    if (!url.pathname.endsWith("/")) url.pathname += "/";
    url = new URL(MANIFEST, url);
  }
  const text = await fetchText(url, "the manifest", signal);
  const where = url.href;
  try {
    return readManifest(JSON.parse(text), url);
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw failure("bundle.syntax", { found: cause.message, allowed: "JSON" }, { where, cause });
  }
}

/**
 * @param {URL} url
 * @param {string} what
 * @param {AbortSignal} [signal]
 */
export async function fetchText(url, what, signal) {
  const bytes = await fetchBytes(url, what, signal);
  refuseHtml(bytes, what, url);
  return new TextDecoder().decode(bytes);
}

/**
 * The kernels of a bundle; `bundle.html` where a page was sent in their place.
 *
 * @param {URL} url
 * @param {AbortSignal} [signal]
 */
export async function fetchKernels(url, signal) {
  const bytes = await fetchBytes(url, "the kernels", signal);
  refuseHtml(bytes, "the kernels", url);
  return bytes;
}

/**
 * @param {any} content
 * @param {URL} url
 * @returns {Manifest}
 */
function readManifest(content, url) {
  const fail = (/** @type {unknown} */ found, /** @type {string} */ allowed) =>
    failure("bundle.syntax", { found, allowed }, { where: url.href });
  if (content?.[HEADER] !== VERSION) {
    throw fail(content?.[HEADER] ?? kindOf(content), `"${HEADER}": "${VERSION}"`);
  }
  const { model, variants, weights } = content;
  if (!Array.isArray(variants) || !Array.isArray(weights?.files)) {
    throw fail(Object.keys(content), "variants and weights");
  }
  const locate = (/** @type {unknown} */ name) => {
    if (typeof name === "string" && FILE_NAME.test(name)) return new URL(name, url);
    throw fail(JSON.stringify(name), "names of files in the bundle");
  };
  const files = weights.files.map((/** @type {unknown} */ name) => [name, locate(name)]);
  return {
    model: String(model),
    variants: variants.map((variant) => ({
      program: locate(variant?.program).href,
      kernels: locate(variant?.kernels).href,
    })),
    weights: checkRanges({ ...weights, files: Object.fromEntries(files) }),
  };
}

/**
 * @param {Uint8Array} bytes
 * @param {string} what
 * @param {URL} url
 */
function refuseHtml(bytes, what, url) {
  if (!looksLikeHtml(bytes)) return;
  const found = new TextDecoder().decode(bytes.subarray(0, 40)).replace(/\s+/g, " ").trim();
  throw failure("bundle.html", { what, found: `"${found}…"` }, { where: url.href });
}

