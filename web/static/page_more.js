// page_more.js - what the ternary weights do; what happened, and where the time went.
import { get } from "./api.js";
import { card } from "./card.js";
import { HeatMap } from "./heat.js";
import { h, svg, bar, legend, select, spark, table } from "./dom.js";
import { bytes, count, date, digits, nth, percent, seconds } from "./format.js";

const codes = [
  ["neg_frac", "−1", "--neg"],
  ["zero_frac", "0", "--zero"],
  ["pos_frac", "+1", "--pos"],
].map(([key, label, color]) => ({ key, label, color }));

// statistics that a run may have beside the codes themselves
const unrest = [
  ["sign_flip_frac", "sign flips", "codes that went from −1 to +1 or back since the sample before"],
  ["oscillation_frac", "taken back", "codes that are again what they were two samples ago"],
  [
    "boundary_frac",
    "near threshold",
    "latent weights within 0.05 scale of a rounding threshold: 5.9 % if Gaussian",
  ],
];

const over = [
  ["flip_history", "share flipped"],
  ["zero_history", "share of zeros"],
  ["oscillation_history", "taken back"],
  ["boundary_history", "near threshold"],
  ["grad_norm_history", "gradient norm"],
  ["update_history", "update over weights"],
];

export function ternaryPage(root, ctx) {
  let map = null,
    what = "flip_history",
    picks = null,
    from = null,
    ternary = null;
  const load = async () => {
      const d = await get(`runs/${ctx.run}/layers`);
      if (d !== from) {
        from = d;
        ternary = {
          layers: { ...d.layers, rows: d.layers.rows.filter((r) => r.zero_frac !== null) },
        };
      }
      return ternary;
    },
    name = (r) => (r.layer < 0 ? r.tensor : `${r.layer} ${r.tensor}`),
    none = (body) =>
      body.replaceChildren(
        h(
          "div",
          { class: "empty" },
          "no ternary statistics recorded yet: they are sampled every few steps",
        ),
      );
  const list = card({
    title: "Codes of each tensor",
    sub: "31.0 % zeros if latents are Gaussian, 39.3 % if Laplace",
    wide: true,
    every: 1000,
    load,
    draw(body, d) {
      if (!d.layers.rows.length) {
        none(body);
        return;
      }
      const percentCell = (k) => ({
        title: codes.find((c) => c.key === k).label,
        num: true,
        cell: (r) => percent(r[k]),
      });
      body.replaceChildren(
        legend(codes),
        table(
          [
            { title: "tensor", cell: name },
            {
              title: "−1, 0, +1",
              cell: (r) =>
                bar(
                  codes.map((c) => ({
                    share: r[c.key],
                    color: c.color,
                    label: `${c.label}: ${percent(r[c.key])}`,
                  })),
                  `${name(r)}: ${percent(r.zero_frac)} zero`,
                ),
            },
            percentCell("zero_frac"),
            percentCell("pos_frac"),
            percentCell("neg_frac"),
            {
              title: "flipped",
              num: true,
              help: "codes that differ from the sample before",
              cell: (r) => percent(r.flip_frac, 2),
            },
            {
              title: "flips over time",
              cell: (r) =>
                spark(
                  r.flip_history.filter((v) => v !== null),
                  `flip rate of ${name(r)}`,
                ),
            },
            {
              title: "zeros over time",
              help: "the line is 31.0 %: Gaussian latents",
              cell: (r) =>
                spark(
                  r.zero_history.filter((v) => v !== null),
                  `share of zeros of ${name(r)}`,
                  0.31,
                ),
            },
            ...unrest
              .filter(([k]) => d.layers.rows.some((r) => typeof r[k] === "number"))
              .map(([k, title, help]) => ({
                title,
                help,
                num: true,
                cell: (r) => percent(r[k], 2),
              })),
            {
              title: "bits",
              num: true,
              help: "entropy of the codes; 1.58 at most",
              cell: (r) => digits(r.entropy_bits, 3),
            },
            { title: "scale", num: true, cell: (r) => digits(r.scale, 3) },
            { title: "gradient", num: true, help: "L2 norm", cell: (r) => digits(r.grad_norm, 3) },
            ...(d.layers.rows.some((r) => typeof r.update_ratio === "number")
              ? [
                  {
                    title: "update",
                    num: true,
                    help: "L2 norm of the step's update over that of the weights: about 1e-3 is usual",
                    cell: (r) => digits(r.update_ratio, 3),
                  },
                ]
              : []),
          ],
          d.layers.rows,
          "codes of each tensor",
        ),
      );
    },
    sentence(d) {
      const r = d.layers.rows,
        mean = (k) => r.reduce((s, x) => s + (x[k] || 0), 0) / r.length;
      return r.length
        ? `${r.length} ternary tensors at step ${nth(d.layers.step)}: ${percent(mean("zero_frac"))} zeros, ${percent(mean("flip_frac"), 2)} flipped since the last sample, ${digits(mean("entropy_bits"), 3)} bits a weight, on average.`
        : "";
    },
  });
  const filled = (d, key) =>
      d.layers.sampled
        .map((s, i) => i)
        .filter((i) => d.layers.rows.some((r) => r[key] && r[key][i] !== null)),
    show = (v) => (/^(grad|update)/.test(what) ? digits(v, 3) : percent(v, 2));
  const heat = card({
    title: "Tensor by time",
    wide: true,
    every: 1000,
    tools: [h("span")],
    load,
    draw(body, d) {
      const rows = d.layers.rows;
      if (!rows.length) {
        none(body);
        return;
      }
      const known = over.filter(([k]) => filled(d, k).length);
      if (!known.some(([k]) => k === what)) what = known[0][0];
      if (picks !== String(known)) {
        picks = String(known);
        heat.el.querySelector(".tools").replaceChildren(
          select("value", known, what, (v) => {
            what = v;
            heat.redraw();
          }),
        );
      }
      const at = filled(d, what);
      if (!map) map = new HeatMap(body, "heat map of tensors over time");
      map.set({
        rows: rows.map(name),
        cols: at.map((i) => nth(d.layers.sampled[i])),
        steps: at.map((i) => d.layers.sampled[i]),
        cell: rows.map((r) => at.map((i) => r[what][i])),
        show,
        axis: "step",
      });
    },
    sentence(d) {
      const at = filled(d, what),
        n = at.length,
        mean = (i) =>
          d.layers.rows.reduce((s, r) => s + (r[what][i] || 0), 0) / d.layers.rows.length;
      return n === 1
        ? `One sample, at step ${nth(d.layers.sampled[at[0]])}: ${show(mean(at[0]))} on average.`
        : n
          ? `${n} samples from step ${nth(d.layers.sampled[at[0]])} to ${nth(d.layers.sampled[at[n - 1]])}; on average ${show(mean(at[0]))} in the first and ${show(mean(at[n - 1]))} in the newest.`
          : "";
    },
    table: (d) => ({
      columns: [
        { title: "tensor", cell: name },
        ...filled(d, what).map((i) => ({
          title: `step ${nth(d.layers.sampled[i])}`,
          num: true,
          cell: (r) => show(r[what][i]),
        })),
      ],
      rows: d.layers.rows,
    }),
    keys: (e) => map && map.key(e),
    close: () => map && map.close(),
  });
  [heat, list].forEach(ctx.add);
  root.replaceChildren(
    h("h1", { class: "sr" }, "Ternary weights"),
    h("div", { class: "grid" }, heat.el, list.el),
  );
}

