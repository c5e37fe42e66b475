/**
 * Whether a peer is still there, told from what is heard of it. The machine of
 * `rlx_edge/gateway/liveness.py`; one golden file pins both.
 *
 * Whatever comes from a peer counts, a heartbeat's answer no more than a piece of a tensor. While a
 * body is under way the peer may say nothing for longer, though not for ever. Time in which this
 * side itself stood still counts against nobody.
 */

/** Times are of any monotonic clock, all in one unit. */
export class Liveness {
  #heard;

  /**
   * @param {number} now
   * @param {number} allowed how long a peer may say nothing
   * @param {number} allowedInBody how long while a body is under way
   */
  constructor(now, allowed, allowedInBody) {
    this.allowed = allowed;
    this.allowedInBody = allowedInBody;
    /** How many are under way, in either direction. */
    this.bodies = 0;
    this.#heard = now;
  }

  /**
   * The peer said something, or moved a piece of a body.
   *
   * @param {number} now
   */
  heard(now) {
    this.#heard = Math.max(this.#heard, now);
  }

  /**
   * A body is under way, in either direction.
   *
   * @param {number} now
   */
  bodyBegins(now) {
    this.bodies += 1;
    this.heard(now);
  }

  /**
   * That body is through, or given up.
   *
   * @param {number} now
   */
  bodyEnds(now) {
    this.bodies -= 1;
    this.heard(now);
  }

  /**
   * This side stood still for so long: what came meanwhile may not have been seen yet.
   *
   * @param {number} late
   */
  excuse(late) {
    this.#heard += late;
  }

  /** How long the peer may say nothing as things are. */
  limit() {
    return this.bodies ? Math.max(this.allowed, this.allowedInBody) : this.allowed;
  }

  /**
   * For how long nothing was heard, where that is longer than the limit.
   *
   * @param {number} now
   * @returns {number | null}
   */
  silence(now) {
    const silent = now - this.#heard;
    return silent > this.limit() ? silent : null;
  }
}
