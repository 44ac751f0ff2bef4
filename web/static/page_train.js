// page_train.js - overview, step breakdown, communication.
import { get, report } from "./api.js";
import { card } from "./card.js";
import { bar, h, legend, select, table } from "./dom.js";
import { bytes, digits, ms, nats, percent, seconds, si, count } from "./format.js";
import { seriesCard, rankBars } from "./parts.js";
import { phases } from "./state.js";

const tiles = [
  ["loss", (d) => nats(d.loss), (d) => `average ${nats(d.loss_ema)}`], ["validation", (d) => nats(d.val_loss), (d) => `best ${nats(d.best_val_loss)}`],
  ["step", (d) => count(d.newest_step + 1), (d) => (d.steps_total > d.newest_step ? `of ${count(d.steps_total)}, ${d.live && d.eta_s !== null ? `${seconds(d.eta_s)} left` : percent((d.newest_step + 1) / d.steps_total, 0)}` : "")],
  ["tokens", (d) => si(d.tokens), (d) => `${si(d.tokens_per_s)}/s`], ["step time", (d) => ms(d.step_p50_ms), (d) => `p95 ${ms(d.step_p95_ms)}`],
  ["goodput", (d) => percent(d.goodput), (d) => `of ${seconds(d.elapsed_s)}`], ["communication", (d) => percent(d.comm_overhead), (d) => `overlap ${percent(d.overlap, 0)}`],
  ["memory", (d) => (d.rss_mib === null ? "–" : `${Math.round(d.rss_mib)} MiB`), () => "largest rank"],
];

export function overviewPage(root, ctx) {
  const box = h("dl", { class: "tiles", id: "tiles" }), slots = tiles.map(([name]) => {
    const value = h("span"), more = h("small");
    box.append(h("div", { class: "tile", "data-tile": name }, h("dt", {}, name), h("dd", {}, value, more)));
    return [value, more];
  });
  const put = (d) => { if (d) tiles.forEach(([, main, more], i) => { slots[i][0].textContent = main(d); slots[i][1].textContent = more(d); }); };
  ctx.onHead(put);
  const cards = [
    seriesCard(ctx, [{ key: "loss", label: "training", color: "--s0" }, { key: "val_loss", label: "validation", color: "--s1", sparse: true }], { title: "Loss", sub: "nats per token", wide: true, tall: true }),
    seriesCard(ctx, [{ key: "grad_norm", label: "gradient norm", color: "--s3" }], { title: "Gradient norm", sub: "before clipping", floor: 0 }),
    seriesCard(ctx, [{ key: "lr", label: "learning rate", color: "--s2", smooth: false }], { title: "Learning rate", floor: 0 }),
    seriesCard(ctx, [{ key: "tokens_per_s", label: "tokens/s", color: "--s4" }], { title: "Throughput", sub: "all ranks", floor: 0 }),
    seriesCard(ctx, [{ key: "step_ms", label: "step", color: "--s5" }], { title: "Step time", sub: "slowest rank", floor: 0 }),
  ];
  cards.forEach(ctx.add);
  root.replaceChildren(h("h1", { class: "sr" }, `Overview of ${ctx.run}`), box, h("div", { class: "grid" }, cards.map((c) => c.el)));
}

