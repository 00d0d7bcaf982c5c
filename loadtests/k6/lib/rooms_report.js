// The report of Rooms: a table for people, one JSON line for programs.

import {
  CLIENT_DELAY, clientDelay, clientDelayText, connectionsOf, durationRow, durations, errorsOf, errorText, line, outputsOf, parts, reading, round, row,
  runOf, shareOf, verdict,
} from './report.js';

const DURATIONS = ['join', 'delivery'];

/**
 * Thresholds of a run.
 *
 * @param {Object} config of readRoomsOptions()
 * @returns {Object<string, string[]>} k6's `thresholds`
 */
export function roomsThresholds(config) {
  const least = Math.floor(config.rooms / config.runners) * config.roomSize;
  const few = Math.floor(least * config.maxFailed);
  return {
    failed: [`rate<=${config.maxFailed}`],
    // Who is not in the room is not expected to hear anything, so that alone does not show in `failed`.
    connected: [`count>=${least - few}`],
    connect_failed: [`count<=${few}`],
    dropped: [`count<=${few}`],
    messages: ['count>0'],
    // A room in which something is heard twice, or that is another room's, is no room.
    duplicates: ['count==0'],
    misdelivered: ['count==0'],
    // A runner that is late itself measures itself.
    [CLIENT_DELAY]: [`p(99)<=${config.maxClientDelayMs}`],
    ...parts(config),
  };
}

/**
 * One runner's report.
 *
 * @param {Object} data what k6 gives to handleSummary
 * @param {Object} config of readRoomsOptions()
 * @returns {Object} see README.md, "The report"; times in ms, shares from 0 to 1, null where nothing was measured
 */
export function roomsReport(data, config) {
  const { values, count } = reading(data);
  const spoken = (config.durationMs - config.rampMs) / 1000;
  const out = {
    ...runOf(data, config),
    protocol: config.protocol,
    users: config.users,
    room_size: config.roomSize,
    speakers: config.speakers,
    every_s: config.everyMs.map((ms) => ms / 1000),
    bytes: config.bytes,
    ramp_s: config.rampMs / 1000,
    planned: count('planned'),
    connected: count('connected'),
    messages: count('messages'),
    deliveries: count('deliveries'),
    deliveries_per_s: round(count('deliveries') / spoken, 1),
    failed: shareOf(values('failed')),
    duplicates: count('duplicates'),
    misdelivered: count('misdelivered'),
    late_deliveries: count('late_deliveries'),
    dropped: count('dropped'),
    unfinished: count('unfinished'),
    connect_failed: count('connect_failed'),
    error: count('error'),
    errors: errorsOf(data),
    connections: connectionsOf(data, config),
    client_delay: clientDelay(values(CLIENT_DELAY)),
    durations: {},
  };
  for (const name of DURATIONS) {
    out.durations[name] = durations(values(name));
  }
  return out;
}

/** handleSummary of Rooms. */
export function roomsSummary(data, config) {
  const out = roomsReport(data, config);
  return outputsOf(out, table(out), config);
}

function table(out) {
  const part = out.runners > 1 ? `, runner ${out.runner + 1} of ${out.runners}` : '';
  return [
    '',
    `LiveStash rooms: ${out.protocol}, ${out.users} users in rooms of ${out.room_size}, ${out.bytes} bytes, ${out.duration_s} s${part}`,
    '',
    row('ms', ['p50', 'p95', 'p99', 'max', 'count']),
    ...DURATIONS.filter((name) => out.durations[name].count > 0).map((name) => durationRow(name, out.durations[name])),
    '',
    line('users', `${out.connected} of ${out.planned} were there`),
    line('messages', `${out.messages}, of which ${out.failed.yes} did not reach their whole room`),
    line('deliveries', `${out.deliveries} (${out.deliveries_per_s} a second)`),
    line('wrong', `${out.duplicates} heard twice, ${out.misdelivered} that were not the room's, ${out.late_deliveries} after they were given up`),
    line('errors', errorText(out)),
    line('dropped', out.dropped),
    line('client delay', clientDelayText(out)),
    line('unfinished', `${out.unfinished} (on their way at the end of the test)`),
    line('connections', ''),
    ...Object.keys(out.connections).map((base) => `    ${base}  ${out.connections[base]}`),
    '',
    verdict(out),
    '',
  ].join('\n');
}
