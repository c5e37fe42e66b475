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
import "./gateway_connection.js";
import "./gateway_session.js";
import "./integers.js";
import "./links.js";
import "./liveness.js";
import "./messages.js";
import "./plan.js";
import "./program.js";
import "./protocol.js";
import "./runner.js";
import "./segments.js";
import "./task_graph.js";
import "./transfers.js";
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
  PeerError,
  RlxError,
} from "./errors.js";
export { GatewayClient } from "./gateway_client.js";
export { InferenceSession } from "./session.js";
export { Tensor } from "./tensor.js";
export { Trace } from "./trace.js";