export function stepsPage(root, ctx) {
  let mode = "ms", rank = null, ranks = [], at = null;
  const keys = phases.map((p) => p.key), total = (o) => keys.reduce((s, k) => s + Math.max(0, o[k] || 0), 0);
  const over = (r, d) => keys.reduce((s, k) => s + Math.max(0, (r.phases[k] || 0) - (d.breakdown.median[k] || 0)), 0);
  const newest = h("button", { class: "chip", type: "button", hidden: true, onclick: () => see(null) }, "newest steps");
  const bars = card({
    title: "Where the step goes", sub: "mean of the newest steps, by rank", wide: true, tools: [newest, select("show", [["ms", "milliseconds"], ["share", "share of the step"], ["excess", "excess over the median rank"]], mode, (v) => { mode = v; bars.redraw(); })],
    load: async () => { const d = await get(`runs/${ctx.run}/breakdown`, at === null ? {} : { at, window: 1 }); if (rank === null && d.stragglers.length) { ranks = d.breakdown.ranks.map((r) => r.rank); rank = d.stragglers[0].rank; pick(); } return d; },
    draw(body, d) {
      const all = d.breakdown.ranks, longest = Math.max(...all.map((r) => (mode === "excess" ? over(r, d) : total(r.phases))), 1e-9), box = h("div");
      if (!all.length) { body.replaceChildren(h("div", { class: "empty" }, "no step of a rank recorded yet")); return; }
      rankBars(box, all, (r) => phases.map((p) => {
        const v = mode === "excess" ? Math.max(0, (r.phases[p.key] || 0) - (d.breakdown.median[p.key] || 0)) : Math.max(0, r.phases[p.key] || 0);
        return { share: v / (mode === "share" ? total(r.phases) || 1 : longest), color: p.color, label: `${p.label}: ${ms(v)}` };
      }), (r) => (mode === "excess" ? `+ ${ms(over(r, d))}` : mode === "share" ? `wait ${percent(r.phases.wait_ms / (total(r.phases) || 1), 0)}` : ms(r.step_ms)));
      body.replaceChildren(legend(phases), h("p"), box);
    },
    sentence(d) {
      const m = d.breakdown.median, top = phases.map((p) => [p.label, m[p.key] || 0]).sort((a, b) => b[1] - a[1]).slice(0, 3);
      return d.breakdown.ranks.length ? `A step takes ${ms(d.breakdown.step_ms)}; on the median rank ${top.map(([l, v]) => `${l} ${ms(v)}`).join(", ")}. ${d.breakdown.step0 === d.breakdown.step1 ? `Step ${count(d.breakdown.step0)}` : `Steps ${count(d.breakdown.step0)} to ${count(d.breakdown.step1)}`}.` : "";
    },
    table: (d) => ({ columns: [{ title: "rank", num: true, cell: (r) => String(r.rank) }, { title: "step", num: true, cell: (r) => ms(r.step_ms) }, { title: "p50", num: true, cell: (r) => ms(r.step_p50_ms) }, { title: "p95", num: true, cell: (r) => ms(r.step_p95_ms) }, { title: "p99", num: true, cell: (r) => ms(r.step_p99_ms) },
      ...phases.map((p) => ({ title: p.label, num: true, cell: (r) => ms(r.phases[p.key]) }))], rows: d.breakdown.ranks }),
  });
  const place = h("span"), area = seriesCard(ctx, phases.map((p) => ({ ...p })), { title: "Phases over time", sub: report ? "stacked, one rank" : "stacked, one rank; click a step to see it above", wide: true, tall: true, stacked: true, unit: "ms", rank: () => rank ?? 0, tools: [place], onpick: report ? null : see });
  function see(step) {
    at = step;
    newest.hidden = step === null;
    bars.setSub(step === null ? "mean of the newest steps, by rank" : `step ${count(step)}, by rank`);
    bars.load();
  }
  function pick() { place.replaceChildren(select("rank", ranks.map((r) => [String(r), `rank ${r}`]), String(rank), (v) => { rank = Number(v); area.load(); })); area.load(); }
  [bars, area].forEach(ctx.add);
  root.replaceChildren(h("h1", { class: "sr" }, "Step breakdown"), h("div", { class: "grid" }, bars.el, area.el));
}

