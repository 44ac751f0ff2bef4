// page_islands.js - the run of a hub: its islands, the age of their updates, and events (joined, left, late,
// refused).
import { get } from "../base/api.js";
import { eventsCard } from "../cards/events_card.js";
import { islandsCard, stalenessCard } from "../cards/islands_card.js";
import { showPage } from "./page.js";

function isOfIslands({ kind }) {
  return kind.startsWith("island_") || kind === "refused";
}

function eventsOfIslands(ctx) {
  let known = {};
  return async () => {
    const data = await get(`runs/${ctx.run}/events`, { limit: 1000 });
    const rows = data.events.rows.filter(isOfIslands);
    if (known.of !== data) known = { ...data, events: { total: rows.length, rows }, of: data };
    return known;
  };
}

export function islandsPage(root, ctx) {
  const load = () => get(`runs/${ctx.run}/islands`);
  showPage(root, ctx, "Islands", [
    islandsCard(load),
    stalenessCard(load),
    eventsCard(eventsOfIslands(ctx), "Joins, losses, late updates, refusals"),
  ]);
}
