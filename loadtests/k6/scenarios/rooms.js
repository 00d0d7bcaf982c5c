// Rooms whose members say something now and then; measured is when the last member of a room has heard it.
// Options, metrics and report: loadtests/k6/README.md.

import { lookForRoom, runRooms } from '../lib/rooms.js';
import { readRoomsOptions } from '../lib/rooms_options.js';
import { roomsSummary, roomsThresholds } from '../lib/rooms_report.js';
import { k6Options, prepare } from '../lib/scenario.js';

const config = readRoomsOptions(__ENV);

export const options = k6Options(config, { thresholds: roomsThresholds(config) });

export function setup() {
  return prepare(config, lookForRoom);
}

export default function rooms(prepared) {
  return runRooms(config, prepared);
}

export function handleSummary(data) {
  return roomsSummary(data, config);
}
