// page_overview.js - state of a run: tiles with values of its head, and charts of loss, gradient, learning
// rate and speed.
import { get } from "../base/api.js";
import { h, say } from "../base/dom.js";
import {
  count,
  dash,
  digits,
  ms,
  nats,
  nth,
  percent,
  roughly,
  seconds,
  si,
} from "../base/format.js";
import { charts, figureHelp } from "../base/vocabulary.js";
import { optionalCard } from "../cards/card.js";
import { chipsBox, samplesCard } from "../cards/first_page_boxes.js";
import { islandsCard } from "../cards/islands_card.js";
import { lrRangeCard } from "../cards/lr_range_card.js";
import { askSeriesEarly, seriesCard } from "../cards/series_card.js";
import { troubleBox } from "../cards/trouble_box.js";
import { showPage } from "./page.js";

/** "of 5 000, 48 %, 3 min left"; below 100 % before the end. */
function progress(head) {
  if (!(head.steps_total > head.newest_step)) return "";
  const done = percent(Math.floor(100 * head.progress + 1e-9) / 100, 0);
  const left = head.eta_s !== null ? `, ${roughly(head.eta_s)} left` : "";
  return `of ${count(head.steps_total)}, ${done}${left}`;
}

function passes(head) {
  const speed = `${si(head.tokens_per_s)}/s`;
  return head.epoch === null ? speed : `${speed}, ${head.epoch.toFixed(2)} passes`;
}

function progressBar() {
  return h("progress", { max: "1", value: 0, "aria-label": "share of the steps that is done" });
}

/** "best 4.6414" and its step, if the newest loss is higher. */
function bestValidation(head) {
  if (head.val_loss === null) return "best so far";
  const isBehind = head.best_val_step !== null && head.val_loss > head.best_val_loss;
  const where = isBehind ? `, step ${nth(head.best_val_step)}` : "";
  const gap = head.val_gap === null ? "" : `, gap ${nats(head.val_gap)}`;
  return `best ${nats(head.best_val_loss)}${where}${gap}`;
}

/** Shows the metrics of fine-tuning other than accuracy. */
function judged({ val_f1: f1, val_reward_margin: margin, reward_margin: trained }) {
  if (f1 !== undefined) return `F1 ${percent(f1)}`;
  const known = margin ?? trained;
  return known === undefined ? "newest evaluation" : `reward margin ${nats(known)}`;
}

/** True for a tile that the run has: a hub, for example, does not record what its islands record. */
function isOf(name, head, shown) {
  if (head.hub && shown === dash) return false;
  return name !== "accuracy" || (head.val_accuracy ?? head.accuracy) !== undefined;
}

// fields of a run's head: name, text, small text
const tiles = [
  ["loss", (head) => nats(head.loss), (head) => `of ten steps ${nats(head.loss_ema)}`],
  ["validation", (head) => nats(head.val_loss ?? head.best_val_loss), bestValidation],
  ["accuracy", (head) => percent(head.val_accuracy ?? head.accuracy), judged],
  ["step", (head) => nth(head.newest_step), progress],
  ["tokens", (head) => si(head.tokens), passes],
  ["median step time", (head) => ms(head.step_p50_ms), (head) => `p95 ${ms(head.step_p95_ms)}`],
  [
    "goodput",
    (head) => percent(head.goodput),
    (head) => `of ${seconds(head.elapsed_s - head.finished_s)}`,
  ],
  [
    "communication",
    (head) => percent(head.comm_overhead),
    (head) => `overlap ${percent(head.overlap, 0)}, newest steps`,
  ],
  [
    "memory",
    (head) => (head.rss_mib === null ? dash : `${Math.round(head.rss_mib)} MiB`),
    () => "largest rank, newest step",
  ],
];

// figures of each tile by their keys in figures.def; the tooltip names the range of steps
const tileFigures = {
  loss: ["loss", "loss_ema"],
  validation: ["val_loss", "best_val", "val_gap"],
  tokens: ["tokens", "tokens_per_s", "passes"],
  "median step time": ["step_ms", "step_p95_ms"],
  goodput: ["goodput"],
  communication: ["comm_overhead", "overlap"],
};

function headTiles(ctx) {
  const slots = tiles.map(([name, text, smallText]) => {
    const value = h("span");
    const small = h("small");
    const help = (tileFigures[name] || []).map(figureHelp).join("\n");
    const props = { class: "tile", "data-tile": name, title: help };
    const done = name === "step" ? progressBar() : null;
    const el = h("div", props, h("dt", {}, name), h("dd", {}, value, small, done));
    const put = (head) => {
      el.hidden = !isOf(name, head, text(head));
      if (done) done.hidden = head.progress === null;
      if (done) done.value = head.progress ?? 0;
      say(value, text(head));
      say(small, smallText(head));
    };
    return { el, put };
  });
  ctx.onHead((head) => slots.forEach((slot) => slot.put(head)));
  const elements = slots.map((slot) => slot.el);
  return h("dl", { class: "tiles", id: "tiles" }, elements);
}

function gradientCard(ctx) {
  let clip = 0;
  const rules = () => (clip > 0 ? [{ y: clip, label: `clipped at ${digits(clip)}` }] : []);
  const card = seriesCard(ctx, { ...charts.gradientNorm, rules });
  const find = async () => {
    const info = await get(`runs/${ctx.run}`);
    clip = Number(info.config?.["optim.clip"]?.value ?? 0);
    card.redraw();
  };
  find().catch(() => {}); // without the clipping norm the chart has no line
  return card;
}

/** Sends the first requests before the page is shown. */
export function askOverviewEarly(run) {
  askSeriesEarly(run, charts.loss);
}

export function overviewPage(root, ctx) {
  const boxes = [troubleBox(ctx), chipsBox(ctx), headTiles(ctx)];
  const info = get(`runs/${ctx.run}`);
  const ofForms = (forms, make) => async () =>
    forms.includes((await info).config?.["data.form"]?.value) ? make() : null;
  const ofHub = async () => {
    const load = () => get(`runs/${ctx.run}/islands`);
    return (await load()).islands.rows.length ? islandsCard(load) : null;
  };
  const cards = [
    seriesCard(ctx, { ...charts.loss, wide: true, tall: true, ghosts: true }),
    optionalCard(ofHub),
    optionalCard(
      ofForms(["preference", "label"], () => seriesCard(ctx, charts.accuracy)),
      false,
    ),
    optionalCard(
      ofForms(["preference"], () => seriesCard(ctx, charts.rewardMargin)),
      false,
    ),
    samplesCard(ctx),
    lrRangeCard(ctx),
    gradientCard(ctx),
    seriesCard(ctx, charts.learningRate),
    seriesCard(ctx, charts.throughput),
    seriesCard(ctx, charts.stepTime),
  ];
  showPage(root, ctx, `Overview of ${ctx.run}`, cards, ...boxes);
  cards[0].begin(); // the first chart loads before all others
}
