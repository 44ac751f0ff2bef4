// page_events.js - events of a run, and how its time was spent.
import { get } from "../base/api.js";
import { attemptsCard } from "../cards/attempts_card.js";
import { checkpointsCard } from "../cards/checkpoints_card.js";
import { eventsCard } from "../cards/events_card.js";
import { goodputCard } from "../cards/goodput_card.js";
import { logCard } from "../cards/log_card.js";
import { timelineCard } from "../cards/timeline_card.js";
import { showPage } from "./page.js";

/** Loads the response of the route `events`, with `info`, that of the run itself. */
function eventsAndRun(ctx) {
  let known = {};
  return async () => {
    const [data, info] = await Promise.all([
      get(`runs/${ctx.run}/events`, { limit: 1000 }),
      get(`runs/${ctx.run}`),
    ]);
    // Equal responses are the same object (base/api.js), and so is their combination.
    if (known.of !== data || known.info !== info) known = { ...data, info, of: data };
    return known;
  };
}

export function eventsPage(root, ctx) {
  const load = eventsAndRun(ctx);
  const cards = [goodputCard, timelineCard, attemptsCard, eventsCard, checkpointsCard];
  const all = [...cards.map((card) => card(load)), logCard(ctx)];
  showPage(root, ctx, "Events and goodput", all);
}
