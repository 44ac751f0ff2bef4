// format.js - numbers for people, always with their unit. null and NaN print as a dash.
const dash = "–";
const unknown = (v) => v === null || v === undefined || Number.isNaN(v);

export function digits(v, n = 4) {
  if (unknown(v)) return dash;
  if (v === 0) return "0";
  const a = Math.abs(v);
  if (a >= 1e5 || a < 1e-4)
    return v
      .toExponential(Math.max(0, n - 2))
      .replace("e+", "e")
      .replace(/\.?0+e/, "e");
  return String(Number(v.toPrecision(n)));
}

export function si(v, n = 3) {
  if (unknown(v)) return dash;
  const a = Math.abs(v),
    steps = [
      [1e12, "T"],
      [1e9, "G"],
      [1e6, "M"],
      [1e3, "k"],
    ];
  for (const [size, letter] of steps)
    if (a >= size) return `${Number((v / size).toPrecision(n))} ${letter}`;
  return String(Number(v.toPrecision(n)));
}

export function bytes(v) {
  return unknown(v) ? dash : `${si(v)}B`.replace(/(\d)B$/, "$1 B");
}
export function mib(v) {
  return unknown(v)
    ? dash
    : v >= 1024
      ? `${(v / 1024).toPrecision(3)} GiB`
      : `${v >= 100 ? v.toFixed(0) : v.toFixed(1)} MiB`;
}
export function percent(v, n = 1) {
  return unknown(v) ? dash : `${(v * 100).toFixed(n)} %`;
}
export function count(v) {
  return unknown(v) ? dash : String(Math.round(v)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

// a fact of a run as it was recorded; sizes of memory are in bytes there
export function fact(key, v) {
  return /^arena\./.test(key) && Number(v) >= 0 ? bytes(Number(v)) : v;
}

// the database counts steps from 0, people from 1
export function nth(step) {
  return unknown(step) ? dash : count(step + 1);
}

export function ms(v) {
  if (unknown(v)) return dash;
  if (v === 0) return "0 ms";
  if (v < 0) return `−${ms(-v)}`;
  if (v >= 10000) return `${digits(v / 1000, 3)} s`;
  return `${v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2)} ms`;
}

export function seconds(v) {
  if (unknown(v)) return dash;
  if (v < 0.0005) return "0 s";
  if (v < 1) return `${Math.round(v * 1000)} ms`;
  if (v < 60) return `${v < 10 ? v.toFixed(1) : Math.round(v)} s`;
  const s = Math.round(v),
    d = Math.floor(s / 86400),
    hh = Math.floor(s / 3600) % 24,
    m = Math.floor(s / 60) % 60;
  if (d) return `${d} d ${hh} h`;
  if (hh) return `${hh} h ${m} m`;
  return `${m} m ${s % 60} s`;
}

// the largest unit and no more: what is left of a run
export function roughly(v) {
  if (unknown(v)) return dash;
  for (const [size, letter] of [
    [86400, "d"],
    [3600, "h"],
    [60, "m"],
  ])
    if (v >= size)
      return `${v / size < 3 && letter !== "m" ? (v / size).toFixed(1) : Math.round(v / size)} ${letter}`;
  return `${Math.round(v)} s`;
}

export function date(s, exact) {
  return unknown(s)
    ? dash
    : new Date(s * 1000)
        .toISOString()
        .slice(0, exact ? 19 : 16)
        .replace("T", " ");
}

// losses keep four decimals, so that a tile does not change its width with every step
export function nats(v) {
  return unknown(v) ? dash : Math.abs(v) >= 1e4 ? digits(v, 5) : v.toFixed(4);
}

const byUnit = {
  ms,
  MiB: mib,
  bytes,
  count,
  "1/s": (v) => (unknown(v) ? dash : `${si(v)}/s`),
  ratio: percent,
  nats,
  s: seconds,
  seconds,
};
export function unit(name, v) {
  if (/^(frac|fraction|ratio)/.test(name || "")) return percent(v);
  if (/^(count)/.test(name || "")) return si(v, 4);
  return (byUnit[name] || digits)(v);
}

// on an axis: the same without zeros that say nothing ("50.0 ms" beside "100 ms")
export function tick(name, v) {
  return unit(name, v)
    .replace(/(\.\d*?)0+(?=$|[^\d])/, "$1")
    .replace(/\.(?=$|[^\d])/, "");
}

// a place on an axis in a sentence: "over 1.2 M tokens"
export function reach(axis, v) {
  return {
    step: `by step ${onAxis("step", v)}`,
    tokens: `over ${onAxis("tokens", v)} tokens`,
    time: `in ${seconds(v)}`,
    active: `in ${seconds(v)} of active time`,
    bytes: `over ${bytes(v)} on the wire`,
  }[axis];
}

export const axisName = {
  step: "step",
  tokens: "tokens",
  time: "time",
  active: "active",
  bytes: "bytes",
};
export const axisTitle = {
  step: "step",
  tokens: "tokens",
  time: "wall time",
  active: "active time",
  bytes: "bytes on the wire",
};
export function onAxis(axis, v) {
  if (axis === "time" || axis === "active") return seconds(v);
  return axis === "bytes" ? bytes(v) : axis === "step" && Math.abs(v) < 1e7 ? count(v) : si(v, 4);
}
