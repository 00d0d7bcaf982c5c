// The report of Requests: a table for people, one JSON line for programs.

import {
  CLIENT_DELAY, clientDelay, clientDelayText, connectionsOf, durationRow, durations, errorsOf, errorText, line, outputsOf, parts, reading, round, row,
  runOf, shareOf, verdict,
} from './report.js';

const TITLES = { request: 'request', request_service: '  once begun' };

/**
 * Thresholds of a run.
 *
 * @param {Object} config of readRequestsOptions()
 * @returns {Object<string, string[]>} k6's `thresholds`
 */
export function requestsThresholds(config) {
  return {
    failed: [`rate<=${config.maxFailed}`],
    requests: ['count>0'],
    wrong: ['count==0'],
    // A runner that is late itself measures itself.
    [CLIENT_DELAY]: [`p(99)<=${config.maxClientDelayMs}`],
    ...parts(config),
  };
}

/**
 * One runner's report.
 *
 * @param {Object} data what k6 gives to handleSummary
 * @param {Object} config of readRequestsOptions()
 * @returns {Object} see README.md, "The report"; times in ms, shares from 0 to 1, null where nothing was measured
 */
export function requestsReport(data, config) {
  const { values, count } = reading(data);
  const failed = shareOf(values('failed'));
  const out = {
    ...runOf(data, config),
    method: config.method,
    path: config.path,
    connections_wanted: config.connections,
    rate: config.rate,
    planned: count('planned'),
    connected: count('connected'),
    requests: count('requests'),
    requests_per_s: round((1000 * failed.no) / config.durationMs, 1),
    unsent: count('unsent'),
    failed,
    wrong: count('wrong'),
    unfinished: count('unfinished'),
    error: count('error'),
    errors: errorsOf(data),
    connections: connectionsOf(data, config),
    client_delay: clientDelay(values(CLIENT_DELAY)),
    durations: {},
  };
  // Closed, a request is due when the one before it was answered: the two are the same.
  for (const name of config.rate > 0 ? Object.keys(TITLES) : ['request']) {
    out.durations[name] = durations(values(name));
  }
  return out;
}

/** handleSummary of Requests. */
export function requestsSummary(data, config) {
  const out = requestsReport(data, config);
  return outputsOf(out, table(out), config);
}

function table(out) {
  const part = out.runners > 1 ? `, runner ${out.runner + 1} of ${out.runners}` : '';
  const how = out.rate > 0 ? `${out.rate} a second on ${out.connections_wanted} connections` : `${out.connections_wanted} connections`;
  return [
    '',
    `LiveStash requests: ${out.method} ${out.path}, ${how}, ${out.duration_s} s${part}`,
    '',
    row('ms', ['p50', 'p95', 'p99', 'max', 'count']),
    ...Object.keys(out.durations).filter((name) => out.durations[name].count > 0).map((name) => durationRow(TITLES[name], out.durations[name])),
    '',
    line('answered', `${out.failed.no} (${out.requests_per_s} a second)`),
    ...(out.rate > 0 ? [line('unsent', `${out.unsent} that were due and for which no connection was free`)] : []),
    line('failed', `${out.failed.yes} of ${out.requests}, ${out.wrong} of them with a wrong sum`),
    line('errors', errorText(out)),
    line('client delay', clientDelayText(out)),
    line('unfinished', `${out.unfinished} (waits cut by the end of the test)`),
    line('connections', `opened, for ${out.connected} that answered of ${out.planned} wanted`),
    ...Object.keys(out.connections).map((base) => `    ${base}  ${out.connections[base]}`),
    '',
    verdict(out),
    '',
  ].join('\n');
}
