/**
 * Pictures to tensors. Scaling is done here and not by the browser, whose filters differ.
 *
 * @typedef {{width: number, height: number, data: Float32Array<ArrayBuffer>}} Picture
 *   planes of red, green and blue, row-major, 0 to 255
 * @typedef {{mean: number[], deviation: number[], order?: "RGB" | "BGR"}} Normalization
 *   of values in 0 to 1, by channel in the order of the tensor
 * @typedef {import("./runner.js").PlainTensor} PlainTensor
 */

import { Report } from "./reports.js";

const MAX_PIXELS = 50e6;
const LUMA = [0.299, 0.587, 0.114];

/** @type {Record<string, Normalization>} */
export const NORMALIZATIONS = {
  "0 to 1": { mean: [0, 0, 0], deviation: [1, 1, 1] },
  "−1 to 1": { mean: [0.5, 0.5, 0.5], deviation: [0.5, 0.5, 0.5] },
  "0 to 255": { mean: [0, 0, 0], deviation: [1 / 255, 1 / 255, 1 / 255] },
  ImageNet: { mean: [0.485, 0.456, 0.406], deviation: [0.229, 0.224, 0.225] },
};

/**
 * The pixels of an image file; `image.decode` for a file that is none, `image.size` where it is
 * smaller than `least` or beyond what a page should decode.
 *
 * @param {Blob} file
 * @param {string} name
 * @param {number} [least] pixels on either side
 * @returns {Promise<Picture>}
 */
export async function decodeImage(file, name, least = 1) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { colorSpaceConversion: "none" });
  } catch {
    throw new Report("image.decode", `${name}: not a picture that this browser can read`);
  }
  try {
    const { width, height } = bitmap;
    if (width < least || height < least || width * height > MAX_PIXELS) {
      const allowed = `at least ${least}×${least}, at most ${MAX_PIXELS / 1e6} million pixels`;
      throw new Report(
        "image.size",
        `${name}: the picture has the wrong size; found ${width}×${height}; allowed: ${allowed}`,
      );
    }
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    const context = /** @type {CanvasRenderingContext2D} */ (
      canvas.getContext("2d", { willReadFrequently: true })
    );
    context.fillStyle = "#fff"; // what is transparent is paper
    context.fillRect(0, 0, width, height);
    context.drawImage(bitmap, 0, 0);
    return planes(context.getImageData(0, 0, width, height));
  } finally {
    bitmap.close();
  }
}

/**
 * @param {ImageData} image
 * @returns {Picture}
 */
export function planes({ data: pixels, width, height }) {
  const count = width * height;
  const data = new Float32Array(3 * count);
  for (let i = 0; i < count; i += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      data[channel * count + i] = pixels[4 * i + channel];
    }
  }
  return { width, height, data };
}

/**
 * Turned clockwise by quarters.
 *
 * @param {Picture} picture
 * @param {number} quarters
 * @returns {Picture}
 */
export function turned(picture, quarters) {
  let result = picture;
  for (let turn = 0; turn < ((quarters % 4) + 4) % 4; turn += 1) result = quarterTurn(result);
  return result;
}

/** @param {Picture} picture */
function quarterTurn({ width, height, data }) {
  const result = new Float32Array(data.length);
  const count = width * height;
  for (let channel = 0; channel < 3; channel += 1) {
    const plane = channel * count;
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        result[plane + x * height + (height - 1 - y)] = data[plane + y * width + x];
      }
    }
  }
  return { width: height, height: width, data: result };
}

/**
 * Scaled with a triangle filter, which is widened where the picture shrinks.
 *
 * @param {Picture} picture
 * @param {number} width
 * @param {number} height
 * @returns {Picture}
 */
export function resized(picture, width, height) {
  if (picture.width === width && picture.height === height) return picture;
  const columns = weightsOf(picture.width, width);
  const rows = weightsOf(picture.height, height);
  const data = new Float32Array(3 * width * height);
  const middle = new Float32Array(width * picture.height);
  for (let channel = 0; channel < 3; channel += 1) {
    const plane = channel * picture.width * picture.height;
    for (let y = 0; y < picture.height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        const { first, weights } = columns[x];
        let sum = 0;
        for (let i = 0; i < weights.length; i += 1) {
          sum += weights[i] * picture.data[plane + y * picture.width + first + i];
        }
        middle[y * width + x] = sum;
      }
    }
    for (let y = 0; y < height; y += 1) {
      const { first, weights } = rows[y];
      for (let x = 0; x < width; x += 1) {
        let sum = 0;
        for (let i = 0; i < weights.length; i += 1) sum += weights[i] * middle[(first + i) * width + x];
        data[(channel * height + y) * width + x] = sum;
      }
    }
  }
  return { width, height, data };
}

/**
 * For every target position the source positions that count, and how much.
 *
 * @param {number} from
 * @param {number} to
 */
function weightsOf(from, to) {
  const scale = from / to;
  const reach = Math.max(1, scale);
  return Array.from({ length: to }, (_, position) => {
    const centre = (position + 0.5) * scale - 0.5;
    const first = Math.max(0, Math.ceil(centre - reach));
    const last = Math.min(from - 1, Math.floor(centre + reach));
    const weights = [];
    for (let i = first; i <= last; i += 1) weights.push(Math.max(0, 1 - Math.abs(i - centre) / reach));
    const total = weights.reduce((a, b) => a + b, 0);
    return { first, weights: weights.map((weight) => weight / total) };
  });
}

/**
 * The middle of a picture.
 *
 * @param {Picture} picture
 * @param {number} width
 * @param {number} height
 * @returns {Picture}
 */
export function centreCrop(picture, width, height) {
  const left = Math.floor((picture.width - width) / 2);
  const top = Math.floor((picture.height - height) / 2);
  const data = new Float32Array(3 * width * height);
  for (let channel = 0; channel < 3; channel += 1) {
    for (let y = 0; y < height; y += 1) {
      const start = (channel * picture.height + top + y) * picture.width + left;
      data.set(picture.data.subarray(start, start + width), (channel * height + y) * width);
    }
  }
  return { width, height, data };
}

/**
 * f32 [1, channels, height, width].
 *
 * @param {Picture} picture
 * @param {Normalization} normalization
 * @param {number} [channels] 3, or 1 for the brightness
 * @returns {PlainTensor}
 */
export function imageTensor(picture, { mean, deviation, order = "RGB" }, channels = 3) {
  const { width, height, data } = picture;
  const count = width * height;
  const result = new Float32Array(channels * count);
  for (let channel = 0; channel < channels; channel += 1) {
    const source = order === "BGR" ? 2 - channel : channel;
    for (let i = 0; i < count; i += 1) {
      const value =
        channels === 1
          ? LUMA.reduce((sum, weight, plane) => sum + weight * data[plane * count + i], 0)
          : data[source * count + i];
      result[channel * count + i] = (value / 255 - mean[channel]) / deviation[channel];
    }
  }
  return { type: "float32", data: result, dims: [1, channels, height, width] };
}

/**
 * A canvas that shows a picture.
 *
 * @param {Picture} picture
 * @returns {HTMLCanvasElement}
 */
export function pictureCanvas({ width, height, data }) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  const count = width * height;
  for (let i = 0; i < count; i += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      image.data[4 * i + channel] = data[channel * count + i];
    }
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}
