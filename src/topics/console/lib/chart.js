// Charts as plain SVG: lines over time with a grid, a scale and a value under the pointer.

import { h, replace, setText, svg } from "./dom.js";

// Space for the labels of the scale: at least this, more for long labels.
const MIN_LEFT = 64;
const MAX_CHARACTER_WIDTH = 7;
const BOTTOM = 20;
const TOP = 8;
const SPAN_MS = 300_000;

/** A round number at or above the value: the top of a scale. For counts it is even, so that its half is whole too. */
function ceiling(value, counts) {
  if (value <= 0) return counts ? 2 : 1;
  const base = 10 ** Math.floor(Math.log10(value));
  const steps = counts ? [2, 4, 6, 10] : [1, 2, 2.5, 5, 10];
  return steps.map((step) => step * base).find((step) => step >= value);
}

/**
 * A chart of several series over the last minutes.
 * series: [{ label, key }]; `binary` for bytes, `counts` for whole numbers; `update(samples)` draws samples such as { ts, appended: 12 }.
 */
export function lineChart({ title, series, format, binary = false, counts = false, height = 168, spanMs = SPAN_MS }) {
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
    const shown = samples.filter((sample) => sample.ts >= end - spanMs);
    const most = Math.max(0, ...shown.flatMap((sample) => series.map(({ key }) => sample[key] ?? 0)));
    // Bytes are shown in powers of 1024: the scale ends at a round number of the unit that is shown.
    const unit = binary && most >= 1024 ? 1024 ** Math.floor(Math.log2(most) / 10) : 1;
    const top = ceiling(most / unit, counts) * unit;
    const scale = [0, top / 2, top].map((value) => [value, format(value)]);
    const longest = Math.max(...scale.map(([, label]) => label.length));
    const left = Math.max(MIN_LEFT, 8 + longest * MAX_CHARACTER_WIDTH);
    const x = (ts) => left + (1 - (end - ts) / spanMs) * (width - left - 4);
    const y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
    const parts = [];
    for (const [value, label] of scale) {
      parts.push(
        svg("line", { class: "grid-line", x1: left, x2: width, y1: y(value), y2: y(value) }),
        svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, label),
      );
    }
    for (let minute = 0; minute <= spanMs / 60_000; minute += 1) {
      const ts = end - minute * 60_000;
      const label = minute === 0 ? "now" : `-${minute} min`;
      const anchor = minute === 0 ? "end" : "middle";
      if (x(ts) > left + 20) parts.push(svg("text", { x: x(ts), y: height - 4, "text-anchor": anchor }, label));
    }
    series.forEach(({ key }, index) => {
      const points = shown.filter((sample) => sample[key] !== null && sample[key] !== undefined);
      if (points.length < 2) return;
      const path = points.map((sample) => `${x(sample.ts).toFixed(1)},${y(sample[key]).toFixed(1)}`).join("L");
      const area = `M${x(points[0].ts).toFixed(1)},${y(0)}L${path}L${x(points.at(-1).ts).toFixed(1)},${y(0)}Z`;
      parts.push(
        svg(
          "g",
          { class: `series-${index + 1}` },
          svg("path", { class: "area", d: area }),
          svg("path", { class: "line", d: `M${path}` }),
        ),
      );
    });
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
