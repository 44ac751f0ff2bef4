// heat_map_card.js - a card with a heat map, which is created when there are data.
import { HeatMap } from "../figures/heat_map.js";
import { Card } from "./card.js";

/**
 * spec is that of a card, with
 *   label          description of the map for screen readers
 *   cells(data)    returns the content of the map (figures/heat_map.js); null: there is none
 *   nothing(data)  returns the node that is shown if there is none
 *   onpick(row, data)  receives the row of a click or of Enter
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
