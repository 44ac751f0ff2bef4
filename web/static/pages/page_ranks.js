// page_ranks.js - slow ranks: since when, in which phase, and at what cost.
import { charts } from "../base/vocabulary.js";
import { rankHeatCard } from "../cards/rank_heat_card.js";
import { rankingCard } from "../cards/ranking_card.js";
import { seriesCard } from "../cards/series_card.js";
import { showPage } from "./page.js";

/**
 * Shows the series of one rank: the rank passed to `follow` or, before a choice, the rank first passed to `suggest`.
 */
function oneRankCard(ctx) {
  let chosen = null;
  const card = seriesCard(ctx, { ...charts.oneRank, wide: true, rank: () => chosen ?? 0 });
  card.follow = (rank) => {
    chosen = rank;
    card.setSub(`rank ${rank}`);
    card.load();
  };
  card.suggest = (rank) => {
    if (chosen === null) card.follow(rank);
  };
  return card;
}

export function ranksPage(root, ctx) {
  const one = oneRankCard(ctx);
  const ranking = rankingCard(ctx, one);
  const heat = rankHeatCard(ctx, ranking, one);
  showPage(root, ctx, "Ranks", [ranking, heat, one]);
}
