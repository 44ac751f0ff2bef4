// page_train.js - overview, step breakdown, communication.
import { get, report } from "./api.js";
import { card } from "./card.js";
import { HeatMap } from "./heat.js";
import { bar, h, legend, say, select, svg, table } from "./dom.js";
import { bytes, digits, ms, nats, percent, seconds, si, count, nth, roughly } from "./format.js";
import { range, seriesCard, rankBars } from "./parts.js";
import { phases, state } from "./state.js";

const tiles = [
  ["loss", (d) => nats(d.loss), (d) => `average ${nats(d.loss_ema)}`],
  [
    "validation",
    (d) => nats(d.val_loss ?? d.best_val_loss),
    (d) => (d.val_loss === null ? "best so far" : `best ${nats(d.best_val_loss)}`),
  ],
  [
    "step",
    (d) => nth(d.newest_step),
    (d) =>
      d.steps_total > d.newest_step
        ? `of ${count(d.steps_total)}, ${d.live && d.eta_s !== null ? `${roughly(d.eta_s)} left` : percent((d.newest_step + 1) / d.steps_total, 0)}`
        : "",
  ],
  ["tokens", (d) => si(d.tokens), (d) => `${si(d.tokens_per_s)}/s`],
  ["step time", (d) => ms(d.step_p50_ms), (d) => `p95 ${ms(d.step_p95_ms)}`],
  ["goodput", (d) => percent(d.goodput), (d) => `of ${seconds(d.elapsed_s)}`],
  ["communication", (d) => percent(d.comm_overhead), (d) => `overlap ${percent(d.overlap, 0)}`],
  [
    "memory",
    (d) => (d.rss_mib === null ? "–" : `${Math.round(d.rss_mib)} MiB`),
    () => "largest rank",
  ],
];

export function overviewPage(root, ctx) {
  const box = h("dl", { class: "tiles", id: "tiles" }),
    slots = tiles.map(([name]) => {
      const value = h("span"),
        more = h("small");
      box.append(
        h("div", { class: "tile", "data-tile": name }, h("dt", {}, name), h("dd", {}, value, more)),
      );
      return [value, more];
    });
  const put = (d) => {
    if (d)
      tiles.forEach(([, main, more], i) => {
        say(slots[i][0], main(d));
        say(slots[i][1], more(d));
      });
  };
  ctx.onHead(put);
  let clip = 0;
  get(`runs/${ctx.run}`)
    .then((d) => {
      clip = Number(d.config?.["optim.clip"]?.value ?? 0);
      cards[1].redraw();
    })
    .catch(() => {});
  const cards = [
    seriesCard(
      ctx,
      [
        { key: "loss", label: "training", color: "--s0" },
        { key: "val_loss", label: "validation", color: "--s1", sparse: true },
      ],
      { title: "Loss", sub: "nats per token", wide: true, tall: true, ghosts: true },
    ),
    seriesCard(ctx, [{ key: "grad_norm", label: "gradient norm", color: "--s3" }], {
      title: "Gradient norm",
      sub: "before clipping",
      floor: 0,
      rules: () => (clip > 0 ? [{ y: clip, label: `clipped at ${digits(clip)}` }] : []),
    }),
    seriesCard(ctx, [{ key: "lr", label: "learning rate", color: "--s2", smooth: false }], {
      title: "Learning rate",
      floor: 0,
    }),
    seriesCard(ctx, [{ key: "tokens_per_s", label: "tokens/s", color: "--s4" }], {
      title: "Throughput",
      sub: "all ranks",
      floor: 0,
    }),
    seriesCard(ctx, [{ key: "step_ms", label: "step", color: "--s5" }], {
      title: "Step time",
      sub: "slowest rank",
      floor: 0,
    }),
  ];
  cards.forEach(ctx.add);
  root.replaceChildren(
    h("h1", { class: "sr" }, `Overview of ${ctx.run}`),
    box,
    h(
      "div",
      { class: "grid" },
      cards.map((c) => c.el),
    ),
  );
}

