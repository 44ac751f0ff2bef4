// ranking_card.js - the ranks, worst first: since when a rank is slow, in which phase, its cost for the other
// ranks, and the step time if the slowest ranks were as fast as the median rank.
import { get } from "../base/api.js";
import { h } from "../base/dom.js";
import { dash, ms, nth, percent, seconds, stepRange } from "../base/format.js";
import { number, tallTable, text } from "../base/table.js";
import { bar } from "../figures/small_figures.js";
import { Card } from "./card.js";

function score(value) {
  return value === null ? dash : value.toFixed(3);
}

function rankLink(rank, follow) {
  const onclick = (event) => {
    event.preventDefault();
    follow(rank);
  };
  return h("a", { href: location.hash, onclick }, String(rank));
}

function lostBar(row) {
  const part = { share: row.blame, color: "--phase-wait", label: percent(row.blame, 0) };
  return bar([part], `rank ${row.rank} cost the others ${seconds(row.lost_s)}`);
}

function phaseAtFault(row) {
  if (!row.phase) return dash;
  return row.phase_frac === null ? row.phase : `${row.phase}, ${percent(row.phase_frac, 0)}`;
}

const lateHelp = "delay after the arrival of the first rank; in 95 % of the steps it is shorter";

function columnsOf(follow) {
  return [
    number("rank", (row) => rankLink(row.rank, follow)),
    text("host", (row) => row.host || dash),
    text("verdict", (row) => h("span", { class: `tag ${row.verdict}` }, row.verdict)),
    number("busy p50", (row) => ms(row.busy_p50_ms)),
    number("excess", (row) => ms(row.excess_ms)),
    number("wait p50", (row) => ms(row.wait_p50_ms)),
    number("late p95", (row) => ms(row.late_p95_ms), lateHelp),
    number(
      "score",
      (row) => score(row.score),
      "busy time of the fastest rank divided by that of this rank",
    ),
    number(
      "own score",
      (row) => score(row.score_own),
      "busy time in this rank's fastest block of steps divided by that in its newest block",
    ),
    number("blame", (row) => percent(row.blame, 0)),
    text("share of the time lost", lostBar),
    number("cost others", (row) => seconds(row.lost_s)),
    text("phase at fault", phaseAtFault),
    number("since step", (row) => nth(row.since_step)),
  ];
}

/** Returns the server's sentence about the worst rank. */
function verdict(stragglers) {
  if (stragglers[0] && stragglers[0].says) return stragglers[0].says;
  if (stragglers.length > 1) return "No rank stands out.";
  return stragglers.length
    ? "One rank has no other to wait for."
    : "No steps of ranks recorded yet.";
}

function sentence({ breakdown }) {
  if (!breakdown.steps) return "";
  return `Steps ${stepRange(breakdown.step0, breakdown.step1)}, ${breakdown.steps} sampled.`;
}

/** one: the card of one rank. The card's `stragglers` are the ranks in the server's order, worst first. */
export function rankingCard(ctx, one) {
  let slowest = 1; // number of slowest ranks whose time is replaced by the median
  const crowded = h("p", { class: "crowded", hidden: true }); // warning about a busy machine, shown before any rank
  const says = h("p", { class: "says" });
  const gain = h("p", { class: "note" });
  const slider = h("input", {
    type: "range",
    min: "1",
    max: "1",
    value: "1",
    "aria-label": "number of slowest ranks whose time is replaced by the median",
    oninput: () => {
      slowest = Number(slider.value);
      card.redraw();
    },
  });
  const columns = columnsOf(one.follow);
  const draw = (body, data) => {
    const sentences = data.what_if_worst_says || [];
    const choices = sentences.length;
    slider.max = String(Math.max(1, choices));
    slider.disabled = choices < 2;
    crowded.textContent = data.breakdown.crowded || "";
    crowded.hidden = !data.breakdown.crowded;
    says.textContent = verdict(data.stragglers);
    gain.textContent = sentences[Math.min(slowest, sentences.length) - 1] || "";
    const label = choices > 1 ? h("label", { class: "pick" }, "what if", slider) : null;
    body.replaceChildren(
      crowded,
      says,
      h("div", { class: "tools bar-tools" }, label, gain),
      tallTable(columns, data.stragglers, "ranks, worst first"),
    );
  };
  const card = new Card({
    title: "Ranking",
    sub: "ranks by busy time; the slow rank waits least",
    wide: true,
    load: async () => {
      const data = await get(`runs/${ctx.run}/stragglers`);
      card.stragglers = data.stragglers;
      if (data.stragglers.length) one.suggest(data.stragglers[0].rank);
      return data;
    },
    draw,
    sentence,
  });
  card.stragglers = [];
  return card;
}
