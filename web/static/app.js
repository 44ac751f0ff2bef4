// app.js - the frame: login, routes in the fragment, header, choices, live updates at a calm pace.
import { get, login, control, follow, report } from "./api.js";
import { h, say, svg, select, toggle } from "./dom.js";
import { state, choose, onChoice, applyTheme, isDark } from "./state.js";
import { date, nth, seconds } from "./format.js";
import { runsPage } from "./page_runs.js";
import { comparePage } from "./page_compare.js";
import { overviewPage, stepsPage, commPage } from "./page_train.js";
import { ranksPage, systemPage } from "./page_ranks.js";
import { ternaryPage, eventsPage } from "./page_more.js";

const pages = [
  ["overview", "Overview", overviewPage],
  ["ranks", "Ranks", ranksPage],
  ["steps", "Step breakdown", stepsPage],
  ["comm", "Communication", commPage],
  ["ternary", "Ternary", ternaryPage],
  ["events", "Events and goodput", eventsPage],
  ["system", "System", systemPage],
];
const calm = 250; // at most four refetches a second, however fast the run is
const silence = 5000; // without a tick for so long, a live run is asked
const main = document.getElementById("main"),
  top = document.getElementById("top");
let server = { control: false },
  open = null; // open: what belongs to the page shown, closed when it goes

function toast(text) {
  const t = document.getElementById("toast");
  t.textContent = text;
  t.classList.add("shown");
  setTimeout(() => t.classList.remove("shown"), 4000);
}

function brand() {
  return h(
    "a",
    { class: "brand", href: report ? "#" : "#/runs" },
    svg(
      "svg",
      { viewBox: "0 0 32 32", "aria-hidden": "true" },
      svg("rect", { width: 32, height: 32, rx: 7, fill: "#1f5fbf" }),
      svg("path", {
        d: "M6 12h6M20 12h6M23 9v6",
        stroke: "#fff",
        "stroke-width": 2.6,
        "stroke-linecap": "round",
      }),
      svg("circle", { cx: 16, cy: 22, r: 3.6, fill: "none", stroke: "#fff", "stroke-width": 2.6 }),
    ),
    "bitrain",
  );
}
function themeButton() {
  return h(
    "button",
    {
      class: "icon",
      type: "button",
      title: "light or dark",
      "aria-label": "switch between light and dark",
      onclick: () => choose({ theme: isDark() ? "light" : "dark" }),
    },
    "◐",
  );
}
// what the keys do and what the strokes mean
const keys = [
  ["1 to 7", "the pages of a run"],
  ["T", "the numbers of a figure as a table"],
  [
    "← →",
    "move a figure's cursor; with Shift by ten points; Home and End to the first and the newest",
  ],
  ["+", "zoom in around the cursor, as dragging does"],
  ["Z", "show all again, as a double click does"],
  ["Enter", "follow the rank, or open the step, under the cursor"],
  ["?", "this list"],
];
const strokes = [
  ["thick line", "smoothed, as chosen above"],
  ["thin line", "each value, or the mean of the steps that share a pixel"],
  ["pale band", "from the least to the greatest of these steps"],
  [
    "▼",
    "something happened: grey, or orange for a warning, red for an error; the small ones are checkpoints",
  ],
  ["orange ground", "steps that a restart did again; dotted: as they went before"],
];
function help() {
  const list = (title, rows) => [
    h("h3", {}, title),
    h(
      "dl",
      {},
      rows.flatMap(([a, b]) => [h("dt", {}, a), h("dd", {}, b)]),
    ),
  ];
  const box = h(
    "dialog",
    { class: "help", "aria-label": "keys and strokes", onclose: () => box.remove() },
    list("Keys", keys),
    list("Strokes", strokes),
    h("p", { class: "note" }, "Steps count from 1. Times of day are UTC."),
    h(
      "p",
      { class: "end" },
      h("button", { class: "main", type: "button", onclick: () => box.close() }, "Close"),
    ),
  );
  if (document.querySelector("dialog")) return;
  document.body.append(box);
  box.showModal();
}
function helpButton() {
  return h(
    "button",
    {
      class: "icon",
      type: "button",
      title: "keys and strokes (?)",
      "aria-label": "keys and strokes",
      onclick: help,
    },
    "?",
  );
}
function choices() {
  return [
    select(
      "x",
      [
        ["step", "step"],
        ["tokens", "tokens"],
        ["time", "wall time"],
        ["active", "active time"],
        ["bytes", "bytes"],
      ],
      state.x,
      (v) => choose({ x: v }),
    ),
    select(
      "smooth",
      [
        ["0", "off"],
        ["0.6", "0.6"],
        ["0.9", "0.9"],
        ["0.99", "0.99"],
      ],
      String(state.smooth),
      (v) => choose({ smooth: Number(v) }),
    ),
    toggle("log x", state.logX, (v) => choose({ logX: v })),
    toggle("log y", state.logY, (v) => choose({ logY: v })),
  ];
}
function verbs(run) {
  const ask = (verb, question, value) => async () => {
    if (question && !confirm(question)) return;
    try {
      const r = await control(run, verb, value && value());
      toast(r.reply || `${verb}: asked`);
    } catch (e) {
      toast(e.message);
    }
  };
  const rate = () => `lr=${lr.value}`;
  const lr = h("input", {
    type: "number",
    step: "any",
    min: "0",
    placeholder: "learning rate",
    "aria-label": "learning rate",
  });
  return [
    h("button", { type: "button", onclick: ask("pause") }, "Pause"),
    h("button", { type: "button", onclick: ask("resume") }, "Resume"),
    h("button", { type: "button", onclick: ask("checkpoint") }, "Checkpoint"),
    lr,
    h(
      "button",
      {
        type: "button",
        onclick: () =>
          lr.value && ask("set", `Set the learning rate of ${run} to ${lr.value}?`, rate)(),
      },
      "Set",
    ),
    h(
      "button",
      {
        type: "button",
        class: "danger",
        onclick: ask("stop", `Stop ${run}? It writes a checkpoint first.`),
      },
      "Stop",
    ),
  ];
}

