// The end of a run: a table for people, one JSON line for programs. Both show what was counted and nothing that was not.

import { REASON_TAGS } from './errors.js';
import { coarser, histogram, quantile } from './histogram.js';

/** Version of the report's JSON: rises when a field changes its meaning or goes. */
export const REPORT_VERSION = 3;

/** Durations of a report, each a Trend in ms. What they mean stands in README.md. @type {string[]} */
export const DURATIONS = ['first_render', 'join', 'stash', 'reconnect', 'rejoin', 'late_rejoin'];

/** Of the durations that count from when the step should have begun, the Trend of the same from when it did. */
export const SERVICE = { first_render: 'first_render_service', stash: 'stash_service', reconnect: 'reconnect_service' };

/** Returns that were to be made while something was done to the servers on purpose (EVENTS), and all others. Only with events. */
export const AROUND_EVENTS = ['reconnect_during', 'reconnect_outside'];

/** The Trend of how late steps began because of the client itself, in ms. */
export const CLIENT_DELAY = 'client_delay';

// A difference that is worth a histogram of its own: a twentieth, and a millisecond, which a timer may be late by.
const DIFFERENCE = 1.05;
const DIFFERENCE_MS = 1;

// What Kubernetes keeps of a termination log.
const TERMINATION_LOG_BYTES = 4096;

/**
 * Thresholds of a run. k6 tells a metric's parts by tag in the summary only when a threshold names them; those that can
 * only pass are here for that.
 *
 * @param {Object} config of readOptions()
 * @returns {Object<string, string[]>} k6's `thresholds`
 */
export function thresholds(config) {
  const wanted = {
    // Without an adapter nothing may come back: if it does, the server is not what the test takes it for.
    recovered: [config.adapter === 'none' ? 'rate==0' : `rate>=${config.minRecovered}`],
    wrong_count: [`count<=${config.maxWrong}`],
    failed: [`rate<=${config.maxFailed}`],
    cycles: ['count>0'],
    // TTL and cleaner are over: whatever still comes back was to be gone.
    expired_recovered: ['rate==0'],
    // A runner that is late itself measures itself.
    [CLIENT_DELAY]: [`p(99)<=${config.maxClientDelayMs}`],
  };
  return { ...wanted, ...parts(config) };
}

/**
 * The thresholds by which the summary tells errors by reason, and connections by server.
 *
 * @param {{bases: string[]}} config
 * @returns {Object<string, string[]>} part of k6's `thresholds`
 */
export function parts(config) {
  const wanted = {};
  config.bases.forEach((_, i) => {
    wanted[`connections{target:${i}}`] = ['count>=0'];
  });
  for (const reason of REASON_TAGS) {
    // A runner at the end of its own means measures itself.
    wanted[`error{reason:${reason}}`] = [reason === 'exhausted' ? 'count==0' : 'count>=0'];
  }
  return wanted;
}

/**
 * One runner's report.
 *
 * @param {Object} data what k6 gives to handleSummary
 * @param {Object} config of readOptions()
 * @returns {Object} see README.md, "The report"; times in ms, shares from 0 to 1, null where nothing was measured
 */
export function report(data, config) {
  const { values, count } = reading(data);
  const out = {
    ...runOf(data, config),
    adapter: config.adapter,
    users: config.users,
    users_per_vu: config.usersPerVu,
    ttl_s: config.ttlMs / 1000,
    ramp_s: config.rampMs / 1000,
    ramp_down_s: config.rampDownMs / 1000,
    planned: count('planned'),
    connected: count('connected'),
    cycles: count('cycles'),
    recovered: shareOf(values('recovered')),
    late: shareOf(values('late_recovered')),
    expired: shareOf(values('expired_recovered')),
    dropped: count('dropped'),
    failed: shareOf(values('failed')),
    not_found: count('not_found'),
    wrong_count: count('wrong_count'),
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
    const service = SERVICE[name] && durations(values(SERVICE[name]));
    if (service && service.count > 0 && differ(out.durations[name], service)) {
      out.durations[SERVICE[name]] = service;
    }
  }
  if (config.events.length > 0) {
    out.cut = count('cut');
    for (const name of AROUND_EVENTS) {
      out.durations[name] = durations(values(name));
    }
  }
  return out;
}

/**
 * The part of a report that says what was run and how it ended.
 *
 * @param {Object} data what k6 gives to handleSummary
 * @param {Object} config options of a scenario
 * @returns {Object}
 */
