// The environment of the scenario Rooms: read once, checked whole, refused with sentences.

import { duration, integer, misnumbered, oneOf, parseDuration, path, reader, readShared, refuse, SPARE_DESCRIPTORS } from './options.js';
import { PROTOCOLS } from './protocols.js';
import { LEAST_BYTES } from './room.js';

const MOST_BYTES = 1 << 20;

/**
 * Reads the options of Rooms. What each means stands in loadtests/k6/README.md.
 *
 * @param {Object<string, string|undefined>} env as k6's __ENV; an empty value counts as absent
 * @returns {Object} those of readShared(), and scenario, protocol, path, users, roomSize, rooms, speakers, everyMs (least and most), bytes,
 *   durationMs, rampMs, vus; times in ms
 * @throws {Error} one sentence per wrong option
 */
export function readRoomsOptions(env) {
  const problems = [];
  const read = reader(env, problems);
  const options = {
    scenario: 'rooms',
    ...readShared(env, read, problems),
    protocol: read('PROTOCOL', 'phoenix', oneOf(Object.keys(PROTOCOLS))),
    users: read('USERS', '200', integer(1)),
    usersPerVu: read('USERS_PER_VU', '100', integer(1)),
    roomSize: read('ROOM_SIZE', '50', integer(1)),
    everyMs: read('EVERY', '10s-60s', range),
    bytes: read('BYTES', '64', bytes),
    durationMs: read('DURATION', '5m', duration(1)),
  };
  options.speakers = read('SPEAKERS', String(options.roomSize || 1), integer(1));
  options.path = read('ROOM_PATH', (PROTOCOLS[options.protocol] || PROTOCOLS.phoenix).path, path);
  options.rampMs = read('RAMP', `${Math.round((options.durationMs || 0) / 4)}ms`, duration(0));
  problems.push(...conflicts(options));
  refuse(problems);
  options.rooms = options.users / options.roomSize;
  const roomsPerVu = Math.max(1, Math.floor(options.usersPerVu / options.roomSize));
  // A multiple of the runners, so that each of them gets as many VUs, and as many rooms, as the others.
  options.vus = Math.ceil(Math.ceil(options.rooms / roomsPerVu) / options.runners) * options.runners;
  return options;
}

// Options that are right each and wrong together. Those that could not be read are undefined, and no comparison holds for them.
function conflicts({ users, roomSize, speakers, runners, runner, descriptors, durationMs, rampMs, everyMs }) {
  const problems = misnumbered(runner, runners);
  const rooms = Math.floor(users / roomSize);
  const room = descriptors - SPARE_DESCRIPTORS;
  if (users % roomSize > 0) {
    const least = Math.max(1, rooms) * roomSize;
    problems.push(`USERS=${users} are not whole rooms of ROOM_SIZE=${roomSize}: set USERS to ${least} or ${least + roomSize}.`);
  }
  if (speakers > roomSize) {
    problems.push(`SPEAKERS=${speakers} are more than a room has members, ROOM_SIZE=${roomSize}: set SPEAKERS to ${roomSize} or less.`);
  }
  if (runners > rooms) {
    problems.push(`RUNNERS=${runners} are more than there are rooms, ${rooms}, and a room is not divided: set RUNNERS to ${Math.max(1, rooms)} or less.`);
  }
  if (roomSize > room) {
    problems.push(
      `A room of ROOM_SIZE=${roomSize} is larger than a runner, which has one clock for all its members and FILE_DESCRIPTORS=${descriptors}: ` +
        `set ROOM_SIZE to ${room} or less.`,
    );
  } else if (Math.ceil(rooms / runners) * roomSize > room) {
    problems.push(
      `${rooms} rooms of ${roomSize} on ${runners} runner${runners === 1 ? '' : 's'} need ${Math.ceil(rooms / runners) * roomSize + SPARE_DESCRIPTORS} ` +
        `file descriptors each, and FILE_DESCRIPTORS=${descriptors}: use ${Math.ceil(rooms / Math.floor(room / roomSize))} runners or more (RUNNERS and the parallelism).`,
    );
  }
  if (everyMs && durationMs < rampMs + everyMs[1]) {
    problems.push('DURATION must be at least RAMP and the longest EVERY together: else some members would never speak.');
  }
  return problems;
}

// "2s", or "10s-60s" for anything between, each value as likely as every other.
function range(text) {
  const ends = text.split('-');
  const [least, most = least] = ends.map(parseDuration);
  if (ends.length > 2 || least < 1 || most < least) {
    throw new Error('must be a duration above 0 such as 2s, or two of them with the shorter one first, such as 10s-60s.');
  }
  return [least, most];
}

function bytes(text) {
  const number = integer(LEAST_BYTES)(text);
  if (number > MOST_BYTES) {
    throw new Error(`must be at most ${MOST_BYTES}.`);
  }
  return number;
}
