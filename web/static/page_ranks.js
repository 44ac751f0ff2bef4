// page_ranks.js - who is slow, since when, because of what, what it costs; and what each rank runs on.
import { get } from "./api.js";
import { card } from "./card.js";
import { HeatMap } from "./heat.js";
import { bar, h, select, table } from "./dom.js";
import { digits, fact, mib, ms, nth, percent, seconds, si } from "./format.js";
import { seriesCard, range } from "./parts.js";
import { state } from "./state.js";

const values = [
  ["busy", "busy, against the median"],
  ["step", "step time"],
  ["wait", "wait"],
  ["data", "data"],
  ["comm", "communication"],
  ["memory", "memory"],
];

export function ranksPage(root, ctx) {
  let value = "busy",
    order = "rank",
    map = null,
    worst = [],
    hosts = new Map(),
    scores = new Map(),
    pinned = null;
  const ranksOf = (d) => {
    const all = d.heatmap.cells.map((c, i) => i);
    if (order === "host")
      return all.sort((a, b) => (hosts.get(a) || "").localeCompare(hosts.get(b) || "") || a - b);
    if (order === "score")
      return all.sort((a, b) => (scores.get(a) ?? 9) - (scores.get(b) ?? 9) || a - b);
    return order === "rank" || !worst.length ? all : worst.filter((r) => r < all.length);
  };
  const means = (d) =>
    d.heatmap.cells.map((c) => {
      const k = c.filter((v) => v !== null);
      return k.reduce((a, b) => a + b, 0) / (k.length || 1);
    });
  const show = (v) =>
    v === null ? "–" : value === "busy" ? `${digits(v, 3)}×` : value === "memory" ? mib(v) : ms(v);
  const heat = card({
    title: "Rank by time",
    wide: true,
    every: 1000,
    sub: "click a row to follow that rank below",
    tools: [
      select("value", values, value, (v) => {
        value = v;
        heat.load();
      }),
      select(
        "order",
        [
          ["rank", "by rank"],
          ["blame", "by blame"],
          ["score", "by score"],
          ["host", "by host"],
        ],
        order,
        (v) => {
          order = v;
          heat.redraw();
        },
      ),
    ],
    load: (width) =>
      get(`runs/${ctx.run}/heatmap`, {
        value,
        cols: Math.max(20, Math.min(240, Math.round((width - 64) / 6))),
        ...range(),
      }),
    draw(body, d) {
      if (!map) {
        map = new HeatMap(body, "heat map of ranks over time");
        map.onpick = (row) => pin(ranksOf(map.source)[row]);
      }
      map.source = d;
      map.set({
        rows: ranksOf(d).map((r) =>
          order === "host" && hosts.get(r) ? `${r} ${hosts.get(r)}` : `rank ${r}`,
        ),
        cols: d.heatmap.step.map(nth),
        steps: d.heatmap.step,
        cell: ranksOf(d).map((r) => d.heatmap.cells[r]),
        show,
        axis: "step",
        least: Math.max(...means(d)),
      });
    },
    sentence(d) {
      const mean = means(d),
        end = state.zoom
          ? state.zoom.x1
          : ctx.head
            ? ctx.head.newest_step
            : d.heatmap.step[d.heatmap.step.length - 1],
        top = mean.indexOf(Math.max(...mean));
      return mean.length
        ? `${d.heatmap.rows} ranks, steps ${nth(d.heatmap.step[0])} to ${nth(end)}; highest on average: rank ${top} with ${show(mean[top])}.`
        : "";
    },
    table: (d) => ({
      columns: [
        { title: "from step", num: true, cell: (i) => nth(d.heatmap.step[i]) },
        ...d.heatmap.cells
          .slice(0, 32)
          .map((c, r) => ({ title: `rank ${r}`, num: true, cell: (i) => show(c[i]) })),
      ],
      rows: d.heatmap.step.map((s, i) => i).reverse(),
    }),
    keys: (e) => map && map.key(e),
    close: () => map && map.close(),
  });
  let k = 1;
  const said = h("p", { class: "says" }),
    what = h("p", { class: "note" }),
    slider = h("input", {
      type: "range",
      min: "1",
      max: "1",
      value: "1",
      "aria-label": "how many of the slowest ranks to bring to the median",
      oninput: () => {
        k = Number(slider.value);
        list.redraw();
      },
    });
  const list = card({
    title: "Ranking",
    sub: "by busy time: the slow rank waits least",
    wide: true,
    every: 1000,
    load: async () => {
      const d = await get(`runs/${ctx.run}/stragglers`);
      worst = d.stragglers.map((s) => s.rank);
      hosts = new Map(d.stragglers.map((s) => [s.rank, s.host]));
      scores = new Map(d.stragglers.map((s) => [s.rank, s.score]));
      if (pinned === null && worst.length) pin(worst[0]);
      return d;
    },
    draw(body, d) {
      const s = d.stragglers,
        w = d.what_if_worst || [];
      slider.max = String(Math.max(1, w.length));
      slider.disabled = w.length < 2;
      const at = w[Math.min(k, w.length) - 1],
        base = d.breakdown.step_ms,
        saved = at !== undefined && at !== null ? base - at : null;
      said.textContent =
        (s[0] && s[0].says) ||
        (s.length > 1
          ? "No rank stands out."
          : s.length
            ? "One rank: nobody to wait for."
            : "No steps of ranks recorded yet.");
      what.textContent =
        saved === null
          ? ""
          : `With the slowest ${k === 1 ? "rank" : `${k} ranks`} at the median: ${ms(base)} → ${ms(at)} a step, ${percent(saved / base)} less${d.head.tokens_per_s && at > 0 ? `, ${si(d.head.tokens_per_s * (base / at - 1) * 86400)} tokens a day more` : ""}.`;
      const fixed = (v) => (v === null ? "–" : v.toFixed(3));
      body.replaceChildren(
        said,
        h(
          "div",
          { class: "tools bar-tools" },
          w.length > 1 ? h("label", { class: "pick" }, "what if", slider) : null,
          what,
        ),
        h(
          "div",
          { class: "tall-scroll" },
          table(
            [
              {
                title: "rank",
                num: true,
                cell: (r) =>
                  h(
                    "a",
                    {
                      href: location.hash,
                      onclick: (e) => {
                        e.preventDefault();
                        pin(r.rank);
                      },
                    },
                    String(r.rank),
                  ),
              },
              { title: "host", cell: (r) => r.host || "–" },
              {
                title: "verdict",
                cell: (r) => h("span", { class: `tag ${r.verdict}` }, r.verdict),
              },
              { title: "busy p50", num: true, cell: (r) => ms(r.busy_p50_ms) },
              { title: "excess", num: true, cell: (r) => ms(r.excess_ms) },
              { title: "wait p50", num: true, cell: (r) => ms(r.wait_p50_ms) },
              {
                title: "late p95",
                num: true,
                help: "arrival after the first rank's, 95 % of the steps below",
                cell: (r) => ms(r.late_p95_ms),
              },
              {
                title: "score",
                num: true,
                help: "best rank's busy time over this rank's",
                cell: (r) => fixed(r.score),
              },
              {
                title: "own score",
                num: true,
                help: "own best block over own last block",
                cell: (r) => fixed(r.score_own),
              },
              { title: "blame", num: true, cell: (r) => percent(r.blame, 0) },
              {
                title: "share of the time lost",
                cell: (r) =>
                  bar(
                    [{ share: r.blame, color: "--p4", label: percent(r.blame, 0) }],
                    `rank ${r.rank} cost the others ${seconds(r.lost_s)}`,
                  ),
              },
              { title: "cost others", num: true, cell: (r) => seconds(r.lost_s) },
              {
                title: "phase at fault",
                cell: (r) =>
                  r.phase
                    ? `${r.phase}${r.phase_frac !== null ? `, ${percent(r.phase_frac, 0)}` : ""}`
                    : "–",
              },
              { title: "since step", num: true, cell: (r) => nth(r.since_step) },
            ],
            s,
            "ranks, worst first",
          ),
        ),
      );
    },
    sentence: (d) =>
      d.breakdown.steps
        ? `Steps ${nth(d.breakdown.step0)} to ${nth(d.breakdown.step1)}, ${d.breakdown.steps} sampled.`
        : "",
  });
  const one = seriesCard(
    ctx,
    [
      { key: "step_ms", label: "step", color: "--s0" },
      { key: "wait_ms", label: "wait", color: "--p4" },
      { key: "data_ms", label: "data", color: "--p0" },
    ],
    { title: "One rank", sub: "", wide: true, rank: () => pinned ?? 0, floor: 0 },
  );
  function pin(r) {
    pinned = r;
    one.setSub(`rank ${r}`);
    one.load();
  }
  [heat, list, one].forEach(ctx.add);
  root.replaceChildren(
    h("h1", { class: "sr" }, "Ranks"),
    h("div", { class: "grid" }, list.el, heat.el, one.el),
  );
}

