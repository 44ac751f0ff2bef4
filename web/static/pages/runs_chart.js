// runs_chart.js - the chart beside the table of runs. The chart shows one metric of the selected runs (or of the first
// ones that match the filter), one colour per run, with a legend that hides runs; or mean and spread of runs with equal
// values of a setting; or the runs by their settings and results (runs_plane.js).
import { get } from "../base/api.js";
import { button, select } from "../base/controls.js";
import { empty, h, say } from "../base/dom.js";
import { nth, unit } from "../base/format.js";
import { axisNow, onChoice, tellTokens } from "../base/state.js";
import { number, table, text } from "../base/table.js";
import { beyondCurve, metricsOfSteps } from "../base/vocabulary.js";
import { placesOf } from "../cards/series_card.js";
import { Chart } from "../figures/chart.js";
import { meanLines } from "./run_means.js";
import { planeMost, RunsPlane } from "./runs_plane.js";

const colorCount = 12;
const chosenMost = 100; // maximum number of curves in the route `curves`
const namesAtOnce = 30; // number of names of maximum length that fit in one argument
const filteredMost = 12; // number of runs shown if none is selected
const width = 200; // number of points of a curve
const kinds = [
  ["", "curves"],
  ["scatter", "scatter"],
  ["parallel", "parallel axes"],
];

function curveOf({ run, curve }, i, state) {
  const one = curve.series[0];
  const known = one ? [...one.mean.keys()].filter((k) => one.mean[k] !== null) : [];
  const at = (values) => known.map((k) => values[k]);
  return {
    label: run,
    color: `--s${i % colorCount}`,
    unit: one?.unit,
    x: one ? at(placesOf(one)) : [],
    y: one ? at(one.mean) : [],
    step: one ? at(one.step) : [],
    n: one ? at(one.n) : [],
    meant: one ? at(one.n) : [],
    low: one?.low,
    high: one?.high,
    beyond: beyondCurve(state),
    sparse: true,
  };
}

/** Returns the part of a line between two positions of the axis. */
function cut(line, [from, to]) {
  const inside = [...line.x.keys()].filter((k) => line.x[k] >= from && line.x[k] <= to);
  const at = (values) => values && inside.map((k) => values[k]);
  const { x, y, lo, hi, step, n, meant } = line;
  const parts = { x: at(x), y: at(y), lo: at(lo), hi: at(hi), step: at(step) };
  return { ...line, ...parts, n: at(n), meant: at(meant) };
}

const newest = (values) => values[values.length - 1];

const columns = [
  text("run", (line) => line.label),
  number("step", (line) => (line.x.length ? nth(newest(line.step)) : "")),
  number("newest value", (line) => (line.x.length ? unit(line.unit, newest(line.y)) : "")),
];

export class RunsChart {
  /** view: {metric, group, as} of the address; onview receives the values to store there. */
  constructor(view, onview) {
    this.metric = view.metric || "loss";
    this.group = view.group || "";
    this.as = kinds.some(([kind]) => kind === view.as) ? view.as : "";
    this.plane = new RunsPlane(view, onview);
    this.onview = onview;
    this.hidden = new Set(); // labels that the legend has hidden
    this.rows = []; // runs of the displayed curves
    this.asked = "";
    this.early = null; // {key, answer}: curves requested before the runs were loaded
    this.data = null;
    this.chart = null;
    this.part = null; // range of the axis: [from, to]
    this.asTable = false;
    this.settingNames = [];
    this.build();
    this.close = onChoice((change) => ("x" in change ? this.load(true) : this.draw()));
  }

