// heat_map_card.js - a card with a heat map, which is made when there is something to show.
import { HeatMap } from "../figures/heat_map.js";
import { Card } from "./card.js";

/**
 * spec is a card's, with
 *   label       what the map is, for screen readers
 *   cells(data) what the map shows (figures/heat_map.js); null: nothing
 *   nothing(data)  what the card shows then: a node
 *   onpick(row, data)  gets the row of a click, or of Enter
 */
export function heatMapCard(spec) {
  let map = null;
  const close = () => {
    if (map) map.close();
    map = null;
  };
  const draw = (body, data) => {
    const cells = spec.cells(data);
    if (!cells) {
      close();
      body.replaceChildren(spec.nothing(data));
      return;
    }
    if (!map) map = new HeatMap(body, spec.label);
    map.onpick = spec.onpick && ((row) => spec.onpick(row, data));
    map.set(cells);
  };
  return new Card({ ...spec, draw, keys: (event) => map && map.key(event), close });
}
