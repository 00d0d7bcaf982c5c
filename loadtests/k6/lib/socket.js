// One WebSocket that speaks Phoenix's channel protocol 2.0.0: frames [join_ref, ref, topic, event, payload] as JSON text.
//
// What stock k6 asks for (read in its source, seen in runs, 1.8.1):
// - close() while the socket is still connecting blocks the VU's event loop, for ever when the connection then fails. So a
//   connection that was given up is closed when it opens, and never before. k6 allows it 60 s, or until the scenario's end.
// - close() waits for the server's close frame without a limit, and the iteration waits with it: a frozen server would keep
//   the whole run alive. The only way to drop the TCP connection is a failed write, and a write after a close frame fails.
//   send() refuses to write once close() was called; but it looks at that before it looks at the message. See drop().

import { WebSocket } from 'k6/websockets';
import { connectReason, LiveViewError } from './errors.js';
import { startAlarm, startWait } from './wait.js';

const HEARTBEAT_TOPIC = 'phoenix';
// close code of a connection that ended without a close frame (RFC 6455)
const ABNORMAL = 1006;
const OPEN = 1;

/** A socket with replies, limits and a heartbeat. It is used once: open, push, close. */
export class Socket {
  /**
   * @param {string} url ws:// or wss:// with its query
   * @param {Object} options
   * @param {Object} [options.params] k6's WebSocket parameters (headers, jar, tags); default: none
   * @param {string|null} [options.protocols] WebSocket subprotocol to ask for; default: none
   * @param {number} options.timeout limit in ms of each wait: the connection, every reply
   * @param {number} [options.deadline] time (ms since 1970) at which every wait is cut; default: never
   * @param {number} [options.heartbeat] ms between heartbeats; default 30,000. Phoenix closes a socket that is silent for 60 s
   * @param {function(): string} [options.nextRef] next message reference; default: a counter from 1
   * @param {function(string, string, Object): void} [options.onPush] topic, event and payload of a message that is no reply;
   *   default: ignored. When it throws, the socket ends with that error
   * @param {function(LiveViewError): void} [options.onClose] called once when the open socket ends by anything but close();
   *   default: nothing
   * @param {Function} [options.Implementation] WebSocket constructor; default: that of k6
   */
  constructor(url, options) {
    this.url = url;
    this.options = { heartbeat: 30000, params: {}, protocols: null, onPush: () => {}, onClose: () => {}, Implementation: WebSocket, ...options };
    // Without a prototype: the server chooses what is looked up.
    this.pending = Object.create(null);
    this.ended = false;
    this.lastRef = 0;
    this.gone = null;
    this.stopBeating = () => {};
    this.detail = '';
  }

  /**
   * Connects.
   *
   * @returns {Promise<void>} rejects with LiveViewError `connect`, `handshake`, `exhausted`, `timeout` or `ended`
   */
  async open() {
    const opening = startWait('connecting the WebSocket', this.options.timeout, this.options.deadline);
    this.opening = opening;
    const ws = new this.options.Implementation(this.url, this.options.protocols, this.options.params);
    this.ws = ws;
    ws.onopen = () => {
      if (this.ended) {
        drop(ws);
        return;
      }
      this.beat();
      opening.resolve();
    };
    ws.onmessage = (event) => this.receive(event.data);
    ws.onerror = (event) => {
      this.detail = event.error || this.detail;
    };
    ws.onclose = (event) => this.wasClosed(event.code);
    try {
      await opening.promise;
    } catch (error) {
      this.end(error);
      throw error;
    }
    this.opening = null;
  }

  /**
   * Sends a message and waits for its reply.
   *
   * @param {string|null} joinRef the channel's join reference; null: the message's own, for a join
   * @param {string} topic
   * @param {string} event
   * @param {Object} payload
   * @returns {Promise<{status: string, response: Object}>} the reply; rejects with LiveViewError `timeout`, `ended`,
   *   `closed`, `crashed` or `bad_message`
   */
  push(joinRef, topic, event, payload) {
    if (this.ended) {
      return Promise.reject(this.ended);
    }
    const ref = this.nextRef();
    const wait = startWait(`${event} on ${topic}`, this.options.timeout, this.options.deadline);
    this.pending[ref] = wait;
    this.ws.send(JSON.stringify([joinRef === null ? ref : joinRef, ref, topic, event, payload]));
    return wait.promise;
  }

