// page_runs.js - the table of runs: sort, filter, pick columns (settings too), choose several to compare.
import { get, report } from "./api.js";
import { h, say, select, spark } from "./dom.js";
import { si, digits, nats, percent, seconds, date, count, ms } from "./format.js";
import { state, choose } from "./state.js";

const columns = [
  { key: "run", title: "run", cell: (r) => h("a", { href: `#/run/${r.run}/overview` }, r.run) },
  { key: "state", title: "state", cell: (r) => h("span", { class: `state ${r.state}` }, r.state) },
  {
    key: "loss_spark",
    title: "loss curve",
    cell: (r) => spark(r.loss_spark, `loss over the run, now ${digits(r.loss)}`),
  },
  { key: "loss", title: "loss", num: true, cell: (r) => nats(r.loss) },
  { key: "best_val_loss", title: "best val", num: true, cell: (r) => nats(r.best_val_loss) },
  { key: "steps", title: "steps", num: true, cell: (r) => count(r.steps) },
  { key: "tokens", title: "tokens", num: true, cell: (r) => si(r.tokens) },
  { key: "ranks", title: "ranks", num: true, cell: (r) => String(r.ranks) },
  { key: "tokens_per_s", title: "tokens/s", num: true, cell: (r) => si(r.tokens_per_s) },
  { key: "step_ms", title: "step", num: true, cell: (r) => ms(r.step_ms) },
  { key: "goodput", title: "goodput", num: true, cell: (r) => percent(r.goodput, 0) },
  {
    key: "comm_overhead",
    title: "comm",
    num: true,
    help: "exposed transfer and waiting, share of the step",
    cell: (r) => percent(r.comm_overhead),
  },
  { key: "duration_s", title: "duration", num: true, cell: (r) => seconds(r.duration_s) },
  { key: "started_s", title: "started (UTC)", num: true, cell: (r) => date(r.started_s) },
  {
    key: "note",
    title: "tags, note",
    cell: (r) =>
      h(
        "span",
        {},
        (r.tags || "")
          .split(/[ ,]+/)
          .filter(Boolean)
          .map((t) => h("span", { class: "tag" }, t)),
        r.note || "",
      ),
  },
];

// words, key:text, key<number; a key that is no column names a setting by its end: lr<3e-4 looks at optim.lr
const typed = /^([a-z][a-z0-9_.]*)(:|<=|>=|=|<|>)(.+)$/;
const settingOf = (key, names) =>
  names.find((n) => n === key) || names.find((n) => n.endsWith(`.${key}`));

function matches(r, text, settings, names) {
  return text
    .trim()
    .toLowerCase()
    .split(/\s+/)
    .every((word) => {
      const m = typed.exec(word),
        setting = m && !(m[1] in r) && settingOf(m[1], names);
      if (!m || !(m[1] in r || setting))
        return `${r.run} ${r.state} ${r.host} ${r.tags} ${r.note}`.toLowerCase().includes(word);
      const [, key, op, want] = m,
        v = setting ? (settings[r.run]?.[setting] ?? null) : r[key],
        n = Number(want);
      if (op === ":") return String(v).toLowerCase().includes(want);
      if (op === "=") return v !== null && (String(v).toLowerCase() === want || v === n);
      return (
        v !== null && (op === "<" ? v < n : op === ">" ? v > n : op === "<=" ? v <= n : v >= n)
      );
    });
}

