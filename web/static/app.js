// app.js - entry point of the page: the token, the route in the URL's fragment (#/runs,
// #/run/NAME/PAGE, #/compare?runs=A,B), and the keys that choose a page.
import { askEarly, get, login, onRefused } from "./base/api.js";
import { toast } from "./base/dom.js";
import { report } from "./base/kept_answers.js";
import { applyTheme, choose, state } from "./base/state.js";
import { learn } from "./base/vocabulary.js";
import { showGate, showGone } from "./frame/gate.js";
import { chartChoices, showBareHeader, showHeader } from "./frame/header.js";
import { showHelp } from "./frame/help.js";
import { RunHeader } from "./frame/run_header.js";
import { askUpdatesEarly, RunUpdates } from "./frame/run_updates.js";
import { View } from "./frame/view.js";
import { commPage } from "./pages/page_comm.js";
import { comparePage } from "./pages/page_compare.js";
import { eventsPage } from "./pages/page_events.js";
import { islandsPage } from "./pages/page_islands.js";
import { metricsPage } from "./pages/page_metrics.js";
import { askOverviewEarly, overviewPage } from "./pages/page_overview.js";
import { ranksPage } from "./pages/page_ranks.js";
import { askRunsEarly, runsPage } from "./pages/page_runs.js";
import { stepsPage } from "./pages/page_steps.js";
import { systemPage } from "./pages/page_system.js";
import { ternaryPage } from "./pages/page_ternary.js";

// Pages of a run, opened by the keys 1 to 9. `only` and `not` name fields of a head that require or exclude a
// page.
const pages = [
  { key: "overview", title: "Overview", show: overviewPage },
  { key: "ranks", title: "Ranks", show: ranksPage, not: "hub" },
  { key: "steps", title: "Step breakdown", show: stepsPage, not: "hub" },
  { key: "comm", title: "Communication", show: commPage, not: "hub" },
  { key: "ternary", title: "Ternary", show: ternaryPage, not: "hub" },
  { key: "events", title: "Events and goodput", show: eventsPage },
  { key: "system", title: "System", show: systemPage },
  { key: "metrics", title: "Metrics", show: metricsPage },
  { key: "islands", title: "Islands", show: islandsPage, only: "hub" },
];
const comparedMost = 12;

const root = document.getElementById("main");
let server = { control: false }; // permissions of the server
let view = null; // the open page
let zoomedRun = null; // the run to which the zoom belongs
let isAsking = false; // the prompt for the token is shown

function isRunName(text) {
  return /^[\w.-]+$/.test(text);
}

// ---- display

function close() {
  if (view) view.close();
  view = null;
}

function showRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [kind, run, page] = path.split("/");
  close();
  isAsking = false;
  if (report && kind !== "run") location.replace(`#/run/${report.run}/overview`);
  else if (kind === "run" && isRunName(run || "")) showRun(run, page);
  else if (kind === "compare" && query) showComparison(query);
  else showRuns();
}

function showRuns() {
  document.title = "runs · bitrain";
  view = new View();
  showHeader("runs");
  view.onStop(runsPage(root, server));
}

function showComparison(query) {
  const named = (new URLSearchParams(query).get("runs") || "").split(",");
  const runs = named.filter(isRunName).slice(0, comparedMost);
  document.title = `compare ${runs.join(", ")} · bitrain`;
  view = new View();
  showHeader("compare", { tools: chartChoices() });
  comparePage(root, view, runs);
}

function showRun(run, key) {
  const page = pages.find((one) => one.key === key) || pages[0];
  if (zoomedRun !== run) state.zoom = null;
  zoomedRun = run;
  document.title = `${run} · bitrain`;
  view = new View(run, report ? {} : server);
  const header = new RunHeader(view, pages, page, server.control && !report);
  page.show(root, view);
  new RunUpdates(view, header, fail);
}

function fail(error) {
  if (error.status === 404 && view) {
    view.stop();
    showGone(root, view.run, view.head !== null, error);
  } else if (error.status !== 401) toast(error.message); // the prompt for the token shows the details
}

// ---- the token: `bitrain dash` prints an address whose fragment contains it

function tokenInAddress() {
  const match = /[#&]token=([0-9a-f]{32})/.exec(location.hash);
  return match && match[1];
}

function askForToken() {
  if (isAsking) return;
  isAsking = true;
  if (view) view.stop();
  else showBareHeader();
  showGate(root, view !== null, (token) => enter(token).catch((error) => toast(error.message)));
}

async function enter(token) {
  await login(token);
  await start();
}

/** Sends the first requests of the page named by the fragment, in addition to those of every page. */
function askEarlyFor(hash) {
  const [, run, page] = /^#\/run\/([\w.-]+)(?:\/(\w+))?/.exec(hash) || [];
  if (run && (!page || page === "overview")) askOverviewEarly(run);
  if (run) askUpdatesEarly(run);
  else if (!hash.startsWith("#/compare")) askRunsEarly();
}

async function start() {
  const answers = [get("metrics"), report ? server : get("server")];
  askEarlyFor(location.hash);
  const [tables, allowed] = await Promise.all(answers);
  server = allowed;
  learn(tables);
  showRoute();
}

// ---- browser events

function onKey(event) {
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "?") showHelp();
  const run = /^#\/run\/([\w.-]+)/.exec(location.hash);
  const page = pages[Number(event.key) - 1];
  if (run && page && !event.ctrlKey && !event.metaKey && !event.altKey)
    location.hash = `#/run/${run[1]}/${page.key}`;
}

onRefused(askForToken);
addEventListener("keydown", onKey);
addEventListener("hashchange", () => {
  if (tokenInAddress()) location.reload();
  else showRoute();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && view) choose({ zoom: state.zoom }); // loads new records
});

applyTheme();
const token = tokenInAddress();
if (token) history.replaceState(null, "", location.pathname);
(token ? enter(token) : start()).catch(fail);
