// What is said in one room, and who has heard it. All members of a room are in one VU, so that one clock sees a message go out
// and come in everywhere.
//
// A message is the text "#ROOM#NUMBER#" and letters up to its size. The letters are compared, so that a message counts as heard only
// when it came whole.

const MARK = '#';
const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

// What a member is to a message.
const ABSENT = 0;
const EXPECTED = 1;
const HEARD = 2;

/** Shortest messages, in bytes: mark, room and number fit in. @type {number} */
export const LEAST_BYTES = 32;

/** One room's book-keeping; it knows no socket and no clock. */
export class Room {
  /**
   * @param {number} number of the room in the whole test, from 0
   * @param {number} size number of members, who are 0 to size-1
   * @param {number} bytes length of a message
   * @param {{delivered: function(number), failed: function(), duplicate: function(), misdelivered: function(), late: function()}} book
   *   told of each message once: `delivered` with the ms until its last member heard it, or `failed`; and of each copy that should not have
   *   come: a second one, one of another room or not whole, one after the message was given up
   */
  constructor(number, size, bytes, book) {
    this.number = number;
    this.bytes = bytes;
    this.book = book;
    // by member: EXPECTED or ABSENT
    this.present = new Uint8Array(size);
    this.here = 0;
    this.said = 0;
    // number of a message => {at, left, missed, members}, in the order they were said
    this.messages = new Map();
    this.prefix = `${MARK}${number}${MARK}`;
    this.letters = LETTERS.repeat(Math.ceil(bytes / LETTERS.length));
    // how many messages were heard by how many members
    this.deliveries = 0;
  }

  /** A member is in the room from now on. */
  enter(member) {
    this.here += this.present[member] === ABSENT ? 1 : 0;
    this.present[member] = EXPECTED;
  }

  /** A member is not in the room any more. What has not reached them is not delivered. */
  leave(member) {
    this.here -= this.present[member] === EXPECTED ? 1 : 0;
    this.present[member] = ABSENT;
    for (const message of this.messages.values()) {
      if (message.members[member] === EXPECTED) {
        message.members[member] = ABSENT;
        message.missed = true;
        this.count(message);
      }
    }
  }

  /**
   * The next message. Everybody who is in the room now is to hear it.
   *
   * @param {number} at ms of the clock that heard() has, too
   * @returns {string} its text
   */
  say(at) {
    const number = this.said;
    this.said += 1;
    this.messages.set(number, { at, left: this.here, missed: false, over: false, members: this.present.slice() });
    const head = `${this.prefix}${number}${MARK}`;
    return head + this.letters.slice(0, this.bytes - head.length);
  }

  /**
   * A member has heard something.
   *
   * @param {number} member
   * @param {string} frame what came, as text
   * @param {number} from where the message begins in it
   * @param {function(): number} clock ms; asked only when a message is complete
   */
  heard(member, frame, from, clock) {
    const start = from + this.prefix.length;
    const end = frame.indexOf(MARK, start);
    const number = end > start && frame.startsWith(this.prefix, from) ? Number(frame.slice(start, end)) : NaN;
    const known = Number.isInteger(number) && number >= 0 && number < this.said;
    if (!known || !frame.startsWith(this.letters.slice(0, this.bytes - (end + 1 - from)), end + 1)) {
      this.book.misdelivered();
      return;
    }
    const message = this.messages.get(number);
    if (!message || (message.over && message.members[member] === EXPECTED)) {
      this.book.late();
      return;
    }
    const was = message.members[member];
    if (was === HEARD) {
      this.book.duplicate();
      return;
    }
    // Who came in after it was said may hear it, and need not.
    message.members[member] = HEARD;
    if (was === EXPECTED) {
      this.deliveries += 1;
      this.count(message, clock);
    }
  }

  /** A message will not come: the server has refused it. */
  refused(number) {
    const message = this.messages.get(number);
    if (message && !message.over) {
      this.end(message);
    }
  }

  /**
   * Gives up what was said before `at` and has not been heard by all, and forgets what was said before.
   *
   * @param {number} at
   */
  expire(at) {
    for (const [number, message] of this.messages) {
      if (message.at > at) {
        return;
      }
      if (!message.over) {
        this.end(message);
      }
      this.messages.delete(number);
    }
  }

  /** How many messages are still on their way. @type {number} */
  get open() {
    let open = 0;
    for (const message of this.messages.values()) {
      open += message.over ? 0 : 1;
    }
    return open;
  }

  count(message, clock) {
    message.left -= 1;
    if (message.left > 0 || message.over) {
      return;
    }
    if (message.missed) {
      this.end(message);
      return;
    }
    message.over = true;
    this.book.delivered(clock() - message.at);
  }

  end(message) {
    message.over = true;
    this.book.failed();
  }
}
