// run_updates.js - keeps a page of a run up to date at a limited rate: head and events when there are new
// ones, figures at each tick of the run's event stream.
import { askEarly, get } from "../base/api.js";
import { report } from "../base/kept_answers.js";
import { followRun } from "../base/run_stream.js";

const calmMs = 250; // at most four loads per second
const silenceMs = 5000; // a live run is polled after this time without a tick
const marksMost = 200; // number of events that charts mark
const eventsWanted = { limit: 1, marks: marksMost };

/** Parses the id of a tick (ATTEMPT.STEP.EVENT); "": unknown. */
function placeOf(id) {
  const [attempt, , event] = id.split(".");
  return attempt ? `${attempt},${event}` : "";
}

/** Sends the first requests before a page of the run is shown. */
export function askUpdatesEarly(run) {
  askEarly(`runs/${run}/events`, eventsWanted);
}

export class RunUpdates {
  /** Loads the data and begins to follow the run. onerror receives errors of the first requests of a load. */
  constructor(view, header, onerror) {
    this.view = view;
    this.onerror = onerror;
    this.loadedAt = 0;
    this.heardAt = performance.now();
    this.timer = 0;
    this.attempts = 0; // number of attempts whose repeated steps are loaded
    this.place = ""; // id of the newest tick
    this.loadedPlace = null; // id of the displayed data; null: none yet
    this.eventsAreStale = false;
    this.newestHead = null;
    this.loadAll();
    const asker = setInterval(() => this.askIfSilent(), silenceMs);
    const stop = followRun(
      view.run,
      (data, id) => this.heard(data, id),
      (connection) => header.showStream(connection),
    );
    view.onStop(() => {
      clearTimeout(this.timer);
      clearInterval(asker);
      stop();
    });
  }

  async loadAll() {
    const { view } = this;
    this.loadedAt = performance.now();
    try {
      const { head, events } = await get(`runs/${view.run}/events`, eventsWanted);
      if (view.closed) return;
      view.samples = events.samples || [];
      view.events = events.marks.sort((a, b) => a.step - b.step);
      view.markable = events.markable;
      if (head.attempts !== this.attempts) await this.loadRedone(head.attempts);
      if (view.closed) return;
      view.setHead(head);
      const newest = Math.max(0, ...events.rows.map((event) => event.seq));
      const isFirst = this.loadedPlace === null;
      this.loadedPlace = `${head.attempt},${newest}`;
      // The first time, the cards have already requested their data and lack only the marks of events.
      if (isFirst) view.cards.forEach((card) => card.redrawMarks?.());
      else await view.reload();
    } catch (error) {
      if (!view.closed) this.onerror(error);
    }
  }

  /** Loads repeated steps, which change only with a new attempt. */
  async loadRedone(attempts) {
    const { view } = this;
    this.attempts = attempts;
    if (attempts < 2) return;
    const [info, old] = await Promise.all([
      get(`runs/${view.run}`),
      get(`runs/${view.run}/superseded`),
    ]);
    view.redone = info.redone.map((stretch) => ({ from: stretch.from_step, to: stretch.to_step }));
    view.superseded = old.superseded;
  }

  /** Handles a tick: head and figures change in the same frame. */
  heard(data, id) {
    const place = placeOf(id);
    this.heardAt = performance.now();
    if (data && data.head) this.newestHead = data.head;
    if (!place || place !== this.place) this.eventsAreStale = true;
    this.place = place;
    const rest = calmMs - (performance.now() - this.loadedAt);
    this.timer = this.timer || setTimeout(() => this.update(), Math.max(0, rest));
  }

  async update() {
    const head = this.newestHead;
    this.timer = 0;
    if (this.isShown(head)) {
      this.eventsAreStale = false;
      return;
    }
    this.loadedAt = performance.now();
    if (this.eventsAreStale) {
      this.eventsAreStale = false;
      await this.loadAll();
    } else await this.view.reload(true);
    if (head && !this.view.closed) this.view.setHead(head);
  }

  /** True if a tick repeats data that are loaded already, as the first one of a stream does. */
  isShown(head) {
    const { head: shown } = this.view;
    const isSame = shown && head && shown.newest_step === head.newest_step;
    return Boolean(isSame) && shown.state === head.state && this.place === this.loadedPlace;
  }

  /** Polls a live run whose stream is silent, because a proxy may hold events back. */
  askIfSilent() {
    const { head } = this.view;
    if (report || document.hidden || !head || !head.live) return;
    if (performance.now() - this.heardAt > silenceMs) this.loadAll();
  }
}
