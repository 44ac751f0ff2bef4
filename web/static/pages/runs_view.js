// runs_view.js - stores the view of the table of runs in the query of the address: filter, order, columns,
// selected runs, metric and grouping of the chart, or the axes of the plane.
import { toast } from "../base/dom.js";
import { metricsOfSteps } from "../base/vocabulary.js";

/** Number of runs requested for the table, as by `bitrain top`: the newest ones. */
export const listedRuns = { limit: 2000 };

/** State in the address: {filter, sort, ascending, columns, chosen, metric, group, x}. */
export function viewOfAddress() {
  const query = new URLSearchParams(location.hash.split("?")[1] || "");
  const list = (key) => (query.get(key) || "").split(",").filter(Boolean);
  const columns = { off: list("off"), on: list("on"), metrics: list("metrics") };
  return {
    filter: query.get("filter") || "",
    sort: query.get("sort") || "",
    ascending: query.has("up"),
    columns: ["off", "on", "metrics"].some((key) => query.has(key)) ? columns : null,
    chosen: list("runs").filter((run) => /^[\w.-]+$/.test(run)),
    metric: query.get("metric") || "",
    group: query.get("by") || "",
    as: query.get("as") || "",
    across: query.get("across") || "",
    up: query.get("over") || "",
    axes: list("axes"),
  };
}

/** Reports runs of a link that no longer exist. */
export function tellGone(gone) {
  const names = gone.slice(0, 3).join(", ") + (gone.length > 3 ? ", …" : "");
  toast(
    gone.length === 1
      ? `the run ${names} no longer exists`
      : `${gone.length} runs no longer exist: ${names}`,
  );
}

/** Removes metrics that this program does not record from the view, and reports them. */
export function withoutUnknown(view) {
  const known = new Set(metricsOfSteps().map(({ key }) => key));
  const metrics = view.columns?.metrics || [];
  const unknown = [view.metric, ...metrics].filter((key) => key && !known.has(key));
  if (!unknown.length) return view;
  toast(`there is no metric ${unknown.join(", ")}: the link may be of another version`);
  const columns = view.columns && {
    ...view.columns,
    metrics: metrics.filter((key) => known.has(key)),
  };
  return { ...view, columns, metric: known.has(view.metric) ? view.metric : "" };
}

/** Stores the view in the address without an entry in the browser's history. */
export function keepView({
  filter,
  sort,
  ascending,
  columns,
  chosen,
  metric,
  group,
  as,
  ...plane
}) {
  if (!/^#?\/?(runs|$)/.test(location.hash.slice(0, 7))) return;
  const query = new URLSearchParams();
  const put = (key, value) => value && query.set(key, value);
  put("filter", filter);
  put("sort", sort === "started_s" ? "" : sort);
  if (ascending) query.set("up", "1");
  for (const key of ["off", "on", "metrics"]) put(key, (columns[key] || []).join(","));
  put("runs", chosen.join(","));
  put("metric", metric === "loss" ? "" : metric);
  put("by", group);
  put("as", as);
  if (as === "scatter") put("across", plane.across);
  if (as === "scatter") put("over", plane.up);
  if (as === "parallel") put("axes", (plane.axes || []).join(","));
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3D", "=");
  const hash = `#/runs${text ? `?${text}` : ""}`;
  if (location.hash !== hash && (location.hash || text)) history.replaceState(null, "", hash);
}
