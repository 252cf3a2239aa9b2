"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const ROWS = 36; // states in a column
const ROW = 22, COLUMN = 26, GAP = 64, EDGE = 34; // pixels at full size
const NEAR = 14; // pixels around a state that belong to it
const SHAPES = {
  clients: "M-7 0L0-7L7 0L0 7Z",
  prefill: "M-6-6H6V6H-6Z",
  decode: "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0-6 0Z",
  mixed: "M-7 0L-4-6H4L7 0L4 6H-4Z",
  idle: "M-7 6L0-7L7 6Z",
};
const KINDS = {
  clients: "before a step: the clients moved last",
  prefill: "after a prefill step",
  decode: "after a decode step",
  mixed: "after a step of both",
  idle: "after an idle step",
};
const MARKS = { "broken": "✕", "doubtful": "?", "exercised": "◆", "not exercised": "○" };

const { states, moves, rules } = data;
const element = (id) => document.getElementById(id);
const out = states.map(() => []);
moves.forEach((move, number) => out[move.from].push(number));
let selected = 0;
let way = []; // moves of the highlighted path
let scale = 1;

function make(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/* The path to the first broken rule is drawn through the middle, with its states side by side. */
const firstBroken = rules.find((candidate) => candidate.verdict === "broken");

function straighten() {
  for (const number of [...((firstBroken && firstBroken.path) || [])].reverse()) { // backwards, so that the first moves win
    const state = states[moves[number].to ?? moves[number].from];
    const level = states.filter((other) => other.depth === state.depth);
    const middle = Math.floor(Math.min(level.length, ROWS) / 2);
    const there = level.find((other) => other.row === middle);
    if (there) [there.row, state.row] = [state.row, there.row];
  }
}

straighten();

/* The places of the states: a block of columns for each number of moves from the start. */
function places() {
  const sizes = [];
  for (const state of states) sizes[state.depth] = Math.max(sizes[state.depth] || 0, state.row + 1);
  const starts = [EDGE];
  sizes.forEach((size, depth) => {
    starts.push(starts[depth] + (Math.ceil(size / ROWS) - 1) * COLUMN + GAP);
  });
  const tallest = Math.min(ROWS, Math.max(...sizes));
  const at = states.map((state) => {
    const size = Math.min(ROWS, sizes[state.depth]);
    return {
      x: starts[state.depth] + Math.floor(state.row / ROWS) * COLUMN,
      y: EDGE + ((state.row % ROWS) + (tallest - size) / 2) * ROW,
    };
  });
  return { at, starts, width: starts[sizes.length], height: EDGE + tallest * ROW + EDGE / 2 };
}

const laid = places();

function curve(move) {
  const a = laid.at[move.from];
  const b = move.to === null ? { x: a.x + 22, y: a.y - 8 } : laid.at[move.to];
  const bend = b.x > a.x ? (b.x - a.x) / 2 : 30;
  return `M${a.x} ${a.y}C${a.x + bend} ${a.y} ${b.x - bend} ${b.y} ${b.x} ${b.y}`;
}

function middle(move) {
  const a = laid.at[move.from];
  const b = move.to === null ? { x: a.x + 26, y: a.y - 8 } : laid.at[move.to];
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}

/* The graph itself is drawn once; highlights are in layers above it. */
const layers = { way: drawn("g", {}), ring: drawn("g", {}) };

function draw() {
  const [edges, nodes, crosses] = [0, 1, 2].map(() => drawn("g", { class: "rest" }));
  moves.forEach((move, number) => {
    const tree = move.to !== null && states[move.to].first === number;
    const kind = `edge${tree ? " tree" : ""}${move.broken ? " bad" : ""}`;
    edges.append(drawn("path", { d: curve(move), class: kind }));
    if (move.broken) {
      const { x, y } = middle(move);
      crosses.append(drawn("text", { x: x - 5, y: y + 5, class: "cross" }, "✕"));
    }
  });
  states.forEach((state, number) => nodes.append(shape(number, "")));
  const heads = laid.starts.slice(0, -1).map((x, depth) =>
    drawn("text", { x: x - 4, y: 14 }, String(depth)));
  element("graph").append(...heads, edges, layers.way, nodes, crosses, layers.ring);
}

function shape(number, extra) {
  const { x, y } = laid.at[number];
  const kind = states[number].kind;
  return drawn("path", {
    d: SHAPES[kind], transform: `translate(${x} ${y})`,
    class: `state${kind === "clients" ? "" : " step"}${extra}`,
  });
}

function highlight() {
  layers.way.replaceChildren();
  layers.ring.replaceChildren();
  element("graph").classList.toggle("chosen", way.length > 0); // the page fades everything else
  way.forEach((number, place) => {
    const move = moves[number];
    const bad = move.broken ? " bad" : "";
    layers.way.append(drawn("path", { d: curve(move), class: `edge way${bad}` }));
    const ends = place === 0 ? [[move.from, 0], [move.to, 1]] : [[move.to, place + 1]];
    for (const [state, count] of ends) {
      if (state === null) continue;
      const { x, y } = laid.at[state];
      layers.ring.append(shape(state, " way"));
      layers.ring.append(drawn("text", { x: x - 4, y: y - 11, class: "number" }, String(count)));
    }
  });
  const { x, y } = laid.at[selected];
  layers.ring.append(drawn("circle", { cx: x, cy: y, r: 12, class: "ring" }));
}

function resize(next) {
  scale = Math.min(3, Math.max(0.15, next));
  const graph = element("graph");
  graph.setAttribute("viewBox", `0 0 ${laid.width} ${laid.height}`);
  graph.setAttribute("width", laid.width * scale);
  graph.setAttribute("height", laid.height * scale);
}

function bringIntoView() {
  const view = element("view"), { x, y } = laid.at[selected];
  for (const [side, size, at] of [["scrollLeft", "clientWidth", x], ["scrollTop", "clientHeight", y]]) {
    const place = at * scale;
    if (place < view[side] + 30 || place > view[side] + view[size] - 30) {
      view[side] = place - view[size] / 2;
    }
  }
}

/* The moves that first reached a state. The fields of the state are those after this path. */
function pathTo(state) {
  const path = [];
  for (let move = states[state].first; move !== null; move = states[moves[move].from].first) {
    path.unshift(move);
  }
  return path;
}

function moveItem(number, target) {
  const move = moves[number];
  const item = make("li");
  const where = move.to === null
    ? (move.broken ? "the run ends" : "a state that is not drawn") : `state ${move.to}`;
  const words = target === "from" ? move.does : `${move.does} → ${where}`;
  const button = make("button", words, { type: "button" });
  if (move.to === null) button.disabled = true;
  else button.addEventListener("click", () => select(move.to));
  item.append(button);
  if (move.answer) item.append(make("span", move.answer, { class: "line" }));
  for (const [rule, message] of move.broken || []) {
    item.append(make("span", `✕ breaks ${rule}: ${message}`, { class: "broken" }));
  }
  return item;
}

function tell() {
  const state = states[selected];
  const told = make("dl");
  const row = (name, value) => told.append(make("dt", name), make("dd", value));
  row("state", `${selected}, ${KINDS[state.kind]}; ${state.depth} moves and ${state.steps} steps from the start`);
  for (const [name, members] of state.queues) row(name, members.join(" ") || "none");
  if (state.tkv !== null) row("tkv", `${state.tkv} tokens, in the last step`);
  for (const [name, value, limit, unit] of state.measures) {
    row(name, `${value} of ${limit} ${unit}${value > limit ? ": beyond the limit" : ""}`);
  }
  for (const [name, words] of state.requests) row(name, words);
  if (state.unopened) row("moves", "not explored: the graph was cut");
  element("state").replaceChildren(told);
  const onward = out[selected].map((number) => moveItem(number, "to"));
  const nothing = state.unopened ? "not explored" : "none: every request has left";
  element("moves").replaceChildren(...(onward.length ? onward : [make("li", nothing)]));
  const path = pathTo(selected), isAbove = path.length > 0 && path.every((move, place) => move === way[place]);
  const above = [make("li", `the first ${path.length} moves of the run above`)];
  element("path").replaceChildren(...(isAbove ? above : path.map((number) => moveItem(number, "from"))));
  element("save-state").disabled = selected === 0;
  element("save-told").textContent = selected === 0 ? "" : `schedproof replay ${stateFile()}`;
  const waits = state.queues.map(([name, members]) => `${name} ${members.join(" ") || "none"}`);
  element("live").textContent = `state ${selected}, ${KINDS[state.kind]}; ${waits.join(", ")}`;
}

function select(number) {
  selected = number;
  highlight();
  tell();
  bringIntoView();
}

function stateFile() {
  return `state-${selected}.json`;
}

function save(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = make("a", "", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function saveState() {
  const { scenario } = states[selected];
  if (scenario) save(stateFile(), `${JSON.stringify({ ...data.scenario, requests: scenario }, null, 2)}\n`);
}

function choose(id) {
  const rule = rules.find((candidate) => candidate.id === id);
  const told = element("rule-told");
  told.replaceChildren();
  way = rule && rule.path ? rule.path : [];
  if (!rule) {
    select(selected);
    return;
  }
  told.append(make("p", rule.says));
  told.append(make("p", `${MARKS[rule.verdict]} ${rule.verdict}`, rule.verdict === "broken" ? { class: "broken" } : {}));
  if (rule.message) told.append(make("p", rule.message, { class: "line" }));
  told.append(make("p", `exercised when: ${rule.witness}`, { class: "quiet" }));
  if (rule.scenario) {
    const where = rule.verdict === "broken" ? "breaks it" : "exercises it";
    const count = way.length ? `; the path has ${way.length} moves` : "";
    told.append(make("p", `The shortest run that ${where}${count}:`));
    const list = make("ol", "", { id: "way" });
    list.append(...way.map((number) => moveItem(number, "from")));
    told.append(list);
    const button = make("button", `Save ${rule.file}`, { type: "button", id: "save-rule" });
    button.addEventListener("click", () => save(rule.file, rule.scenario));
    told.append(button, make("p", rule.command, { class: "line", id: "command" }));
  } else if (rule.verdict !== "not exercised") {
    told.append(make("p", "No run with these lengths shows it in a replay.", { class: "quiet" }));
  }
  const last = way.length ? moves[way[way.length - 1]] : null;
  select(last ? last.from : selected); // the next state may first have been reached by another path
}

function follow(key) {
  const state = states[selected];
  const level = states.map((_, number) => number).filter((number) => states[number].depth === state.depth)
    .sort((a, b) => states[a].row - states[b].row);
  const place = level.indexOf(selected);
  const onWay = way.map((number) => moves[number]).find((move) => move.from === selected && move.to !== null);
  const onward = onWay || out[selected].map((number) => moves[number]).find((move) => move.to !== null && move.to !== selected);
  const path = pathTo(selected);
  const next = {
    ArrowRight: onward && onward.to,
    ArrowLeft: path.length ? moves[path[path.length - 1]].from : undefined,
    ArrowUp: level[place - 1],
    ArrowDown: level[place + 1],
    Home: 0,
  }[key];
  if (next !== undefined) select(next);
}

function legend() {
  const there = new Set(states.map((state) => state.kind));
  for (const kind of Object.keys(KINDS).filter((known) => there.has(known))) {
    const item = make("li", KINDS[kind]);
    const icon = drawn("svg", { width: 18, height: 18, viewBox: "-9 -9 18 18", "aria-hidden": "true" });
    icon.append(drawn("path", { d: SHAPES[kind], class: `state${kind === "clients" ? "" : " step"}` }));
    item.prepend(icon);
    element("legend").append(item);
  }
  element("legend").append(make("li", "✕ a move that breaks a rule (dashed)"));
  element("legend").append(make("li", "① thick line with numbers: the path to the rule"));
  element("legend").append(make("li", "◯ ring: the selected state"));
}

function begin() {
  document.title = data.title;
  for (const id of ["title", "says", "config"]) element(id).textContent = data[id];
  element("counted").textContent = data.counted + (data.reduced
    ? "; a length is chosen only when the scheduler or a rule reads it" : "; without reductions");
  element("cut").hidden = !data.cut;
  element("cut").textContent = data.cut || "";
  const list = element("rule");
  list.append(make("option", "choose a rule", { value: "" }));
  for (const verdict of Object.keys(MARKS)) {
    const group = make("optgroup", "", { label: verdict });
    for (const rule of rules.filter((candidate) => candidate.verdict === verdict)) {
      group.append(make("option", `${MARKS[verdict]} ${rule.id} ${rule.title}`, { value: rule.id }));
    }
    if (group.children.length) list.append(group);
  }
  list.addEventListener("change", () => choose(list.value));
  element("smaller").addEventListener("click", () => resize(scale / 1.25));
  element("larger").addEventListener("click", () => resize(scale * 1.25));
  element("whole").addEventListener("click", () => resize((element("view").clientWidth - 20) / laid.width));
  element("start").addEventListener("click", () => select(0));
  element("save-state").addEventListener("click", saveState);
  element("view").addEventListener("keydown", (event) => {
    if (["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home"].includes(event.key)) {
      event.preventDefault();
      follow(event.key);
    }
  });
  element("graph").addEventListener("click", (event) => {
    const box = element("graph").getBoundingClientRect();
    const x = (event.clientX - box.left) / scale, y = (event.clientY - box.top) / scale;
    const far = laid.at.map((place) => Math.hypot(place.x - x, place.y - y));
    const nearest = far.indexOf(Math.min(...far));
    if (far[nearest] <= NEAR) select(nearest);
  });
  legend();
  draw();
  resize(1);
  list.value = firstBroken ? firstBroken.id : "";
  choose(list.value);
  select(0);
  showPath();
}

/* Show the start at the left, and as much of the path as fits. */
function showPath() {
  const ends = way.map((number) => laid.at[moves[number].to ?? moves[number].from]);
  const view = element("view"), right = Math.max(0, ...ends.map((place) => place.x)) + 2 * EDGE;
  if (ends.length) resize(Math.max(0.4, Math.min(1, (view.clientWidth - 20) / right)));
  view.scrollLeft = 0;
  view.scrollTop = laid.at[0].y * scale - view.clientHeight / 2;
}

begin();
