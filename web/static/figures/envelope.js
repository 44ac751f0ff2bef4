// envelope.js - draws a line that has several points per pixel as one area, from the smallest to the largest
// value of each column of pixels. The picture equals that of the stroked line, and a browser fills an area many times
// faster than it strokes ten thousand joined segments.

/**
 * Returns a Path2D of the points x, y from index `from` to `to`. left, width: the columns of pixels;
 * endOf(column): the x at which a column ends; toPixel(value): vertical position; half: half the width of the
 * line. A null in y is a gap.
 */
export function envelope({ x, y, from, to, left, width, endOf, toPixel, half }) {
  const path = new Path2D();
  const edges = { top: [], low: [] };
  let i = from;
  let before = null; // newest value to the left of this column
  for (let column = 0; column <= width && i <= to; column++) {
    const end = column === width ? Infinity : endOf(column);
    let low = before ?? Infinity;
    let high = before ?? -Infinity;
    let some = false;
    let hole = false;
    for (; i <= to && x[i] <= end; i++) {
      const value = y[i];
      if (value === null) hole = true;
      if (value === null || value === undefined) continue;
      some = true;
      before = value;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (some) {
      extend(edges.top, left + column, toPixel(high) - half);
      extend(edges.low, left + column, toPixel(low) + half);
    }
    if (hole) {
      close(path, edges);
      before = null;
    }
  }
  close(path, edges);
  return path;
}

/** Extends an edge to the next column with a vertical jump, so that a single peak keeps its width. */
function extend(edge, x, y) {
  const was = edge[edge.length - 1];
  if (Math.abs(y - was) > 3) edge.push(x - 0.5, was, x - 0.5, y);
  edge.push(x, y);
}

/** Adds the area between the two edges to the path, and clears them. */
function close(path, { top, low }) {
  if (top.length) {
    path.moveTo(top[0], top[1]);
    for (let k = 2; k < top.length; k += 2) path.lineTo(top[k], top[k + 1]);
    for (let k = low.length - 2; k >= 0; k -= 2) path.lineTo(low[k], low[k + 1]);
    path.closePath();
  }
  top.length = 0;
  low.length = 0;
}
