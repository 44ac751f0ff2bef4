// vocabulary.js - every list of names that the page keeps by hand: axes, phases, metrics of the
// charts, values of the heat maps, kinds of events, parts of the time. No other module lists
// phases, metrics or kinds, so that these lists can come from /api/v1/metrics instead (whose rows
// are those of engine/base/*.def) by changing this one. Colours name custom properties of
// style/colors.css.

// ---- axes: what x counts. `choice` stands in the list above the charts, `title` beside a value.

export const axes = {
  step: { choice: "step", title: "step" },
  tokens: { choice: "tokens", title: "tokens" },
  time: { choice: "wall time", title: "wall time" },
  active: { choice: "active time", title: "active time" },
  bytes: { choice: "bytes", title: "bytes on the wire" },
};

// ---- phases of a step, in the order in which a step goes through them

export const phases = [
  ["data_ms", "data"],
  ["fwd_ms", "forward"],
  ["bwd_ms", "backward"],
  ["comm_exposed_ms", "exposed transfer"],
  ["wait_ms", "wait"],
  ["optim_ms", "optimizer"],
  ["ckpt_ms", "checkpoint"],
  ["monitor_ms", "monitor"],
  ["other_ms", "other"],
].map(([key, label], i) => ({ key, label, color: `--p${i}`, hatch: key === "other_ms" }));

const phaseColors = Object.fromEntries(phases.map(({ key, color }) => [key, color]));

// Time of a transfer: hidden behind compute, exposed, and time lost to ranks that arrived later.
export const transferParts = [
  { key: "hidden", label: "hidden transfer", color: "--p5" },
  { key: "exposed", label: "exposed transfer", color: "--p3" },
  { key: "wait", label: "wait", color: "--p4" },
];

// Time since the first launch: fields of a run's head.
export const goodputParts = [
  { key: "productive_s", label: "productive", color: "--p5" },
  { key: "redone_s", label: "done again", color: "--p0" },
  { key: "down_s", label: "down", color: "--bad" },
  { key: "other_s", label: "start, stalls and pauses", color: "--p6" },
];

// ---- charts of metrics (engine/base/metrics.def): a card each, made by cards/series_card.js

export const charts = {
  loss: {
    title: "Loss",
    sub: "nats per token",
    lines: [
      { key: "loss", label: "training", color: "--s0" },
      { key: "val_loss", label: "validation", color: "--s1", sparse: true },
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
      { key: "wait_ms", label: "wait", color: phaseColors.wait_ms },
      { key: "data_ms", label: "data", color: phaseColors.data_ms },
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
    sub: "of the measured peak",
    lines: [{ key: "mfu", label: "MFU", color: "--s7" }],
    floor: 0,
  },
};

// metrics that runs are compared by
export const comparedMetrics = [
  ["loss", "loss"],
  ["val_loss", "validation loss"],
  ["grad_norm", "gradient norm"],
  ["lr", "learning rate"],
  ["tokens_per_s", "tokens per second"],
  ["step_ms", "step time"],
  ["bytes_wire", "bytes on the wire"],
];

// ---- values of the heat map of ranks: what the route `heatmap` takes as `value`, and units

export const rankValues = [
  ["busy", "busy, against the median", "times"],
  ["step", "step time", "ms"],
  ["wait", "wait", "ms"],
  ["data", "data", "ms"],
  ["comm", "communication", "ms"],
  ["memory", "memory", "MiB"],
];

// what a pair of ranks is shown by: fields of the route `comm`, and units
export const pairValues = [
  ["bytes", "bytes", "bytes"],
  ["flight_ms", "time of a message", "ms"],
];

// ---- ternary statistics of each tensor: fields of the route `layers`

export const codes = [
  { key: "neg_frac", label: "−1", color: "--neg" },
  { key: "zero_frac", label: "0", color: "--zero" },
  { key: "pos_frac", label: "+1", color: "--pos" },
];

// shares that a run may have beside the codes themselves: [key, title, help]
export const codeChanges = [
  ["sign_flip_frac", "sign flips", "codes that went from −1 to +1 or back since the sample before"],
  ["oscillation_frac", "taken back", "codes that are again what they were two samples ago"],
  [
    "boundary_frac",
    "near threshold",
    "latent weights within 0.05 scale of a rounding threshold: 5.9 % if Gaussian",
  ],
];

// values of the heat map of tensors
export const tensorHistories = [
  ["flip_history", "share flipped"],
  ["zero_history", "share of zeros"],
  ["oscillation_history", "taken back"],
  ["boundary_history", "near threshold"],
  ["grad_norm_history", "gradient norm"],
  ["update_history", "update over weights"],
];

export function isShare(history) {
  return !/^(grad|update)/.test(history);
}

// ---- kinds of events

// Charts mark warnings, errors and events of these kinds.

const markedKinds = ["checkpoint", "resumed", "control"];

export function isCheckpoint(event) {
  return event.kind === "checkpoint";
}

export function isMarked(event) {
  return event.step !== null && (event.level !== "info" || markedKinds.includes(event.kind));
}

/** A checkpoint that went as it should: its mark is small, and comparisons leave it out. */
export function isRoutine(event) {
  return event.level === "info" && isCheckpoint(event);
}
