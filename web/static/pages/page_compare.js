// page_compare.js - compares several runs on one axis: their values at equal tokens, and their different
// settings.
import { button, select } from "../base/controls.js";
import { h, hiddenTitle } from "../base/dom.js";
import { dash, digits, nth, onAxis, setting, si, unit } from "../base/format.js";
import { axisNow } from "../base/state.js";
import { number, table, tallTable, text } from "../base/table.js";
import { axes, beyondCurve, comparedMetrics } from "../base/vocabulary.js";
import { Card } from "../cards/card.js";
import { section } from "../cards/section.js";
import { placesOf } from "../cards/series_card.js";
import { Chart } from "../figures/chart.js";
import { Comparison } from "./comparison.js";

const colorCount = 12;
const tableRows = 800;

/** Returns a line for each run, with its known points. */
function linesOf(data) {
  return data.runs.flatMap((run, i) => {
    const one = run.series[0];
    if (!one) return [];
    const known = [...one.mean.keys()].filter((k) => one.mean[k] !== null);
    const at = (values) => known.map((k) => values[k]);
    return {
      label: data.levels[i].run,
      color: `--s${i % colorCount}`,
      x: at(placesOf(one)),
      y: at(one.mean),
      step: at(one.step),
      n: at(one.n),
      meant: at(one.n),
      low: one.low,
      high: one.high,
      beyond: beyondCurve(data.levels[i].state),
      sparse: true,
      unit: one.unit,
    };
  });
}

function valueText(data, value) {
  const one = data.runs.map((run) => run.series[0]).find(Boolean);
  return unit(one?.unit, value);
}

/** "other: 2.41 ± 0.01 at 819 k tokens, first differs from base at step 150" */
function levelText(data, level, i) {
  const base = data.levels[0].run;
  const value = `${valueText(data, level.value)} ± ${digits(level.noise, 2)}`;
  const where = `${level.run}: ${value} at ${si(level.tokens)} tokens`;
  if (i && level.first_different_step !== null)
    return `${where}, first differs from ${base} at step ${nth(level.first_different_step)}`;
  if (i && level.common_steps)
    return `${where}, equal to ${base} in all ${level.common_steps} common steps`;
  return where;
}

function tableOf(data, metric) {
  const points = linesOf(data).flatMap((line) => line.x.map((x, i) => ({ line, x, i })));
  return {
    columns: [
      text("run", ({ line }) => line.label),
      number("step", ({ line, i }) => nth(line.step[i])),
      number(axes[axisNow()].title, ({ x }) => onAxis(axisNow(), x)),
      number(metric, ({ line, i }) => digits(line.y[i], 6)),
    ],
    rows: points.slice(0, tableRows),
  };
}

/** The card with the curves. ondraw receives the displayed data. */
function overlayCard(comparison, ondraw) {
  let chart = null;
  // Selects a range of the axis; null: all.
  const see = (from, to) => {
    comparison.part = from === null ? null : [from, to];
    card.load();
  };
  const reset = button("Reset zoom", () => see(null), { class: "chip", hidden: true });
  const choose = (metric) => {
    comparison.metric = metric;
    card.load();
  };
  const draw = (body, data) => {
    if (!chart) chart = new Chart(body, true);
    const lines = linesOf(data);
    const { events } = comparison;
    chart.set({ lines, unit: lines[0] && lines[0].unit, axis: axisNow(), events, onzoom: see });
    reset.hidden = !comparison.part;
    ondraw(data);
  };
  const card = new Card({
    title: `Compare ${comparison.runs.join(", ")}`,
    wide: true,
    tools: [reset, select("metric", comparedMetrics, comparison.metric, choose)],
    load: (width) => comparison.load(width),
    draw,
    sentence(data) {
      const levels = data.levels.map((level, i) => levelText(data, level, i)).join("; ");
      return `${levels}.${comparison.unmarked}`;
    },
    table: (data) => tableOf(data, comparison.metric),
    keys: (event) => {
      if (/^z$/i.test(event.key)) see(null);
      return chart && chart.key(event);
    },
    close: () => chart && chart.close(),
  });
  return card;
}

