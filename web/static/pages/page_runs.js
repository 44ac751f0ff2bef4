// page_runs.js - the table of runs: sorting, filtering, choice of columns (including settings), and selection
// of runs to compare.
import { askEarly, get, statement } from "../base/api.js";
import { button, checkbox, select } from "../base/controls.js";
import { empty, h, hiddenTitle, say } from "../base/dom.js";
import { report } from "../base/kept_answers.js";
import { choose, state } from "../base/state.js";
import { metricsOfSteps } from "../base/vocabulary.js";
import { startRun } from "../frame/start_run.js";
import { metricColumn, runColumns, settingColumn } from "./run_columns.js";
import { matches, settingsIn } from "./run_filter.js";
import { RunRows } from "./run_rows.js";
import { RunsChart } from "./runs_chart.js";
import { keepView, listedRuns, tellGone, viewOfAddress, withoutUnknown } from "./runs_view.js";

const refreshMs = 3000;
const settingsMost = 16; // number of settings in one request

/** Compares two values: -1, 0 or 1; null is last in either order. */
function order(a, b, descending) {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  const isLess = a < b;
  return isLess === descending ? 1 : -1;
}

class RunsTable {
  /** start: fields of the form that starts a run, if the server permits it. */
  constructor(start) {
    this.startFields = start;
    this.rows = [];
    this.total = 0;
    this.settingNames = []; // names of all settings
    this.settings = {}; // run -> setting -> value, for the settings in use
    this.view = withoutUnknown(viewOfAddress()); // state encoded in a link; null: none
    this.sort = this.view.sort || "started_s";
    this.descending = !this.view.ascending;
    this.filter = this.view.filter || "";
    this.chosen = new Set(this.view.chosen); // runs selected for comparison
    this.lastChosen = null; // start of a selection with Shift
    this.drawn = ""; // key of the drawing, to detect changes
    this.settingOf = (row, name) => this.settings[row.run]?.[name] ?? null;
    if (this.view.columns) choose({ columns: this.view.columns });
    this.chart = new RunsChart(this.view, (change) => {
      this.keep(change);
      this.refresh();
    });
    this.build();
    this.drawHead();
    this.refresh();
    this.chart.askEarly(this.view.chosen);
  }

  /** Stores the view in the address, so that the address opens the same view elsewhere. */
  keep(change = {}) {
    Object.assign(this.view, change, {
      filter: this.filter,
      sort: this.sort,
      ascending: !this.descending,
      chosen: [...this.chosen],
      columns: state.columns,
    });
    keepView(this.view);
  }

  build() {
    this.headers = new Map(); // key of a column -> th
    this.head = h("tr", { role: "row", "aria-rowindex": "1" });
    this.list = new RunRows((row) => this.row(row, this.drawnColumns));
    this.status = h("span", { class: "note" });
    this.compareButton = button("Compare", () => this.compare(), { class: "main" });
    this.filterBox = h("input", {
      type: "search",
      placeholder: "filter: words, state:running, lr<3e-4",
      "aria-label": "filter runs",
      oninput: () => this.setFilter(this.filterBox.value),
    });
    this.picker = h("details", { class: "picker" }, h("summary", {}, "Columns"));
    const label = "runs; arrows move, Space chooses, Enter opens, C compares";
    const onkeydown = (event) => this.key(event);
    this.filterBox.value = this.filter;
    // Roles are set explicitly, because the parts of the table are laid out as grids.
    const table = h(
      "table",
      { id: "runs", role: "table", "aria-label": "all runs" },
      h("thead", { role: "rowgroup" }, this.head),
      this.list.body,
    );
    const region = { class: "scroll", tabindex: "0", role: "region", "aria-label": label };
    const box = h("div", { ...region, onkeydown }, table);
    this.list.attach(box, table, this.head);
    const list = h(
      "section",
      { class: "card runs-list" },
      h(
        "div",
        { class: "bar-tools" },
        this.filterBox,
        this.status,
        h("span", { class: "push" }),
        this.startFields
          ? button("Start a run", () => startRun(this.startFields), {
              title: "on the server's machine",
            })
          : null,
        this.picker,
        this.compareButton,
      ),
      box,
    );
    this.el = h("div", { class: "runs-page" }, list, this.chart.el);
  }

  // ---- display

  columns() {
    const { off = [], on = [], metrics = [] } = state.columns;
    const kept = runColumns.filter(({ key }) => key === "run" || !off.includes(key));
    return [
      ...kept,
      ...on.map((name) => settingColumn(name, this.settingOf)),
      ...metrics.map((name) => metricColumn(name, this.settingOf)),
    ];
  }

  wantedSettings() {
    const filtered = settingsIn(this.filter, this.rows[0], this.settingNames);
    return [...new Set([...(state.columns.on || []), ...filtered, ...this.chart.settings()])];
  }

