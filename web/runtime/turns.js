/** Turns of the event loop. */

/** @type {MessageChannel | undefined} */
let channel;
/** @type {(() => void)[]} */
const waiting = [];

/**
 * Resolves in a task of its own, after events that are waiting already. Timers would take 4 ms, and
 * `scheduler.yield` would go before the events that a cancel arrives in.
 *
 * @returns {Promise<void>}
 */
export function nextTask() {
  if (typeof setImmediate === "function") return new Promise((resolve) => setImmediate(resolve));
  if (!channel) {
    channel = new MessageChannel();
    channel.port1.onmessage = () => waiting.shift()?.();
  }
  const { port2 } = channel;
  return new Promise((resolve) => {
    waiting.push(resolve);
    port2.postMessage(0);
  });
}
