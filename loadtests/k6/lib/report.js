// The end of a run: a table for people, one JSON line for programs. Both show what was counted and nothing that was not.

import { REASONS } from './errors.js';

/** Version of the result's JSON: rises when a field changes its meaning or goes. */
export const RESULT_VERSION = 1;

// The grid from which the distributions of several runners can be merged; the table shows four of them.
const QUANTILES = [1, 5, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 93, 95, 97, 98, 99, 99.5, 99.9];
const TRENDS = ['first_render', 'stash', 'reconnect'];
const TERMINATION_LOG_BYTES = 4096;

/** What k6's `summaryTrendStats` must hold for result(). @type {string[]} */
export const TREND_STATS = ['count', 'min', 'max', 'avg', ...QUANTILES.map((q) => `p(${q})`)];

/** Reasons the `error` metric is tagged with: those of LiveViewError, and a LiveView that says its stash failed. @type {string[]} */
export const ERROR_REASONS = [...REASONS.filter((reason) => reason !== 'ended'), 'stash_error'];

/**
 * Thresholds of a run. k6 tells a metric's parts by tag in the summary only when a threshold names them; those that can
 * only pass are here for that.
 *
 * @param {Object} options of readOptions()
 * @returns {Object<string, string[]>} k6's `thresholds`
 */
export function thresholds(options) {
  const wanted = {
    // Without an adapter nothing may come back: if it does, the server is not what the test takes it for.
    recovered: [options.adapter === 'none' ? 'rate==0' : `rate>=${options.minRecovered}`],
    wrong_count: [`count<=${options.maxWrong}`],
    failed: [`rate<=${options.maxFailed}`],
    cycles: ['count>0'],
  };
  options.bases.forEach((_, i) => {
    wanted[`connections{target:${i}}`] = ['count>=0'];
  });
  for (const reason of ERROR_REASONS) {
    wanted[`error{reason:${reason}}`] = ['count>=0'];
  }
  return wanted;
}

/**
 * The result of a run as data.
 *
 * @param {Object} data what k6 gives to handleSummary
 * @param {Object} options of readOptions()
 * @returns {Object} see README.md, "The result line"; times in ms, shares from 0 to 1, null where nothing was measured
 */
export function result(data, options) {
  const values = (name) => (data.metrics[name] ? data.metrics[name].values : {});
  const count = (name) => values(name).count || 0;
  const recovered = values('recovered');
  const yes = recovered.passes || 0;
  const no = recovered.fails || 0;
  const failed = failedThresholds(data);
  const ran = data.state.testRunDurationMs;
  // Users go on until DURATION: a shorter run was stopped from outside, or by an error of the script.
  const completed = ran >= options.durationMs;
  const connections = {};
  options.bases.forEach((base, i) => {
    connections[base] = count(`connections{target:${i}}`);
  });
  const errors = {};
  for (const reason of ERROR_REASONS) {
    if (count(`error{reason:${reason}}`) > 0) {
      errors[reason] = count(`error{reason:${reason}}`);
    }
  }
  const out = {
    version: RESULT_VERSION,
    scenario: 'reconnect',
    adapter: options.adapter,
    users: options.users,
    users_per_vu: options.usersPerVu,
    duration_s: options.durationMs / 1000,
    ran_s: round(ran / 1000, 1),
    completed,
    passed: completed && failed.length === 0,
    failed_thresholds: failed,
    cycles: count('cycles'),
    recovered: { yes, no, share: yes + no > 0 ? round(yes / (yes + no), 6) : null },
    not_found: count('not_found'),
    wrong_count: count('wrong_count'),
    unfinished: count('unfinished'),
    error: count('error'),
    errors,
    connections,
  };
  for (const name of TRENDS) {
    out[name] = trend(values(name));
  }
  return out;
}

/**
 * What handleSummary returns: the table and the result line on stdout, and the result as a file if one is asked for.
 *
 * @param {Object} data what k6 gives to handleSummary
 * @param {Object} options of readOptions()
 * @returns {Object<string, string>}
 */
export function summary(data, options) {
  const outcome = result(data, options);
  const outputs = { stdout: `${table(outcome)}\nLIVESTASH_RESULT ${JSON.stringify(outcome)}\n` };
  if (options.summary) {
    outputs[options.summary] = options.summary === '/dev/termination-log' ? terminationLog(outcome) : `${JSON.stringify(outcome)}\n`;
  }
  return outputs;
}

/**
 * The result as a table.
 *
 * @param {Object} outcome of result()
 * @returns {string}
 */
export function table(outcome) {
  const lines = [
    '',
    `LiveStash reconnect: adapter ${outcome.adapter}, ${outcome.users} users, ${outcome.duration_s} s, ${outcome.cycles} cycles`,
    '',
    row('ms', ['p50', 'p95', 'p99', 'max', 'count']),
    ...TRENDS.map((name) => trendRow(name.replace('_', ' '), outcome[name])),
    '',
    line('recovered', recoveredText(outcome)),
    line('not found', outcome.not_found),
    line('wrong count', outcome.wrong_count),
    line('errors', errorText(outcome)),
    line('unfinished', `${outcome.unfinished} (waits cut by the end of the test)`),
    line('connections', ''),
    ...Object.keys(outcome.connections).map((base) => `    ${base}  ${outcome.connections[base]}`),
    '',
    verdict(outcome),
    '',
  ];
  return lines.join('\n');
}

// Kubernetes keeps 4,096 bytes. When it is not enough (a long list of servers), the list goes, and that is said.
function terminationLog(outcome) {
  const whole = JSON.stringify(outcome);
  if (whole.length <= TERMINATION_LOG_BYTES) {
    return whole;
  }
  const { connections, ...rest } = outcome;
  return JSON.stringify({ ...rest, servers: Object.keys(connections).length, left_out: ['connections'] });
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

function trend(values) {
  if (!values.count) {
    return { count: 0, min: null, avg: null, max: null, quantiles: {} };
  }
  const quantiles = {};
  for (const q of QUANTILES) {
    quantiles[q] = round(values[`p(${q})`], 2);
  }
  return { count: values.count, min: round(values.min, 2), avg: round(values.avg, 2), max: round(values.max, 2), quantiles };
}

function trendRow(name, stats) {
  if (stats.count === 0) {
    return row(name, ['-', '-', '-', '-', '0']);
  }
  const { quantiles } = stats;
  return row(name, [...[quantiles[50], quantiles[95], quantiles[99], stats.max].map((ms) => ms.toFixed(1)), String(stats.count)]);
}

function verdict({ passed, completed, ran_s: ran, duration_s: duration, failed_thresholds: failed }) {
  if (passed) {
    return '  PASSED';
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

function errorText({ error, errors }) {
  const parts = Object.keys(errors).map((reason) => `${reason} ${errors[reason]}`);
  return parts.length === 0 ? String(error) : `${error} (${parts.join(', ')})`;
}

function line(name, value) {
  return `  ${name.padEnd(14)}${value}`.trimEnd();
}

function row(name, cells) {
  return `  ${name.padEnd(14)}${cells.map((cell) => cell.padStart(10)).join('')}`;
}

function round(number, digits) {
  return Number(number.toFixed(digits));
}