function shut() {
  if (!open) return;
  for (const f of open.closing) f();
  open = null;
}

function show() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?"),
    parts = path.split("/");
  shut();
  open = { closing: [] };
  const mine = open,
    cards = [];
  const ctx = {
    run: null,
    events: [],
    redone: [],
    superseded: [],
    add: (c) => {
      cards.push(c);
      mine.closing.push(c.close);
    },
    onHead: (f) => {
      ctx.heads.push(f);
      if (ctx.head) f(ctx.head);
    },
    heads: [],
    head: null,
  };
  const reload = (tick) => Promise.all(cards.map((c) => c.load(tick)));
  mine.closing.push(
    onChoice((change) => {
      if ("x" in change || "zoom" in change) reload();
      else cards.forEach((c) => c.redraw());
      tools.update();
    }),
  );
  const reset = h(
    "button",
    { class: "chip", type: "button", onclick: () => choose({ zoom: null }) },
    "Reset zoom",
  );
  const tools = {
    update: () => {
      reset.hidden = !state.zoom;
      if (state.zoom) reset.textContent = `steps ${nth(state.zoom.x0)}–${nth(state.zoom.x1)}  ×`;
    },
  };
  tools.update();
  if (report && parts[0] !== "run") {
    location.replace(`#/run/${report.run}/overview`);
    return;
  }
  if (parts[0] === "run" && /^[\w.-]+$/.test(parts[1] || ""))
    showRun(ctx, mine, parts, reload, reset, tools);
  else if (parts[0] === "compare" && query) {
    const runs = (new URLSearchParams(query).get("runs") || "")
      .split(",")
      .filter((r) => /^[\w.-]+$/.test(r))
      .slice(0, 12);
    document.title = `compare ${runs.join(", ")} · bitrain`;
    top.replaceChildren(
      h(
        "div",
        { class: "row first" },
        brand(),
        h("span", { class: "crumb" }, "compare"),
        h("span", { class: "push" }),
        h("div", { class: "bar-tools" }, choices()),
        helpButton(),
        themeButton(),
      ),
    );
    comparePage(main, ctx, runs);
  } else {
    document.title = "runs · bitrain";
    top.replaceChildren(
      h(
        "div",
        { class: "row first" },
        brand(),
        h("span", { class: "crumb" }, "runs"),
        h("span", { class: "push" }),
        helpButton(),
        themeButton(),
      ),
    );
    mine.closing.push(runsPage(main).close);
  }
}

