// kept_answers.js - responses stored in the file of a report (`bitrain report`), which replace a server. A
// report contains all series of a run (or of one rank) once, by step, and the positions of the steps on every
// other axis.

const element = document.getElementById("bitrain-data");

/** {run, made_s, answers: path -> response}; null if there is a server. */
export const report = element ? JSON.parse(element.textContent) : null;

function keyOf(path, args) {
  if (path.endsWith("/series") && args.rank !== undefined && args.rank !== null)
    return `${path}?rank=${args.rank}`;
  if (path.endsWith("/heatmap")) return `${path}?value=${args.value || "busy"}`;
  return path;
}

/** Returns the stored response to a request, or undefined. */
export function keptAnswer(path, args) {
  const answer = report.answers[keyOf(path, args)];
  if (!answer || !path.endsWith("/series")) return answer;
  const wanted = []
    .concat(args.metric)
    .flatMap((list) => list.split(","))
    .map((metric) => answer.series.find((one) => one.metric === metric))
    .filter(Boolean);
  const placeOf = placesOnAxis(path, args.x);
  const first = args.x1 ? args.x0 : 0;
  const last = args.x1 || Infinity;
  return { ...answer, series: wanted.map((one) => cut(onAxis(one, placeOf), first, last)) };
}

/** Returns the position of each step on the axis; a step between two points has the position of the later one. null:
 * the axis counts steps. */
function placesOnAxis(path, axis) {
  if (!axis || axis === "step") return null;
  const { step, x } = report.answers[path.replace("/series", `/axis?x=${axis}`)].series[0];
  return (value) => x[step.findIndex((one) => one >= value)];
}

function onAxis(one, placeOf) {
  return placeOf ? { ...one, x: one.step.map((value) => placeOf(value)) } : one;
}

/** Returns the points from step `first` to `last` whose position on the axis is known. */
function cut(one, first, last) {
  const out = { ...one };
  const inside = (step, i) => step >= first && step <= last && one.x[i] !== undefined;
  const keep = one.step.map((step, i) => (inside(step, i) ? i : -1)).filter((i) => i >= 0);
  for (const key of ["x", "step", "first", "last", "min", "max", "mean", "n"])
    out[key] = keep.map((i) => one[key][i]);
  return { ...out, ...usualPart(out, one) };
}

/** Computes the default range of a part of a series, because the report contains only the ranges of whole series. */
function usualPart({ min, max }, { low, high }) {
  const least = Math.min(...min.filter((value) => value !== null));
  const most = Math.max(...max.filter((value) => value !== null));
  const [from, until] = [Math.max(low, least), Math.min(high, most)];
  return from <= until ? { low: from, high: until } : { low: least, high: most };
}
