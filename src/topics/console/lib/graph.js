// A layered drawing of a directed graph: sources on the left, each node one column behind the farthest that leads to it.

export const NODE_WIDTH = 172;
export const NODE_HEIGHT = 34;
const MIN_GAP = 130;
const MAX_GAP = 280;
const ROW = NODE_HEIGHT + 22;
const MARGIN = 8;
// The point of a curve at seven tenths of its parameter, as parts of its width and height.
const LABEL_X = 0.66;
const LABEL_Y = 0.78;

/** edges: [{ from, to }]. Answers nodes with x and y, and a path for each edge; uses up to `available` pixels of width. */
export function layout(edges, available = 0) {
  const names = [...new Set(edges.flatMap(({ from, to }) => [from, to]))];
  const column = new Map(names.map((name) => [name, 0]));
  // Longest paths; a cycle ends after as many rounds as there are nodes.
  for (let round = 0; round < Math.min(names.length, 24); round += 1) {
    let moved = false;
    for (const { from, to } of edges) {
      if (column.get(to) < column.get(from) + 1 && column.get(from) + 1 < names.length) {
        column.set(to, column.get(from) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  const columns = [];
  for (const name of names) (columns[column.get(name)] ??= []).push(name);
  const filled = columns.filter(Boolean);
  const gap = (available - 2 * MARGIN - filled.length * NODE_WIDTH) / Math.max(1, filled.length - 1);
  const step = NODE_WIDTH + Math.min(MAX_GAP, Math.max(MIN_GAP, gap));
  const place = new Map();
  filled.forEach((members, index) => {
    // Below each other in the order of where their edges come from, so that few edges cross.
    const weight = (name) => {
      const rows = edges
        .filter(({ from, to }) => to === name && place.has(from))
        .map(({ from }) => place.get(from).row);
      return rows.length ? rows.reduce((sum, row) => sum + row, 0) / rows.length : 0;
    };
    const ordered = members
      .map((name) => [weight(name), name])
      .sort(([a, left], [b, right]) => a - b || left.localeCompare(right));
    ordered.forEach(([, name], row) => place.set(name, { name, row, x: MARGIN + index * step, y: MARGIN + row * ROW }));
  });
  const links = edges.map((edge) => {
    const start = place.get(edge.from);
    const end = place.get(edge.to);
    const from = { x: start.x + NODE_WIDTH, y: start.y + NODE_HEIGHT / 2 };
    const to = { x: end.x, y: end.y + NODE_HEIGHT / 2 };
    const bend = Math.max(40, Math.abs(to.x - from.x) / 2);
    return {
      edge,
      path: `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${to.x - bend} ${to.y} ${to.x - 2} ${to.y}`,
      // Beside the end of a curve: edges that leave one node are apart there.
      label: { x: from.x + (from.y === to.y ? 0.5 : LABEL_X) * (to.x - from.x), y: from.y + LABEL_Y * (to.y - from.y) },
    };
  });
  const rows = Math.max(...filled.map((members) => members.length));
  return {
    nodes: [...place.values()],
    links,
    width: 2 * MARGIN + (filled.length - 1) * step + NODE_WIDTH,
    height: 2 * MARGIN + rows * ROW - (ROW - NODE_HEIGHT),
  };
}