function showRun(ctx, mine, parts, reload, reset, tools) {
  const run = (ctx.run = parts[1]),
    page = pages.find((p) => p[0] === parts[2]) || pages[0];
  if (open.zoomOf !== run && show.run !== run) {
    state.zoom = null;
    tools.update();
  }
  show.run = run;
  document.title = `${run} · bitrain`;
  const buttons = h("div", { class: "bar-tools verbs", hidden: true }, verbs(run)),
    word = h("span", { class: "state", id: "state" }, "loading"),
    stream = h(
      "span",
      { class: "note", id: "stream" },
      report ? `as of ${date(report.made_s)} UTC` : "",
    );
  top.replaceChildren(
    h(
      "div",
      { class: "row first" },
      brand(),
      h("span", { class: "crumb" }, run),
      word,
      stream,
      h("span", { class: "push" }),
      h("div", { class: "bar-tools" }, reset, choices()),
      helpButton(),
      themeButton(),
    ),
    h(
      "div",
      { class: "row" },
      h(
        "nav",
        { class: "tabs", "aria-label": "pages of this run" },
        pages.map(([key, title], i) =>
          h(
            "a",
            {
              href: `#/run/${run}/${key}`,
              "aria-current": key === page[0] ? "page" : null,
              title: `key ${i + 1}`,
              "aria-keyshortcuts": String(i + 1),
            },
            title,
          ),
        ),
      ),
    ),
    server.control && !report ? h("div", { class: "row" }, buttons) : "",
  );
  const tab = top.querySelector("[aria-current]");
  tab.parentNode.scrollLeft = tab.offsetLeft - (tab.parentNode.clientWidth - tab.offsetWidth) / 2; // in a narrow window: the page shown is in sight
  let last = 0,
    timer = 0,
    attempts = 0,
    known = "",
    stale = false,
    newest = null,
    told = performance.now();
  const heads = (d) => {
    ctx.head = d;
    buttons.hidden = !d.live;
    if (word.className !== `state ${d.state}`) word.className = `state ${d.state}`;
    say(
      word,
      d.live && d.age_s !== null && d.age_s > 30
        ? `${d.state}, last record ${seconds(d.age_s)} ago`
        : d.state,
    );
    ctx.heads.forEach((f) => f(d));
  };
  const fresh = async () => {
    last = performance.now();
    try {
      const d = await get(`runs/${run}/events`, { limit: 200 });
      if (open !== mine) return;
      ctx.events = d.events.rows
        .filter(
          (e) =>
            e.step !== null &&
            (e.level !== "info" || ["checkpoint", "resumed", "control"].includes(e.kind)),
        )
        .sort((a, b) => a.step - b.step);
      if (d.head.attempts !== attempts) {
        // what restarts did again changes with an attempt only
        attempts = d.head.attempts;
        if (attempts > 1) {
          const [info, old] = await Promise.all([
            get(`runs/${run}`),
            get(`runs/${run}/superseded`),
          ]);
          ctx.redone = info.redone.map((r) => ({ from: r.from_step, to: r.to_step }));
          ctx.superseded = old.superseded;
        }
        if (open !== mine) return;
      }
      heads(d.head);
      await reload();
    } catch (e) {
      fail(e);
    }
  };
  // events are asked for when there is a new one (or nobody can tell), series at every tick; tiles and figures change in one frame
  const again = async () => {
    const d = newest;
    last = performance.now();
    timer = 0;
    if (stale) {
      stale = false;
      await fresh();
    } else await reload(true);
    if (d && open === mine) heads(d);
  };
  const soon = (id) => {
    told = performance.now();
    const place = id
      .split(".")
      .filter((v, i) => i !== 1)
      .join();
    stale = stale || !place || place !== known;
    known = place;
    if (!timer) timer = setTimeout(again, Math.max(0, calm - (performance.now() - last)));
  };
  page[2](main, ctx);
  fresh();
  // a proxy that keeps the stream to itself: ask now and then while the run lives
  const patience = setInterval(() => {
    if (
      !report &&
      !document.hidden &&
      ctx.head &&
      ctx.head.live &&
      performance.now() - told > silence
    )
      fresh();
  }, silence);
  mine.closing.push(
    () => {
      clearTimeout(timer);
      clearInterval(patience);
    },
    follow(
      run,
      (d, id) => {
        if (d && d.head) newest = d.head;
        soon(id);
      },
      (s) => {
        stream.textContent = s === "live" ? "" : "connection lost, trying again";
      },
    ),
  );
}