function lanes(d, info, width) {
  const kinds = [...new Set(d.events.rows.map((e) => e.kind))],
    left = 110,
    end = Math.max(d.head.elapsed_s || 0, ...d.events.rows.map((e) => e.time_s || 0), 1),
    x = (t) => left + (t / end) * (width - left - 12),
    all = info.attempts.length ? ["attempts", ...kinds] : kinds;
  const s = svg("svg", {
    class: "lanes",
    viewBox: `0 0 ${width} ${all.length * 26 + 20}`,
    role: "img",
    "aria-label": "timeline of events by kind",
  });
  all.forEach((kind, i) => {
    const y = i * 26 + 14;
    s.append(
      svg("text", { x: 0, y: y + 4 }, kind.slice(0, 15)),
      svg("line", { x1: left, x2: width - 12, y1: y, y2: y }),
    );
    if (kind === "attempts")
      for (const a of info.attempts) {
        const from = a.started_s - d.head.started_s,
          to = (a.ended_s ?? d.head.started_s + end) - d.head.started_s;
        s.append(
          svg(
            "rect",
            {
              class: "span",
              x: x(from),
              y: y - 7,
              width: Math.max(2, x(to) - x(from)),
              height: 14,
              rx: 3,
            },
            svg("title", {}, `attempt ${a.attempt} from step ${nth(a.from_step)}`),
          ),
        );
        for (const r of info.redone)
          if (r.attempt === a.attempt && r.from_s !== null)
            s.append(
              svg(
                "rect",
                {
                  class: "lost",
                  x: x(r.from_s),
                  y: y - 7,
                  width: Math.max(2, x(to) - x(r.from_s)),
                  height: 14,
                  rx: 3,
                },
                svg("title", {}, `steps ${nth(r.from_step)} to ${nth(r.to_step)} were done again`),
              ),
            );
      }
    for (const e of d.events.rows)
      if (e.kind === kind)
        s.append(
          svg(
            "circle",
            { class: e.level, cx: x(e.time_s), cy: y, r: 5 },
            svg("title", {}, `${seconds(e.time_s)}: ${e.title}`),
          ),
        );
  });
  const bottom = all.length * 26 + 12;
  const ticks = width < 600 ? 2 : 4;
  for (let k = 0; k <= ticks; k++)
    s.append(
      svg(
        "text",
        {
          x: x((end * k) / ticks),
          y: bottom,
          "text-anchor": k === 0 ? "start" : k === ticks ? "end" : "middle",
        },
        k ? seconds((end * k) / ticks) : "0 s",
      ),
    );
  return s;
}

