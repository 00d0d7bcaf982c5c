// A LiveView client as a browser is one: page, socket, join, events, diffs, LiveStash, reconnect.
//
//   const view = new LiveView({ path: '/stash/ets', timeout: 10000 });
//   await view.connect('http://10.0.0.1:4000');
//   await view.event('click', 'stash', {});
//   await view.disconnect();
//   await view.reconnect('http://10.0.0.2:4000');
//   view.rendered.text(0); // "recovered"

import http from 'k6/http';
import { now } from './clock.js';
import { connectReason, LiveViewError } from './errors.js';
import { FORWARDED } from './forwarded.js';
import { parsePage } from './page.js';
import { Rendered } from './rendered.js';
import { Socket } from './socket.js';
import { Stash } from './stash.js';
import { limit } from './wait.js';

/** One user with one page. */
export class LiveView {
  /**
   * @param {Object} options
   * @param {string} options.path path of the page, with its query if it has one
   * @param {number} [options.timeout] limit in ms of each wait (page, connection, every reply); default 10,000
   * @param {number} [options.deadline] time (ms since 1970) at which every wait is cut with `ended`; default: never
   * @param {number} [options.heartbeat] ms between heartbeats; default 30,000
   * @param {string} [options.socketPath] path of the LiveView socket; default /live/websocket
   * @param {function(string, Object): void} [options.onEvent] name and detail of each pushed event; default: none
   * @param {function(LiveViewError): void} [options.onClose] called when a joined view ends by anything but disconnect();
   *   default: none
   * @param {Function} [options.Implementation] WebSocket constructor; default: that of k6
   */
  constructor(options) {
    this.options = { timeout: 10000, heartbeat: 30000, socketPath: '/live/websocket', ...options };
    this.stash = new Stash();
    /** What the server has rendered; null while the view is not joined. @type {Rendered|null} */
    this.rendered = null;
    /** Number of joins that succeeded. @type {number} */
    this.mounts = 0;
    /** How long the last join took, in ms: from its message to its reply, without the connection before it. @type {number} */
    this.joinMs = 0;
    this.attempts = 0;
    this.ref = 0;
    this.socket = null;
    this.page = null;
    this.cookie = '';
    this.url = '';
  }

  /**
   * Fetches the page, connects and joins: a first visit.
   *
   * @param {string} base http:// or https:// with host and port, no path
   * @returns {Promise<void>} rejects with a LiveViewError of any reason; no socket is left open then
   */
  async connect(base) {
    if (this.socket) {
      await this.disconnect();
    }
    await this.fetchPage(base);
    await this.join(base);
  }

  /**
   * Connects and joins again with the page, cookie and stash that this view has, as a browser does after a lost socket.
   * The cookie is sent to every base, also when its host is not the one that set it.
   *
   * @param {string} base http:// or https:// with host and port, no path; it may be another than that of the page
   * @returns {Promise<void>} rejects with a LiveViewError; no socket is left open then. After `stale` only connect() of a
   *   new LiveView helps: a browser would reload the page
   */
  async reconnect(base) {
    if (!this.page) {
      throw new Error('reconnect needs a view that was connected before');
    }
    if (this.socket) {
      await this.disconnect();
    }
    await this.join(base);
  }

  /**
   * Fetches the page and keeps what a join needs.
   *
   * @param {string} base as for connect()
   * @returns {Promise<void>} rejects with LiveViewError `connect`, `exhausted`, `http`, `timeout`, `ended` or `bad_page`
   */
  async fetchPage(base) {
    const url = base + this.options.path;
    const { ms, reason } = limit(this.options.timeout, this.options.deadline);
    const response = await http.asyncRequest('GET', url, null, {
      // A jar of its own: with the VU's jar all users of a VU would share one session.
      jar: new http.CookieJar(),
      headers: FORWARDED,
      redirects: 0,
      responseType: 'text',
      timeout: ms,
      tags: { name: this.options.path },
    });
    if (response.error_code === 1050) {
      throw new LiveViewError(reason, `GET ${url}: no answer after ${ms} ms`);
    }
    if (response.status === 0) {
      throw new LiveViewError(connectReason(response.error), `GET ${url}: ${response.error}`);
    }
    if (response.status !== 200) {
      throw new LiveViewError('http', `GET ${url}: status ${response.status}`, { code: response.status });
    }
    this.page = parsePage(response.body);
    this.topic = `lv:${this.page.id}`;
    this.url = url;
    this.cookie = Object.keys(response.cookies)
      .map((name) => `${name}=${response.cookies[name][0].value}`)
      .join('; ');
  }