export function commPage(root, ctx) {
  const time = card({
    title: "Transfer by rank", sub: "hidden behind compute, exposed, and waiting for others", wide: true, load: () => get(`runs/${ctx.run}/comm`),
    draw(body, d) {
      const all = d.breakdown.ranks, hidden = (r) => Math.max(0, r.comm_busy_ms - r.phases.comm_exposed_ms), longest = Math.max(...all.map((r) => hidden(r) + r.phases.comm_exposed_ms + r.phases.wait_ms), 1e-9), box = h("div");
      rankBars(box, all, (r) => [{ share: hidden(r) / longest, color: "--p5", label: `hidden ${ms(hidden(r))}` }, { share: r.phases.comm_exposed_ms / longest, color: "--p3", label: `exposed ${ms(r.phases.comm_exposed_ms)}` }, { share: r.phases.wait_ms / longest, color: "--p4", label: `wait ${ms(r.phases.wait_ms)}` }], (r) => ms(hidden(r) + r.phases.comm_exposed_ms + r.phases.wait_ms));
      body.replaceChildren(legend([{ label: "hidden transfer", color: "--p5" }, { label: "exposed transfer", color: "--p3" }, { label: "wait", color: "--p4" }]), h("p"), box);
    },
    sentence: (d) => `Communication costs ${percent(d.head.comm_overhead)} of the step; ${percent(d.head.overlap)} of the transfer is hidden. ${bytes(d.head.bytes_wire_per_step)} on the wire a step for ${bytes(d.head.bytes_logical_per_step)} of values.`,
    table: (d) => ({ columns: [{ title: "rank", num: true, cell: (r) => String(r.rank) }, { title: "bytes of values", num: true, cell: (r) => bytes(r.bytes_logical) }, { title: "bytes on the wire", num: true, cell: (r) => bytes(r.bytes_wire) }, { title: "ratio", num: true, cell: (r) => (r.bytes_wire ? digits(r.bytes_logical / r.bytes_wire, 3) : "–") },
      { title: "in flight", num: true, cell: (r) => ms(r.comm_busy_ms) }, { title: "exposed", num: true, cell: (r) => ms(r.phases.comm_exposed_ms) }, { title: "wait", num: true, cell: (r) => ms(r.phases.wait_ms) }], rows: d.breakdown.ranks }),
  });
  const kinds = card({
    title: "Kinds of exchange", sub: "a step of a rank, mean of those that took part; most time lost first", wide: true, load: () => get(`runs/${ctx.run}/comm`),
    draw(body, d) {
      const all = d.comm.rows, longest = Math.max(...all.map((r) => (r.busy_ms || 0) + (r.wait_ms || 0)), 1e-9);
      if (!all.length) { body.replaceChildren(h("div", { class: "empty" }, d.head.ranks > 1 ? "not sampled yet: it is every few steps (train.stats_every)" : "one rank: nothing to exchange")); return; }
      const beside = (v) => (v === null ? h("span", { class: "note", title: "ran beside a larger exchange" }, "beside") : ms(v));
      body.replaceChildren(table([{ title: "operation", cell: (r) => h("code", {}, r.op) }, { title: "axis", cell: (r) => r.axis }, { title: "ranks", num: true, cell: (r) => count(r.ranks) }, { title: "calls", num: true, cell: (r) => digits(r.calls, 3) },
        { title: "values", num: true, cell: (r) => bytes(r.bytes_logical) }, { title: "on the wire", num: true, cell: (r) => bytes(r.bytes_wire) },
        { title: "hidden, exposed, wait", cell: (r) => bar([{ share: Math.max(0, r.busy_ms - r.exposed_ms) / longest, color: "--p5", label: `hidden ${ms(r.busy_ms - r.exposed_ms)}` }, { share: (r.exposed_ms || 0) / longest, color: "--p3", label: `exposed ${ms(r.exposed_ms)}` }, { share: (r.wait_ms || 0) / longest, color: "--p4", label: `wait ${ms(r.wait_ms)}` }], `${r.op} along ${r.axis}: in flight ${ms(r.busy_ms)}, wait ${ms(r.wait_ms)}`) },
        { title: "in flight", num: true, cell: (r) => beside(r.busy_ms) }, { title: "exposed", num: true, cell: (r) => beside(r.exposed_ms) }, { title: "wait", num: true, cell: (r) => beside(r.wait_ms) }, { title: "overlap", num: true, cell: (r) => percent(r.overlap, 0) },
        { title: "bandwidth", num: true, help: "bytes a rank sends a second in flight", cell: (r) => (r.rate_bytes_per_s === null ? "–" : `${bytes(r.rate_bytes_per_s)}/s`) }, { title: "lost most", num: true, cell: (r) => (r.lost_max_rank === null ? "–" : `${ms(r.lost_max_ms)}, rank ${r.lost_max_rank}`) }], all, "kinds of exchange"));
    },
    sentence(d) {
      const r = d.comm.rows[0];
      return r ? `Most time is lost in ${r.op.replaceAll("_", "-")} along ${r.axis}: ${ms((r.exposed_ms || 0) + (r.wait_ms || 0))} a step. Steps ${count(d.comm.step0)} to ${count(d.comm.step1)}.` : "";
    },
  });
  const cards = [time, kinds, seriesCard(ctx, [{ key: "bytes_logical", label: "values", color: "--s0" }, { key: "bytes_wire", label: "on the wire", color: "--s1" }], { title: "Bytes a step", sub: "before and after compression", floor: 0 }),
    seriesCard(ctx, [{ key: "comm_overhead", label: "overhead", color: "--s5" }, { key: "overlap", label: "overlap", color: "--s2" }], { title: "Overhead and overlap", sub: "share", floor: 0 })];
  cards.forEach(ctx.add);
  root.replaceChildren(h("h1", { class: "sr" }, "Communication"), h("div", { class: "grid" }, cards.map((c) => c.el)));
}