function fail(e) {
  if (e.status === 401) gate();
  else if (e.status === 404) {
    shut();
    main.replaceChildren(
      h(
        "section",
        { class: "card gate" },
        h("h2", {}, e.message),
        h("p", { class: "note" }, e.hint),
        h("a", { href: "#/runs" }, "all runs"),
      ),
    );
  } else toast(e.message);
}

// no cookie and no token: say where the token is
function gate() {
  shut();
  top.replaceChildren(
    h("div", { class: "row first" }, brand(), h("span", { class: "push" }), themeButton()),
  );
  const box = h("input", {
    type: "password",
    autocomplete: "off",
    "aria-label": "token",
    placeholder: "token",
  });
  const enter = async () => {
    try {
      await login(box.value.trim());
      await start();
    } catch (e) {
      toast(e.message);
    }
  };
  main.replaceChildren(
    h(
      "section",
      { class: "card gate" },
      h("h2", {}, "This dashboard asks for its token"),
      h(
        "p",
        {},
        "Open the whole address that ",
        h("code", {}, "bitrain dash"),
        " printed, or paste the part after ",
        h("code", {}, "#token="),
        ".",
      ),
      h(
        "form",
        {
          onsubmit: (e) => {
            e.preventDefault();
            enter();
          },
        },
        box,
        h("button", { class: "main", type: "submit" }, "Open"),
      ),
    ),
  );
  box.focus();
}

async function start() {
  if (!report) server = await get("server");
  show();
}

// 1 to 7: the pages of a run, as in `bitrain top`; ?: what the keys do
addEventListener("keydown", (e) => {
  if (e.key === "?" && !/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) help();
  const at = /^#\/run\/([\w.-]+)/.exec(location.hash),
    page = pages[Number(e.key) - 1];
  if (
    at &&
    page &&
    !e.ctrlKey &&
    !e.metaKey &&
    !e.altKey &&
    !/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)
  )
    location.hash = `#/run/${at[1]}/${page[0]}`;
});

applyTheme();
addEventListener("hashchange", () => {
  const m = /[#&]token=([0-9a-f]{32})/.exec(location.hash);
  if (m) location.reload();
  else show();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && open) choose({ zoom: state.zoom });
});
const given = /[#&]token=([0-9a-f]{32})/.exec(location.hash);
if (given) {
  history.replaceState(null, "", location.pathname);
  login(given[1]).then(start).catch(fail);
} else start().catch(fail);