  build() {
    const metrics = metricsOfSteps().map(({ key }) => [key, key]);
    const metricBox = select("metric", metrics, this.metric, (metric) => {
      this.metric = metric;
      this.onview({ metric });
      this.load(true);
    });
    const kindBox = select("show", kinds, this.as, (as) => {
      this.as = as;
      this.chart?.close();
      this.chart = null;
      const { across, up, axes } = this.plane;
      this.onview({ as, across, up, axes });
      this.load(true);
    });
    this.metricBox = metricBox;
    this.groupBox = h("span");
    this.note = h("span", { class: "note" });
    this.body = h("div", { class: "body" });
    this.legend = h("ul", { class: "run-legend", "aria-label": "runs of the chart" });
    this.caption = h("figcaption");
    this.numbers = h("div", { class: "tall-scroll", hidden: true });
    const flip = { class: "icon", "aria-pressed": "false", title: "numbers as a table (T)" };
    this.flipButton = button("Table", () => this.flip(), flip);
    const label = "curves of the runs, one colour a run";
    const onkeydown = (event) => this.key(event);
    this.el = h(
      "figure",
      { class: "card runs-chart", role: "figure", tabindex: "0", "aria-label": label, onkeydown },
      h("header", {}, h("h2", {}, "Runs"), h("span", { class: "push" }), this.flipButton),
      h(
        "div",
        { class: "bar-tools" },
        kindBox,
        metricBox,
        this.groupBox,
        this.plane.tools,
        this.note,
      ),
      this.body,
      this.numbers,
      this.legend,
      this.caption,
    );
  }

  flip() {
    this.asTable = !this.asTable;
    this.flipButton.setAttribute("aria-pressed", String(this.asTable));
    this.body.hidden = this.asTable;
    this.numbers.hidden = !this.asTable;
    this.draw();
  }

  key(event) {
    if (event.target !== this.el || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^t$/i.test(event.key)) this.flip();
    else if (/^z$/i.test(event.key)) this.see(null);
    else if (!this.chart?.key(event)) return;
    event.preventDefault();
  }

  /** Shows a range of the axis; from null: all of it. */
  see(from, to) {
    this.part = from === null ? null : [from, to];
    this.draw();
  }

  setSettings(names) {
    if (names.length === this.settingNames.length) return;
    this.settingNames = names;
    const options = [["", "each run"], ...names.map((name) => [name, name])];
    const choose = (group) => {
      this.group = group;
      this.hidden.clear();
      this.onview({ group });
    };
    this.groupBox.replaceChildren(select("mean by", options, this.group, choose));
  }

  /** Key of the drawing: a change causes a redraw. */
  what() {
    const { across, up, axes } = this.plane;
    return [this.group, this.as, across, up, axes];
  }

  settings() {
    if (this.as) return this.plane.settings(this.as);
    return this.group ? [this.group] : [];
  }

  /** chosen: selected runs; rows: all displayed runs; settingOf(row, name) returns a value. */
  show(rows, chosen, settingOf) {
    const most = this.as ? planeMost : chosenMost;
    const ticked = rows.filter((row) => chosen.has(row.run)).slice(0, most);
    const untold = this.as || this.group ? most : filteredMost;
    this.rows = ticked.length ? ticked : rows.slice(0, untold);
    this.settingOf = settingOf;
    tellTokens(this.rows.map((row) => row.tokens));
    const left = (ticked.length ? chosen.size : rows.length) - this.rows.length;
    say(this.note, left > 0 ? `${left} more: tick those that you want` : "");
    this.load();
  }

  askCurves(names) {
    const runs = [];
    for (let at = 0; at < names.length; at += namesAtOnce)
      runs.push(names.slice(at, at + namesAtOnce).join());
    return get("curves", { runs, metric: this.metric, x: axisNow(), width });
  }

  /** Requests curves of these runs before the table is loaded. */
  askEarly(chosen) {
    if (!chosen.length || this.as) return;
    const names = chosen.slice(0, chosenMost);
    this.early = { key: this.keyOf(names), answer: this.askCurves(names) };
    this.early.answer.catch(() => {}); // the caller handles the failure
  }

  keyOf(names) {
    return [...names].sort().join() + this.metric + axisNow();
  }

