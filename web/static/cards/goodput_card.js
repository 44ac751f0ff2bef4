// goodput_card.js - how the time since the first launch of a run was spent.
import { h } from "../base/dom.js";
import { percent, plural, seconds } from "../base/format.js";
import { number, text } from "../base/table.js";
import { goodputParts } from "../base/vocabulary.js";
import { bar, legend } from "../figures/small_figures.js";
import { Card } from "./card.js";

function partsOf(head) {
  return goodputParts.map(({ key, label, color }) => ({
    label: `${label} ${seconds(head[key])} (${percent(head[key] / head.elapsed_s)})`,
    color,
    share: (head[key] || 0) / (head.elapsed_s || 1),
  }));
}

function bigBar(parts) {
  const box = bar(parts, "parts of the elapsed time");
  box.classList.add("big");
  return box;
}

/** Number of restarts, and the mean time from the end of an attempt to the first step of the next one. */
function recovery({ head, info, events }) {
  const again = info.attempts.slice(1);
  if (!again.length) return "";
  const resumed = events.rows.filter(({ kind }) => kind === "resumed");
  const times = resumed.map((event) => head.started_s + event.time_s);
  const gap = ({ started_s: started }, i) =>
    times.find((time) => time >= started) - (info.attempts[i].ended_s ?? started);
  const gaps = again.map(gap).filter(Number.isFinite);
  const mean = gaps.reduce((a, b) => a + b, 0) / gaps.length;
  const took = gaps.length ? `, training again after ${seconds(mean)} on average` : "";
  return ` ${plural(again.length, "restart")}${took}.`;
}

function sentence(data) {
  const { head } = data;
  const productive = `${seconds(head.productive_s)} of first-time productive steps`;
  const attempts = plural(head.attempts, "attempt");
  const whole = `${productive} in ${seconds(head.elapsed_s)}, over ${attempts}`;
  const costly = (a, b) => (head[b.key] || 0) - (head[a.key] || 0);
  const rest = goodputParts.slice(1).filter(({ key }) => head[key] >= 0.05);
  const most = rest.toSorted(costly).slice(0, 3);
  const parts = most.map(({ key, label }) => `${label} ${seconds(head[key])}`).join(", ");
  const other = parts && `; ${parts}`;
  return `Goodput ${percent(head.goodput)}: ${whole}${other}.${recovery(data)}`;
}

function tableOf({ head }) {
  const parts = goodputParts.map(({ key, label }) => [label, head[key]]);
  return {
    columns: [
      text("part", ([label]) => label),
      number("time", ([, time]) => seconds(time)),
      number("share", ([, time]) => percent(time / head.elapsed_s)),
    ],
    rows: parts,
  };
}

/** load returns a promise of the data of page_events.js. */
export function goodputCard(load) {
  return new Card({
    title: "Goodput",
    sub: "use of the time since the first launch",
    wide: true,
    load,
    draw(body, { head }) {
      const parts = partsOf(head);
      body.replaceChildren(bigBar(parts), h("p"), legend(parts));
    },
    sentence,
    table: tableOf,
  });
}
