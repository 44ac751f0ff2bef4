// page_compare.js - several runs on one axis, where they stand at equal tokens, what was set differently.
import { get, series } from "./api.js";
import { card } from "./card.js";
import { Chart } from "./chart.js";
import { h, select, table } from "./dom.js";
import { digits, fact, nth, si, unit, axisTitle, onAxis } from "./format.js";
import { places } from "./parts.js";
import { state } from "./state.js";

// settings by name; each is kept as {value, origin, where}, of which only the value makes a difference
function flat(value, prefix, out) {
  if (value !== null && typeof value === "object" && "value" in value && "origin" in value)
    return flat(value.value, prefix, out);
  if (value !== null && typeof value === "object" && !Array.isArray(value))
    for (const [k, v] of Object.entries(value)) flat(v, prefix ? `${prefix}.${k}` : k, out);
  else out[prefix] = typeof value === "string" ? value : JSON.stringify(value);
  return out;
}

export function comparePage(root, ctx, runs) {
  let chart = null,
    metric = "loss",
    happened = null,
    facts = [],
    whole = null,
    part = null,
    asked = ""; // part: the piece of the axis looked at
  const below = h("div", { class: "grid" });
  const said = (d, v) => unit(d.runs.map((r) => r.series[0]).find(Boolean)?.unit, v);
  const nameOf = (d, i) => d.levels[i].run;
  const lines = (d) =>
    d.runs
      .map((r, i) => ({ s: r.series[0], i }))
      .filter((p) => p.s)
      .map(({ s, i }) => {
        const some = s.mean.map((v, k) => (v !== null ? k : -1)).filter((k) => k >= 0),
          at = (a) => some.map((k) => a[k]);
        return {
          label: nameOf(d, i),
          color: `--s${i % 12}`,
          x: at(places(s)),
          y: at(s.mean),
          step: at(s.step),
          n: at(s.n),
          sparse: true,
          smooth: undefined,
          unit: s.unit,
        };
      });
  const reset = h(
    "button",
    { class: "chip", type: "button", hidden: true, onclick: () => see(null) },
    "Reset zoom",
  );
  const overlay = card({
    title: `Compare ${runs.join(", ")}`,
    sub: "",
    wide: true,
    tools: [
      reset,
      select(
        "metric",
        [
          ["loss", "loss"],
          ["val_loss", "validation loss"],
          ["grad_norm", "gradient norm"],
          ["lr", "learning rate"],
          ["tokens_per_s", "tokens per second"],
          ["step_ms", "step time"],
          ["bytes_wire", "bytes on the wire"],
        ],
        metric,
        (v) => {
          metric = v;
          overlay.load();
        },
      ),
    ],
    load: async (width) => {
      if (asked !== `${state.x} ${metric}`) {
        asked = `${state.x} ${metric}`;
        part = whole = null;
      }
      if (part && whole) return closer(width);
      const d = (whole = await get("compare", {
        runs: runs.join(","),
        x: state.x,
        metric,
        width: Math.round(width / 2),
      }));
      if (!happened) {
        // what happened to each, and what each ran on: once
        const all = await Promise.all(
          runs.map((r) => Promise.all([get(`runs/${r}/events`, { limit: 200 }), get(`runs/${r}`)])),
        );
        happened = all
          .flatMap(([e], i) =>
            e.events.rows
              .filter(
                (x) =>
                  x.step !== null &&
                  (x.level !== "info" || ["resumed", "control"].includes(x.kind)),
              )
              .map((x) => ({ ...x, title: `${runs[i]}: ${x.title || x.kind}` })),
          )
          .sort((a, b) => a.step - b.step);
        facts = all.map(([, info]) =>
          Object.fromEntries([
            ...info.facts.map((f) => [f.key, f.value]),
            ["ranks", String(info.ranks.length)],
            ["hosts", [...new Set(info.ranks.map((x) => x.host))].join(" ")],
            ["instructions", [...new Set(info.ranks.map((x) => x.isa))].join(" ")],
          ]),
        );
      }
      return d;
    },
    draw(body, d) {
      if (!chart) chart = new Chart(body, true);
      const l = lines(d);
      chart.set({
        lines: l,
        unit: l[0] && l[0].unit,
        axis: state.x,
        events: happened,
        onzoom: see,
      });
      reset.hidden = !part;
      details(d);
    },
    sentence: (d) =>
      d.levels
        .map(
          (l, i) =>
            `${l.run}: ${said(d, l.value)} ± ${digits(l.noise, 2)} at ${si(l.tokens)} tokens${i && l.first_different_step !== null ? `, first differs from ${d.levels[0].run} at step ${nth(l.first_different_step)}` : i && l.common_steps ? `, equal to ${d.levels[0].run} in all ${l.common_steps} common steps` : ""}`,
        )
        .join("; ") + ".",
    table: (d) => {
      const l = lines(d),
        rows = l.flatMap((s) => s.x.map((x, i) => [s, i])).slice(0, 800);
      return {
        columns: [
          { title: "run", cell: ([s]) => s.label },
          { title: "step", num: true, cell: ([s, i]) => nth(s.step[i]) },
          { title: axisTitle[state.x], num: true, cell: ([s, i]) => onAxis(state.x, s.x[i]) },
          { title: metric, num: true, cell: ([s, i]) => digits(s.y[i], 6) },
        ],
        rows,
      };
    },
    keys: (e) => {
      if (/^z$/i.test(e.key)) see(null);
      return chart && chart.key(e);
    },
    close: () => chart && chart.close(),
  });
  // each run's own steps in the piece of the axis that all share
  function see(from, to) {
    part = from === null ? null : [from, to];
    overlay.load();
  }
  async function closer(width) {
    const near = await Promise.all(
      whole.runs.map(async (r, i) => {
        const s = r.series[0],
          x = s && places(s),
          inside = s ? s.step.filter((v, k) => x[k] >= part[0] && x[k] <= part[1]) : [];
        if (!inside.length)
          return { ...r, series: s ? [{ ...s, x: [], step: [], mean: [], n: [] }] : [] };
        const before = s.step[s.step.indexOf(inside[0]) - 1] ?? -1;
        return {
          ...r,
          series: (
            await series(runs[i], [metric], {
              x: state.x,
              x0: before + 1,
              x1: inside[inside.length - 1],
              width: Math.round(width / 2),
            })
          ).series,
        };
      }),
    );
    return { ...whole, runs: near };
  }
  function details(d) {
    const sets = d.configs.map((c) => flat(c.config, "", {})),
      keys = [...new Set(sets.flatMap(Object.keys))]
        .filter((k) => sets.some((s) => s[k] !== sets[0][k]))
        .sort();
    const base = d.levels[0],
      varied = [...new Set(facts.flatMap(Object.keys))]
        .filter((k) => facts.some((f) => f[k] !== facts[0][k]))
        .sort();
    below.replaceChildren(
      h(
        "section",
        { class: "card" },
        h(
          "header",
          {},
          h("h2", {}, "At equal tokens"),
          h("span", { class: "sub" }, `${si(base.tokens)} tokens, where the shortest ends`),
        ),
        table(
          [
            { title: "run", cell: (l) => h("a", { href: `#/run/${l.run}/overview` }, l.run) },
            { title: metric, num: true, cell: (l) => said(d, l.value) },
            { title: "noise", num: true, cell: (l) => `± ${digits(l.noise, 2)}` },
            {
              title: "difference",
              num: true,
              cell: (l) =>
                l === base || l.value === null || base.value === null
                  ? "–"
                  : `${l.value > base.value ? "+" : ""}${digits(l.value - base.value, 3)}`,
            },
            {
              title: "first different step",
              num: true,
              cell: (l) =>
                l === base
                  ? "–"
                  : l.first_different_step === null
                    ? `none in ${l.common_steps}`
                    : nth(l.first_different_step),
            },
          ],
          d.levels,
          "levels at equal tokens",
        ),
      ),
      h(
        "section",
        { class: "card" },
        h(
          "header",
          {},
          h("h2", {}, "Settings that differ"),
          h("span", { class: "sub" }, `${keys.length}`),
        ),
        keys.length
          ? h(
              "div",
              { class: "tall-scroll" },
              table(
                [
                  { title: "setting", cell: (k) => h("code", {}, k) },
                  ...d.configs.map((c, i) => ({ title: c.run, cell: (k) => sets[i][k] ?? "–" })),
                ],
                keys,
                "settings that differ",
              ),
            )
          : h("p", { class: "note" }, "all settings are equal"),
      ),
      h(
        "section",
        { class: "card wide" },
        h(
          "header",
          {},
          h("h2", {}, "Environment that differs"),
          h("span", { class: "sub" }, "machines, program, data"),
        ),
        varied.length
          ? h(
              "div",
              { class: "tall-scroll" },
              table(
                [
                  { title: "fact", cell: (k) => h("code", {}, k) },
                  ...runs.map((r, i) => ({ title: r, cell: (k) => fact(k, facts[i][k]) ?? "–" })),
                ],
                varied,
                "environment that differs",
              ),
            )
          : h("p", { class: "note" }, "all facts are equal"),
      ),
    );
  }
  ctx.add(overlay);
  root.replaceChildren(h("h1", { class: "sr" }, "Compare"), overlay.el, below);
}