  /**
   * Connects a socket and joins the page's LiveView. connect() and reconnect() are what a caller usually wants.
   *
   * @param {string} base as for connect()
   * @returns {Promise<void>} rejects with a LiveViewError; no socket is left open then
   */
  async join(base) {
    const { page } = this;
    const { Implementation } = this.options;
    const socket = new Socket(`${base.replace(/^http/, 'ws')}${this.options.socketPath}?${query({ _csrf_token: page.csrf, liveStash: this.stash.params })}`, {
      // The cookie goes as a header, and the jar stays empty: a jar sends nothing to a host that did not set the cookie.
      params: {
        jar: new http.CookieJar(),
        headers: this.cookie ? { ...FORWARDED, Cookie: this.cookie } : FORWARDED,
        // without a name every CSRF token makes a time series of its own
        tags: { name: this.options.socketPath },
      },
      timeout: this.options.timeout,
      deadline: this.options.deadline,
      heartbeat: this.options.heartbeat,
      nextRef: () => this.nextRef(),
      onPush: (topic, event, payload) => this.receive(topic, event, payload),
      onClose: (error) => this.wasClosed(socket, error),
      ...(Implementation ? { Implementation } : {}),
    });
    this.rendered = null;
    try {
      await socket.open();
      const sent = now();
      const reply = await this.pushJoin(socket);
      this.joinMs = now() - sent;
      if (reply.status !== 'ok') {
        throw refusal('join', reply.response);
      }
      if (!isObject(reply.response) || !isObject(reply.response.rendered) || reply.response.rendered.s === undefined) {
        throw new LiveViewError('bad_message', 'the join reply has no rendered page', { detail: reply.response });
      }
      this.merge(reply.response.rendered);
    } catch (error) {
      await socket.close();
      throw error;
    }
    this.socket = socket;
    this.mounts += 1;
    this.attempts = 0;
  }

  /**
   * Sends an event and applies the diff of its reply.
   *
   * @param {string} type kind of the event: click, form, keyup, hook, ...
   * @param {string} name the event's name, as in phx-click
   * @param {Object} [value] its value; default {}
   * @returns {Promise<any>} the reply of `handle_event`, undefined when it gives none; rejects with LiveViewError `timeout`,
   *   `ended`, `closed`, `crashed`, `refused`, `redirected` or `bad_message`
   */
  async event(type, name, value = {}) {
    if (!this.socket) {
      throw new LiveViewError('closed', 'the view is not connected', { code: 1006 });
    }
    const reply = await this.socket.push(this.joinRef, this.topic, 'event', { type, event: name, value });
    if (reply.status !== 'ok' || !isObject(reply.response)) {
      throw refusal(`event ${name}`, reply.response);
    }
    if (reply.response.redirect || reply.response.live_redirect) {
      throw refusal(`event ${name}`, reply.response);
    }
    return this.merge(reply.response.diff || {});
  }

  /**
   * Closes the socket, if there is one. Page, cookie and stash stay for reconnect(); what was rendered does not: of many users, most
   * are away, and it is the most that one holds.
   *
   * @returns {Promise<void>} when the connection is gone, at most 1 s later; it never rejects
   */
  async disconnect() {
    const { socket } = this;
    this.socket = null;
    this.rendered = null;
    if (socket) {
      await socket.close();
    }
  }

  /** Whether the view is joined and its socket open, as far as is known. @type {boolean} */
  get connected() {
    return this.socket !== null;
  }

  pushJoin(socket) {
    // The join's own reference is the channel's.
    this.joinRef = String(this.ref + 1);
    const params = {
      _csrf_token: this.page.csrf,
      // An integer: as a string, 0 or absent, the server takes the join for a first visit and forgets the stash.
      _mounts: this.mounts,
      _mount_attempts: this.attempts,
      liveStash: this.stash.params,
    };
    this.attempts += 1;
    const { session, static: statics } = this.page;
    return socket.push(null, this.topic, 'phx_join', { url: this.url, params, session, static: statics, sticky: false });
  }

  // References go on over reconnects, as in a browser: a late reply to an old message can never be taken for a new one.
  nextRef() {
    this.ref += 1;
    return String(this.ref);
  }

  receive(topic, event, payload) {
    if (topic === this.topic && event === 'diff' && this.rendered) {
      this.merge(payload);
    }
  }

  merge(diff) {
    const came = this.apply(diff);
    this.stash.apply(came.events);
    if (this.options.onEvent) {
      came.events.forEach(([name, detail]) => this.options.onEvent(name, detail));
    }
    return came.reply;
  }

  apply(diff) {
    try {
      if (this.rendered) {
        return this.rendered.merge(diff);
      }
      const { e: events = [] } = diff;
      this.rendered = new Rendered(diff);
      return { events };
    } catch (error) {
      throw new LiveViewError('bad_message', `the server sent a diff that cannot be applied: ${error.message}`);
    }
  }

  wasClosed(socket, error) {
    if (this.socket !== socket) {
      return;
    }
    this.socket = null;
    this.rendered = null;
    if (this.options.onClose) {
      this.options.onClose(error);
    }
  }
}

// The parameters of a browser's LiveSocket, as phoenix.js writes them into the socket's URL: LiveStash's object is among them, so
// a state that is kept in the browser can be too large for the server.
function query(params) {
  return [...pairs(params, ''), 'vsn=2.0.0'].join('&');
}

function pairs(object, parent) {
  return Object.keys(object).flatMap((key) => {
    const name = parent ? `${parent}[${key}]` : key;
    return isObject(object[key]) ? pairs(object[key], name) : [`${encodeURIComponent(name)}=${encodeURIComponent(object[key])}`];
  });
}

function refusal(what, response) {
  const answer = isObject(response) ? response : {};
  if (answer.reason === 'stale') {
    return new LiveViewError('stale', `${what}: session, cookie and CSRF token do not fit together`, { detail: response });
  }
  if (answer.redirect || answer.live_redirect) {
    return new LiveViewError('redirected', `${what}: the server redirects: ${JSON.stringify(response)}`, { detail: response });
  }
  return new LiveViewError('refused', `${what}: ${JSON.stringify(response)}`, { detail: response });
}

function isObject(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