  isLoaded(setting) {
    return this.rows.every((row) => this.settings[row.run] && setting in this.settings[row.run]);
  }

  shownRows() {
    const column = this.columns().find(({ key }) => key === this.sort);
    const valueOf = (row) => (column?.setting ? this.settingOf(row, this.sort) : row[this.sort]);
    return this.rows
      .filter((row) => matches(row, this.filter, this.settingNames, this.settingOf))
      .sort((a, b) => order(valueOf(a), valueOf(b), this.descending));
  }

  // ---- user actions

  setFilter(text) {
    this.filter = text;
    this.list.isWhole = false;
    if (this.wantedSettings().every((name) => this.isLoaded(name))) this.draw();
    else this.refresh();
  }

  setColumns(change) {
    choose({ columns: { ...state.columns, ...change } });
    this.drawHead();
    this.refresh();
  }

  sortBy(column) {
    this.list.isWhole = false;
    this.descending = this.sort === column.key ? !this.descending : Boolean(column.num);
    this.sort = column.key;
    this.draw();
  }

  choose(run, on) {
    if (on) this.chosen.add(run);
    else this.chosen.delete(run);
    this.lastChosen = run;
    this.draw();
  }

  /** With Shift: selects all rows from the previous selection to this one. */
  chooseRange(run) {
    const runs = this.shownRows().map((row) => row.run);
    const [a, b] = [runs.indexOf(this.lastChosen), runs.indexOf(run)].sort((x, y) => x - y);
    if (a < 0) return this.choose(run, !this.chosen.has(run));
    runs.slice(a, b + 1).forEach((one) => this.chosen.add(one));
    this.draw();
  }

  compare() {
    if (this.chosen.size > 1) location.hash = `#/compare?runs=${[...this.chosen].join(",")}`;
  }