export function runOf(data, config) {
  const failed = failedThresholds(data);
  const ran = data.state.testRunDurationMs;
  // A run that was stopped before setup ended has no place among the runners.
  const { runner = config.runner || 0, runners = config.runners, problem = null, began = null } = data.setup_data || {};
  // Users go on until DURATION: a shorter run was stopped from outside, or by an error of the script.
  const completed = problem === null && ran >= config.durationMs;
  return {
    version: REPORT_VERSION,
    testid: config.testid,
    scenario: config.scenario,
    runner,
    runners,
    duration_s: config.durationMs / 1000,
    started_at: began && new Date(began).toISOString(),
    ended_at: new Date().toISOString(),
    ran_s: round(ran / 1000, 1),
    completed,
    passed: completed && failed.length === 0,
    failed_thresholds: failed,
    problem,
  };
}

/**
 * @param {Object} data what k6 gives to handleSummary
 * @returns {{values: function(string): Object, count: function(string): number}} what was measured, by the metric's name
 */
export function reading(data) {
  const values = (name) => (data.metrics[name] ? data.metrics[name].values : {});
  return { values, count: (name) => values(name).count || 0 };
}

/** @returns {Object<string, number>} errors by reason, only those that occurred */
export function errorsOf(data) {
  const { count } = reading(data);
  const errors = {};
  for (const reason of REASON_TAGS) {
    if (count(`error{reason:${reason}}`) > 0) {
      errors[reason] = count(`error{reason:${reason}}`);
    }
  }
  return errors;
}

/** @returns {Object<string, number>} attempts to connect by server */
export function connectionsOf(data, config) {
  const { count } = reading(data);
  const connections = {};
  config.bases.forEach((base, i) => {
    connections[base] = count(`connections{target:${i}}`);
  });
  return connections;
}

/**
 * What handleSummary returns: the table and the report line on stdout, and the report as a file if one is asked for.
 *
 * @param {Object} data what k6 gives to handleSummary
 * @param {Object} config of readOptions()
 * @returns {Object<string, string>}
 */
export function summary(data, config) {
  const out = report(data, config);
  return outputsOf(out, table(out), config);
}

/**
 * @param {Object} out a report
 * @param {string} text the same as a table
 * @param {{summary: string}} config
 * @returns {Object<string, string>} what handleSummary returns
 */
export function outputsOf(out, text, config) {
  const outputs = { stdout: `${text}\nLIVESTASH_RESULT ${JSON.stringify(out)}\n` };
  if (config.summary) {
    outputs[config.summary] = config.summary === '/dev/termination-log' ? terminationLog(out) : `${JSON.stringify(out)}\n`;
  }
  return outputs;
}

/**
 * The report as a table.
 *
 * @param {Object} out of report()
 * @returns {string}
 */
export function table(out) {
  const part = out.runners > 1 ? `, runner ${out.runner + 1} of ${out.runners}` : '';
  const lines = [
    '',
    `LiveStash ${out.scenario}: adapter ${out.adapter}, ${out.users} users, ${out.duration_s} s, ${out.cycles} cycles${part}`,
    '',
    row('ms', ['p50', 'p95', 'p99', 'max', 'count']),
    ...Object.keys(out.durations).filter((name) => out.durations[name].count > 0).map((name) => durationRow(titleOf(name), out.durations[name])),
    '',
    line('users', `${out.connected} of ${out.planned} were there`),
    line('recovered', recoveredText(out)),
    ...(out.scenario === 'visits' ? [line('late', `${out.late.yes} of ${out.late.yes + out.late.no} found their stash after the TTL`), line('expired', expiredText(out))] : []),
    line('not found', out.not_found),
    line('wrong count', out.wrong_count),
    line('errors', errorText(out)),
    line('dropped', `${out.dropped} (sockets that the server ended while nobody waited for anything)`),
    ...(out.cut === undefined ? [] : [line('cut', `${out.cut} (the same during events)`)]),
    line('client delay', clientDelayText(out)),
    line('unfinished', `${out.unfinished} (waits cut by the end of the test)`),
    line('connections', ''),
    ...Object.keys(out.connections).map((base) => `    ${base}  ${out.connections[base]}`),
    '',
    verdict(out),
    '',
  ];
  return lines.join('\n');
}