export function stepsPage(root, ctx) {
  let mode = "ms",
    who = "worst",
    ranks = [],
    places = {},
    at = null,
    share = false; // who: median, worst or a rank
  const rank = () => places[who] ?? Number(who);
  const keys = phases.map((p) => p.key),
    total = (o) => keys.reduce((s, k) => s + Math.max(0, o[k] || 0), 0);
  const over = (r, d) =>
    keys.reduce((s, k) => s + Math.max(0, (r.phases[k] || 0) - (d.breakdown.median[k] || 0)), 0);
  const newest = h(
    "button",
    { class: "chip", type: "button", hidden: true, onclick: () => see(null) },
    "newest steps",
  );
  const bars = card({
    title: "Where the step goes",
    sub: "mean of the newest steps, by rank",
    wide: true,
    every: 1000,
    tools: [
      newest,
      select(
        "show",
        [
          ["ms", "milliseconds"],
          ["share", "share of the step"],
          ["excess", "excess over the median rank"],
        ],
        mode,
        (v) => {
          mode = v;
          bars.redraw();
        },
      ),
    ],
    load: async () => {
      const d = await get(`runs/${ctx.run}/breakdown`, at === null ? {} : { at, window: 1 });
      if (at === null) meet(d);
      return d;
    },
    draw(body, d) {
      const all = d.breakdown.ranks,
        longest = Math.max(
          ...all.map((r) => (mode === "excess" ? over(r, d) : total(r.phases))),
          1e-9,
        ),
        box = h("div");
      if (!all.length) {
        body.replaceChildren(h("div", { class: "empty" }, "no step of a rank recorded yet"));
        return;
      }
      rankBars(
        box,
        all,
        (r) =>
          phases.map((p) => {
            const v =
              mode === "excess"
                ? Math.max(0, (r.phases[p.key] || 0) - (d.breakdown.median[p.key] || 0))
                : Math.max(0, r.phases[p.key] || 0);
            return {
              share: v / (mode === "share" ? total(r.phases) || 1 : longest),
              color: p.color,
              hatch: p.hatch,
              label: `${p.label}: ${ms(v)}`,
            };
          }),
        (r) =>
          mode === "excess"
            ? `+ ${ms(over(r, d))}`
            : mode === "share"
              ? `wait ${percent(r.phases.wait_ms / (total(r.phases) || 1), 0)}`
              : ms(r.step_ms),
      );
      body.replaceChildren(legend(phases), h("p"), box);
    },
    sentence(d) {
      const m = d.breakdown.median,
        top = phases
          .map((p) => [p.label, m[p.key] || 0])
          .sort((a, b) => b[1] - a[1])
          .slice(0, 3);
      return d.breakdown.ranks.length
        ? `A step takes ${ms(d.breakdown.step_ms)}; on the median rank ${top.map(([l, v]) => `${l} ${ms(v)}`).join(", ")}. ${d.breakdown.step0 === d.breakdown.step1 ? `Step ${nth(d.breakdown.step0)}` : `Steps ${nth(d.breakdown.step0)} to ${nth(d.breakdown.step1)}`}.`
        : "";
    },
    table: (d) => ({
      columns: [
        { title: "rank", num: true, cell: (r) => String(r.rank) },
        { title: "step", num: true, cell: (r) => ms(r.step_ms) },
        { title: "p50", num: true, cell: (r) => ms(r.step_p50_ms) },
        { title: "p95", num: true, cell: (r) => ms(r.step_p95_ms) },
        { title: "p99", num: true, cell: (r) => ms(r.step_p99_ms) },
        ...phases.map((p) => ({ title: p.label, num: true, cell: (r) => ms(r.phases[p.key]) })),
      ],
      rows: d.breakdown.ranks,
    }),
  });
  const place = h("span"),
    area = seriesCard(
      ctx,
      phases.map((p) => ({ ...p })),
      {
        title: "Phases over time",
        sub: report ? "stacked, one rank" : "stacked, one rank; click a step to see it above",
        wide: true,
        tall: true,
        stacked: true,
        share: () => share,
        rank: () => (ranks.length ? rank() : 0),
        onpick: report ? null : see,
        tools: [
          place,
          select(
            "show",
            [
              ["ms", "milliseconds"],
              ["share", "share of the step"],
            ],
            "ms",
            (v) => {
              share = v === "share";
              area.redraw();
            },
          ),
        ],
      },
    );
  function see(step) {
    at = step;
    newest.hidden = step === null;
    bars.setSub(step === null ? "mean of the newest steps, by rank" : `step ${nth(step)}, by rank`);
    bars.load();
  }
  // the worst rank and the median one, by busy time; whoever that is now
  function meet(d) {
    const order = d.stragglers.map((s) => s.rank),
      busy = [...d.stragglers].sort((a, b) => a.busy_p50_ms - b.busy_p50_ms),
      was = [rank(), ranks.length].join();
    if (!order.length) return;
    places = { worst: order[0], median: busy[(busy.length - 1) >> 1].rank };
    if (ranks.length !== order.length) {
      ranks = [...order].sort((a, b) => a - b);
      place.replaceChildren(
        select(
          "rank",
          [
            ["worst", "the worst"],
            ["median", "the median"],
            ...ranks.map((r) => [String(r), `rank ${r}`]),
          ],
          who,
          (v) => {
            who = v;
            turn();
          },
        ),
      );
    }
    if (was !== [rank(), ranks.length].join()) turn();
  }
  function turn() {
    area.setSub(`stacked, rank ${rank()}${report ? "" : "; click a step to see it above"}`);
    area.load();
  }
  [bars, area].forEach(ctx.add);
  root.replaceChildren(
    h("h1", { class: "sr" }, "Step breakdown"),
    h("div", { class: "grid" }, bars.el, area.el),
  );
}

