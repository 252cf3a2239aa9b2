// A chart over steps, in SVG. Its colours are those of the page, light or dark.

const LEFT = 62, RIGHT = 14, TOP = 20, BOTTOM = 36, LABELS = 110; // pixels
const TICK_WIDE = 80, TICK_HIGH = 40, NEAREST = 24; // pixels
const DASHES = ["", "2 3", "7 4", "7 3 2 3", "12 4", "12 3 2 3"];
const MARKS = {
  circle: (r) => `m${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
  diamond: (r) => `m0 ${-r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`,
  triangle: (r) => `m0 ${-r}l${r} ${2 * r}h${-2 * r}z`,
  cross: (r) => `m${-r} ${-r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`,
  tick: (r) => `m0 ${-r}v${2 * r}`,
};
const WEAVES = {
  dots: "M2 2h1v1h-1z", rising: "M0 6L6 0", falling: "M0 0L6 6", level: "M0 3H6", crossed: "M0 0L6 6M6 0L0 6",
};

// The distance between two numbers on an axis of this many pixels: 1, 2 or 5 times a power of ten.
function distance(span, pixels, each) {
  const least = span / Math.max(pixels / each, 1);
  const ten = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((many) => many * ten).find((many) => many >= least);
}

// `series`: lines {points, held, dash, wide, mark}, marks {points, mark} and bars {bars, weave},
// each with a name and a tint. A point is [step, value, words]; null is a gap. A bar is [first step,
// steps, row, words]. `rows`: names of rows, which replace the scale from `low` to `high`.
function drawChart(box, { series, rows, low = 0, high, unit = "", height, caption }) {
  const width = Math.max(box.clientWidth, 240);
  const left = rows ? Math.min(LABELS, width / 4) : LEFT;
  const right = width - RIGHT, bottom = height - BOTTOM;
  const begin = -0.5, end = Math.max(last, 1) + 0.5;
  const x = (step) => left + (step - begin) / (end - begin) * (right - left);
  const y = rows ? (row) => TOP + (row + 0.5) / rows.length * (bottom - TOP)
    : (value) => bottom - (value - low) / (high - low) * (bottom - TOP);
  const svg = element("svg:svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": caption });
  const clip = `clip-${box.id}`;
  svg.append(element("svg:defs", {}, element("svg:clipPath", { id: clip },
    element("svg:rect", { x: left, y: TOP - 8, width: right - left, height: bottom - TOP + 16 }))));
  axes(svg, { x, y, left, right, bottom, end, rows, low, high, unit });
  const inside = element("svg:g", { "clip-path": `url(#${clip})` });
  const spots = [];
  for (const entry of series) {
    if (entry.bars) bars(inside, entry, x, y, rows, box.id);
    else curve(inside, entry, x, y, spots);
  }
  const cursor = element("svg:line", { class: "cursor", y1: TOP, y2: bottom });
  svg.append(inside, cursor);
  const tip = element("div", { class: "tip", hidden: "", "aria-hidden": "true" });
  box.replaceChildren(legend(series, box.id), svg, tip);
  svg.addEventListener("click", (event) => go(stepAt(event)));
  svg.addEventListener("pointermove", (event) => hint(event));
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  const scale = () => width / svg.getBoundingClientRect().width;
  const stepAt = (event) => Math.round(begin + (event.offsetX * scale() - left) / (right - left) * (end - begin));

  function hint(event) {
    const place = [event.offsetX * scale(), event.offsetY * scale()];
    let words = event.target.dataset.says, near = NEAREST;
    if (!words) for (const [px, py, says] of spots) {
      const far = Math.hypot(px - place[0], py - place[1]);
      if (far < near) { near = far; words = says; }
    }
    tip.hidden = !words;
    if (!words) return;
    tip.textContent = words;
    const room = box.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(Math.min(event.offsetX + 12, room), 0)}px`;
    tip.style.top = `${svg.offsetTop + event.offsetY + 14}px`;
  }
  return (step) => { cursor.setAttribute("x1", x(step)); cursor.setAttribute("x2", x(step)); };
}

function axes(svg, { x, y, left, right, bottom, end, rows, low, high, unit }) {
  const line = (x1, y1, x2, y2) => svg.append(element("svg:line", { class: "border", x1, y1, x2, y2 }));
  const word = (words, at, anchor) => svg.append(element("svg:text", { ...at, class: "tick", "text-anchor": anchor }, words));
  const steps = distance(end, right - left, TICK_WIDE);
  for (let step = 0; step < end; step += steps) {
    line(x(step), TOP, x(step), bottom);
    word(shown(step), { x: x(step), y: bottom + 15 }, x(step) > right - 20 ? "end" : "middle");
  }
  word("step", { x: right, y: bottom + 31 }, "end");
  if (rows) {
    const every = Math.ceil(rows.length / 40);
    rows.forEach((name, row) => { if (row % every === 0) word(shortened(name, Math.floor((left - 8) / 7.5)), { x: left - 6, y: y(row) + 4 }, "end"); });
    return;
  }
  const values = distance(high - low, bottom - TOP, TICK_HIGH);
  for (let value = Math.ceil(low / values) * values; value <= high; value += values) {
    line(left, y(value), right, y(value));
    word(shown(value), { x: left - 6, y: y(value) + 4 }, "end");
  }
  word(unit, { x: 2, y: 11 }, "start");
}

function curve(inside, entry, x, y, spots) {
  let line = "", marks = "", gap = true;
  for (const point of entry.points) {
    if (point === null) { gap = true; continue; }
    const [px, py] = [x(point[0]), y(point[1])].map((at) => Math.round(10 * at) / 10);
    line += gap ? `M${px} ${py}` : entry.held ? `H${px}V${py}` : `L${px} ${py}`;
    if (entry.mark) marks += `M${px} ${py}${MARKS[entry.mark](entry.size || 3)}`;
    if (point[2]) spots.push([px, py, point[2]]);
    gap = false;
  }
  const tint = `stroke:${entry.tint}`;
  if (!entry.alone) inside.append(element("svg:path", { class: "curve", d: line, style: tint, "stroke-width": entry.wide || 2, "stroke-dasharray": entry.dash || null }));
  if (marks) inside.append(element("svg:path", { class: "mark", d: marks, style: `${tint};fill:${entry.tint}` }));
}

function bars(inside, entry, x, y, rows, id) {
  const high = 0.75 * (y(1) - y(0));
  for (const [first, steps, row, words] of entry.bars) {
    const at = { x: x(first - 0.5), y: y(row) - high / 2, width: x(first + steps) - x(first), height: high };
    bar(inside, at, entry, id, words);
  }
}

function bar(inside, at, entry, id, words) {
  inside.append(element("svg:rect", { ...at, style: `fill:${entry.tint}`, "data-says": words }));
  if (entry.weave) inside.append(element("svg:rect", { ...at, fill: `url(#${weave(inside, entry.weave, id)})`, "pointer-events": "none" }));
}

// The fill pattern for a kind of bar; each picture defines it once.
function weave(inside, kind, id) {
  const name = `${kind}-${id}`;
  if (!inside.querySelector(`#${name}`)) {
    inside.append(element("svg:pattern", { id: name, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
      element("svg:path", { class: "weave", d: WEAVES[kind] })));
  }
  return name;
}

function legend(series, id) {
  const listed = series.filter((entry) => entry.name);
  return element("ul", { class: "legend" }, ...listed.map((entry) => {
    const sample = element("svg:svg", { viewBox: "0 0 26 14", "aria-hidden": "true" });
    if (entry.bars) bar(sample, { x: 1, y: 1, width: 24, height: 12 }, entry, `${id}-legend`);
    else curve(sample, { ...entry, points: entry.alone ? [[13, 7]] : [[4, 7], [22, 7]] }, (at) => at, (at) => at, []);
    return element("li", {}, sample, entry.name);
  }));
}