// how often it failed, and how long until it went on
function recovery(d) {
  const gaps = d.info.attempts
      .slice(1)
      .map((a, i) => a.started_s - (d.info.attempts[i].ended_s ?? a.started_s)),
    n = gaps.length;
  return n
    ? ` One restart every ${seconds(d.head.elapsed_s / n)}; going on took ${seconds(gaps.reduce((a, b) => a + b, 0) / n)} on average.`
    : "";
}

export function eventsPage(root, ctx) {
  let level = "all";
  const load = async () => {
    const [d, info] = await Promise.all([
      get(`runs/${ctx.run}/events`, { limit: 1000 }),
      get(`runs/${ctx.run}`),
    ]);
    return { ...d, info };
  };
  const good = card({
    title: "Goodput",
    sub: "where the time since the first launch went",
    wide: true,
    every: 1000,
    load,
    draw(body, d) {
      const t = d.head,
        parts = [
          ["productive_s", "productive", "--p5"],
          ["redone_s", "done again", "--p0"],
          ["down_s", "down", "--bad"],
          ["other_s", "start, stalls and pauses", "--p6"],
        ].map(([k, label, color]) => ({
          label: `${label} ${seconds(t[k])} (${percent(t[k] / t.elapsed_s)})`,
          color,
          share: (t[k] || 0) / (t.elapsed_s || 1),
        })),
        b = bar(parts, "parts of the elapsed time");
      b.classList.add("big");
      body.replaceChildren(b, h("p"), legend(parts));
    },
    sentence: (d) =>
      `Goodput ${percent(d.head.goodput)}: ${seconds(d.head.productive_s)} of first-time productive steps in ${seconds(d.head.elapsed_s)}, over ${d.head.attempts} attempt${d.head.attempts === 1 ? "" : "s"}; ${seconds(d.head.checkpoint_s)} spent writing checkpoints.${recovery(d)}`,
    table: (d) => ({
      columns: [
        { title: "part", cell: (r) => r[0] },
        { title: "time", num: true, cell: (r) => seconds(r[1]) },
        { title: "share", num: true, cell: (r) => percent(r[1] / d.head.elapsed_s) },
      ],
      rows: [
        ["productive", d.head.productive_s],
        ["done again", d.head.redone_s],
        ["down", d.head.down_s],
        ["start, stalls and pauses", d.head.other_s],
        ["of all this, writing checkpoints", d.head.checkpoint_s],
      ],
    }),
  });
  const line = card({
    title: "Timeline",
    wide: true,
    every: 1000,
    load,
    draw: (body, d) =>
      body.replaceChildren(
        d.events.rows.length
          ? lanes(d, d.info, body.clientWidth || 900)
          : h("div", { class: "empty" }, "nothing happened yet"),
      ),
    sentence: (d) =>
      `${d.events.total} event${d.events.total === 1 ? "" : "s"}, ${d.head.warnings} warning${d.head.warnings === 1 ? "" : "s"}, ${d.head.errors} error${d.head.errors === 1 ? "" : "s"}.${d.info.redone.length ? " Orange: steps that a restart did again." : ""}`,
    table: (d) => ({
      columns: [
        { title: "time", num: true, cell: (e) => seconds(e.time_s) },
        { title: "kind", cell: (e) => e.kind },
        { title: "level", cell: (e) => e.level },
        { title: "what", cell: (e) => e.title },
      ],
      rows: [
        ...d.info.attempts.map((a) => ({
          time_s: a.started_s - d.head.started_s,
          kind: "attempts",
          level: "info",
          title: `attempt ${a.attempt} from step ${nth(a.from_step)}`,
        })),
        ...d.events.rows,
      ].sort((a, b) => a.time_s - b.time_s),
    }),
  });
  const list = card({
    title: "Events",
    wide: true,
    every: 1000,
    tools: [
      select(
        "level",
        [
          ["all", "all"],
          ["warning", "warnings and errors"],
          ["error", "errors"],
        ],
        level,
        (v) => {
          level = v;
          list.redraw();
        },
      ),
    ],
    load,
    draw(body, d) {
      const rows = d.events.rows
          .filter((e) => level === "all" || e.level === "error" || e.level === level)
          .reverse(),
        wrap = h(
          "div",
          { class: "tall-scroll" },
          table(
            [
              { title: "time", num: true, cell: (e) => seconds(e.time_s) },
              { title: "step", num: true, cell: (e) => nth(e.step) },
              ...(rows.some((e) => e.rank !== null)
                ? [
                    {
                      title: "rank",
                      num: true,
                      cell: (e) => (e.rank === null ? "–" : String(e.rank)),
                    },
                  ]
                : []),
              { title: "kind", cell: (e) => h("span", { class: `level-${e.level}` }, e.kind) },
              { title: "what", wrap: true, cell: (e) => e.title },
            ],
            rows,
            "events, newest first",
          ),
        );
      body.replaceChildren(
        rows.length ? wrap : h("div", { class: "empty" }, "no events of this level"),
      );
    },
    sentence: (d) =>
      d.events.rows.length < d.events.total
        ? `The newest ${d.events.rows.length} of ${d.events.total}.`
        : "",
  });
  const attempts = card({
    title: "Attempts",
    wide: true,
    every: 1000,
    load,
    draw: (body, d) =>
      body.replaceChildren(
        table(
          [
            { title: "attempt", num: true, cell: (a) => String(a.attempt) },
            { title: "from step", num: true, cell: (a) => nth(a.from_step) },
            { title: "started (UTC)", cell: (a) => date(a.started_s, true) },
            { title: "ranks", num: true, cell: (a) => String(a.world_size) },
            { title: "why", cell: (a) => a.reason || "–" },
            { title: "end", cell: (a) => a.exit_kind || "–" },
          ],
          d.info.attempts,
          "attempts",
        ),
      ),
  });
  const kept = card({
    title: "Checkpoints",
    sub: "the newest hundred",
    wide: true,
    every: 1000,
    load,
    draw: (body, d) =>
      body.replaceChildren(
        d.info.checkpoints.length
          ? h(
              "div",
              { class: "tall-scroll" },
              table(
                [
                  { title: "after step", num: true, cell: (c) => count(c.step) },
                  { title: "size", num: true, cell: (c) => bytes(c.bytes) },
                  { title: "took", num: true, cell: (c) => seconds(c.took_ms / 1000) },
                  {
                    title: "at (UTC)",
                    cell: (c) =>
                      date(
                        d.head.started_s +
                          (c.time_s > 1e9 ? c.time_s - d.head.started_s : c.time_s),
                        true,
                      ),
                  },
                  { title: "file", cell: (c) => h("span", { class: "note" }, c.path || "–") },
                ],
                d.info.checkpoints,
                "checkpoints",
              ),
            )
          : h("div", { class: "empty" }, "none written yet"),
      ),
  });
  [good, line, list, attempts, kept].forEach(ctx.add);
  root.replaceChildren(
    h("h1", { class: "sr" }, "Events and goodput"),
    h("div", { class: "grid" }, good.el, line.el, attempts.el, list.el, kept.el),
  );
}
