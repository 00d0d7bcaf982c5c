// What the scenarios measure. Metrics exist only when they are made before the test starts, so all are made here.

import { Counter, Rate, Trend } from 'k6/metrics';
import { AROUND_EVENTS, CLIENT_DELAY, DURATIONS, SERVICE } from './report.js';

/** The k6 metrics by name. What each means stands in README.md. */
export const metrics = {
  planned: new Counter('planned'),
  connected: new Counter('connected'),
  cycles: new Counter('cycles'),
  connections: new Counter('connections'),
  connect_failed: new Counter('connect_failed'),
  recovered: new Rate('recovered'),
  late_recovered: new Rate('late_recovered'),
  expired_recovered: new Rate('expired_recovered'),
  dropped: new Counter('dropped'),
  cut: new Counter('cut'),
  not_found: new Counter('not_found'),
  wrong_count: new Counter('wrong_count'),
  error: new Counter('error'),
  unfinished: new Counter('unfinished'),
  failed: new Rate('failed'),
};
for (const name of [...DURATIONS, ...Object.values(SERVICE), ...AROUND_EVENTS, CLIENT_DELAY]) {
  metrics[name] = new Trend(name, true);
}
