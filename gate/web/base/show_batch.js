// The batch: a row for each request, by position.

const PARTS = {
  left: "left padding",
  cached: "found in the prefix cache",
  prompt: "prompt, computed before",
  generated: "generated, computed before",
  now: "computed in this step",
  rest: "still to be computed",
  right: run.pads ? "right padding" : "room in blocks that are held",
  future: "may still be generated (max_tokens)",
};
const SHORT = {
  left: "pad", cached: "cached", prompt: "prompt", generated: "generated", now: "now",
  rest: "to compute", right: "", future: "to come",
};
const DRAWN = ["left", "cached", "prompt", "generated", "now", "rest"];
const ROW = 24, BAR = 18, AXIS = 34;
// If a block would be narrower than this, only the last blocks of the batch are drawn.
const NARROWEST = 3, LAST_BLOCKS = 16; // pixels, blocks

function patterns() {
  const hatch = element("svg:pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse" },
    element("svg:path", { d: "M0 6 L6 0 M-1 1 L1 -1 M5 7 L7 5" }));
  const dots = element("svg:pattern", { id: "dots", width: 5, height: 5, patternUnits: "userSpaceOnUse" },
    element("svg:circle", { cx: 2, cy: 2, r: 1 }));
  return element("svg:defs", {}, hatch, dots);
}

function inBatch(step) {
  const rows = [];
  run.of.forEach((_, request) => {
    const state = stateOf(request, step);
    if (!["waiting", "sending", null, undefined].includes(state)) rows.push(request);
  });
  return rows;
}

function drawGrid(step) {
  const rows = inBatch(step);
  const box = byId("grid");
  const width = Math.max(box.clientWidth, 200);
  const label = width < 600 ? 64 : 120;
  const height = AXIS + ROW * Math.max(rows.length, 1);
  const cut = cutAt(rows, step, width - label);
  const end = cut ? cut + LAST_BLOCKS * run.block : Math.max(run.widest, run.block);
  const scale = (width - label - 8) / (end - cut);
  const x = (tokens) => label + (Math.min(Math.max(tokens, cut), end) - cut) * scale;
  const svg = element("svg:svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  svg.append(element("svg:title", {}, `the batch in step ${step}: ${rows.length} requests; the table below has the numbers`));
  svg.append(patterns());
  drawBorders(svg, x, scale, height, cut, end);
  rows.forEach((request, place) => drawRow(svg, request, step, x, AXIS + ROW * place, cut));
  if (cut) svg.append(element("svg:path", { class: "cut", d: `M${label} ${AXIS - 6} ${Array.from({ length: Math.ceil((height - AXIS) / 8) }, (_, n) => `l${n % 2 ? 4 : -4} 8`).join(" ")}` }));
  const tkv = at(run.run.tkv, step);
  if (run.pads && tkv && run.kinds[at(run.run.kind, step)] === "decode") {
    svg.append(element("svg:line", { class: "reached", x1: x(tkv), x2: x(tkv), y1: 14, y2: height }));
    const end = x(tkv) > width - 90;
    svg.append(element("svg:text", { x: x(tkv) + (end ? -3 : 3), y: 11, "text-anchor": end ? "end" : "start" }, `max-tkv ${shown(tkv)}`));
  }
  if (!rows.length) svg.append(element("svg:text", { x: label, y: AXIS + 16 }, "no request is in the batch"));
  box.replaceChildren(svg);
  const button = byId("zoom");
  button.hidden = hasRoom(width - label);
  button.textContent = cut ? `the axis begins at ${shown(cut)}: show the whole batch` : "show the last blocks of the batch";
}

// Whether blocks are wide enough if the whole batch is drawn in this many pixels.
const hasRoom = (pixels) => pixels / Math.max(run.widest / run.block, 1) >= NARROWEST;

// The position at which the axis begins: 0, or some blocks before the end of the longest row.
function cutAt(rows, step, room) {
  if (chosen.whole || hasRoom(room)) return 0;
  const reach = Math.max(0, ...rows.map((request) =>
    [...DRAWN, "right"].reduce((sum, part) => sum + (of(request, part, step) || 0), 0)));
  return Math.max(Math.ceil(reach / run.block) - LAST_BLOCKS + 1, 0) * run.block;
}

function drawBorders(svg, x, scale, height, cut, end) {
  const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].find((many) => many * run.block * scale >= 5) || 1024;
  const ticks = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].find((many) => many * every * run.block * scale >= 48) || 1024;
  const begin = Math.floor(cut / (every * run.block));
  for (let number = begin; number * every * run.block <= end; number += 1) {
    const place = number * every * run.block;
    if (place < cut || place > Math.max(run.widest, cut ? end : 0)) continue;
    svg.append(element("svg:line", { class: "border", x1: x(place), x2: x(place), y1: AXIS - 6, y2: height }));
    if (number % ticks === 0) {
      svg.append(element("svg:text", { class: "tick", x: x(place), y: AXIS - 9, "text-anchor": place > cut ? "middle" : "start" }, shown(place)));
    }
  }
}

