/**
 * Text from the output of a recognizer: the likeliest class at every place, repetitions and blanks
 * dropped (Graves et al., "Connectionist Temporal Classification", 2006, best path decoding).
 *
 * @typedef {import("./runner.js").PlainTensor} PlainTensor
 */

/** The metadata key under which PP-OCR models carry their characters, one a line. */
export const CHARACTERS = "character";

/**
 * The alphabet: class 0 is the blank, the last one the space.
 *
 * @param {Record<string, string>} metadata
 * @returns {string[] | null}
 */
export function alphabetOf(metadata) {
  const text = metadata[CHARACTERS];
  return text ? ["", ...text.split("\n"), " "] : null;
}

/**
 * A line of text for every item of the batch of `[batch, places, classes]`, with the mean
 * probability of its characters; `null` for an output of another form.
 *
 * @param {PlainTensor} output
 * @param {string[]} alphabet
 * @returns {{text: string, confidence: number}[] | null}
 */
export function decodeText({ data, dims }, alphabet) {
  const [batch, places, classes] = dims;
  if (dims.length !== 3 || classes > alphabet.length || alphabet.length - classes > 1) return null;
  return Array.from({ length: batch }, (_, item) => {
    let text = "";
    let last = 0;
    const kept = [];
    for (let place = 0; place < places; place += 1) {
      const start = (item * places + place) * classes;
      let best = 0;
      for (let i = 1; i < classes; i += 1) if (data[start + i] > data[start + best]) best = i;
      if (best !== 0 && best !== last) {
        text += alphabet[best];
        kept.push(data[start + best]);
      }
      last = best;
    }
    const confidence = kept.length ? kept.reduce((a, b) => a + b, 0) / kept.length : 0;
    return { text, confidence };
  });
}
