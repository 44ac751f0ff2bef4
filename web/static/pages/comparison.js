// comparison.js - data of the page that compares runs: their series, the selected range of the axis, their
// events and hardware.
import { get, series } from "../base/api.js";
import { axisNow, tellTokens } from "../base/state.js";
import { comparedMetrics, isMarked, isRoutine } from "../base/vocabulary.js";
import { placesOf } from "../cards/series_card.js";
import { listedRuns, tellGone } from "./runs_view.js";

const marksMost = 200; // number of events of a run that the chart marks, the most important first

export class Comparison {
  constructor(runs) {
    this.runs = runs;
    tellTokens([]);
    this.metric = comparedMetrics[0][0];
    this.whole = null; // response for the whole axis
    this.part = null; // [from, to] on the axis: the selected range; null: all
    this.asked = ""; // axis and metric of `whole`
    this.events = null;
    this.unmarked = ""; // sentence that tells how many events are marked, if not all are
    this.facts = []; // values of each run: key -> {value, text, noise}
  }

  /** Loads the response of the route `compare`; series of a selected range have more points. */
  async load(width) {
    const question = `${axisNow()} ${this.metric}`;
    if (this.asked !== question) {
      this.asked = question;
      this.part = null;
      this.whole = null;
    }
    if (this.part && this.whole) return this.loadPart(width);
    const args = { x: axisNow(), metric: this.metric, width: Math.round(width / 2) };
    let data = await this.askAll(args);
    tellTokens(data.runs.map(({ series: [one] }) => one?.x.find((x) => x !== null)));
    if (axisNow() !== args.x) data = await this.askAll({ ...args, x: axisNow() });
    this.whole = data;
    if (!this.events) await this.loadHistory();
    return data;
  }

  /** Requests the runs of a link, without those that do not exist any more. */
  async askAll(args) {
    const ask = () => get("compare", { runs: this.runs.join(","), ...args });
    try {
      return await ask();
    } catch (error) {
      if (error.status !== 404) throw error;
      const { rows, total } = (await get("runs", listedRuns)).runs;
      const isThere = (run) => rows.length < total || rows.some((row) => row.run === run);
      const gone = this.runs.filter((run) => !isThere(run));
      if (!gone.length || gone.length === this.runs.length) throw error;
      this.runs = this.runs.filter(isThere);
      tellGone(gone);
      return ask();
    }
  }

  async loadHistory() {
    const ofRun = (run) =>
      Promise.all([get(`runs/${run}/events`, { limit: 1, marks: marksMost }), get(`runs/${run}`)]);
    const all = await Promise.all(this.runs.map(ofRun));
    this.events = all
      .flatMap(([{ events }], i) => eventsOf(this.runs[i], events.marks))
      .sort((a, b) => a.step - b.step);
    const many = all.reduce((sum, [{ events }]) => sum + events.markable, 0);
    const shown = all.reduce((sum, [{ events }]) => sum + events.marks.length, 0);
    this.unmarked = many > shown ? ` ${shown} of ${many} events are marked.` : "";
    this.facts = all.map(([, info]) => factsOf(info));
  }

  /** Requests each run's own steps within the selected range of the common axis. */
  async loadPart(width) {
    const { runs } = this.whole;
    return {
      ...this.whole,
      runs: await Promise.all(runs.map((run, i) => this.loadRun(run, i, width))),
    };
  }

  async loadRun(run, i, width) {
    const one = run.series[0];
    if (!one) return { ...run, series: [] };
    const [from, to] = this.part;
    const places = placesOf(one);
    const inside = one.step.filter((step, k) => places[k] >= from && places[k] <= to);
    if (!inside.length) return { ...run, series: [{ ...one, x: [], step: [], mean: [], n: [] }] };
    const before = one.step[one.step.indexOf(inside[0]) - 1] ?? -1;
    const steps = { x0: before + 1, x1: inside[inside.length - 1] };
    const args = { x: axisNow(), ...steps, width: Math.round(width / 2) };
    const closer = await series(this.runs[i], [this.metric], args);
    return { ...run, series: closer.series };
  }
}

function eventsOf(run, events) {
  return events
    .filter((event) => isMarked(event) && !isRoutine(event))
    .map((event) => ({ ...event, title: `${run}: ${event.title || event.kind}` }));
}

function factsOf(info) {
  const distinct = (key) => [...new Set(info.ranks.map((rank) => rank[key]))].join(" ");
  const plain = (value) => ({ value, text: value });
  return {
    ...Object.fromEntries(info.facts.map((one) => [one.key, one])),
    ranks: plain(String(info.ranks.length)),
    hosts: plain(distinct("host")),
    instructions: plain(distinct("isa")),
  };
}
