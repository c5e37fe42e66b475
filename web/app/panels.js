/**
 * Panels: where the inputs of a model come from and how its outputs are shown.
 *
 * @typedef {import("./runner.js").PlainTensor} PlainTensor
 * @typedef {import("../compiler/worker.js").Description} Description
 * @typedef {object} Panel
 * @property {HTMLElement} element
 * @property {(description: Description) => void} [describe] called when the file has been read
 * @property {() => Promise<Record<string, PlainTensor>>} feeds inputs as they are set now
 * @property {(outputs: Record<string, PlainTensor>) => Node | null} show
 *   what the outputs mean, `null` where only numbers can be shown
 */

export {};
