// view.js - the open page: its cards, the data of the run that they share, and what must end
// when the page closes. Pages and cards receive it as `ctx`.
import { onChoice } from "../base/state.js";

export class View {
  /** server: what the server allows: {control, resume}. */
  constructor(run = null, server = {}) {
    this.run = run; // its name
    this.server = server;
    this.head = null; // head of the run; null: unknown
    this.events = []; // events marked in charts, sorted by step
    this.markable = 0; // number of such events in the run
    this.samples = []; // generated samples, newest first: at most two {step, title, text}
    this.redone = []; // steps that restarts did again: [{from, to}]
    this.superseded = []; // losses as they were before: [{attempt, step, loss}]
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

  /** The function ends what keeps the view up to date. */
  onStop(f) {
    this.stopping.push(f);
  }

  /** Keeps the drawing and stops all requests. */
  stop() {
    this.closed = true;
    this.cards.forEach((card) => (card.closed = true));
    this.stopping.splice(0).forEach((f) => f());
  }

  close() {
    this.stop();
    this.closing.forEach((f) => f());
  }

  /** Calls the listener with the head of the run, now if it is known and whenever it changes. */
  onHead(listener) {
    this.headListeners.push(listener);
    if (this.head) listener(this.head);
  }

  setHead(head) {
    this.head = head;
    this.headListeners.forEach((listener) => listener(head));
  }

  /** tick: because something was recorded, not because something was chosen. */
  reload(tick) {
    return Promise.all(this.cards.map((card) => card.load(tick)));
  }

  chosen(change) {
    if ("x" in change || "zoom" in change) this.reload();
    else this.cards.forEach((card) => card.redraw());
  }
}
