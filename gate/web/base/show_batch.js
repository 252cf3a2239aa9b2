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
  const scale = (width - label - 8) / Math.max(run.widest, run.block);
  const x = (tokens) => label + tokens * scale;
  const svg = element("svg:svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  svg.append(element("svg:title", {}, `the batch in step ${step}: ${rows.length} requests; the table below has the numbers`));
  svg.append(patterns());
  drawBorders(svg, x, scale, height);
  rows.forEach((request, place) => drawRow(svg, request, step, x, AXIS + ROW * place, scale));
  const tkv = at(run.run.tkv, step);
  if (run.pads && tkv && run.kinds[at(run.run.kind, step)] === "decode") {
    svg.append(element("svg:line", { class: "reached", x1: x(tkv), x2: x(tkv), y1: 14, y2: height }));
    const end = x(tkv) > width - 90;
    svg.append(element("svg:text", { x: x(tkv) + (end ? -3 : 3), y: 11, "text-anchor": end ? "end" : "start" }, `max-tkv ${shown(tkv)}`));
  }
  if (!rows.length) svg.append(element("svg:text", { x: label, y: AXIS + 16 }, "no request is in the batch"));
  box.replaceChildren(svg);
}

function drawBorders(svg, x, scale, height) {
  const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].find((many) => many * run.block * scale >= 5) || 1024;
  const ticks = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].find((many) => many * every * run.block * scale >= 48) || 1024;
  for (let number = 0; number * every * run.block <= run.widest + run.block; number += 1) {
    const place = number * every * run.block;
    if (place > run.widest) break;
    svg.append(element("svg:line", { class: "border", x1: x(place), x2: x(place), y1: AXIS - 6, y2: height }));
    if (number % ticks === 0) {
      svg.append(element("svg:text", { class: "tick", x: x(place), y: AXIS - 9, "text-anchor": number ? "middle" : "start" }, shown(place)));
    }
  }
}

function drawRow(svg, request, step, x, top, scale) {
  const name = run.ids[request];
  const group = element("svg:g", { "data-request": name, click: () => tell(request) });
  const room = Math.floor((x(0) - 6) / 7);
  group.append(element("svg:text", { x: 0, y: top + 14 }, name.length > room ? `${name.slice(0, room - 1)}…` : name));
  let place = 0;
  const draw = (part, from, tokens, indent = 0) => {
    if (!tokens) return;
    const rect = element("svg:rect", {
      class: `part part-${part}`, "data-part": part, "data-tokens": tokens,
      x: x(from), y: top, width: Math.max(tokens * scale, 0.75), height: BAR,
    });
    rect.append(element("svg:title", {}, `${name}: ${PARTS[part]}, ${shown(tokens)} tokens`));
    group.append(rect);
    const words = `${SHORT[part]} ${shown(tokens)}`;
    if (SHORT[part] && words.length * 6.6 < (tokens - indent) * scale) {
      const outlined = ["left", "rest", "future"].includes(part);
      if (part === "left") group.append(element("svg:rect", { x: x(from) + 2, y: top + 2, width: words.length * 6.4 + 4, height: BAR - 4, fill: "var(--paper)" }));
      group.append(element("svg:text", { class: outlined ? "inside outlined" : "inside", x: x(from + indent) + 4, y: top + 13 }, words));
    }
  };
  for (const part of DRAWN) {
    const tokens = of(request, part, step) || 0;
    draw(part, place, tokens);
    place += tokens;
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
  byId("legend").replaceChildren(...present.map((part) => {
    const svg = element("svg:svg", { viewBox: "0 0 26 14", "aria-hidden": "true" },
      element("svg:rect", { class: `part part-${part}`, x: 1, y: 1, width: 24, height: 12 }));
    return element("li", {}, svg, `${SHORT[part] ? `${SHORT[part]}: ` : ""}${PARTS[part]}`);
  }));
}