export function systemPage(root, ctx) {
  const text = (v) =>
    v === null || v === undefined ? "–" : typeof v === "object" ? JSON.stringify(v) : String(v);
  const ranks = card({
    title: "Ranks and their machines",
    wide: true,
    every: 1000,
    load: () => get(`runs/${ctx.run}/stragglers`),
    draw: (body, d) =>
      body.replaceChildren(
        table(
          [
            { title: "rank", num: true, cell: (r) => String(r.rank) },
            { title: "host", cell: (r) => r.host || "–" },
            { title: "pid", num: true, cell: (r) => String(r.pid) },
            { title: "instructions", cell: (r) => r.isa || "–" },
            { title: "threads", num: true, cell: (r) => String(r.threads) },
            { title: "memory", num: true, cell: (r) => mib(r.rss_mib) },
            { title: "peak", num: true, cell: (r) => mib(r.rss_peak_mib) },
            {
              title: "processor",
              num: true,
              help: "processor time over step time and threads",
              cell: (r) => percent(r.cpu_frac, 0),
            },
            {
              title: "place (pp, dp, shard, tp)",
              cell: (r) => [r.pp, r.dp_replicate, r.dp_shard, r.tp].join(", "),
            },
          ],
          d.system,
          "ranks and their machines",
        ),
      ),
  });
  const memory = seriesCard(
    ctx,
    [{ key: "rss_mib", label: "largest rank", color: "--s4", smooth: false }],
    { title: "Memory", sub: "resident, largest rank", floor: 0 },
  );
  const speed = seriesCard(ctx, [{ key: "mfu", label: "MFU", color: "--s7" }], {
    title: "Model FLOP/s utilisation",
    sub: "of the measured peak",
    floor: 0,
  });
  const settings = (config) =>
    Object.entries(config || {}).map(([key, v]) =>
      v !== null && typeof v === "object" && "value" in v
        ? [key, v.value, v.where || v.origin]
        : [key, v, ""],
    );
  const facts = card({
    title: "Settings and facts",
    wide: true,
    every: 30000,
    load: () => get(`runs/${ctx.run}`),
    draw: (body, d) =>
      body.replaceChildren(
        h("p", {}, h("code", {}, d.command || "")),
        h(
          "div",
          { class: "grid tall-scroll" },
          h(
            "div",
            {},
            table(
              [
                { title: "setting", cell: (r) => h("code", {}, r[0]) },
                { title: "value", cell: (r) => text(r[1]) },
                { title: "from", cell: (r) => h("span", { class: "note" }, r[2] || "") },
              ],
              settings(d.config),
              "settings",
            ),
          ),
          h(
            "div",
            {},
            table(
              [
                { title: "fact", cell: (r) => h("code", {}, r.key) },
                { title: "value", cell: (r) => text(fact(r.key, r.value)) },
              ],
              d.facts || [],
              "facts",
            ),
          ),
        ),
      ),
    sentence: (d) => {
      const n = settings(d.config).filter(
        (r) => !/^(default|auto|preset|$)/.test(r[2] || ""),
      ).length;
      return `${n} setting${n === 1 ? " was" : "s were"} chosen, the others are defaults or follow from them.`;
    },
  });
  [ranks, memory, speed, facts].forEach(ctx.add);
  root.replaceChildren(
    h("h1", { class: "sr" }, "System"),
    h("div", { class: "grid" }, ranks.el, memory.el, speed.el, facts.el),
  );
}
