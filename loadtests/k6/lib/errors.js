// The one error type of the library: callers decide by `reason`, people read `message`.

/**
 * Every reason a LiveViewError can carry.
 *
 * - `timeout`     a wait was longer than its limit
 * - `ended`       a wait was cut because the deadline of the whole test had come; no fault of the server
 * - `connect`     no connection, or one that ended before an answer: refused, reset, name not found
 * - `handshake`   the server answered the WebSocket's handshake with something else than 101; k6 does not tell a script the status
 * - `exhausted`   this machine has no file descriptor or port left; no fault of the server
 * - `closed`      the server closed the socket or the channel; `code` is the close code (1006 when there was no close frame)
 * - `crashed`     the LiveView process on the server died (`phx_error`)
 * - `stale`       the join was refused because session, cookie or CSRF token do not fit together
 * - `refused`     the join or an event was answered with another error; `detail` is the server's answer
 * - `redirected`  the server sent the client to another page; `detail` is the server's answer
 * - `http`        the page was answered with a status other than 200, which is `code`
 * - `bad_page`    the page is no LiveView page
 * - `bad_message` a frame that is not of Phoenix's protocol, or a render that lacks what the caller needs
 */
export const REASONS = [
  'timeout',
  'ended',
  'connect',
  'handshake',
  'exhausted',
  'closed',
  'crashed',
  'stale',
  'refused',
  'redirected',
  'http',
  'bad_page',
  'bad_message',
];

// Statuses of a page that are counted apart.
const STATUSES = [301, 302, 303, 307, 308, 400, 401, 403, 404, 408, 429, 500, 502, 503, 504];

/**
 * Values of the tag `reason` of the metric `error`: REASONS without `ended`, `http` also with the commonest statuses, and
 * `stash_error` for a LiveView that says so.
 */
export const REASON_TAGS = [...REASONS.filter((reason) => reason !== 'ended'), ...STATUSES.map((code) => `http_${code}`), 'stash_error'];

/**
 * How an error is counted.
 *
 * @param {LiveViewError} error
 * @returns {string} one of REASON_TAGS; `ended` for an error that is none
 */
export function reasonTag({ reason, code }) {
  return reason === 'http' && STATUSES.includes(code) ? `http_${code}` : reason;
}

/**
 * The reason for a connection that did not come about.
 *
 * @param {string} text what k6 says of it
 * @returns {'connect'|'handshake'|'exhausted'}
 */
export function connectReason(text) {
  if (/cannot assign requested address|too many open files/.test(text)) {
    return 'exhausted';
  }
  return text.includes('bad handshake') ? 'handshake' : 'connect';
}

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
