// Charts as plain SVG: lines over time with a grid, a scale and a value under the pointer.

import { h, replace, setText, svg } from "./dom.js";

// Space for the labels of the scale: at least this, more for long labels.
const MIN_LEFT = 64;
const MAX_CHARACTER_WIDTH = 7;
const BOTTOM = 20;
const TOP = 8;
const SPAN_MS = 300_000;
const MIN_SPAN_MS = 60_000;
// Labels of the time axis: the smallest step that gives at most MAX_TICKS of them.
const TICKS_MS = [10_000, 15_000, 30_000, 60_000];
const MAX_TICKS = 6;
let charts = 0;

// Tops of a scale of time; half of each is a round time as well.
const TIMES_MS = [
  ...[1, 2, 10, 20, 30].map((seconds) => seconds * 1000),
  ...[1, 2, 4, 10, 20, 30].map((minutes) => minutes * 60_000),
  ...[1, 2, 4, 6, 12, 24, 48].map((hours) => hours * 3_600_000),
];

/** A round number at or above the value: the top of a scale. For counts it is even, so that its half is whole too. */
function ceiling(value, counts) {
  if (value <= 0) return counts ? 2 : 1;
  const base = 10 ** Math.floor(Math.log10(value));
  const steps = counts ? [2, 4, 6, 10] : [1, 2, 2.5, 5, 10];
  return steps.map((step) => step * base).find((step) => step >= value);
}

/**
 * A chart of several series over the last minutes: as many as there are samples for, five at most.
 * series: [{ label, key }]; `binary` for bytes, `counts` for whole numbers, `times` for milliseconds; `update(samples)` draws samples such as { ts, appended: 12 }.
 */
export function lineChart({ title, series, format, binary = false, counts = false, times = false, height = 148 }) {
  charts += 1;
  const shade = `shade-${charts}`;
  const drawing = svg("svg", { class: "chart", height, role: "img", "aria-label": title });
  const values = series.map(() => h("span", { class: "value" }, "–"));
  const legend = h(
    "ul",
    { class: "legend" },
    series.map(({ label }, index) =>
      h("li", { class: `series-${index + 1}` }, h("span", { class: "swatch" }), label, values[index]),
    ),
  );
  const figure = h("figure", {}, drawing);
  let samples = [];
  let pointer = null;

  function draw() {
    const width = drawing.clientWidth || figure.clientWidth;
    if (!width) return;
    const last = samples.at(-1);
    const end = last ? last.ts : Date.now();
    const shown = samples.filter((sample) => sample.ts >= end - SPAN_MS);
    const spanMs = Math.max(MIN_SPAN_MS, end - (shown[0]?.ts ?? end));
    const most = Math.max(0, ...shown.flatMap((sample) => series.map(({ key }) => sample[key] ?? 0)));
    // Bytes are shown in powers of 1024: the scale ends at a round number of the unit that is shown.
    const unit = binary && most >= 1024 ? 1024 ** Math.floor(Math.log2(most) / 10) : 1;
    const time = times && most > 500 ? TIMES_MS.find((each) => each >= most) : undefined;
    const top = time ?? ceiling(most / unit, counts) * unit;
    const scale = [0, top / 2, top].map((value) => [value, format(value)]);
    const longest = Math.max(...scale.map(([, label]) => label.length));
    const left = Math.max(MIN_LEFT, 8 + longest * MAX_CHARACTER_WIDTH);
    const x = (ts) => left + (1 - (end - ts) / spanMs) * (width - left - 4);
    const y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
    const parts = [gradient(shade)];
    for (const [value, label] of scale) {
      parts.push(
        svg("line", { class: "grid-line", x1: left, x2: width, y1: y(value), y2: y(value) }),
        svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, label),
      );
    }
    const step = TICKS_MS.find((each) => spanMs / each <= MAX_TICKS) ?? TICKS_MS.at(-1);
    for (let past = 0; past <= spanMs; past += step) {
      const at = x(end - past);
      const label = past === 0 ? "now" : past % 60_000 ? `-${past / 1000} s` : `-${past / 60_000} min`;
      const anchor = past === 0 ? "end" : "middle";
      if (at > left + 16) parts.push(svg("text", { x: at, y: height - 4, "text-anchor": anchor }, label));
    }
    series.forEach(({ key }, index) => {
      const points = shown.filter((sample) => sample[key] !== null && sample[key] !== undefined);
      if (points.length < 2) return;
      const path = points.map((sample) => `${x(sample.ts).toFixed(1)},${y(sample[key]).toFixed(1)}`).join("L");
      const area = `M${x(points[0].ts).toFixed(1)},${y(0)}L${path}L${x(points.at(-1).ts).toFixed(1)},${y(0)}Z`;
      // Only the first series is shaded: shades of several would hide each other.
      parts.push(
        svg(
          "g",
          { class: `series-${index + 1}` },
          index ? null : svg("path", { d: area, fill: `url(#${shade})` }),
          svg("path", { class: "line", d: `M${path}` }),
        ),
      );
    });
    if (shown.length < 2) {
      const middle = { class: "empty-chart", x: (left + width) / 2, y: height / 4 + 4, "text-anchor": "middle" };
      parts.push(svg("text", middle, "Drawn while this screen is open"));
    }
    let under = last;
    if (pointer !== null && shown.length) {
      under = shown.reduce((best, each) =>
        Math.abs(x(each.ts) - pointer) < Math.abs(x(best.ts) - pointer) ? each : best,
      );
      parts.push(svg("line", { class: "cross", x1: x(under.ts), x2: x(under.ts), y1: TOP, y2: height - BOTTOM }));
      series.forEach(({ key }, index) => {
        if (under[key] === null || under[key] === undefined) return;
        const point = svg("circle", { class: "point", cx: x(under.ts), cy: y(under[key]), r: 3 });
        parts.push(svg("g", { class: `series-${index + 1}` }, point));
      });
    }
    replace(drawing, ...parts);
    series.forEach(({ key }, index) => setText(values[index], under ? format(under[key]) : "–"));
    drawing.setAttribute(
      "aria-label",
      `${title}: ${series.map(({ label, key }) => `${label} ${last ? format(last[key]) : "unknown"}`).join(", ")}`,
    );
  }

  drawing.addEventListener("pointermove", (event) => {
    pointer = event.offsetX;
    draw();
  });
  drawing.addEventListener("pointerleave", () => {
    pointer = null;
    draw();
  });
  new ResizeObserver(draw).observe(figure);
  const node = h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, title), h("div", { class: "actions" }, legend)),
    h("div", { class: "card-body" }, figure),
  );
  return {
    node,
    update(next) {
      samples = next;
      draw();
    },
  };
}

