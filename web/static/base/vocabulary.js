// vocabulary.js - names of metrics, phases, events and axes. Metrics, scopes, panels, phases, kinds of
// events, verbs and the parts of a run's time are rows of engine/base/tables: the server sends them
// (/api/v1/metrics), and `learn` stores them before anything is shown. Axes, lines of charts and values of
// heat maps exist only in the page and are listed here. Colours are custom properties of style/colors.css:
// --phase-NAME for phases, --time-NAME for parts of the time.

// ---- the tables of the server

export const metrics = []; // {scope, key, unit, panel, help}
export const panels = []; // {name, title, question}
export const phases = []; // {key, label, color, hatch}, in the order of a step
// parts of a run's time since its first launch: fields of its head
export const goodputParts = []; // {key, label, color, help}
export const figures = []; // figures of a run: {key, label, span, unit, help}
export const verbs = []; // {verb, argument, label, help, states}
const scopes = []; // {name, view, per, keys}
const states = []; // states of runs: {name, live, help}
const kinds = new Map(); // kinds of events: kind -> {level, mark, help}

function replace(list, rows) {
  list.splice(0, list.length, ...rows);
}

/** Defines colours of phases and of parts of the time for both themes, between which style/dark.css chooses. */
function defineColors(rows) {
  const sheet = new CSSStyleSheet();
  const colorsOf = (theme) => rows.map((row) => `${row.property}: ${row[theme]};`).join(" ");
  const dark = colorsOf("dark");
  sheet.insertRule(`:root { ${colorsOf("light")} }`, 0);
  sheet.insertRule(`:root[data-theme="dark"] { ${dark} }`, 1);
  const systemIsDark = "@media (prefers-color-scheme: dark)";
  sheet.insertRule(`${systemIsDark} { :root:not([data-theme="light"]) { ${dark} } }`, 2);
  document.adoptedStyleSheets = [sheet];
}

function phaseOf({ key, property, title, rest }) {
  return { key, label: title, color: property, hatch: rest };
}

function timeOf({ key, title, property, help }) {
  return { key: `${key}_s`, label: title, color: property, help };
}

/** Stores the response of /api/v1/metrics. */
export function learn(tables) {
  replace(metrics, tables.metrics);
  replace(scopes, tables.scopes);
  replace(panels, tables.panels);
  replace(verbs, tables.verbs);
  replace(figures, tables.figures);
  replace(states, tables.states);
  const named = tables.phases.map((row) => ({ ...row, property: `--phase-${row.name}` }));
  const times = tables.times.map((row) => ({ ...row, property: `--time-${row.key}` }));
  replace(phases, named.map(phaseOf));
  replace(goodputParts, times.map(timeOf));
  tables.events.forEach((event) => kinds.set(event.kind, event));
  defineColors([...named, ...times]);
}

/** Returns the row of a metric {scope, key} and that of its scope. */
export function metricOf({ scope, key }) {
  return metrics.find((one) => one.scope === scope && one.key === key);
}

/** Returns the metrics of a step, which describe the run as a whole. */
export function metricsOfSteps() {
  return metrics.filter((one) => one.scope === "step");
}

export function stepMetric(key) {
  return metricOf({ scope: "step", key }) || { unit: "", help: "" };
}

/** Returns the meaning of a figure and the steps that it covers: "communication, newest 128 steps: share of
 * …". */
export function figureHelp(key) {
  const figure = figures.find((one) => one.key === key);
  return figure ? `${figure.label}, ${figure.span}: ${figure.help}` : "";
}

/** Returns the label of a chart after the last point of a run in this state. */
export function beyondCurve(state) {
  return states.some(({ name, live }) => name === state && live) ? "not there yet" : "ended";
}

export function scopeOf({ scope }) {
  return scopes.find((one) => one.name === scope);
}

// ---- axes: the quantity on x. `choice` is shown in the list above the charts, `title` beside a value.

export const axes = {
  step: { choice: "step", title: "step" },
  tokens: { choice: "tokens", title: "tokens" },
  time: { choice: "wall time", title: "wall time" },
  active: { choice: "active time", title: "active time" },
  bytes: { choice: "bytes", title: "bytes on the wire" },
};

// ---- parts of the time

// Time of a transfer: hidden behind computation, exposed, and spent waiting for ranks that arrived later.
export const transferParts = [
  { key: "hidden", label: "hidden transfer", color: "--phase-optim" },
  { key: "exposed", label: "exposed transfer", color: "--phase-comm" },
  { key: "wait", label: "wait", color: "--phase-wait" },
];

// ---- charts of metrics (engine/base/tables/metrics.def): one card each, created by cards/series_card.js