/**
 * The report in the 4,096 bytes that Kubernetes keeps. What is too long goes in this order: the list of servers, when it takes
 * over half a KiB; half of the resolution of the histograms, again and again.
 *
 * @param {Object} out of report()
 * @returns {string}
 */
export function terminationLog(out) {
  let short = { ...out };
  if (JSON.stringify(out.connections).length > 512) {
    delete short.connections;
    short = { ...short, servers: Object.keys(out.connections).length, left_out: ['connections'] };
  }
  let text = JSON.stringify(short);
  while (text.length > TERMINATION_LOG_BYTES) {
    const durations = {};
    for (const name of Object.keys(short.durations)) {
      durations[name] = coarser(short.durations[name]);
    }
    short.durations = durations;
    text = JSON.stringify(short);
  }
  return text;
}

function failedThresholds(data) {
  const failed = [];
  for (const name of Object.keys(data.metrics).sort()) {
    const judged = data.metrics[name].thresholds || {};
    for (const rule of Object.keys(judged)) {
      if (!judged[rule].ok) {
        failed.push(`${name} ${rule}`);
      }
    }
  }
  return failed;
}

/** A Rate as a report has it. */
export function shareOf({ passes: yes = 0, fails: no = 0 }) {
  return { yes, no, share: yes + no > 0 ? round(yes / (yes + no), 6) : null };
}

/** A Trend as a report has it: a histogram, and the quantiles of this runner. */
export function durations(values) {
  const own = (level) => (values.count ? round(values[`p(${level})`], 3) : null);
  return { p50: own(50), p95: own(95), p99: own(99), ...histogram(values) };
}

/** How late the client was, as a report has it. */
export function clientDelay(values) {
  const { count, p50, p99, max } = durations(values);
  return { count, p50, p99, max };
}

// Whether steps began so late that it shows in one of the quantiles that people read.
function differ(due, began) {
  return [0.5, 0.95, 0.99].some((share) => {
    const [late, early] = [quantile(due, share), quantile(began, share)];
    return late > DIFFERENCE * early && late > early + DIFFERENCE_MS;
  });
}

function titleOf(name) {
  const of = Object.keys(SERVICE).find((key) => SERVICE[key] === name);
  return of ? '  once begun' : name.replace('_', ' ');
}

function expiredText({ expired }) {
  const total = expired.yes + expired.no;
  return total === 0 ? '- (nobody came back after the cleaner, so expiry was not judged)' : `${expired.yes} of ${total} found what should be gone`;
}

/** The same for people. */
export function clientDelayText({ client_delay: delay }) {
  return delay.count === 0 ? '-' : `${delay.p99.toFixed(1)} ms (p99), ${delay.max.toFixed(1)} ms at most: how late k6 itself was`;
}

/** A row of the table of durations. */
export function durationRow(name, { p50, p95, p99, max, count }) {
  return row(name, [...[p50, p95, p99, max].map((ms) => ms.toFixed(1)), String(count)]);
}

/** The last line of a table. */
export function verdict({ passed, completed, problem, ran_s: ran, duration_s: duration, failed_thresholds: failed }) {
  if (passed) {
    return '  PASSED';
  }
  if (problem) {
    return `  NOT RUN: ${problem}`;
  }
  return `  FAILED: ${(completed ? [] : [`stopped after ${ran} of ${duration} s`]).concat(failed).join(', ')}`;
}

function recoveredText({ adapter, recovered }) {
  const total = recovered.yes + recovered.no;
  if (total === 0) {
    return '- (no reconnect came to an end)';
  }
  const text = `${(Math.floor(recovered.share * 10000) / 100).toFixed(2)} % (${recovered.yes} of ${total} reconnects)`;
  return adapter === 'none' ? `${text}; without an adapter 0 % is what to expect` : text;
}

/** Errors for people. */
export function errorText({ error, errors }) {
  const parts = Object.keys(errors).map((reason) => `${reason} ${errors[reason]}`);
  return parts.length === 0 ? String(error) : `${error} (${parts.join(', ')})`;
}

/** A line of a table. */
export function line(name, value) {
  return `  ${name.padEnd(14)}${value}`.trimEnd();
}

/** A row of a table. */
export function row(name, cells) {
  return `  ${name.padEnd(14)}${cells.map((cell) => cell.padStart(10)).join('')}`;
}

/** Rounds to some digits. */
export function round(number, digits) {
  return Number(number.toFixed(digits));
}