// how many of the sorted values lie in each of 30 bins up to the last but a hundredth; what is above counts in the last bin
function histogram(all, top, w) {
  const n = 30,
    bins = new Array(n).fill(0),
    t = 234,
    room = 20;
  for (const v of all) bins[Math.min(n - 1, Math.floor((v / top) * n))]++;
  const most = Math.max(...bins),
    s = svg("svg", {
      class: "histogram",
      viewBox: `0 0 ${w} ${t + 22}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": "histogram of the arrival skew",
    });
  bins.forEach((v, i) =>
    s.append(
      svg(
        "rect",
        {
          x: ((i * w) / n + 1).toFixed(1),
          y: (t - (v / most) * (t - room)).toFixed(1),
          width: (w / n - 2).toFixed(1),
          height: ((v / most) * (t - room)).toFixed(1),
          rx: 2,
        },
        svg(
          "title",
          {},
          `${ms((i * top) / n)} to ${ms(((i + 1) * top) / n)}: ${v} of ${all.length}`,
        ),
      ),
    ),
  );
  s.append(svg("line", { x1: 0, x2: w, y1: t + 0.5, y2: t + 0.5 }));
  const ticks = w < 420 ? 2 : 3,
    more = all[all.length - 1] > top ? " and more" : "";
  s.append(
    svg("line", { class: "most", x1: 0, x2: w, y1: room + 0.5, y2: room + 0.5 }),
    svg("text", { x: 0, y: 13 }, `${count(most)} of ${count(all.length)} samples`),
  );
  for (let k = 0; k <= ticks; k++)
    s.append(
      svg(
        "text",
        {
          x: (k * w) / ticks,
          y: t + 17,
          "text-anchor": k === 0 ? "start" : k === ticks ? "end" : "middle",
        },
        ms((top * k) / ticks) + (k === ticks ? more : ""),
      ),
    );
  return s;
}

export function commPage(root, ctx) {
  const time = card({
    title: "Transfer by rank",
    sub: "hidden behind compute, exposed, and waiting for others",
    wide: true,
    every: 1000,
    load: () => get(`runs/${ctx.run}/comm`),
    draw(body, d) {
      const all = d.breakdown.ranks,
        hidden = (r) => Math.max(0, r.comm_busy_ms - r.phases.comm_exposed_ms),
        longest = Math.max(
          ...all.map((r) => hidden(r) + r.phases.comm_exposed_ms + r.phases.wait_ms),
          1e-9,
        ),
        box = h("div");
      rankBars(
        box,
        all,
        (r) => [
          { share: hidden(r) / longest, color: "--p5", label: `hidden ${ms(hidden(r))}` },
          {
            share: r.phases.comm_exposed_ms / longest,
            color: "--p3",
            label: `exposed ${ms(r.phases.comm_exposed_ms)}`,
          },
          {
            share: r.phases.wait_ms / longest,
            color: "--p4",
            label: `wait ${ms(r.phases.wait_ms)}`,
          },
        ],
        (r) => ms(hidden(r) + r.phases.comm_exposed_ms + r.phases.wait_ms),
      );
      body.replaceChildren(
        legend([
          { label: "hidden transfer", color: "--p5" },
          { label: "exposed transfer", color: "--p3" },
          { label: "wait", color: "--p4" },
        ]),
        h("p"),
        box,
      );
    },
    sentence: (d) =>
      `Communication costs ${percent(d.head.comm_overhead)} of the step; ${percent(d.head.overlap)} of the transfer is hidden. ${bytes(d.head.bytes_wire_per_step)} on the wire a step for ${bytes(d.head.bytes_logical_per_step)} of values.`,
    table: (d) => ({
      columns: [
        { title: "rank", num: true, cell: (r) => String(r.rank) },
        { title: "bytes of values", num: true, cell: (r) => bytes(r.bytes_logical) },
        { title: "bytes on the wire", num: true, cell: (r) => bytes(r.bytes_wire) },
        {
          title: "ratio",
          num: true,
          cell: (r) => (r.bytes_wire ? digits(r.bytes_logical / r.bytes_wire, 3) : "–"),
        },
        { title: "in flight", num: true, cell: (r) => ms(r.comm_busy_ms) },
        { title: "exposed", num: true, cell: (r) => ms(r.phases.comm_exposed_ms) },
        { title: "wait", num: true, cell: (r) => ms(r.phases.wait_ms) },
      ],
      rows: d.breakdown.ranks,
    }),
  });
  const kinds = card({
    title: "Kinds of exchange",
    sub: "a step of a rank, mean of those that took part; most time lost first",
    wide: true,
    every: 1000,
    load: () => get(`runs/${ctx.run}/comm`),
    draw(body, d) {
      const all = d.comm.rows,
        longest = Math.max(...all.map((r) => (r.busy_ms || 0) + (r.wait_ms || 0)), 1e-9);
      if (!all.length) {
        body.replaceChildren(
          h(
            "div",
            { class: "empty" },
            d.head.ranks > 1
              ? "not sampled yet: it is every few steps (train.stats_every)"
              : "one rank: nothing to exchange",
          ),
        );
        return;
      }
      const beside = (v) =>
        v === null
          ? h("span", { class: "note", title: "ran beside a larger exchange" }, "beside")
          : ms(v);
      body.replaceChildren(
        table(
          [
            { title: "operation", cell: (r) => h("code", {}, r.op) },
            { title: "axis", cell: (r) => r.axis },
            { title: "ranks", num: true, cell: (r) => count(r.ranks) },
            { title: "calls", num: true, cell: (r) => digits(r.calls, 3) },
            { title: "values", num: true, cell: (r) => bytes(r.bytes_logical) },
            { title: "on the wire", num: true, cell: (r) => bytes(r.bytes_wire) },
            {
              title: "hidden, exposed, wait",
              cell: (r) =>
                bar(
                  [
                    {
                      share: Math.max(0, r.busy_ms - r.exposed_ms) / longest,
                      color: "--p5",
                      label: `hidden ${ms(r.busy_ms - r.exposed_ms)}`,
                    },
                    {
                      share: (r.exposed_ms || 0) / longest,
                      color: "--p3",
                      label: `exposed ${ms(r.exposed_ms)}`,
                    },
                    {
                      share: (r.wait_ms || 0) / longest,
                      color: "--p4",
                      label: `wait ${ms(r.wait_ms)}`,
                    },
                  ],
                  `${r.op} along ${r.axis}: in flight ${ms(r.busy_ms)}, wait ${ms(r.wait_ms)}`,
                ),
            },
            { title: "in flight", num: true, cell: (r) => beside(r.busy_ms) },
            { title: "exposed", num: true, cell: (r) => beside(r.exposed_ms) },
            { title: "wait", num: true, cell: (r) => beside(r.wait_ms) },
            { title: "overlap", num: true, cell: (r) => percent(r.overlap, 0) },
            {
              title: "of the link",
              num: true,
              help: "time these bytes take on the idle link, as measured before the first step, over their time in flight",
              cell: (r) => percent(r.model_frac ?? null, 0),
            },
            {
              title: "bandwidth",
              num: true,
              help: "bytes a rank sends a second in flight",
              cell: (r) => (r.rate_bytes_per_s === null ? "–" : `${bytes(r.rate_bytes_per_s)}/s`),
            },
            {
              title: "lost most",
              num: true,
              cell: (r) =>
                r.lost_max_rank === null ? "–" : `${ms(r.lost_max_ms)}, rank ${r.lost_max_rank}`,
            },
          ],
          all,
          "kinds of exchange",
        ),
      );
    },
    sentence(d) {
      const r = d.comm.rows[0];
      const links = (d.comm.links || [])
        .map((l) => `${l.axis} ${digits(l.latency_us, 2)} µs and ${bytes(l.bytes_per_s)}/s`)
        .join(", ");
      return r
        ? `Most time is lost in ${r.op.replaceAll("_", "-")} along ${r.axis}: ${ms((r.exposed_ms || 0) + (r.wait_ms || 0))} a step. Steps ${nth(d.comm.step0)} to ${nth(d.comm.step1)}.${d.comm.rows.some((o) => o.busy_ms === null) ? " “Beside”: ran beside a larger exchange and shares its time." : ""}${links ? ` The links when nothing else runs: ${links}.` : ""}`
        : "";
    },
  });
  // what each rank received straight from each other one; a square, as far as it is known
  let what = "bytes",
    map = null;
  const told = (v) => (v === null ? "–" : what === "bytes" ? bytes(v) : ms(v));
  const matrix = card({
    title: "Who gets from whom",
    sub: "a step; the rank of the row from that of the column",
    every: 1000,
    tools: [
      select(
        "value",
        [
          ["bytes", "bytes"],
          ["flight_ms", "time of a message"],
        ],
        what,
        (v) => {
          what = v;
          matrix.redraw();
        },
      ),
    ],
    load: () => get(`runs/${ctx.run}/comm`),
    draw(body, d) {
      const p = d.comm.pairs,
        all = (p && p.rows) || [];
      if (!all.length) {
        if (map) map.close();
        map = null;
        body.replaceChildren(
          h(
            "div",
            { class: "empty" },
            d.head.ranks > 1
              ? "not known: these ranks exchange through MPI's own collectives, are more than 32, or have not been sampled yet"
              : "one rank: nothing to exchange",
          ),
        );
        return;
      }
      const names = Array.from({ length: p.ranks }, (v, i) => i),
        cell = names.map(() => names.map(() => null));
      for (const r of all) cell[r.rank][r.peer] = r[what];
      if (!map) map = new HeatMap(body, "matrix of ranks");
      map.set({
        rows: names.map((r) => `rank ${r}`),
        cols: names.map(String),
        cell,
        show: told,
        axis: "from",
        lo: 0,
        most: 64,
      });
    },
    sentence(d) {
      const p = d.comm.pairs,
        top = [...((p && p.rows) || [])]
          .filter((r) => r[what] !== null)
          .sort((a, b) => b[what] - a[what])[0];
      return top
        ? `${what === "bytes" ? `Most goes from rank ${top.peer} to rank ${top.rank}: ${bytes(top.bytes)} a step` : `Messages from rank ${top.peer} to rank ${top.rank} take longest: ${ms(top.flight_ms)}`}. Steps ${nth(p.step0)} to ${nth(p.step1)}.`
        : "";
    },
    table: (d) => ({
      columns: [
        { title: "rank", num: true, cell: (r) => String(r.rank) },
        { title: "from rank", num: true, cell: (r) => String(r.peer) },
        { title: "messages", num: true, cell: (r) => digits(r.messages, 3) },
        { title: "bytes", num: true, cell: (r) => bytes(r.bytes) },
        { title: "time of a message", num: true, cell: (r) => ms(r.flight_ms) },
      ],
      rows: (d.comm.pairs && d.comm.pairs.rows) || [],
    }),
    keys: (e) => map && map.key(e),
    close: () => map && map.close(),
  });
  // between the first rank's arrival and the last one's: what the rank that came first waited, in each of the newest steps
  const late = (d) =>
      d.heatmap.step
        .map((s, i) => Math.max(...d.heatmap.cells.map((c) => c[i] ?? -1)))
        .filter((v) => v >= 0)
        .sort((a, b) => a - b),
    at = (v, q) => v[Math.min(v.length - 1, Math.floor(v.length * q))];
  const skew = card({
    title: "Arrival skew",
    sub: "wait of the rank that came first, by step",
    every: 1000,
    load: () =>
      get(`runs/${ctx.run}/heatmap`, {
        value: "wait",
        cols: 480,
        ...(report
          ? {}
          : state.zoom
            ? range()
            : {
                x0: Math.max(0, (ctx.head ? ctx.head.newest_step : 0) - 479),
                x1: ctx.head ? ctx.head.newest_step : 0,
              }),
      }),
    draw(body, d) {
      const all = late(d),
        top = at(all, 0.99) || 0;
      body.replaceChildren(
        all.length < 2 || top <= 0
          ? h(
              "div",
              { class: "empty" },
              d.heatmap.rows > 1 ? "nobody waited" : "one rank: nobody to wait for",
            )
          : histogram(all, top, body.clientWidth || 500),
      );
    },
    sentence(d) {
      const all = late(d);
      return all.length
        ? `Half of the ${count(all.length)} newest samples below ${ms(at(all, 0.5))}, 95 % below ${ms(at(all, 0.95))}, at most ${ms(all[all.length - 1])}.`
        : "";
    },
    table: (d) => ({
      columns: [
        { title: "from step", num: true, cell: (i) => nth(d.heatmap.step[i]) },
        {
          title: "skew",
          num: true,
          cell: (i) => ms(Math.max(...d.heatmap.cells.map((c) => c[i] ?? 0))),
        },
      ],
      rows: d.heatmap.step.map((s, i) => i).reverse(),
    }),
  });
  const cards = [
    time,
    kinds,
    skew,
    matrix,
    seriesCard(
      ctx,
      [
        { key: "bytes_logical", label: "values", color: "--s0" },
        { key: "bytes_wire", label: "on the wire", color: "--s1" },
      ],
      { title: "Bytes a step", sub: "before and after compression", floor: 0 },
    ),
    seriesCard(
      ctx,
      [
        { key: "comm_overhead", label: "overhead", color: "--s5" },
        { key: "overlap", label: "overlap", color: "--s2" },
      ],
      {
        title: "Overhead and overlap",
        sub: "share of the step lost; share of the transfer hidden",
        floor: 0,
      },
    ),
  ];
  cards.forEach(ctx.add);
  root.replaceChildren(
    h("h1", { class: "sr" }, "Communication"),
    h(
      "div",
      { class: "grid" },
      cards.map((c) => c.el),
    ),
  );
}
