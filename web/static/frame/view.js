// view.js - the open page: its cards, the data of the run that they share, and the functions to call when the
// page closes.
// Pages and cards receive it as `ctx`.
import { axisNow, onChoice, tellTokens } from "../base/state.js";

export class View {
  /** server: permissions of the server, {control, resume}. */
  constructor(run = null, server = {}) {
    this.run = run; // name of the run
    this.server = server;
    this.head = null; // head of the run; null: unknown
    this.events = []; // events marked in charts, sorted by step
    this.markable = 0; // number of events of the run that charts could mark
    this.samples = []; // generated samples, newest first: at most two {step, title, text}
    this.redone = []; // steps that restarts repeated: [{from, to}]
    this.superseded = []; // former losses of repeated steps: [{attempt, step, loss}]
    this.closed = false;
    this.cards = [];
    this.headListeners = [];
    this.closing = [];
    this.stopping = [];
    this.onStop(onChoice((change) => this.chosen(change)));
  }

  add(card) {
    this.cards.push(card);
    this.onClose(() => card.close());
  }

  onClose(f) {
    this.closing.push(f);
  }

  /** Registers a function to call when the page closes. */
  onStop(f) {
    this.stopping.push(f);
  }

  /** Stops all requests and keeps the drawing. */
  stop() {
    this.closed = true;
    this.cards.forEach((card) => (card.closed = true));
    this.stopping.splice(0).forEach((f) => f());
  }

  close() {
    this.stop();
    this.closing.forEach((f) => f());
  }

  /** Calls the listener with the head of the run: now if it is known, and at every change. */
  onHead(listener) {
    this.headListeners.push(listener);
    if (this.head) listener(this.head);
  }

  setHead(head) {
    const axis = axisNow();
    this.head = head;
    tellTokens(head.newest_step > 0 ? [head.tokens] : []);
    this.headListeners.forEach((listener) => listener(head));
    if (axisNow() !== axis) this.reload();
  }

  /** tick: true after new records, false after a choice of the user. */
  reload(tick) {
    return Promise.all(this.cards.map((card) => card.load(tick)));
  }

  chosen(change) {
    if ("x" in change || "zoom" in change) this.reload();
    else this.cards.forEach((card) => card.redraw());
  }
}