function drawRow(svg, request, step, x, top, cut) {
  const name = run.ids[request];
  const group = element("svg:g", { "data-request": name, click: () => tell(request) });
  const joined = run.cause && run.cause[1] === request;
  const room = Math.floor((x(cut) - 6) / 7);
  const words = joined ? `${name} joined in ${run.cause[0]}` : name;
  const fits = words.length <= room ? words : name;
  group.append(element("svg:text", { x: 0, y: top + 14, class: joined ? "cause" : null }, shortened(fits, room)));
  let place = 0;
  const draw = (part, from, tokens, indent = 0) => {
    if (!tokens) return;
    const wide = x(from + tokens) - x(from);
    if (cut && !wide) return; // the part lies outside the axis
    const rect = element("svg:rect", {
      class: `part part-${part}`, "data-part": part, "data-tokens": tokens,
      x: x(from), y: top, width: Math.max(wide, 0.75), height: BAR,
    });
    rect.append(element("svg:title", {}, `${name}: ${PARTS[part]}, ${shown(tokens)} tokens`));
    group.append(rect);
    const words = `${SHORT[part]} ${shown(tokens)}`;
    if (SHORT[part] && words.length * 6.6 < wide - (x(from + indent) - x(from))) {
      const outlined = ["left", "rest", "future"].includes(part);
      if (part === "left") group.append(element("svg:rect", { x: x(from) + 2, y: top + 2, width: words.length * 6.4 + 4, height: BAR - 4, fill: "var(--paper)" }));
      group.append(element("svg:text", { class: outlined ? "inside outlined" : "inside", x: x(from + indent) + (cut && x(from) === x(cut) ? 24 : 4), y: top + 13 }, words));
    }
  };
  for (const part of DRAWN) {
    const tokens = of(request, part, step) || 0;
    draw(part, place, tokens);
    place += tokens;
  }
  const left = of(request, "left", step) || 0;
  if (cut && left) { // the cut hides the padding, which often explains a wide batch
    const stub = element("svg:rect", { class: "part part-left stub", x: x(cut) + 4, y: top + 2, width: 14, height: BAR - 4 });
    stub.append(element("svg:title", {}, `${name}: ${PARTS.left}, ${shown(left)} tokens, before the axis begins`));
    group.append(element("svg:rect", { x: x(cut) + 4, y: top + 2, width: 14, height: BAR - 4, fill: "var(--paper)" }), stub);
  }
  if (run.never && run.never[0] === request && step === last) {
    const from = left + run.never[1], tokens = run.never[2] - run.never[1];
    const rect = element("svg:rect", { class: "part part-never", "data-part": "never", "data-tokens": tokens, x: x(from), y: top, width: x(from + tokens) - x(from), height: BAR });
    rect.append(element("svg:title", {}, `${name}: counted as cached, never computed, ${shown(tokens)} tokens`));
    group.append(rect);
  }
  const right = of(request, "right", step) || 0;
  const future = of(request, "future", step) || 0;
  draw("right", place, right);
  draw("future", place, future, right);
  svg.append(group);
}

function drawLegend() {
  const present = Object.keys(PARTS).filter((part) => run.of.some((lines) => {
    for (const [, value, slope] of pieces(lines[part], 1)) if (value || slope) return true;
    return false;
  }));
  const all = run.never ? { ...PARTS, never: "counted as cached, never computed" } : PARTS;
  if (run.never) present.splice(2, 0, "never");
  byId("legend").replaceChildren(...present.map((part) => {
    const svg = element("svg:svg", { viewBox: "0 0 26 14", "aria-hidden": "true" },
      element("svg:rect", { class: `part part-${part}`, x: 1, y: 1, width: 24, height: 12 }));
    return element("li", {}, svg, `${SHORT[part] ? `${SHORT[part]}: ` : ""}${all[part]}`);
  }));
}
