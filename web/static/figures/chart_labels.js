// chart_labels.js - finds the position of a text that covers the least of a chart's lines.

/** Returns points along lines, at most `apart` pixels from each other. A line is a list of [x, y]. */
export function pointsAlong(lines, apart) {
  const points = [];
  for (const line of lines) {
    let [x, y] = line[0] || [];
    for (const [nextX, nextY] of line) {
      const n = Math.max(1, Math.ceil(Math.hypot(nextX - x, nextY - y) / apart));
      for (let k = 1; k <= n; k++)
        points.push([x + ((nextX - x) * k) / n, y + ((nextY - y) * k) / n]);
      [x, y] = [nextX, nextY];
    }
  }
  return points;
}

/** Returns the position {x, y} (upper left corner of a text) among those given that covers the fewest points. */
export function clearest(places, width, height, points) {
  const covered = (place) =>
    points.filter(
      ([x, y]) => x >= place.x && x <= place.x + width && y >= place.y && y <= place.y + height,
    ).length;
  const counts = places.map(covered);
  return places[counts.indexOf(Math.min(...counts))];
}
