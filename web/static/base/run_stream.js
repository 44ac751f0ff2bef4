// run_stream.js - follows the event stream of a run. Browsers allow few connections to a host, so all tabs
// that show a run share one: the tab that holds a lock receives events and forwards them to the other tabs; a
// hidden tab releases the lock. If locks are unavailable (another machine without https), each tab has its
// own connection.
import { report } from "./kept_answers.js";

/**
 * Calls ontick(data, id) when the run has new records (id: ATTEMPT.STEP.EVENT; null and "": everything may be
 * new) and onstate("live" or "offline") when the connection changes. Returns a function that stops following.
 */
export function followRun(run, ontick, onstate) {
  if (report) return () => {};
  const stream = new RunStream(run, ontick, onstate);
  return () => stream.close();
}

class RunStream {
  constructor(run, ontick, onstate) {
    this.run = run;
    this.ontick = ontick;
    this.onstate = onstate;
    this.name = `bitrain ${run}`;
    this.tabs = navigator.locks && new BroadcastChannel(this.name);
    this.source = null;
    this.leave = null; // stops receiving in this tab; null: the tab is hidden
    this.onvisibility = () => {
      if (!document.hidden) this.join();
      else if (this.leave) this.leave();
    };
    document.addEventListener("visibilitychange", this.onvisibility);
    this.join();
  }

  close() {
    document.removeEventListener("visibilitychange", this.onvisibility);
    if (this.leave) this.leave();
    if (this.tabs) this.tabs.close();
  }

  join() {
    if (this.leave || document.hidden) return;
    const release = this.tabs ? this.takeTurn() : () => {};
    if (!this.tabs) this.listen();
    this.leave = () => {
      if (this.source) this.source.close();
      this.source = null;
      this.leave = null;
      release();
      if (this.tabs) this.tabs.onmessage = null;
    };
  }

  /** Waits for the lock, then receives events. Returns a function that stops following. */
  takeTurn() {
    const quit = new AbortController();
    let release = null;
    this.tabs.onmessage = (event) => this.heard(event.data);
    const held = () => {
      this.listen();
      return new Promise((done) => {
        release = done;
      });
    };
    const turn = navigator.locks.request(this.name, { signal: quit.signal }, held);
    turn.catch(() => {}); // the tab was hidden or closed before it received the lock
    return () => {
      quit.abort();
      if (release) release();
    };
  }

  listen() {
    this.source = new EventSource(`/api/v1/runs/${this.run}/stream`);
    this.source.onopen = () => this.tell({ state: "live" });
    this.source.onerror = () => {
      this.tell({ state: "offline" });
      // the server refused the stream: the next request reports the reason
      if (this.source?.readyState === EventSource.CLOSED) this.tell({ data: null, id: "" });
    };
    this.source.addEventListener("resync", () => this.tell({ data: null, id: "" }));
    this.source.addEventListener("tick", (event) => {
      let data = null;
      try {
        data = JSON.parse(event.data);
      } catch {
        // everything may be new
      }
      this.tell({ data, id: data ? event.lastEventId : "" });
    });
  }

  tell(message) {
    this.heard(message);
    if (this.tabs) this.tabs.postMessage(message);
  }

  heard(message) {
    if (message.state) this.onstate(message.state);
    else this.ontick(message.data, message.id);
  }
}