  /**
   * Sends a close frame and drops the connection without waiting for the server's close frame.
   *
   * @returns {Promise<void>} when the connection is gone, or after 1 s
   */
  async close() {
    this.end(new LiveViewError('closed', 'closed by this client', { code: 1000 }));
    // Not open yet: onopen closes it. Already closed: nothing is left to wait for.
    if (!this.ws || this.ws.readyState !== OPEN) {
      return;
    }
    const gone = startWait('closing the WebSocket', 1000);
    this.gone = gone;
    drop(this.ws);
    await gone.promise.catch(() => {});
  }

  nextRef() {
    if (this.options.nextRef) {
      return this.options.nextRef();
    }
    this.lastRef += 1;
    return String(this.lastRef);
  }

  receive(data) {
    if (this.ended) {
      return;
    }
    const frame = parseFrame(data);
    if (!frame) {
      this.fail(new LiveViewError('bad_message', 'the server sent a frame that is not of the channel protocol', { detail: data }));
      return;
    }
    const [, ref, topic, event, payload] = frame;
    if (event === 'phx_reply') {
      if (ref === this.heartbeatRef) {
        this.heartbeatRef = null;
      }
      const wait = this.pending[ref];
      if (wait) {
        delete this.pending[ref];
        wait.resolve(payload);
      }
      return;
    }
    if (event === 'phx_error') {
      this.fail(new LiveViewError('crashed', `the process behind ${topic} died`));
      return;
    }
    if (event === 'phx_close') {
      this.fail(new LiveViewError('closed', `the server closed the channel ${topic}`, { code: 1000 }));
      return;
    }
    try {
      this.options.onPush(topic, event, payload);
    } catch (error) {
      // Thrown into k6's event loop it would end the iteration of every user of this VU.
      this.fail(error instanceof LiveViewError ? error : new LiveViewError('bad_message', `${event}: ${error.message}`));
    }
  }

  beat() {
    this.stopBeating = startAlarm(this.options.heartbeat, () => {
      if (this.heartbeatRef) {
        this.fail(new LiveViewError('timeout', `no reply to a heartbeat for ${this.options.heartbeat} ms`));
        return;
      }
      this.heartbeatRef = this.nextRef();
      this.ws.send(JSON.stringify([null, this.heartbeatRef, HEARTBEAT_TOPIC, 'heartbeat', {}]));
      this.beat();
    });
  }

  wasClosed(code = ABNORMAL) {
    if (this.gone) {
      this.gone.resolve();
    }
    if (this.opening) {
      this.opening.reject(new LiveViewError(connectReason(this.detail), `no WebSocket: ${this.detail || `closed with ${code}`}`));
      return;
    }
    this.finish(new LiveViewError('closed', `the server closed the socket with ${code} ${this.detail}`.trim(), { code }));
  }

  // Something is wrong with this socket: tell the owner and drop it.
  fail(error) {
    this.finish(error);
    if (this.ws.readyState === OPEN) {
      drop(this.ws);
    }
  }

  finish(error) {
    if (this.ended) {
      return;
    }
    this.end(error);
    this.options.onClose(error);
  }

  end(error) {
    if (this.ended) {
      return;
    }
    this.ended = error;
    this.stopBeating();
    for (const ref of Object.keys(this.pending)) {
      this.pending[ref].reject(error);
    }
  }
}

/**
 * Ends an open k6 WebSocket at once: a close frame (code 1000), then the TCP connection, whether or not the server answers.
 * Why it is made this way stands at the top of this file.
 *
 * @param {WebSocket} ws an open socket of k6/websockets
 */
function drop(ws) {
  const { isView } = ArrayBuffer;
  // send() asks ArrayBuffer.isView about a typed array, after it has seen that the socket is open. Closing at that moment
  // puts the close frame before the message. All this is synchronous: nobody else sees the changed function.
  ArrayBuffer.isView = () => {
    ws.close();
    return true;
  };
  try {
    ws.send(new Uint8Array(1));
  } finally {
    ArrayBuffer.isView = isView;
  }
  if (ws.readyState === OPEN) {
    ws.close(); // a k6 whose send() does not ask
  }
}

function parseFrame(data) {
  if (typeof data !== 'string') {
    return null;
  }
  let frame;
  try {
    frame = JSON.parse(data);
  } catch (_) {
    return null;
  }
  if (!Array.isArray(frame) || frame.length !== 5 || typeof frame[2] !== 'string' || typeof frame[3] !== 'string') {
    return null;
  }
  if (frame[1] !== null && typeof frame[1] !== 'string') {
    return null;
  }
  return frame[4] !== null && typeof frame[4] === 'object' ? frame : null;
}
