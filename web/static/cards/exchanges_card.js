// exchanges_card.js - cost per step of each kind of exchange (an operation along an axis of the mesh).
import { get } from "../base/api.js";
import { empty, h } from "../base/dom.js";
import {
  bytes,
  bytesPerSecond,
  count,
  dash,
  digits,
  ms,
  percent,
  stepRange,
} from "../base/format.js";
import { number, table, text } from "../base/table.js";
import { transferParts } from "../base/vocabulary.js";
import { bar } from "../figures/small_figures.js";
import { Card } from "./card.js";

/** Formats a time; null: the exchange ran during a larger one, whose time includes it. */
function timeOrBeside(value) {
  if (value !== null) return ms(value);
  return h("span", { class: "note", title: "ran beside a larger exchange" }, "beside");
}

/** Draws hidden, exposed and wait as one bar; its full length is `longest` ms. */
function timeBar(row, longest) {
  const times = {
    hidden: row.hidden_ms,
    exposed: row.exposed_ms,
    wait: row.wait_ms,
  };
  const parts = transferParts.map(({ key, color }) => ({
    share: Math.max(0, times[key] || 0) / longest,
    color,
    label: `${key} ${ms(times[key])}`,
  }));
  const flight = `in flight ${ms(row.busy_ms)}, wait ${ms(row.wait_ms)}`;
  return bar(parts, `${row.op} along ${row.axis}: ${flight}`);
}

function lostMost(row) {
  return row.lost_max_rank === null ? dash : `${ms(row.lost_max_ms)}, rank ${row.lost_max_rank}`;
}

const linkHelp =
  "time these bytes take on the idle link, as measured before the first step, over their time in flight";

function columnsOf(rows) {
  const longest = Math.max(...rows.map((row) => (row.busy_ms || 0) + (row.wait_ms || 0)), 1e-9);
  const rate = (row) =>
    row.rate_bytes_per_s === null ? dash : bytesPerSecond(row.rate_bytes_per_s);
  return [
    text("operation", (row) => h("code", {}, row.op)),
    text("axis", (row) => row.axis),
    number("ranks", (row) => count(row.ranks)),
    number("calls", (row) => digits(row.calls, 3)),
    number("values", (row) => bytes(row.bytes_logical)),
    number("on the wire", (row) => bytes(row.bytes_wire)),
    text("hidden, exposed, wait", (row) => timeBar(row, longest)),
    number("in flight", (row) => timeOrBeside(row.busy_ms)),
    number("exposed", (row) => timeOrBeside(row.exposed_ms)),
    number("wait", (row) => timeOrBeside(row.wait_ms)),
    number("overlap", (row) => percent(row.overlap, 0)),
    number("of the link", (row) => percent(row.model_frac ?? null, 0), linkHelp),
    number("bandwidth", rate, "bytes that a rank sends per second of its time in flight"),
    number("lost most", lostMost),
  ];
}

function sentence({ comm, head }) {
  const worst = comm.rows[0];
  if (!worst) return "";
  const operation = `${worst.op.replaceAll("_", "-")} along ${worst.axis}`;
  const lost = ms((worst.exposed_ms || 0) + (worst.wait_ms || 0));
  const link = ({ axis, latency_us, bytes_per_s }) =>
    bytes_per_s === null
      ? `${axis} could not be measured, because the machine was busy`
      : `${axis} ${digits(latency_us, 2)} µs and ${bytesPerSecond(bytes_per_s)}`;
  const links = (comm.links || []).map(link).join(", ");
  const parts = [
    `Most time is lost in ${operation}: ${lost} a step.`,
    `Steps ${stepRange(comm.step0, comm.step1)}.`,
  ];
  if (comm.rows.some((row) => row.busy_ms === null))
    parts.push("“Beside”: the exchange ran during a larger one, whose time includes it.");
  const load = head.measured_load;
  const busy = load > 0.25 ? `, under load ${digits(load, 2)} of other programs` : "";
  if (links) parts.push(`The links, measured at the start${busy}: ${links}.`);
  return parts.join(" ");
}

export function nothingExchanged(ranks, why) {
  return empty(ranks > 1 ? why : "one rank: nothing to exchange");
}

export function exchangesCard(ctx) {
  return new Card({
    title: "Kinds of exchange",
    sub: "per step, mean of the ranks that took part; most time lost first",
    wide: true,
    load: () => get(`runs/${ctx.run}/comm`),
    draw(body, { comm, head }) {
      const why = "no sample yet: one is recorded every train.stats_every steps";
      body.replaceChildren(
        comm.rows.length
          ? table(columnsOf(comm.rows), comm.rows, "kinds of exchange")
          : nothingExchanged(head.ranks, why),
      );
    },
    sentence,
  });
}
