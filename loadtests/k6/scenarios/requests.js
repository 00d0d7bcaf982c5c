// Requests over connections that stay open: closed with so many connections, or open with a rate.
// Options, metrics and report: loadtests/k6/README.md.

import { lookForAnswer, runRequests } from '../lib/requests.js';
import { readRequestsOptions } from '../lib/requests_options.js';
import { requestsSummary, requestsThresholds } from '../lib/requests_report.js';
import { k6Options, prepare } from '../lib/scenario.js';

const config = readRequestsOptions(__ENV);

// Connections live for the whole test; a VU has its own, and one.
export const options = k6Options(config, { thresholds: requestsThresholds(config), noConnectionReuse: false });

export function setup() {
  return prepare(config, lookForAnswer);
}

export default function requests(prepared) {
  runRequests(config, prepared);
}

export function handleSummary(data) {
  return requestsSummary(data, config);
}