  key(event) {
    const { rows } = this.list;
    if (event.ctrlKey || event.metaKey || event.altKey || !rows.length) return;
    const at = this.list.at();
    const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step) this.list.go(Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step)));
    else if (event.key === "Enter" && at >= 0 && event.target.type === "checkbox")
      location.hash = `#/run/${rows[at].run}/overview`;
    else if (/^c$/i.test(event.key)) this.compare();
    else return;
    event.preventDefault();
  }

  // ---- drawing

  drawHead() {
    this.headers.clear();
    const titles = this.columns().map((column) => {
      const sort = button(column.title, () => this.sortBy(column));
      const props = { role: "columnheader", class: column.num ? "num" : null, title: column.help };
      const header = h("th", props, sort);
      this.headers.set(column.key, header);
      return header;
    });
    this.head.replaceChildren(
      h("th", { role: "columnheader" }, h("span", { class: "sr" }, "compare")),
      ...titles,
    );
    this.list.forgetWidths();
    this.drawMenu();
  }

  drawMenu() {
    const { off = [], on = [], metrics = [] } = state.columns;
    const without = (list, key) => list.filter((one) => one !== key);
    const fields = runColumns
      .slice(1)
      .map(({ key, title }) =>
        checkbox(title, !off.includes(key), (shown) =>
          this.setColumns({ off: shown ? without(off, key) : [...off, key] }),
        ),
      );
    const settings = on.map((name) =>
      checkbox(name, true, () => this.setColumns({ on: without(on, name) })),
    );
    const measured = metrics.map((name) =>
      checkbox(name, true, () => this.setColumns({ metrics: without(metrics, name) })),
    );
    // Keyboard focus remains where it was.
    const controls = () => [...this.picker.querySelectorAll("input, select")];
    const focus = controls().indexOf(document.activeElement);
    const menu = h(
      "div",
      { class: "menu" },
      fields,
      settings,
      measured,
      this.settingList(on),
      this.metricList(metrics),
    );
    this.picker.replaceChildren(this.picker.firstChild, menu);
    if (focus >= 0) controls()[focus]?.focus();
  }

  settingList(on) {
    const rest = this.settingNames.filter((name) => !on.includes(name));
    if (!rest.length) return "";
    const options = [["", "add a setting …"], ...rest.map((name) => [name, name])];
    return select("setting", options, "", (name) => name && this.setColumns({ on: [...on, name] }));
  }

  metricList(shown) {
    const rest = metricsOfSteps().filter(({ key }) => !shown.includes(key));
    const options = [["", "add a metric …"], ...rest.map(({ key }) => [key, key])];
    const add = (name) => name && this.setColumns({ metrics: [...shown, name] });
    return select("metric of the newest step", options, "", add);
  }

  draw() {
    const rows = this.shownRows();
    this.keep();
    this.chart.show(rows, this.chosen, this.settingOf);
    const n = this.chosen.size;
    const direction = this.descending ? "descending" : "ascending";
    for (const [key, header] of this.headers)
      if (key === this.sort) header.setAttribute("aria-sort", direction);
      else header.removeAttribute("aria-sort");
    this.compareButton.disabled = n < 2;
    say(this.compareButton, n < 2 ? "Compare (choose two)" : `Compare ${n} runs`);
    this.drawnColumns = this.columns();
    if (rows.length) this.list.show(rows);
    else if (this.rows.length) this.drawNothing("no run matches this filter");
    else this.drawNothing("no runs yet: bitrain train --preset nano --name first");
    this.tellCount();
  }

  tellCount() {
    const count = `${this.list.rows.length} of ${this.total} runs`;
    say(this.status, this.rows.length ? count : "");
  }

  drawNothing(text) {
    const cell = h("td", { role: "cell" }, empty(text));
    this.list.showNothing(h("tr", { role: "row", class: "nothing" }, cell));
  }

  row(row, columns) {
    const box = h("input", {
      type: "checkbox",
      checked: this.chosen.has(row.run),
      "aria-label": `compare ${row.run}`,
      onchange: () => this.choose(row.run, box.checked),
      onclick: (event) => {
        if (!event.shiftKey || this.lastChosen === null) return;
        event.preventDefault();
        setTimeout(() => this.chooseRange(row.run)); // after the browser has undone a refused click
      },
    });
    const cells = columns.map((column) =>
      h(
        "td",
        { role: "cell", class: column.num ? "num" : null, "data-key": column.key },
        column.cell(row),
      ),
    );
    return h("tr", { role: "row", "data-run": row.run }, h("td", { role: "cell" }, box), cells);
  }

  // ---- loading

  /** Loads, and redraws if something changed. */
  async refresh() {
    try {
      if (document.hidden) return;
      await this.load();
      this.tellCount();
    } catch (error) {
      if (error.status !== 401) this.tellTrouble(error);
    }
  }

  /** Shows an error as one sentence, in place of the rows if none were shown before. */
  tellTrouble(error) {
    this.drawn = "";
    if (this.rows.length) say(this.status, statement(error));
    else this.drawNothing(statement(error));
  }

  async load() {
    const asked = [get("runs", listedRuns), this.askSettings()];
    asked[1].catch(() => {}); // the first request fails as well and reports the error
    this.takeRows((await asked[0]).runs);
    if (!this.wantedSettings().length && !state.columns.metrics?.length) this.drawChanges();
    if (this.takeSettings(await asked[1])) {
      // before the settings are loaded it is unknown whether a word of the filter is a setting
      const more = this.wantedSettings().some((name) => !this.isLoaded(name));
      if (more) this.takeSettings(await this.askSettings());
    }
    this.drawChanges();
  }

  drawChanges() {
    const ageless = this.rows.map((row) => ({ ...row, age_s: 0 }));
    const drawn = JSON.stringify([
      ageless,
      this.settings,
      this.filter,
      state.columns,
      this.chart.what(),
    ]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.draw();
  }

  takeRows({ rows, total }) {
    this.rows = rows;
    this.total = total;
    this.forgetGone();
  }

  /** Loads the settings in use and, the first time, the names of all settings; null: nothing to load. */
  async askSettings() {
    const name = this.wantedSettings().slice(0, settingsMost);
    const metric = (state.columns.metrics || []).slice(0, settingsMost - name.length);
    const isNeeded = name.length + metric.length || !this.settingNames.length;
    return isNeeded ? get("settings", { name, metric }) : null;
  }

  /** Stores the settings of a response. Returns true for the first response, which also sets the list of all names. */
  takeSettings(answer) {
    if (!answer) return false;
    const isFirst = !this.settingNames.length;
    this.settings = answer.settings;
    if (!isFirst) return false;
    this.settingNames = answer.names;
    this.drawMenu();
    this.chart.setSettings(this.settingNames);
    return true;
  }

  /** Removes runs of a link that were deleted since. */
  forgetGone() {
    const gone = [...this.chosen].filter((run) => !this.rows.some((row) => row.run === run));
    if (!gone.length || this.rows.length < this.total) return;
    gone.forEach((run) => this.chosen.delete(run));
    tellGone(gone);
  }
}

/** Sends the first requests before the page is shown. */
export function askRunsEarly() {
  askEarly("runs", listedRuns);
}

export function runsPage(root, server) {
  const runs = new RunsTable(server.control && server.start);
  root.replaceChildren(hiddenTitle("Runs"), runs.el);
  const closeMenu = (event) => {
    if (runs.picker.open && !runs.picker.contains(event.target)) runs.picker.open = false;
  };
  addEventListener("pointerdown", closeMenu);
  const timer = report ? 0 : setInterval(() => runs.refresh(), refreshMs);
  return () => {
    clearInterval(timer);
    runs.list.close();
    runs.chart.close();
    removeEventListener("pointerdown", closeMenu);
  };
}
