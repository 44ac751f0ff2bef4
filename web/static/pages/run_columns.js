// run_columns.js - the columns of the table of runs: those of every run, and those of settings.
import { h } from "../base/dom.js";
import {
  count,
  dash,
  date,
  digits,
  ms,
  nats,
  percent,
  seconds,
  setting,
  si,
  unit,
} from "../base/format.js";
import { number, text } from "../base/table.js";
import { tagsOf } from "../base/tags.js";
import { figureHelp, stepMetric } from "../base/vocabulary.js";
import { spark } from "../figures/small_figures.js";

function runLink({ run }) {
  return h("a", { href: `#/run/${run}/overview` }, run);
}

function tagsAndNote(row) {
  const elements = tagsOf(row).map((tag) => h("span", { class: "tag" }, tag));
  return h("span", {}, elements, row.note || "");
}

// by the field of a run that sorts the column
const columns = {
  run: text("run", runLink),
  state: text("state", (row) => h("span", { class: `state ${row.state}` }, row.state)),
  loss_spark: text("loss curve", (row) =>
    spark(row.loss_spark, `loss over the run, now ${digits(row.loss)}`),
  ),
  loss: number("loss", (row) => nats(row.loss)),
  best_val_loss: number("best val", (row) => nats(row.best_val_loss)),
  steps: number("steps", (row) => count(row.steps)),
  tokens: number("tokens", (row) => si(row.tokens)),
  ranks: number("ranks", (row) => String(row.ranks)),
  tokens_per_s: number("tokens/s", (row) => si(row.tokens_per_s)),
  step_ms: number("step", (row) => ms(row.step_ms)),
  goodput: number("goodput", (row) => percent(row.goodput, 0)),
  comm_overhead: number("comm", (row) => percent(row.comm_overhead)),
  duration_s: number("duration", (row) => seconds(row.duration_s)),
  started_s: number("started (UTC)", (row) => date(row.started_s)),
  note: text("tags, note", tagsAndNote),
};

/** [{key, title, cell, num, help}] */
export const runColumns = Object.entries(columns).map(([key, column]) => ({
  key,
  ...column,
  get help() {
    return figureHelp(key === "best_val_loss" ? "best_val" : key);
  },
}));

/** A column for a setting; settingOf(row, name) returns the value or null. */
export function settingColumn(name, settingOf) {
  const cell = (row) => setting(settingOf(row, name) ?? dash);
  return { key: name, setting: true, ...number(name, cell, "a setting") };
}

/** A column for the newest value of a metric; valueOf(row, name) returns it or null. */
export function metricColumn(name, valueOf) {
  const { unit: unitName, help } = stepMetric(name);
  const cell = (row) => unit(unitName, valueOf(row, name));
  return { key: name, setting: true, ...number(name, cell, help) };
}