const gradient = (id) =>
  svg(
    "defs",
    {},
    svg(
      "linearGradient",
      { id, class: "series-1", x2: 0, y2: 1 },
      svg("stop", { class: "shade", offset: 0 }),
      svg("stop", { class: "shade end", offset: 1 }),
    ),
  );

const SPARK_WIDTH = 88;
const SPARK_HEIGHT = 26;

/** A small line without axes, for a figure or a row. */
export function sparkline(values, { width = SPARK_WIDTH, height = SPARK_HEIGHT, series = 1 } = {}) {
  const drawing = svg("svg", {
    class: `spark series-${series}`,
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    width,
    height,
    "aria-hidden": "true",
  });
  const known = values.filter((value) => value !== null && value !== undefined);
  // Two values are no trend yet.
  if (known.length < 3) return drawing;
  const top = Math.max(...known) || 1;
  const x = (index) => (1 + (index / (known.length - 1)) * (width - 2)).toFixed(1);
  const y = (value) => (height - 2 - (value / top) * (height - 4)).toFixed(1);
  const path = known.map((value, index) => `${x(index)},${y(value)}`).join("L");
  // A constant series would be a filled box.
  if (Math.min(...known) < top * 0.8) {
    drawing.append(svg("path", { class: "area", d: `M${x(0)},${height}L${path}L${x(known.length - 1)},${height}Z` }));
  }
  drawing.append(svg("path", { class: "line", d: `M${path}` }));
  return drawing;
}

/** Samples that a screen gathers itself while it is open. */
export class History {
  constructor(spanMs = SPAN_MS) {
    this.spanMs = spanMs;
    this.samples = [];
  }

  add(sample) {
    this.samples.push(sample);
    while (this.samples[0].ts < sample.ts - this.spanMs) this.samples.shift();
    return this.samples;
  }
}