export const charts = {
  loss: {
    title: "Loss",
    sub: "nats per token",
    lines: [
      { key: "loss", label: "training", color: "--s0" },
      { key: "val_loss", label: "validation", color: "--s1", sparse: true, best: true },
    ],
  },
  accuracy: {
    title: "Accuracy",
    sub: "of labels, or of preferences",
    lines: [
      { key: "accuracy", label: "training", color: "--s0" },
      { key: "val_accuracy", label: "validation", color: "--s1", sparse: true },
      { key: "val_f1", label: "validation F1", color: "--s2", sparse: true },
    ],
    floor: 0,
  },
  rewardMargin: {
    title: "Reward margin",
    sub: "chosen answer less the rejected one",
    lines: [
      { key: "reward_margin", label: "training", color: "--s0" },
      { key: "val_reward_margin", label: "validation", color: "--s1", sparse: true },
    ],
  },
  gradientNorm: {
    title: "Gradient norm",
    sub: "before clipping",
    lines: [{ key: "grad_norm", label: "gradient norm", color: "--s3" }],
    floor: 0,
  },
  learningRate: {
    title: "Learning rate",
    lines: [{ key: "lr", label: "learning rate", color: "--s2", smooth: false }],
    floor: 0,
  },
  throughput: {
    title: "Throughput",
    sub: "all ranks",
    lines: [{ key: "tokens_per_s", label: "tokens/s", color: "--s4" }],
    floor: 0,
  },
  stepTime: {
    title: "Step time",
    sub: "slowest rank",
    lines: [{ key: "step_ms", label: "step", color: "--s5" }],
    floor: 0,
  },
  oneRank: {
    title: "One rank",
    lines: [
      { key: "step_ms", label: "step", color: "--s0" },
      { key: "wait_ms", label: "wait", color: "--phase-wait" },
      { key: "data_ms", label: "data", color: "--phase-data" },
    ],
    floor: 0,
  },
  phases: { title: "Phases over time", lines: phases },
  bytes: {
    title: "Bytes a step",
    sub: "before and after compression",
    lines: [
      { key: "bytes_logical", label: "values", color: "--s0" },
      { key: "bytes_wire", label: "on the wire", color: "--s1" },
    ],
    floor: 0,
  },
  overhead: {
    title: "Overhead and overlap",
    sub: "share of the step lost; share of the transfer hidden",
    lines: [
      { key: "comm_overhead", label: "overhead", color: "--s5" },
      { key: "overlap", label: "overlap", color: "--s2" },
    ],
    floor: 0,
  },
  memory: {
    title: "Memory",
    sub: "resident, largest rank",
    lines: [{ key: "rss_mib", label: "largest rank", color: "--s4", smooth: false }],
    floor: 0,
  },
  utilisation: {
    title: "Model FLOP/s utilisation",
    sub: "of the measured peak of bf16; int8 products can pass 100 %",
    lines: [{ key: "mfu", label: "MFU", color: "--s7" }],
    floor: 0,
  },
};

// metrics by which runs can be compared
export const comparedMetrics = [
  ["loss", "loss"],
  ["val_loss", "validation loss"],
  ["grad_norm", "gradient norm"],
  ["lr", "learning rate"],
  ["tokens_per_s", "tokens per second"],
  ["step_ms", "step time"],
  ["bytes_wire", "bytes on the wire"],
];

// ---- values of the heat map of ranks: values of the argument `value` of the route `heatmap`, with units

export const rankValues = [
  ["busy", "busy, against the median", "times"],
  ["step", "step time", "ms"],
  ["wait", "wait", "ms"],
  ["data", "data", "ms"],
  ["comm", "communication", "ms"],
  ["memory", "memory", "MiB"],
];

// values of a pair of ranks: fields of the route `comm`, with units
export const pairValues = [
  ["bytes", "bytes", "bytes"],
  ["flight_ms", "message latency", "ms"],
];

// ---- ternary statistics of each tensor: fields of the route `layers`

export const codes = [
  { key: "neg_frac", label: "−1", color: "--neg" },
  { key: "zero_frac", label: "0", color: "--zero" },
  { key: "pos_frac", label: "+1", color: "--pos" },
];

// shares that a run may record in addition to the codes: [key, title, help]
export const codeChanges = [
  [
    "sign_flip_frac",
    "sign flips",
    "codes that went from −1 to +1 or back since the previous sample",
  ],
  ["oscillation_frac", "undone flips", "codes that returned to their value of two samples ago"],
  [
    "boundary_frac",
    "near threshold",
    "latent weights within 0.05 scale of a rounding threshold: 5.9 % if Gaussian",
  ],
];

// values of the heat map of tensors
export const tensorHistories = [
  ["flip_history", "flips"],
  ["zero_history", "share of zeros"],
  ["oscillation_history", "undone flips"],
  ["boundary_history", "near threshold"],
  ["grad_norm_history", "gradient norm"],
  ["update_history", "update over weights"],
];

export function isShare(history) {
  return !/^(grad|update)/.test(history);
}

// ---- kinds of events

export function isCheckpoint(event) {
  return event.kind === "checkpoint";
}

/** Returns the mark of an event in charts: "line" or "faint"; "list": no mark (events.def). */
function markOf(event) {
  return kinds.has(event.kind) ? kinds.get(event.kind).mark : "list";
}

export function isMarked(event) {
  return event.step !== null && (event.level !== "info" || markOf(event) !== "list");
}

/** True for a frequent event: its mark is small, and comparisons omit it. */
export function isRoutine(event) {
  return event.level === "info" && markOf(event) === "faint";
}
