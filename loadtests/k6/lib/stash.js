// The client's half of LiveStash: one object that every join sends as params.liveStash.

const INIT = 'live-stash:init-';
const STATE = 'live-stash:stash-state';

/** What a browser's LiveStash client keeps between two sockets. */
export class Stash {
  constructor() {
    this.params = {};
  }

  /**
   * Takes note of pushed events; others than LiveStash's are ignored.
   *
   * @param {Array<[string, Object]>} events as pushed with a render or a diff, in order. `live-stash:init-<adapter>`
   *   replaces everything kept so far; `live-stash:stash-state` keeps the state token of the BrowserMemory adapter.
   */
  apply(events) {
    for (const [name, detail] of events) {
      if (name.startsWith(INIT)) {
        this.params = { ...detail };
      }
      if (name === STATE) {
        this.params.stashedState = detail.assigns;
      }
    }
  }
}
