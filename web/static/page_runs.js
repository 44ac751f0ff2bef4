// page_runs.js - the table of runs: sort, filter (words, or key:value, key<number), choose several to compare.
import { get, report } from "./api.js";
import { h, spark } from "./dom.js";
import { si, digits, nats, percent, seconds, date, count, ms } from "./format.js";

const columns = [
  { key: "run", title: "run", cell: (r) => h("a", { href: `#/run/${r.run}/overview` }, r.run) },
  { key: "state", title: "state", cell: (r) => h("span", { class: `state ${r.state}` }, r.state) },
  { key: "loss_spark", title: "loss curve", cell: (r) => spark(r.loss_spark, `loss over the run, now ${digits(r.loss)}`) },
  { key: "loss", title: "loss", num: true, cell: (r) => nats(r.loss) },
  { key: "best_val_loss", title: "best val", num: true, cell: (r) => nats(r.best_val_loss) },
  { key: "steps", title: "steps", num: true, cell: (r) => count(r.steps) },
  { key: "tokens", title: "tokens", num: true, cell: (r) => si(r.tokens) },
  { key: "ranks", title: "ranks", num: true, cell: (r) => String(r.ranks) },
  { key: "tokens_per_s", title: "tokens/s", num: true, cell: (r) => si(r.tokens_per_s) },
  { key: "step_ms", title: "step", num: true, cell: (r) => ms(r.step_ms) },
  { key: "goodput", title: "goodput", num: true, cell: (r) => percent(r.goodput, 0) },
  { key: "comm_overhead", title: "comm", num: true, help: "exposed transfer and waiting, share of the step", cell: (r) => percent(r.comm_overhead) },
  { key: "duration_s", title: "duration", num: true, cell: (r) => seconds(r.duration_s) },
  { key: "started_s", title: "started (UTC)", num: true, cell: (r) => date(r.started_s) },
  { key: "note", title: "tags, note", cell: (r) => h("span", {}, (r.tags || "").split(/[ ,]+/).filter(Boolean).map((t) => h("span", { class: "tag" }, t)), r.note || "") },
];

function matches(r, text) {
  return text.trim().toLowerCase().split(/\s+/).every((word) => {
    const m = /^([a-z_]+)(:|<=|>=|<|>)(.+)$/.exec(word);
    if (!m || !(m[1] in r)) return `${r.run} ${r.state} ${r.host} ${r.tags} ${r.note}`.toLowerCase().includes(word);
    const [, key, op, want] = m, v = r[key], n = Number(want);
    if (op === ":") return String(v).toLowerCase().includes(want);
    return v !== null && (op === "<" ? v < n : op === ">" ? v > n : op === "<=" ? v <= n : v >= n);
  });
}

export function runsPage(root) {
  let rows = [], total = 0, sort = "started_s", down = true, text = "", timer = 0;
  const chosen = new Set(), said = h("span", { class: "note" }), body = h("tbody"), heads = new Map();
  const go = h("button", { class: "main", type: "button", onclick: () => { location.hash = `#/compare?runs=${[...chosen].join(",")}`; } }, "Compare");
  const box = h("input", { type: "search", placeholder: "filter: words, state:running, loss<3", "aria-label": "filter runs", oninput: () => { text = box.value; put(); } });
  const head = h("tr", {}, h("th", { scope: "col" }, h("span", { class: "sr" }, "compare")), columns.map((c) => {
    const th = h("th", { scope: "col", class: c.num ? "num" : null, title: c.help }, h("button", { type: "button", onclick: () => { down = sort === c.key ? !down : Boolean(c.num); sort = c.key; put(); } }, c.title));
    heads.set(c.key, th);
    return th;
  }));
  root.replaceChildren(h("h1", { class: "sr" }, "Runs"), h("section", { class: "card" }, h("div", { class: "bar-tools" }, box, said, h("span", { class: "push" }), go),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "runs" }, h("table", { id: "runs" }, h("caption", { class: "sr" }, "all runs"), h("thead", {}, head), body))));

  function put() {
    const seen = rows.filter((r) => matches(r, text)).sort((a, b) => {
      const x = a[sort], y = b[sort], order = x === y ? 0 : x === null ? 1 : y === null ? -1 : x < y ? -1 : 1;
      return down && x !== null && y !== null ? -order : order;
    });
    for (const [key, th] of heads) if (key === sort) th.setAttribute("aria-sort", down ? "descending" : "ascending"); else th.removeAttribute("aria-sort");
    said.textContent = rows.length ? `${seen.length} of ${total} runs` : "";
    go.disabled = chosen.size < 2;
    go.textContent = chosen.size < 2 ? "Compare (choose two)" : `Compare ${chosen.size} runs`;
    if (!seen.length) {
      body.replaceChildren(h("tr", {}, h("td", { colspan: String(columns.length + 1) }, h("div", { class: "empty" }, rows.length ? "no run matches this filter" : "no runs yet: bitrain train --preset nano --name first"))));
      return;
    }
    body.replaceChildren(...seen.map((r) => {
      const mark = h("input", { type: "checkbox", checked: chosen.has(r.run), "aria-label": `compare ${r.run}`, onchange: () => { if (mark.checked) chosen.add(r.run); else chosen.delete(r.run); put(); } });
      return h("tr", { "data-run": r.run }, h("td", {}, mark), columns.map((c) => h("td", { class: c.num ? "num" : null, "data-key": c.key }, c.cell(r))));
    }));
  }
  async function load() {
    if (document.hidden) return;
    const d = await get("runs");
    rows = d.runs.rows;
    total = d.runs.total;
    if (!body.contains(document.activeElement) || document.activeElement.type !== "checkbox") put();
  }
  const again = () => load().catch((e) => { said.textContent = e.message; });
  again();
  if (!report) timer = setInterval(again, 3000);
  return { close: () => clearInterval(timer), refresh: again };
}
