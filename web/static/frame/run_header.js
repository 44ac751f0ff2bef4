// run_header.js - the header of a run: its state, the options of its charts, its pages and, if it is live and
// the server permits it, its control buttons.
import { showAway } from "../base/api.js";
import { button } from "../base/controls.js";
import { h, say } from "../base/dom.js";
import { date, nth, seconds } from "../base/format.js";
import { report } from "../base/kept_answers.js";
import { choose, onChoice, state } from "../base/state.js";
import { controlBar, readOnlyNote } from "./control_bar.js";
import { chartChoices, showHeader } from "./header.js";

const freshSeconds = 30; // the header of a live run shows the age of the last record from this age on

/** A button that names the displayed steps and, when clicked, shows all steps; hidden if all are shown. */
function zoomButton(view) {
  const box = button("Reset zoom", () => choose({ zoom: null }), { class: "chip" });
  const put = () => {
    box.hidden = !state.zoom;
    if (state.zoom) box.textContent = `steps ${nth(state.zoom.x0)}–${nth(state.zoom.x1)}  ×`;
  };
  view.onClose(onChoice(put));
  put();
  return box;
}

function tab(run, { key, title, only }, i, isCurrent) {
  const props = {
    hidden: Boolean(only) && !isCurrent, // hidden until the head confirms that the page exists
    href: `#/run/${run}/${key}`,
    "aria-current": isCurrent ? "page" : null,
    title: `key ${i + 1}`,
    "aria-keyshortcuts": String(i + 1),
  };
  return h("a", props, title);
}

function tabs(run, pages, current) {
  const links = pages.map((page, i) => tab(run, page, i, page === current));
  return h("nav", { class: "tabs", "aria-label": "pages of this run" }, links);
}

/** In a narrow window, scrolls the tab of the current page into view. */
function reveal(nav) {
  const current = nav.querySelector("[aria-current]");
  nav.scrollLeft = current.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
}

function stateText({ state: word, live, age_s: age }) {
  if ((!live && word !== "lost") || age === null || age <= freshSeconds) return word;
  return `${word}, last record ${seconds(age)} ago`;
}

export class RunHeader {
  /** view: that of the run; pages: [{key, title}]; current: the page that is shown. */
  constructor(view, pages, current, mayControl) {
    const { run } = view;
    const made = report ? `as of ${date(report.made_s)} UTC` : "";
    const nav = tabs(run, pages, current);
    this.sometimes = pages.flatMap(({ only, not }, i) =>
      only || not ? [{ only, not, tab: nav.children[i] }] : [],
    );
    this.word = h("span", { class: "state", id: "state" }, "loading");
    this.stream = h("span", { class: "note", id: "stream" }, made);
    this.controls = controlBar(run);
    const rows = [h("div", { class: "row" }, nav)];
    if (mayControl) rows.push(h("div", { class: "row" }, this.controls.bar));
    else if (!report) rows.push(h("div", { class: "row" }, readOnlyNote()));
    const tools = [zoomButton(view), ...chartChoices()];
    showHeader(run, { left: [this.word, this.stream], tools, rows });
    reveal(nav);
    view.onHead((head) => this.showHead(head));
  }

  showHead(head) {
    const kind = `state ${head.state}`;
    this.controls.offer(head);
    for (const { only, not, tab: link } of this.sometimes) {
      if (only && head[only]) link.hidden = false;
      if (not && head[not] && !link.ariaCurrent) link.hidden = true;
    }
    if (this.word.className !== kind) this.word.className = kind;
    say(this.word, stateText(head));
  }

  /** connection: "live" or "offline". */
  showStream(connection) {
    showAway(connection !== "live");
    this.stream.textContent = connection === "live" ? "" : "connection lost, trying again";
  }
}
