/** What users of the runtime import. */

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