function levelsSection(data, metric) {
  const base = data.levels[0];
  const difference = (level) => {
    if (level === base || level.value === null || base.value === null) return dash;
    const sign = level.value > base.value ? "+" : "";
    return `${sign}${digits(level.value - base.value, 3)}`;
  };
  const firstDifferent = (level) => {
    if (level === base) return dash;
    if (level.first_different_step === null)
      return level.common_steps ? `none in ${level.common_steps}` : "no common losses";
    return nth(level.first_different_step);
  };
  const columns = [
    text("run", (level) => h("a", { href: `#/run/${level.run}/overview` }, level.run)),
    number(metric, (level) => valueText(data, level.value)),
    number("noise", (level) => `± ${digits(level.noise, 2)}`),
    number("difference", difference),
    number("first different step", firstDifferent),
    text("state", (level) => h("span", { class: `state ${level.state}` }, level.state)),
  ];
  const sub = `${si(base.tokens)} tokens, where the shortest run ends`;
  const levels = table(columns, data.levels, "levels at equal tokens");
  return section("At equal tokens", sub, false, levels);
}

/**
 * Returns settings by name. Each setting is stored as {value, origin, where}; only the value is compared.
 */
function flatSettings(value, prefix = "", out = {}) {
  const isObject = value !== null && typeof value === "object";
  if (isObject && "value" in value && "origin" in value) flatSettings(value.value, prefix, out);
  else if (isObject && !Array.isArray(value))
    for (const [key, inner] of Object.entries(value))
      flatSettings(inner, prefix ? `${prefix}.${key}` : key, out);
  else out[prefix] = typeof value === "string" ? value : JSON.stringify(value);
  return out;
}

function isSame(a, b) {
  return a === b;
}

function differingKeys(all, same = isSame) {
  const keys = new Set(all.flatMap(Object.keys));
  return [...keys].filter((key) => all.some((one) => !same(one[key], all[0][key]))).sort();
}

/** Compares facts: measured figures are equal within the factor of their noise (facts.def). */
function isSameFact(a, b) {
  const noise = a?.noise || b?.noise;
  if (a?.value === b?.value) return true;
  const [least, most] = [Number(a?.value), Number(b?.value)].sort((x, y) => x - y);
  return Boolean(noise) && !(least > 0 && most > noise * least);
}

function settingsSection(data) {
  const settings = data.configs.map((one) => flatSettings(one.config));
  const keys = differingKeys(settings);
  const columns = [
    text("setting", (key) => h("code", {}, key)),
    ...data.configs.map((one, i) => text(one.run, (key) => setting(settings[i][key] ?? dash))),
  ];
  const content = keys.length
    ? tallTable(columns, keys, "settings that differ")
    : h("p", { class: "note" }, "all settings are equal");
  return section("Settings that differ", String(keys.length), false, content);
}

function factsSection({ runs, facts }) {
  const keys = differingKeys(facts, isSameFact);
  const columns = [
    text("fact", (key) => h("code", {}, key)),
    ...runs.map((run, i) => text(run, (key) => facts[i][key]?.text ?? dash)),
  ];
  const content = keys.length
    ? tallTable(columns, keys, "environment that differs")
    : h("p", { class: "note" }, "all facts are equal");
  const sub =
    "machines, program, data; measured figures only if they differ by more than their noise";
  return section("Environment that differs", sub, true, content);
}

export function comparePage(root, ctx, runs) {
  const comparison = new Comparison(runs);
  const below = h("div", { class: "grid" });
  const overlay = overlayCard(comparison, (data) =>
    below.replaceChildren(
      levelsSection(data, comparison.metric),
      settingsSection(data),
      factsSection(comparison),
    ),
  );
  ctx.add(overlay);
  root.replaceChildren(hiddenTitle("Compare"), overlay.el, below);
}
