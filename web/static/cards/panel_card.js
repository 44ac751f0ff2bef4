// panel_card.js - every metric of a panel: the newest sample of each over the rows of its scope, and its
// history. The card is generic, so that a new row of metrics.def appears here automatically.
import { get } from "../base/api.js";
import { empty } from "../base/dom.js";
import { count, nth, plural, unit } from "../base/format.js";
import { number, table, text } from "../base/table.js";
import { metricOf, scopeOf } from "../base/vocabulary.js";
import { spark } from "../figures/small_figures.js";
import { Card } from "./card.js";
import { zoomRange } from "./series_card.js";

function history(row) {
  return spark(row.history, `history of ${row.key} of a ${row.scope}`);
}

function value(key) {
  return (row) => unit(row.unit, row[key]);
}

/** The minimum and maximum of a scope with a single row equal its mean. */
function ofRows(key) {
  return (row) => (row.rows > 1 ? unit(row.unit, row[key]) : "");
}

const columns = [
  text("metric", (row) => row.key),
  text("of a", (row) => row.scope),
  number("mean", value("mean"), "over the rows of the newest sample"),
  number("least", ofRows("least")),
  number("most", ofRows("most")),
  number("rows", (row) => (row.step < 0 ? "" : count(row.rows))),
  number("step", (row) => (row.step < 0 ? "" : nth(row.step)), "of the newest sample"),
  text("history", history),
  { ...text("what it is", (row) => metricOf(row).help), wrap: true },
];

function sentenceOf(panel, rows) {
  const known = rows.filter((row) => row.step >= 0);
  const scopes = new Set(known.map((row) => scopeOf(row).per));
  if (!known.length) return "";
  return `${plural(known.length, "metric")} of ${panel.title}, a row for each ${[...scopes].join(", each ")}.`;
}

/** panel: a row of `panels` in vocabulary.js. */
export function panelCard(ctx, panel) {
  const rowsOf = (data) => data.panel.metrics.filter((row) => metricOf(row).panel === panel.name);
  return new Card({
    title: panel.title,
    sub: panel.question,
    wide: true,
    load: () => get(`runs/${ctx.run}/panel`, { panel: panel.name, ...zoomRange() }),
    draw(body, data) {
      const rows = rowsOf(data);
      body.replaceChildren(
        rows.length ? table(columns, rows, `metrics of ${panel.title}`) : empty("no metric here"),
      );
    },
    sentence: (data) => sentenceOf(panel, rowsOf(data)),
  });
}
