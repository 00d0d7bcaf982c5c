// How members of a room talk to a server: three protocols over one kind of socket.
//
// A chat has few messages out and very many in, so each protocol knows the exact text that a message begins with as its server writes
// it, and looks for that first. Only what begins otherwise is parsed.

import { LiveViewError } from './errors.js';
import { Socket } from './socket.js';
import { startWait } from './wait.js';

// what Phoenix's channel and Action Cable's identifiers carry the text in
const EVENT = 'new_message';
// Action Cable's server sends a ping every 3 s, and its own client gives a connection up that was silent for twice that.
const STALE_MS = 6000;

/**
 * A member's socket. It is used once: open, join, say, close; all of Socket, and:
 *
 * - `join()` resolves when the server says that the member is in the room, and rejects with LiveViewError
 * - `say(text, number)` sends a message to the room, and waits for nothing
 *
 * Its options are those of Socket, and `room`, a number, `heard(frame, from)` for each message, with the place where its text begins, and
 * `refused(number)` for a message that the server will not pass on.
 */
class Phoenix extends Socket {
  constructor(url, options) {
    super(url, options);
    this.topic = `room:${options.room}`;
    this.prefix = `[null,null,${JSON.stringify(this.topic)},"${EVENT}",{"body":"`;
    // reference of a message that has no reply yet => its number
    this.unanswered = new Map();
    this.options.onPush = (topic, event, payload) => {
      if (topic === this.topic && event === EVENT) {
        options.heard(String(payload.body), 0);
      }
    };
  }

  async join() {
    this.joinRef = String(this.lastRef + 1);
    const { status, response } = await this.push(this.joinRef, this.topic, 'phx_join', {});
    if (status !== 'ok') {
      throw new LiveViewError('refused', `the join of ${this.topic} was refused: ${JSON.stringify(response)}`, { detail: response });
    }
  }

  say(text, number) {
    const ref = this.nextRef();
    // Not push(): a limit of its own for each reply would cost more than the message. Who hears it is what is looked at.
    this.unanswered.set(ref, number);
    this.ws.send(JSON.stringify([this.joinRef, ref, this.topic, 'publish_msg', { body: text }]));
  }

  receive(data) {
    if (typeof data === 'string' && data.startsWith(this.prefix)) {
      this.options.heard(data, this.prefix.length);
    } else if (this.unanswered.size === 0 || !this.isReply(parse(data))) {
      super.receive(data);
    }
  }

  isReply(frame) {
    if (!Array.isArray(frame) || frame[3] !== 'phx_reply' || !this.unanswered.has(frame[1])) {
      return false;
    }
    if (!frame[4] || frame[4].status !== 'ok') {
      this.options.refused(this.unanswered.get(frame[1]));
    }
    this.unanswered.delete(frame[1]);
    return true;
  }
}

/** Messages as they are, and nothing else: the room is in the address, and the handshake is the join. */
class Plain extends Socket {
  async join() {}

  say(text) {
    this.ws.send(text);
  }

  receive(data) {
    this.options.heard(String(data), 0);
  }

  // The server asks with pings of WebSocket, which k6 answers by itself.
  beat() {}
}

/** Action Cable, `actioncable-v1-json`. */
class ActionCable extends Socket {
  constructor(url, options) {
    super(url, { ...options, protocols: 'actioncable-v1-json' });
    this.identifier = JSON.stringify({ channel: 'RoomChannel', room: String(options.room) });
    this.prefix = `{"identifier":${JSON.stringify(this.identifier)},"message":{"body":"`;
    this.subscribing = null;
  }

  // Does not wait for the server's welcome: k6 drops a message that comes between the handshake and `open` (1 of about 1,000 here).
  // Rails keeps what comes before it has said welcome.
  async join() {
    if (this.ended) {
      throw this.ended;
    }
    this.subscribing = startWait('the subscription', this.options.timeout, this.options.deadline);
    this.command('subscribe');
    await this.subscribing.promise;
  }

  say(text) {
    this.command('message', JSON.stringify({ action: 'publish_msg', body: text }));
  }

  command(command, data) {
    this.ws.send(JSON.stringify({ command, identifier: this.identifier, data }));
  }

  receive(data) {
    if (this.ended) {
      return;
    }
    this.heardAt = Date.now();
    if (typeof data === 'string' && data.startsWith(this.prefix)) {
      this.options.heard(data, this.prefix.length);
      return;
    }
    const frame = parse(data);
    if (frame === null || typeof frame !== 'object' || Array.isArray(frame)) {
      this.fail(new LiveViewError('bad_message', 'the server sent a frame that is not of Action Cable', { detail: data }));
    } else if (frame.type) {
      this.control(frame);
    } else if (frame.identifier === this.identifier && frame.message && frame.message.body !== undefined) {
      this.options.heard(String(frame.message.body), 0);
    }
    // The rest are answers to a command and messages of other channels.
  }

  control({ type, identifier, reason }) {
    if (type === 'confirm_subscription' && identifier === this.identifier && this.subscribing) {
      this.subscribing.resolve();
    } else if (type === 'reject_subscription' && this.subscribing) {
      this.subscribing.reject(new LiveViewError('refused', `the subscription to ${identifier} was rejected`));
    } else if (type === 'disconnect') {
      this.fail(new LiveViewError('closed', `the server ends the connection: ${reason}`, { code: 1000 }));
    }
  }

  // The server's pings say that it is alive; the client of Action Cable sends none.
  beat() {
    this.heardAt = Date.now();
    const look = () => {
      if (Date.now() - this.heardAt > STALE_MS) {
        this.fail(new LiveViewError('timeout', `nothing was heard of the server for ${STALE_MS} ms, not even a ping`));
        return;
      }
      this.looking = setTimeout(look, STALE_MS / 2);
    };
    this.looking = setTimeout(look, STALE_MS / 2);
  }

  end(error) {
    super.end(error);
    clearTimeout(this.looking);
    if (this.subscribing) {
      this.subscribing.reject(error);
    }
  }
}

/**
 * The protocols by the value of PROTOCOL: the socket's class, the path of a room's address, and whether the handshake says, as a browser's
 * does, that the page is of the same site. Rails refuses one that says nothing.
 */
export const PROTOCOLS = {
  phoenix: { Member: Phoenix, path: '/socket/websocket?vsn=2.0.0' },
  websocket: { Member: Plain, path: '/rooms/{room}' },
  action_cable: { Member: ActionCable, path: '/cable', origin: true },
};

function parse(data) {
  try {
    return JSON.parse(data);
  } catch (_) {
    return null;
  }
}
