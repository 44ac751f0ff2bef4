// parts.js - cards that pages share: a chart of metrics of one run, a stacked bar per rank.
import { series } from "./api.js";
import { card } from "./card.js";
import { Chart } from "./chart.js";
import { h, bar } from "./dom.js";
import { unit, onAxis, axisTitle, digits, nth, reach } from "./format.js";
import { state } from "./state.js";

export function range() {
  return state.zoom ? { x0: state.zoom.x0, x1: state.zoom.x1 } : {};
}

// where a series' points lie on the axis that is shown
export function places(s) {
  return state.x === "step" ? s.step.map((v) => v + 1) : s.x;
}

// points across the page's widest figure, the same for all figures, so that one request serves them
function columns() {
  return Math.min(640, Math.max(160, Math.round(innerWidth / 3 / 16) * 16));
}

// wanted: [{key, label, color, sparse, smooth, band}]; opts: {title, sub, rank(), stacked, share(), rules(), ghosts: whether to show losses that a restart replaced, floor, tall, wide, tools}
export function seriesCard(ctx, wanted, opts) {
  let chart = null;
  const lines = (d) =>
    wanted
      .map((w) => ({ w, s: d.series.find((s) => s.metric === w.key) }))
      .filter((p) => p.s)
      .map(({ w, s }) => {
        const some = s.mean.map((v, i) => (v !== null || !w.sparse ? i : -1)).filter((i) => i >= 0),
          at = (a) => some.map((i) => a[i]);
        return {
          label: w.label,
          color: w.color,
          x: at(places(s)),
          y: at(s.mean),
          lo: w.sparse || opts.stacked ? null : at(s.min),
          hi: at(s.max),
          n: at(s.n),
          step: at(s.step),
          sparse: w.sparse,
          smooth: w.sparse || opts.stacked ? false : w.smooth,
          unit: s.unit,
          hatch: w.hatch,
        };
      });
  // steps that a restart did again, as they went before: at the places that the same steps have now
  const ghosts = (l) => {
    const now = l[0],
      attempts = new Map();
    if (!opts.ghosts || !now || !now.x.length) return [];
    for (const s of ctx.superseded) {
      const k = now.step.findIndex((v) => v >= s.step);
      if (k < 0 || s.step < now.step[0]) continue;
      if (!attempts.has(s.attempt))
        attempts.set(s.attempt, {
          ghost: true,
          label: "",
          color: "--soft",
          unit: now.unit,
          x: [],
          y: [],
          step: [],
          n: [],
          smooth: false,
        });
      const g = attempts.get(s.attempt);
      if (g.x[g.x.length - 1] === now.x[k]) g.y[g.y.length - 1] = s.loss;
      else {
        g.x.push(now.x[k]);
        g.y.push(s.loss);
        g.step.push(now.step[k]);
        g.n.push(1);
      }
    }
    return [...attempts.values()];
  };
  // stacked lines as shares of their sum
  const told = (d) => {
    const l = lines(d);
    if (!opts.share || !opts.share() || !l.length) return l;
    const sum = l[0].y.map((v, i) => l.reduce((a, s) => a + Math.max(0, s.y[i] || 0), 0));
    return l.map((s) => ({
      ...s,
      unit: "ratio",
      y: s.y.map((v, i) => (sum[i] ? Math.max(0, v || 0) / sum[i] : null)),
    }));
  };
  return card({
    title: opts.title,
    sub: opts.sub,
    wide: opts.wide,
    tools: opts.tools,
    load: () =>
      series(
        ctx.run,
        wanted.map((w) => w.key),
        { x: state.x, rank: opts.rank ? opts.rank() : null, width: columns(), ...range() },
      ),
    draw(body, d) {
      if (!chart) chart = new Chart(body, opts.tall);
      const l = told(d);
      chart.set({
        lines: [...l, ...ghosts(l)],
        unit: l[0] && l[0].unit,
        axis: state.x,
        stacked: opts.stacked,
        rules: opts.rules && opts.rules(),
        floor: opts.stacked ? 0 : opts.floor,
        events: ctx.events,
        redone: ctx.redone,
        empty: opts.empty,
        onpick: opts.onpick,
      });
    },
    sentence(d) {
      return told(d)
        .filter((l) => l.x.length)
        .map((l) => {
          const known = l.y.filter((v) => v !== null),
            n = known.length;
          if (!n) return "";
          const was = unit(l.unit, known[0]),
            now = unit(l.unit, known[n - 1]),
            name = l.label[0].toUpperCase() + l.label.slice(1),
            where = reach(state.x, l.x[l.x.length - 1]);
          return n < 2
            ? `${name}: ${was}.`
            : was === now
              ? `${name}: ${now} at the end as at the start.`
              : `${name} ${known[n - 1] > known[0] ? "rose" : "fell"} from ${was} to ${now} ${where}.`;
        })
        .slice(0, 3)
        .join(" ");
    },
    table(d) {
      const l = told(d),
        first = l[0] || { x: [], step: [] },
        rows = first.x
          .map((x, i) => i)
          .slice(-400)
          .reverse();
      return {
        columns: [
          { title: "step", num: true, cell: (i) => nth(first.step[i]) },
          { title: axisTitle[state.x], num: true, cell: (i) => onAxis(state.x, first.x[i]) },
          ...l.map((s) => ({
            title: s.label,
            num: true,
            cell: (i) => {
              const k = s.step.indexOf(first.step[i]);
              return k < 0 || s.y[k] === null ? "–" : digits(s.y[k], 6);
            },
          })),
        ],
        rows,
      };
    },
    keys: (e) => chart && chart.key(e),
    close: () => chart && chart.close(),
  });
}

// one bar per rank: parts(rank) -> [{share, color, label}], end(rank) -> text at the right. Many ranks scroll, the busiest first.
export function rankBars(body, ranks, parts, end) {
  const many = ranks.length > 16,
    busy = (r) => r.step_ms - r.phases.wait_ms,
    order = many ? [...ranks].sort((a, b) => busy(b) - busy(a)) : ranks;
  body.replaceChildren(
    many ? h("p", { class: "note" }, `${ranks.length} ranks, the busiest first`) : "",
    h(
      "div",
      many
        ? {
            class: "bars long",
            tabindex: "0",
            role: "region",
            "aria-label": "one bar per rank, the busiest first",
          }
        : { class: "bars" },
      order.flatMap((r) => [
        h("span", {}, `rank ${r.rank}`),
        bar(parts(r), `rank ${r.rank}: ${end(r)}`),
        h("span", {}, end(r)),
      ]),
    ),
  );
}