  async load(anew) {
    this.metricBox.hidden = Boolean(this.as);
    this.groupBox.hidden = Boolean(this.as);
    this.plane.tools.hidden = !this.as;
    if (this.as) return this.drawPlane();
    const runs = this.rows.map(({ run, steps }) => `${run} ${steps}`).join();
    const asked = `${runs} ${this.metric} ${axisNow()}`;
    if (!this.rows.length) {
      this.data = null;
      this.asked = "";
      return this.draw();
    }
    if (asked === this.asked && !anew) return this.draw();
    if (anew) this.part = null;
    this.asked = asked;
    const names = this.rows.map(({ run }) => run);
    const { early } = this;
    this.early = null;
    try {
      const isAsked = early?.key === this.keyOf(names);
      const data = await (isAsked ? early.answer : this.askCurves(names));
      if (asked !== this.asked) return;
      const curve = (name) => data.runs.find(({ run }) => run === name);
      this.data = { ...data, runs: names.map(curve).filter(Boolean) };
      this.draw();
    } catch (error) {
      this.drawNothing(error.message);
    }
  }

  lines() {
    const stateOf = (name) => this.rows.find(({ run }) => run === name)?.state;
    const curves = this.data.runs.map((one, i) => curveOf(one, i, stateOf(one.run)));
    if (!this.group) return curves;
    const valueOf = (run) => {
      const row = this.rows.find((one) => one.run === run);
      return row ? this.settingOf(row, this.group) : null;
    };
    return meanLines(curves, this.group, valueOf);
  }

  drawPlane() {
    this.asked = "";
    this.plane.drawTools(this.as, this.settingNames);
    const of = (row, name) => this.settingOf(row, name);
    const { columns: titles, rows, sentence } = this.plane.draw(this.as, this.body, this.rows, of);
    if (this.asTable) this.numbers.replaceChildren(table(titles, rows, "the runs of the drawing"));
    this.legend.replaceChildren();
    say(this.caption, sentence);
  }

  draw() {
    if (this.as) return this.drawPlane();
    if (!this.data) return this.drawNothing("no run to draw");
    const lines = this.lines();
    const wanted = lines.filter((line) => !this.hidden.has(line.label));
    const shown = this.part ? wanted.map((line) => cut(line, this.part)) : wanted;
    if (this.asTable) this.numbers.replaceChildren(table(columns, shown, "curves of the runs"));
    if (!this.chart) {
      this.body.replaceChildren();
      this.chart = new Chart(this.body, true);
    }
    const none = this.hidden.size ? "all runs are switched off" : "nothing recorded of this metric";
    const onzoom = (from, to) => this.see(from, to);
    const axis = axisNow();
    this.chart.set({ lines: shown, unit: lines[0]?.unit, axis, events: [], empty: none, onzoom });
    this.drawLegend(lines);
    const kind = `${this.group ? "group" : "run"}${shown.length === 1 ? "" : "s"}`;
    say(this.caption, `The curves show ${this.metric} of ${shown.length} ${kind}.`);
  }

  drawNothing(text) {
    this.chart?.close();
    this.chart = null;
    this.body.replaceChildren(empty(text));
    this.legend.replaceChildren();
    say(this.caption, "");
  }

  /** A click hides or shows a run; a double click or Shift shows it alone. */
  drawLegend(lines) {
    const key = lines.map((line) => `${line.label}${this.hidden.has(line.label)}`).join();
    if (key === this.legendKey && this.legend.childElementCount) return;
    this.legendKey = key;
    const focus = [...this.legend.querySelectorAll("button")].indexOf(document.activeElement);
    const isolate = (label) => {
      const others = lines.map((line) => line.label).filter((one) => one !== label);
      const isAlone = !this.hidden.has(label) && others.every((one) => this.hidden.has(one));
      this.hidden = new Set(isAlone ? [] : others);
      this.draw();
    };
    const flip = (label) => {
      if (!this.hidden.delete(label)) this.hidden.add(label);
      this.draw();
    };
    const item = ({ label, color }) => {
      const swatch = h("i", { class: "swatch", "data-color": color });
      swatch.style.background = `var(${color})`;
      const click = (event) => (event.shiftKey ? isolate(label) : flip(label));
      const title = "hide or show; with Shift: this one alone";
      const props = { class: "chip", "aria-pressed": String(!this.hidden.has(label)), title };
      return h("li", {}, button([swatch, label], click, props));
    };
    this.legend.replaceChildren(...lines.map(item));
    if (focus >= 0) this.legend.querySelectorAll("button")[focus]?.focus();
  }
}
