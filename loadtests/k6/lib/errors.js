// The one error type of the library: callers decide by `reason`, people read `message`.

/**
 * Every reason a LiveViewError can carry.
 *
 * - `timeout`     a wait was longer than its limit
 * - `ended`       a wait was cut because the deadline of the whole test had come; no fault of the server
 * - `connect`     no WebSocket: connection refused, reset, name not found, or the upgrade was not answered with 101
 * - `closed`      the server closed the socket or the channel; `code` is the close code (1006 when there was no close frame)
 * - `crashed`     the LiveView process on the server died (`phx_error`)
 * - `stale`       the join was refused because session, cookie or CSRF token do not fit together
 * - `refused`     the join or an event was answered with another error; `detail` is the server's answer
 * - `redirected`  the server sent the client to another page; `detail` is the server's answer
 * - `http`        the page could not be fetched: no answer, or a status other than 200; `code` is the status (0: no answer)
 * - `bad_page`    the page is no LiveView page
 * - `bad_message` a frame that is not of Phoenix's protocol, or a render that lacks what the caller needs
 */
export const REASONS = [
  'timeout',
  'ended',
  'connect',
  'closed',
  'crashed',
  'stale',
  'refused',
  'redirected',
  'http',
  'bad_page',
  'bad_message',
];

/** A failed step of a LiveView client. */
export class LiveViewError extends Error {
  /**
   * @param {string} reason one of REASONS
   * @param {string} message one sentence for a person
   * @param {{code?: number, detail?: any}} [more] close code or HTTP status, and what the server sent
   */
  constructor(reason, message, more = {}) {
    super(message);
    this.name = 'LiveViewError';
    this.reason = reason;
    this.code = more.code;
    this.detail = more.detail;
  }
}
