// format.js - formats numbers with their units. This module imports no other. A value that is null, undefined or NaN
// becomes a dash.

export const dash = "–";

function isUnknown(value) {
  return value === null || value === undefined || Number.isNaN(value);
}

/** Formats `n` significant digits, with an exponent if the number is very large or very small. */
export function digits(value, n = 4) {
  if (isUnknown(value)) return dash;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-4 && size < 1e5) return String(Number(value.toPrecision(n)));
  const text = value.toExponential(Math.max(0, n - 2));
  return text.replace("e+", "e").replace(/\.?0+e/, "e");
}

/** Formats a run's setting: a fractional number with six digits, as in `bitrain show`; anything else is
 * unchanged. */
export function setting(value) {
  const isBroken = /^-?\d*\.?\d+(e-?\d+)?$/i.test(value) && /[.e]/i.test(value);
  return isBroken ? String(Number(Number(value).toPrecision(6))) : String(value);
}

const prefixes = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** Formats `n` significant digits with a decimal prefix: 1.2 M. */
export function si(value, n = 3) {
  if (isUnknown(value)) return dash;
  const size = Math.abs(value);
  for (const [from, letter] of prefixes)
    if (size >= from) return `${Number((value / from).toPrecision(n))} ${letter}`;
  return String(Number(value.toPrecision(n)));
}

const binaryPrefixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

/** Formats three digits with a binary prefix, "1.24 GiB", like the program (metric.c). */
export function bytes(value) {
  if (isUnknown(value)) return dash;
  const size = Math.abs(value);
  let power = 0;
  while (size / 1024 ** power >= 999.5 && power + 1 < binaryPrefixes.length) power++;
  const scaled = value / 1024 ** power;
  const most = Math.abs(scaled) >= 9.995 ? 1 : 2;
  const decimals = Math.abs(scaled) >= 99.95 || (power === 0 && Number.isInteger(value)) ? 0 : most;
  return `${scaled.toFixed(decimals)} ${binaryPrefixes[power]}B`;
}

export function bytesPerSecond(value) {
  return `${bytes(value)}/s`;
}

export function mib(value) {
  return isUnknown(value) ? dash : bytes(value * 1024 * 1024);
}

export function percent(value, decimals = 1) {
  return isUnknown(value) ? dash : `${(value * 100).toFixed(decimals)} %`;
}

/** Formats an integer with separated thousands. */
export function count(value) {
  return isUnknown(value) ? dash : String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

export function plural(n, word) {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}

/** Formats a step counted from 1; the database counts steps from 0. */
export function nth(step) {
  return isUnknown(step) ? dash : count(step + 1);
}

export function stepRange(first, last) {
  return `${nth(first)} to ${nth(last)}`;
}

export function ms(value) {
  if (isUnknown(value)) return dash;
  if (value === 0) return "0 ms";
  if (value < 0) return `−${ms(-value)}`;
  if (value >= 10000) return `${digits(value / 1000, 3)} s`;
  if (value >= 100) return `${value.toFixed(0)} ms`;
  return `${value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

export function seconds(value) {
  if (isUnknown(value)) return dash;
  if (value < 0.0005) return "0 s";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  const whole = Math.round(value);
  const days = Math.floor(whole / 86400);
  const hours = Math.floor(whole / 3600) % 24;
  const minutes = Math.floor(whole / 60) % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} m`;
  return `${minutes} m ${whole % 60} s`;
}

const spans = [
  [86400, "d"],
  [3600, "h"],
  [60, "m"],
];

/** Formats a duration in its largest unit only, for the remaining time of a run. */
export function roughly(value) {
  if (isUnknown(value)) return dash;
  for (const [size, letter] of spans) {
    if (value < size) continue;
    const n = value / size;
    return `${n < 3 && letter !== "m" ? n.toFixed(1) : Math.round(n)} ${letter}`;
  }
  return `${Math.round(value)} s`;
}

/** Formats seconds since 1970 as date and time in UTC; exact: with seconds. */
export function date(value, exact) {
  if (isUnknown(value)) return dash;
  const iso = new Date(value * 1000).toISOString();
  return iso.slice(0, exact ? 19 : 16).replace("T", " ");
}

/** Losses keep four decimals, so that a tile does not change its width with every step. */
export function nats(value) {
  if (isUnknown(value)) return dash;
  return Math.abs(value) >= 1e4 ? digits(value, 5) : value.toFixed(4);
}

/** Formats "1.2 kJ", "12 J". */
function joules(value) {
  const text = si(value);
  return `${text}${/[a-zA-Z]$/.test(text) ? "" : " "}J`;
}

const byUnit = {
  ms,
  MiB: mib,
  bytes,
  "1/s": (value) => (isUnknown(value) ? dash : `${si(value)}/s`),
  nats,
  J: (value) =>
    isUnknown(value) ? dash : value && value < 0.1 ? `${digits(value * 1e3, 3)} mJ` : joules(value),
  s: seconds,
  seconds,
};

export function unit(name, value) {
  if (/^(frac|ratio)/.test(name || "")) return percent(value);
  if (/^count/.test(name || "")) return si(value, 4);
  return (byUnit[name] || digits)(value);
}

/** Formats a value beside an axis, without unnecessary zeros: "50 ms" below "100 ms". */
export function tick(name, value) {
  const text = unit(name, value);
  return text.replace(/(\.\d*?)0+(?=$|[^\d])/, "$1").replace(/\.(?=$|[^\d])/, "");
}

export function onAxis(axis, value) {
  if (axis === "time" || axis === "active") return seconds(value);
  if (axis === "bytes") return bytes(value);
  return axis === "step" && Math.abs(value) < 1e7 ? count(value) : si(value, 4);
}

/** Formats a position on an axis for the end of a sentence: "over 1.2 M tokens". */
export function reach(axis, value) {
  return {
    step: `by step ${onAxis("step", value)}`,
    tokens: `over ${onAxis("tokens", value)} tokens`,
    time: `in ${seconds(value)}`,
    active: `in ${seconds(value)} of active time`,
    bytes: `over ${bytes(value)} on the wire`,
  }[axis];
}