export function runsPage(root) {
  let rows = [],
    total = 0,
    sort = "started_s",
    down = true,
    text = "",
    timer = 0,
    names = [],
    settings = {},
    drawn = "";
  const chosen = new Set(),
    said = h("span", { class: "note" }),
    body = h("tbody"),
    head = h("tr"),
    heads = new Map();
  const go = h("button", { class: "main", type: "button", onclick: compare }, "Compare");
  const box = h("input", {
    type: "search",
    placeholder: "filter: words, state:running, lr<3e-4",
    "aria-label": "filter runs",
    oninput: () => {
      text = box.value;
      if (wanted().some((n) => !known(n))) again();
      else put();
    },
  });
  const picker = h("details", { class: "picker" }, h("summary", {}, "Columns"));
  // a column of a setting: what the run was set to
  const settingColumn = (name) => ({
    key: name,
    title: name,
    num: true,
    help: "a setting",
    setting: true,
    cell: (r) => String(settings[r.run]?.[name] ?? "–"),
  });
  const shown = () => [
    ...columns.filter((c) => c.key === "run" || !(state.columns.off || []).includes(c.key)),
    ...(state.columns.on || []).map(settingColumn),
  ];
  const known = (name) => rows.every((r) => settings[r.run] && name in settings[r.run]);
  const wanted = () => [
    ...new Set([
      ...(state.columns.on || []),
      ...text
        .toLowerCase()
        .split(/\s+/)
        .map((w) => typed.exec(w))
        .filter((m) => m && rows[0] && !(m[1] in rows[0]))
        .map((m) => settingOf(m[1], names))
        .filter(Boolean),
    ]),
  ];
  root.replaceChildren(
    h("h1", { class: "sr" }, "Runs"),
    h(
      "section",
      { class: "card" },
      h("div", { class: "bar-tools" }, box, said, h("span", { class: "push" }), picker, go),
      h(
        "div",
        {
          class: "scroll",
          tabindex: "0",
          role: "region",
          "aria-label": "runs; arrows move, Space chooses, Enter opens, C compares",
          onkeydown: keys,
        },
        h(
          "table",
          { id: "runs" },
          h("caption", { class: "sr" }, "all runs"),
          h("thead", {}, head),
          body,
        ),
      ),
    ),
  );
  addEventListener("pointerdown", outside);

  function outside(e) {
    if (picker.open && !picker.contains(e.target)) picker.open = false;
  }
  function compare() {
    if (chosen.size > 1) location.hash = `#/compare?runs=${[...chosen].join(",")}`;
  }
  // arrows walk the rows from wherever the reader is in the table
  function keys(e) {
    const all = [...body.querySelectorAll("tr[data-run]")],
      at = all.findIndex((t) => t.contains(document.activeElement)),
      step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, Home: -1e9, End: 1e9 }[e.key];
    if (e.ctrlKey || e.metaKey || e.altKey || !all.length) return;
    if (step)
      all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + step))]
        .querySelector("input")
        .focus();
    else if (e.key === "Enter" && at >= 0 && document.activeElement.type === "checkbox")
      location.hash = `#/run/${all[at].dataset.run}/overview`;
    else if (e.key === "c" || e.key === "C") compare();
    else return;
    e.preventDefault();
  }

  function pick(change) {
    choose({ columns: { ...state.columns, ...change } });
    header();
    again();
  }
  function header() {
    heads.clear();
    head.replaceChildren(
      h("th", { scope: "col" }, h("span", { class: "sr" }, "compare")),
      ...shown().map((c) => {
        const th = h(
          "th",
          { scope: "col", class: c.num ? "num" : null, title: c.help },
          h(
            "button",
            {
              type: "button",
              onclick: () => {
                down = sort === c.key ? !down : Boolean(c.num);
                sort = c.key;
                put();
              },
            },
            c.title,
          ),
        );
        heads.set(c.key, th);
        return th;
      }),
    );
    const off = state.columns.off || [],
      on = state.columns.on || [],
      rest = names.filter((n) => !on.includes(n));
    const add = rest.length
      ? select(
          "setting",
          [["", "add a setting …"], ...rest.map((n) => [n, n])],
          "",
          (v) => v && pick({ on: [...on, v] }),
        )
      : "";
    const place = [...picker.querySelectorAll("input, select")].indexOf(document.activeElement);
    picker.replaceChildren(
      picker.firstChild,
      h(
        "div",
        { class: "menu" },
        columns
          .slice(1)
          .map((c) =>
            tick(c.title, !off.includes(c.key), (yes) =>
              pick({ off: yes ? off.filter((k) => k !== c.key) : [...off, c.key] }),
            ),
          ),
        on.map((n) => tick(n, true, () => pick({ on: on.filter((k) => k !== n) }))),
        add,
      ),
    );
    if (place >= 0) picker.querySelectorAll("input, select")[place]?.focus(); // keys go on where they were
  }
  function tick(title, on, change) {
    const mark = h("input", {
      type: "checkbox",
      checked: on,
      onchange: () => change(mark.checked),
    });
    return h("label", {}, mark, title);
  }

  function put() {
    const of = (r) =>
      shown().find((c) => c.key === sort)?.setting ? (settings[r.run]?.[sort] ?? null) : r[sort];
    const seen = rows
      .filter((r) => matches(r, text, settings, names))
      .sort((a, b) => {
        const x = of(a),
          y = of(b),
          order = x === y ? 0 : x === null ? 1 : y === null ? -1 : x < y ? -1 : 1;
        return down && x !== null && y !== null ? -order : order;
      });
    for (const [key, th] of heads)
      if (key === sort) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    say(said, rows.length ? `${seen.length} of ${total} runs` : "");
    go.disabled = chosen.size < 2;
    say(go, chosen.size < 2 ? "Compare (choose two)" : `Compare ${chosen.size} runs`);
    if (!seen.length) {
      body.replaceChildren(
        h(
          "tr",
          {},
          h(
            "td",
            { colspan: String(heads.size + 1) },
            h(
              "div",
              { class: "empty" },
              rows.length
                ? "no run matches this filter"
                : "no runs yet: bitrain train --preset nano --name first",
            ),
          ),
        ),
      );
      return;
    }
    const held = document.activeElement,
      place = body.contains(held) ? [held.closest("tr").dataset.run, held.tagName] : null;
    body.replaceChildren(
      ...seen.map((r) => {
        const mark = h("input", {
          type: "checkbox",
          checked: chosen.has(r.run),
          "aria-label": `compare ${r.run}`,
          onchange: () => {
            if (mark.checked) chosen.add(r.run);
            else chosen.delete(r.run);
            put();
          },
        });
        return h(
          "tr",
          { "data-run": r.run },
          h("td", {}, mark),
          shown().map((c) =>
            h("td", { class: c.num ? "num" : null, "data-key": c.key }, c.cell(r)),
          ),
        );
      }),
    );
    if (place) body.querySelector(`tr[data-run="${place[0]}"] ${place[1]}`)?.focus();
  }
  async function load() {
    if (document.hidden) return;
    if (!names.length) {
      names = (await get("settings")).names;
      header();
    }
    const d = await get("runs");
    rows = d.runs.rows;
    total = d.runs.total;
    const also = wanted();
    if (also.length) settings = (await get("settings", { name: also.slice(0, 16) })).settings;
    const now = JSON.stringify([
      rows.map((r) => ({ ...r, age_s: 0 })),
      settings,
      text,
      state.columns,
    ]);
    if (now !== drawn) {
      drawn = now;
      put();
    }
  }
  const again = () =>
    load().catch((e) => {
      said.textContent = e.message;
    });
  header();
  again();
  if (!report) timer = setInterval(again, 3000);
  return {
    close: () => {
      clearInterval(timer);
      removeEventListener("pointerdown", outside);
    },
  };
}
