// own_charts.js - charts composed by the user, of any metrics of a step. The charts are stored in the browser and in an
// address that can be shared.
import { button, select } from "../base/controls.js";
import { h, say, toast } from "../base/dom.js";
import { report } from "../base/kept_answers.js";
import { choose, state } from "../base/state.js";
import { metricsOfSteps, stepMetric } from "../base/vocabulary.js";
import { seriesCard } from "../cards/series_card.js";

const chartsMost = 16;
const colorCount = 12;

/** Returns the charts named in the address; null: there are none. */
function chartsOfAddress() {
  const query = new URLSearchParams(location.hash.split("?")[1] || "");
  if (!query.has("charts")) return null;
  const known = new Set(metricsOfSteps().map(({ key }) => key));
  return query
    .get("charts")
    .split(",")
    .filter((key) => known.has(key))
    .slice(0, chartsMost);
}

async function copyLink() {
  const link = `${location.href.split("?")[0]}?charts=${state.charts.join(",")}`;
  try {
    await navigator.clipboard.writeText(link);
    toast("the address of these charts is copied");
  } catch {
    location.hash = link.split("#")[1];
    toast("the address contains these charts now");
  }
}

/** The section with the user's charts; empty in a report, which contains no other series. */
export function ownCharts(ctx) {
  const cards = new Map(); // metric -> card
  const grid = h("div", { class: "grid" });
  const note = h("span", { class: "note" });
  const tools = h("div", { class: "bar-tools" });
  const section = h("section", { class: "own-charts", "aria-label": "my charts" }, tools, grid);
  if (report) return h("div");

  const keep = (charts) => {
    choose({ charts });
    draw();
  };
  const cardOf = (key, i) => {
    const { help } = stepMetric(key);
    const drop = button("Remove", () => keep(state.charts.filter((one) => one !== key)), {
      class: "icon",
      title: `no chart of ${key} any more`,
    });
    const line = { key, label: key, color: `--s${i % colorCount}`, sparse: /^val_/.test(key) };
    return seriesCard(ctx, { title: key, sub: help, lines: [line], tools: [drop] });
  };
  const draw = () => {
    for (const [key, card] of cards)
      if (!state.charts.includes(key)) {
        card.close();
        ctx.cards.splice(ctx.cards.indexOf(card), 1);
        cards.delete(key);
      }
    state.charts.forEach((key, i) => {
      if (cards.has(key)) return;
      cards.set(key, cardOf(key, i));
      ctx.add(cards.get(key));
    });
    grid.replaceChildren(...state.charts.map((key) => cards.get(key).el));
    const rest = metricsOfSteps().filter(({ key }) => !state.charts.includes(key));
    const options = [["", "add a chart …"], ...rest.map(({ key }) => [key, key])];
    const add = (key) => key && keep([...state.charts, key].slice(-chartsMost));
    const copy = button("Copy link", copyLink, { title: "an address with these charts" });
    copy.hidden = !state.charts.length;
    say(note, state.charts.length ? "" : "any metric of a step as a chart, kept in this browser");
    tools.replaceChildren(select("my charts", options, "", add), copy, note);
  };
  const named = chartsOfAddress();
  if (named) choose({ charts: named });
  draw();
  return section;
}
