// runs_plane.js - plots settings and results of many runs against each other: one point per run in a plane of
// two of them, or one line per run over parallel axes.
import { select } from "../base/controls.js";
import { empty, h } from "../base/dom.js";
import { dash, digits } from "../base/format.js";
import { number, text } from "../base/table.js";
import { parallel } from "../figures/parallel.js";
import { plane, wantsLog } from "../figures/plane.js";

// fields of a run that are results
const results = [
  ["loss", "loss"],
  ["best_val_loss", "best val"],
  ["steps", "steps"],
  ["tokens", "tokens"],
  ["tokens_per_s", "tokens/s"],
  ["step_ms", "step, ms"],
  ["goodput", "goodput"],
  ["comm_overhead", "communication"],
  ["duration_s", "duration, s"],
];
const axesMost = 10;
export const planeMost = 500; // maximum number of runs

const isResult = (name) => results.some(([key]) => key === name);
const titleOf = (name) => results.find(([key]) => key === name)?.[1] ?? name;
const open = (run) => {
  location.hash = `#/run/${run}/overview`;
};

export class RunsPlane {
  /** view: {across, up, axes} of the address; onview receives the values to store there. */
  constructor(view, onview) {
    this.across = view.across || "optim.lr";
    this.up = view.up || "loss";
    this.axes = view.axes?.length ? view.axes : ["optim.lr", "tokens_per_s", "loss"];
    this.onview = onview;
    this.settingNames = [];
    this.tools = h("span", { class: "bar-tools" });
  }

  settings(as) {
    const names = as === "scatter" ? [this.across, this.up] : this.axes;
    return names.filter((name) => !isResult(name));
  }

  drawTools(as, settingNames) {
    const settings = settingNames.map((name) => [name, name]);
    const options = [...results, ...settings];
    const choose = (change) => {
      Object.assign(this, change);
      this.onview(change);
    };
    if (as === "scatter")
      return this.tools.replaceChildren(
        select("across", options, this.across, (across) => choose({ across })),
        select("up", options, this.up, (up) => choose({ up })),
      );
    const others = options.filter(([name]) => !this.axes.includes(name));
    const add = (name) => name && choose({ axes: [...this.axes, name].slice(-axesMost) });
    this.tools.replaceChildren(select("axis", [["", "add"], ...others], "", add));
  }

  /** Draws into body; returns {columns, rows} of the numbers, and a sentence. */
  draw(as, body, rows, settingOf) {
    const valueOf = (row, name) => (isResult(name) ? row[name] : settingOf(row, name)) ?? null;
    const names = as === "scatter" ? [this.across, this.up] : this.axes;
    const cell = (value) => (typeof value === "number" ? digits(value, 4) : String(value ?? dash));
    const columns = [
      text("run", (row) => row.run),
      ...names.map((name) => number(titleOf(name), (row) => cell(valueOf(row, name)))),
    ];
    const width = Math.max(320, body.clientWidth || 700);
    if (!rows.length) body.replaceChildren(empty("no run to draw"));
    else if (as === "scatter") this.drawScatter(body, rows, valueOf, width);
    else this.drawParallel(body, rows, valueOf, width);
    const what = names.map(titleOf).join(as === "scatter" ? " and " : ", ");
    return { columns, rows, sentence: `${rows.length} runs by ${what}; a click opens a run.` };
  }

  drawScatter(body, rows, valueOf, width) {
    const read = (row, name) => {
      const value = valueOf(row, name);
      return value === null || value === "" ? NaN : Number(value);
    };
    const points = rows.map((row, i) => {
      const [x, y] = [read(row, this.across), read(row, this.up)];
      const title = `${row.run}: ${titleOf(this.across)} ${x}, ${titleOf(this.up)} ${y}`;
      return { x, y, title, key: row.run, color: `--s${i % 12}` };
    });
    if (!points.some(({ x, y }) => Number.isFinite(x) && Number.isFinite(y)))
      return body.replaceChildren(empty("no run has a number in both"));
    const axis = (name, key) => ({
      label: titleOf(name),
      log: wantsLog(points.map((p) => p[key])),
    });
    const spec = { x: axis(this.across, "x"), y: axis(this.up, "y"), points, onpick: open };
    body.replaceChildren(plane(spec, width, 380, "a point for each run"));
  }

  drawParallel(body, rows, valueOf, width) {
    const axes = this.axes.map((name) => ({
      name,
      label: titleOf(name),
      values: rows.map((row) => valueOf(row, name)),
    }));
    const ondrop = (label) => {
      if (this.axes.length < 3) return;
      this.axes = this.axes.filter((name) => titleOf(name) !== label);
      this.onview({ axes: this.axes });
    };
    const runs = rows.map((row) => row.run);
    const spec = { axes, runs, onpick: open, ondrop };
    body.replaceChildren(parallel(spec, width, 380, "a line for each run over parallel axes"));
  }
}
