"use strict";

// Draws a run that Python has judged: every number here was noted step by step, none is worked out.

(async () => {
  const run = await unpacked(document.getElementById("data").textContent);
  const last = Math.max(run.steps - 1, 0);
  const chosen = { step: 0, request: -1, rule: -1 };

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
  const STATE_WORDS = {
    waiting: "waiting",
    prefill: "prefill",
    decode: "decode",
    held: "running, no token in this step",
    paused: "paused",
    preempted: "preempted, waits again",
  };
  const MOST_HAPPENINGS = 12;
  const ROW = 24, BAR = 18, AXIS = 34;

  // Data

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // The number of a line in a step, null where it has none. Of a line seven numbers are a piece:
  // first step, value, slope, steps; and the same again: stride, rise, times.
  const SEVEN = 7;

  function at(line, step) {
    if (!line || !line.length) return null;
    let low = 0, high = line.length / SEVEN - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (line[SEVEN * middle] <= step) low = middle;
      else high = middle - 1;
    }
    const [first, value, slope, steps, stride, rise, times] = line.slice(SEVEN * low, SEVEN * (low + 1));
    if (step < first) return null;
    const time = stride ? Math.min(Math.floor((step - first) / stride), times - 1) : 0;
    const later = step - first - time * stride;
    return 0 <= later && later < steps ? value + time * rise + later * slope : null;
  }

  // [first step, value, slope, steps] one after the other; what is repeated more than `most` times
  // is one piece, from its first step to its last.
  function* pieces(line, most = Infinity) {
    for (let place = 0; line && place < line.length; place += SEVEN) {
      const [first, value, slope, steps, stride, rise, times] = line.slice(place, place + SEVEN);
      if (times > most) {
        const end = first + (times - 1) * stride + steps - 1;
        const reached = value + (times - 1) * rise + (steps - 1) * slope;
        yield [first, value, (reached - value) / (end - first), end - first + 1];
      } else {
        for (let time = 0; time < times; time += 1) {
          yield [first + time * stride, value + time * rise, slope, steps];
        }
      }
    }
  }

  // The entry of [step, ...] rows that holds in a step.
  function since(rows, step) {
    let found = null;
    for (const row of rows || []) {
      if (row[0] > step) break;
      found = row;
    }
    return found;
  }

  function blocksOf(request, step) {
    let held = [];
    for (const [from, kept, added] of run.blocks[request]) {
      if (from > step) break;
      held = held.slice(0, kept).concat(added);
    }
    return held;
  }

  const of = (request, field, step) => at(run.of[request][field], step);
  const stateOf = (request, step) => run.states[of(request, "state", step)];
  const grouped = new Intl.NumberFormat("en-US");
  const shown = (number) => (number === null ? "" : grouped.format(number));

  const byStep = new Map();
  for (const one of run.happenings) {
    const step = Math.min(one[0], last);
    if (!byStep.has(step)) byStep.set(step, []);
    byStep.get(step).push(one);
  }
  const stops = [...byStep.keys()]
    .filter((step) => byStep.get(step).some((one) => run.stops.includes(one[1])))
    .sort((a, b) => a - b);

  function sentence([, what, request, first, second, word]) {
    const fill = [run.ids[request], shown(first), shown(second), word];
    return run.words[what].replace(/\{(\d)\}/g, (_, place) => fill[place]);
  }

  // Elements

  function element(name, attributes = {}, ...children) {
    const made = name.startsWith("svg:")
      ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "click") made.addEventListener("click", value);
      else if (value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  const byId = (id) => document.getElementById(id);
  const goButton = (step, words) =>
    element("button", { type: "button", class: "plain", click: () => go(step) }, words);

  // The batch

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
      if (["prefill", "decode", "held", "paused"].includes(state)) rows.push(request);
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
    if (!rows.length) svg.append(element("svg:text", { x: label, y: AXIS + 16 }, "nobody is in the batch"));
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
        if (part === "left") group.append(element("svg:rect", { x: x(from) + 2, y: top + 2, width: words.length * 6.4 + 4, height: BAR - 4, fill: "var(--page)" }));
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

  // What a step says

  function told(step) {
    if (!run.steps) return "no step ran";
    const kind = run.kinds[at(run.run.kind, step)];
    const parts = [`step ${step} of ${last}: ${kind}`];
    const tokens = at(run.run.tokens, step);
    if (kind !== "idle") parts.push(`${shown(at(run.run.batch, step))} scheduled, ${shown(tokens)} token${tokens === 1 ? "" : "s"}`);
    const tkv = at(run.run.tkv, step), volume = at(run.run.volume, step);
    if (volume !== null) {
      parts.push(`${at(run.run.batch, step)} requests × tkv ${shown(tkv)} = ${shown(volume)} of ${shown(run.limit)}`);
    } else if (tkv) parts.push(`tkv ${shown(tkv)}`);
    for (const [rule, broke] of run.broken) {
      if (broke === step) parts.push(`${rule} BROKEN`);
      else if (broke > last && step === last) parts.push(`then, in step ${broke}, ${rule} BROKEN`);
    }
    return parts.join("; ");
  }

  function drawHappenings(step) {
    const all = byStep.get(step) || [];
    const shownFirst = [...all.filter((one) => one[1] === "broken"), ...all.filter((one) => one[1] !== "broken")];
    const lines = shownFirst.slice(0, MOST_HAPPENINGS).map((one) => element("li", { "data-what": one[1] }, sentence(one)));
    if (all.length > MOST_HAPPENINGS) lines.push(element("li", {}, `and ${all.length - MOST_HAPPENINGS} more`));
    byId("happenings").replaceChildren(...(lines.length ? lines : [element("li", {}, "nothing but tokens")]));
  }

  function drawAfter(step) {
    const rows = [];
    for (const [name, changes] of Object.entries(run.queues)) {
      const found = since(changes, step);
      if (found) rows.push([name, found[1].map((place) => run.ids[place]).join(", ") || "nobody"]);
    }
    for (const [name, words] of [["held", "blocks held"], ["shared", "of them shared"], ["cached", "of them found in the cache"], ["free", "blocks free"], ["reserved", "of them promised"]]) {
      const number = at(run.run[name], step);
      if (number !== null) rows.push([words, shown(number)]);
    }
    const refused = at(run.refused.volume, step);
    if (refused !== null) {
      const who = run.ids[since(run.refused.to, step)[1]];
      rows.push([`projected with ${who}`, `${shown(refused)} of ${shown(run.limit)}: refused`]);
    }
    byId("after").replaceChildren(...rows.flatMap(([name, words]) => [
      element("dt", {}, name), element("dd", { "data-after": name }, words),
    ]));
  }

  const COLUMNS = [
    ["computed", "computed"], ["now", "in this step"], ["emitted", "generated"], ["left", "left padding"],
    ["tkv", "tkv"], ["right", run.pads ? "right padding" : "room"], ["future", "may still come"],
    ["cached", "cached"], ["held", "blocks"],
  ].filter(([field]) => run.of.some((lines) => lines[field]));

  function drawRequests(step) {
    const table = byId("requests");
    if (!table.tHead.rows.length) {
      table.tHead.append(element("tr", {},
        element("th", { scope: "col" }, "request"), element("th", { scope: "col" }, "state"),
        ...COLUMNS.map(([, words]) => element("th", { scope: "col", class: "number" }, words))));
    }
    const rows = [];
    run.of.forEach((_, request) => {
      const state = stateOf(request, step);
      if (!state) return;
      const name = run.ids[request];
      const choose = element("button", { type: "button", class: "plain", click: () => tell(request) }, name);
      const left = (byStep.get(step) || []).find((one) => one[1] === "finished" && one[2] === request);
      const words = left ? `${STATE_WORDS[state]}, finished (${left[5]})` : STATE_WORDS[state];
      rows.push(element("tr", { "data-request": name, class: request === chosen.request ? "chosen" : null },
        element("th", { scope: "row" }, choose), element("td", { "data-field": "state" }, words),
        ...COLUMNS.map(([field]) => element("td", { class: "number", "data-field": field }, shown(of(request, field, step))))));
    });
    table.tBodies[0].replaceChildren(...rows);
  }

  // A request's story

  const MOST_TOLD = 200;

  function tell(request) {
    chosen.request = request;
    const one = run.requests[request];
    const content = one.content.length > 1 || one.content[0][0] !== run.ids[request]
      ? ` (${one.content.map(([stream, tokens]) => `${stream} ${shown(tokens)}`).join(" + ")})` : "";
    const early = one.stops_after < one.max_tokens ? `, stops after ${shown(one.stops_after)}` : "";
    let lines = [];
    for (const [first, state, steps] of runsOf(request)) {
      const to = steps > 1 ? `steps ${first} to ${first + steps - 1}` : `step ${first}`;
      lines.push([first, `${to}: ${STATE_WORDS[run.states[state]]}`]);
    }
    for (const happened of run.happenings) {
      if (happened[2] !== request) continue;
      lines.push([happened[0], `step ${happened[0]}: ${sentence(happened)}`, happened[1] === "border"]);
    }
    if (lines.length > MOST_TOLD) lines = lines.filter((one) => !one[2]);
    lines.sort((a, b) => a[0] - b[0]);
    const story = byId("story");
    story.hidden = false;
    const told = lines.slice(0, MOST_TOLD).map(([step, words]) => element("li", {}, goButton(step, words)));
    if (lines.length > MOST_TOLD) told.push(element("li", {}, `and ${shown(lines.length - MOST_TOLD)} more`));
    const close = element("button", { type: "button", click: () => { story.hidden = true; chosen.request = -1; draw(); } }, "close");
    const held = element("p", { id: "story-blocks" });
    story.replaceChildren(
      element("h3", {}, `${run.ids[request]}: prompt ${shown(one.prompt)}${content}, max_tokens ${shown(one.max_tokens)}${early}`),
      close, held, element("ol", { tabindex: 0, "aria-label": `what happens to ${run.ids[request]}` }, ...told));
    draw();
    story.scrollIntoView({ block: "nearest" });
  }

  function drawStory(step) {
    if (chosen.request < 0) return;
    const blocks = blocksOf(chosen.request, step);
    byId("story-blocks").textContent = blocks.length
      ? `blocks in step ${step} (${blocks.length}): ${spans(blocks)}` : `no blocks shown in step ${step}`;
  }

  function spans(numbers) {
    const found = [];
    for (const number of numbers) {
      const open = found[found.length - 1];
      if (open && open[1] + 1 === number) open[1] = number;
      else found.push([number, number]);
    }
    return found.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
  }

  // [first step, state, steps] of a request; interleaved prefill steps of others do not part a phase
  // where `merged`.
  function runsOf(request, merged = true) {
    const found = [];
    const held = run.states.indexOf("held");
    for (const [first, value, slope, steps] of pieces(run.of[request].state)) {
      const singles = slope ? steps : 1;
      for (let one = 0; one < singles; one += 1) {
        const state = value + slope * one, many = slope ? 1 : steps;
        const open = found[found.length - 1];
        if (open && (open[1] === state || (merged && state === held)) && open[0] + open[2] === first + one) open[2] += many;
        else found.push([first + one, state, many]);
      }
    }
    return found;
  }

  // Rules

  function drawRules(step) {
    const body = byId("rules").tBodies[0];
    if (!body.rows.length) {
      body.append(...run.rules.map((rule, place) => {
        let steps = 0;
        for (const [, , , many] of pieces(rule.stakes)) steps += many;
        const words = `${shown(steps)} step${steps === 1 ? "" : "s"}`;
        return element("tr", { "data-rule": rule.id },
          element("th", { scope: "row" }, element("button", { type: "button", class: "plain", click: () => seek(place) }, rule.id)),
          element("td", {}), element("td", { class: "number" }, words),
          element("td", {}, element("strong", {}, rule.title), ` ${rule.says} `, element("small", {}, rule.source)));
      }));
    }
    run.rules.forEach((rule, place) => {
      const row = body.rows[place];
      const broke = run.broken.some(([id, number]) => id === rule.id && Math.min(number, last) === step);
      const never = rule.stakes.length ? "held" : "never at stake";
      const state = broke ? "BROKEN" : at(rule.stakes, step) ? "held, at stake" : never;
      row.cells[1].textContent = state;
      row.className = [broke ? "broken" : "", chosen.rule === place ? "chosen" : ""].join(" ").trim();
    });
  }

  function seek(place) {
    chosen.rule = place;
    let next = null, first = null;
    for (const [from, , , steps] of pieces(run.rules[place].stakes)) {
      if (first === null) first = from;
      if (from + steps - 1 > chosen.step) {
        next = Math.max(from, chosen.step + 1);
        break;
      }
    }
    const target = next === null ? first : next;
    if (target === null) draw();
    else go(target);
  }

  // Pictures

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const quoted = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const MOST_REPEATED = 40, MOST_BARS = 3000, MOST_MARKED = 60, MOST_NAMED = 12;
  const DASHES = ["solid", "dot", "dash", "dashdot", "longdash", "longdashdot"];

  // One step in between is a prefill between two decode steps: the line goes on.
  function points(line) {
    const x = [], y = [];
    for (const [first, value, slope, steps] of pieces(line, MOST_REPEATED)) {
      if (x.length && first > x[x.length - 1] + 2) { x.push(null); y.push(null); }
      x.push(first); y.push(value);
      if (steps > 1) { x.push(first + steps - 1); y.push(value + slope * (steps - 1)); }
    }
    return { x, y };
  }

  function layout(height, more) {
    const axis = { gridcolor: colour("line"), linecolor: colour("line"), zeroline: false, automargin: true };
    return {
      height, margin: { l: 50, r: 10, t: 10, b: 40 }, paper_bgcolor: colour("page"), plot_bgcolor: colour("page"),
      font: { color: colour("ink"), size: 12 }, hovermode: "closest", showlegend: true,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
      ...more,
      xaxis: { ...axis, title: { text: "step" }, range: [-0.5, Math.max(last, 1) + 0.5] },
      yaxis: { ...axis, ...(more || {}).yaxis },
    };
  }

  const BARS = {
    waiting: ["right", "."], prefill: ["prompt", "/"], decode: ["generated", ""], held: ["rest", "-"],
    paused: ["now", "x"], preempted: ["bad", "\\"],
  };

  function timeline() {
    const all = run.of.map((_, request) => runsOf(request, false));
    const many = all.reduce((sum, one) => sum + one.length, 0);
    const bars = many <= MOST_BARS ? all : run.of.map((_, request) => runsOf(request));
    const traces = run.states.map((state, place) => {
      const trace = { type: "bar", orientation: "h", width: 0.75, name: STATE_WORDS[state], base: [], x: [], y: [], customdata: [],
        marker: { color: colour(BARS[state][0]), line: { width: 0 }, pattern: { shape: BARS[state][1], size: 6, fillmode: "overlay", fgcolor: colour("page") } },
        hovertemplate: "%{customdata}<extra></extra>" };
      bars.forEach((runs, request) => runs.forEach(([first, at, steps]) => {
        if (at !== place) return;
        trace.base.push(first - 0.5); trace.x.push(steps); trace.y.push(request);
        const to = steps > 1 ? `steps ${first} to ${first + steps - 1}` : `step ${first}`;
        trace.customdata.push(`${quoted(run.ids[request])}: ${STATE_WORDS[state]}, ${to}`);
      }));
      return trace;
    }).filter((trace) => trace.x.length);
    const chunks = { type: "scatter", mode: "markers", name: "prefill chunk", x: [], y: [], text: [], hoverinfo: "text",
      marker: { symbol: "line-ns-open", size: 12, color: colour("ink"), line: { width: 2 } } };
    const prefill = run.states.indexOf("prefill");
    all.forEach((runs, request) => runs.forEach(([first, state, steps]) => {
      for (let step = first; state === prefill && step < first + steps; step += 1) {
        chunks.x.push(step); chunks.y.push(request);
        chunks.text.push(`${quoted(run.ids[request])}: ${shown(of(request, "now", step))} tokens of the prompt in step ${step}`);
      }
    }));
    const rows = run.of.length;
    const names = run.ids.slice(0, rows).map((name) => quoted(name.length > 14 ? `${name.slice(0, 13)}…` : name));
    const every = Math.ceil(rows / 40);
    const places = names.map((_, place) => place).filter((place) => place % every === 0);
    return [[...traces, chunks], layout(140 + 18 * rows, {
      barmode: "overlay",
      yaxis: { range: [rows - 0.5, -0.5], tickvals: places, ticktext: places.map((place) => names[place]) },
    })];
  }

  function tkvs() {
    const traces = run.of.map((lines, request) => ({
      type: "scatter", mode: (lines.tkv || []).length < SEVEN * MOST_MARKED ? "lines+markers" : "lines", marker: { size: 3 },
      name: quoted(run.ids[request]), ...points(lines.tkv),
      line: { width: 1.5, dash: DASHES[request % DASHES.length] }, showlegend: run.of.length <= MOST_NAMED,
      hovertemplate: `${quoted(run.ids[request])}: tkv %{y:,} in step %{x}<extra></extra>`,
    })).filter((trace) => trace.x.length);
    const whole = { x: [], y: [] };
    const decode = run.kinds.indexOf("decode");
    for (const [first, value, slope, steps] of pieces(run.run.volume, MOST_REPEATED)) {
      whole.x.push(first); whole.y.push(at(run.run.tkv, first));
      if (steps > 1) { whole.x.push(first + steps - 1); whole.y.push(at(run.run.tkv, first + steps - 1)); }
    }
    const jumps = run.happenings.filter((one) => one[1] === "jump");
    return [[
      { type: "scatter", mode: "lines", name: "max-tkv", ...whole, line: { width: 3, color: colour("ink") },
        hovertemplate: "max-tkv %{y:,} in step %{x}<extra></extra>" },
      ...traces,
      { type: "scatter", mode: "markers", name: "jump", x: jumps.map((one) => one[0]), y: jumps.map((one) => one[4]),
        text: jumps.map((one) => quoted(`step ${one[0]}: ${sentence(one)}`)), hoverinfo: "text",
        marker: { symbol: "diamond", size: jumps.length < 2 * MOST_MARKED ? 7 : 4, color: colour("bad") } },
    ], layout(380, { yaxis: { title: { text: "tokens" } } })];
  }

  function volumes() {
    const projected = { x: [], y: [], text: [] };
    run.projected.forEach(([step, newcomer, largest, reaches], place) => {
      const until = place + 1 < run.projected.length ? run.projected[place + 1][0] : last;
      const words = `step ${step}: ${run.ids[newcomer]} joins; projected: ${reaches.map(([one, tkv]) => `${run.ids[one]} to ${shown(tkv)}`).slice(0, 8).join(", ")}; largest ${shown(largest)}`;
      for (const x of [step, until]) { projected.x.push(x); projected.y.push(largest); projected.text.push(quoted(words)); }
    });
    const traces = [
      { type: "scatter", mode: run.run.volume.length < SEVEN * MOST_MARKED ? "lines+markers" : "lines", name: "batch × tkv", marker: { size: 4 }, ...points(run.run.volume), line: { width: 2, color: colour("prompt") },
        connectgaps: false, hovertemplate: "%{y:,} in step %{x}<extra></extra>" },
      { type: "scatter", mode: "lines", name: `limit ${shown(run.limit)}`, x: [0, Math.max(last, 1)], y: [run.limit, run.limit],
        line: { width: 2, dash: "dash", color: colour("bad") }, hoverinfo: "skip" },
    ];
    if (projected.x.length) {
      traces.push({ type: "scatter", mode: "lines+markers", name: "projected at admission", ...projected, hoverinfo: "text",
        line: { width: 1.5, dash: "dot", color: colour("now"), shape: "hv" }, marker: { symbol: "triangle-up", size: 7 } });
    }
    if (run.refused.volume.length) {
      const refused = points(run.refused.volume);
      traces.push({ type: "scatter", mode: "lines+markers", name: "projected and refused", ...refused,
        text: refused.x.map((step) => (step === null ? "" : quoted(`step ${step}: with ${run.ids[since(run.refused.to, step)[1]]} ${shown(at(run.refused.volume, step))} are projected`))),
        hoverinfo: "text", line: { width: 1.5, dash: "dot", color: colour("bad") }, marker: { symbol: "x", size: 6 } });
    }
    return [traces, layout(340, { yaxis: { title: { text: "tokens" }, rangemode: "tozero" } })];
  }

  function pool() {
    const drawn = [["held", "held", "prompt", "solid"], ["shared", "shared", "cached", "dot"], ["cached", "found in the cache", "generated", "dashdot"],
      ["free", "free", "soft", "dash"], ["reserved", "promised", "now", "longdash"]];
    const traces = drawn.filter(([name]) => run.run[name]).map(([name, words, tint, dash]) => ({
      type: "scatter", mode: "lines", name: words, ...points(run.run[name]), line: { width: 2, dash, color: colour(tint) },
      hovertemplate: `${words}: %{y:,} blocks in step %{x}<extra></extra>`,
    }));
    const size = run.pool === null ? "" : ` of ${shown(run.pool)}`;
    return [traces, layout(300, { yaxis: { title: { text: `blocks${size}` }, rangemode: "tozero" } })];
  }

  const PICTURES = { timeline, tkv: tkvs, volume: volumes, pool };
  const pictured = [];

  // A frame each: the slider answers meanwhile.
  async function drawPictures() {
    for (const [id, make] of Object.entries(PICTURES)) {
      await new Promise((drawn) => setTimeout(drawn));
      const there = { timeline: run.steps, tkv: run.run.volume, volume: run.run.volume, pool: run.run.held || run.run.free };
      byId(id).closest("figure").hidden = !there[id];
      if (!there[id]) continue;
      const [traces, shape] = make();
      Plotly.react(id, traces, { ...shape, shapes: cursor() }, { displayModeBar: false, responsive: true });
      if (!pictured.includes(id)) {
        pictured.push(id);
        byId(id).on("plotly_click", (event) => {
          const point = event.points[0];
          go(point.data.type === "bar" ? Math.round(point.base + 0.5) : point.x);
        });
      }
    }
    document.documentElement.dataset.pictures = "yes";
  }

  const cursor = () => [{ type: "line", xref: "x", yref: "paper", x0: chosen.step, x1: chosen.step, y0: 0, y1: 1, line: { width: 1.5, color: colour("link") } }];
  let moving = 0;

  // The slider moves faster than four pictures are drawn.
  function moveCursors() {
    clearTimeout(moving);
    moving = setTimeout(() => {
      for (const id of pictured) Plotly.relayout(id, { shapes: cursor() });
      document.documentElement.dataset.cursor = chosen.step;
    }, 60);
  }

  // Moving

  function draw() {
    const step = chosen.step;
    byId("slider").value = step;
    byId("slider").setAttribute("aria-valuetext", `step ${step} of ${last}`);
    byId("told").textContent = told(step);
    drawGrid(step);
    drawHappenings(step);
    drawAfter(step);
    drawRequests(step);
    drawStory(step);
    drawRules(step);
    document.documentElement.dataset.step = step;
  }

  function go(step) {
    chosen.step = Math.min(Math.max(step, 0), last);
    history.replaceState(null, "", `#step=${chosen.step}`);
    draw();
    moveCursors();
  }

  const KEYS = {
    ArrowLeft: () => chosen.step - 1,
    ArrowRight: () => chosen.step + 1,
    PageUp: () => chosen.step - 10,
    PageDown: () => chosen.step + 10,
    Home: () => 0,
    End: () => last,
    n: () => stops.find((step) => step > chosen.step) ?? chosen.step,
    p: () => stops.findLast((step) => step < chosen.step) ?? chosen.step,
  };

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!(key in KEYS) || scrolls(event.target, key)) return;
    event.preventDefault();
    go(KEYS[key]());
  }

  // Who has put the focus on a table that is wider than the window wants to see the rest of it.
  const scrolls = (target, key) => key.startsWith("Arrow") && target instanceof Element
    && target.classList.contains("wide") && target.scrollWidth > target.clientWidth;

  function fromFragment() {
    const found = /^#step=(\d+)$/.exec(location.hash);
    return found ? Number(found[1]) : null;
  }

  byId("slider").max = last;
  byId("slider").addEventListener("input", (event) => go(Number(event.target.value)));
  for (const button of document.querySelectorAll("#buttons button")) {
    button.addEventListener("click", () => go(KEYS[button.dataset.key]()));
  }
  addEventListener("keydown", pressed);
  addEventListener("hashchange", () => { if (fromFragment() !== null) go(fromFragment()); });
  addEventListener("resize", () => drawGrid(chosen.step));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawPictures);
  chosen.step = Math.min(fromFragment() ?? run.opens, last);
  drawLegend();
  draw();
  document.documentElement.dataset.ready = "yes";
  if (document.readyState === "complete") drawPictures();
  else addEventListener("load", drawPictures);
})();
