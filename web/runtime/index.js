/**
 * What users of the runtime import.
 *
 * Every module is named here, so that a browser fetches them at once and not level by level.
 */

import "./bundle.js";
import "./digests.js";
import "./dims.js";
import "./executor.js";
import "./feeds.js";
import "./files.js";
import "./integers.js";
import "./messages.js";
import "./plan.js";
import "./program.js";
import "./runner.js";
import "./segments.js";
import "./turns.js";
import "./unit.js";
import "./variant.js";
import "./weights.js";

export {
  DeviceError,
  DigestError,
  GuardError,
  InputError,
  LimitError,
  ModelError,
  RlxError,
} from "./errors.js";
export { InferenceSession } from "./session.js";
export { Tensor } from "./tensor.js";
export { Trace } from "./trace.js";
