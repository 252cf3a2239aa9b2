"use strict";

const MARKS = { padding: "·", cached: "c", prompt: "p", generated: "g" };
const element = (id) => document.getElementById(id);

function make(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/* Let the server perform a move, and show the run that it returns. One move at a time. */
let asking = false;

async function move(path, words = {}) {
  if (asking) return;
  asking = true;
  document.body.setAttribute("aria-busy", "true");
  try {
    const reply = await fetch(`.${path}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(words),
    });
    if (reply.ok) show(await reply.json(), path);
    else complain((await reply.text()).trim());
  } catch {
    complain("the server does not answer: is schedproof step still running?");
  } finally {
    asking = false;
    document.body.removeAttribute("aria-busy");
  }
}

function complain(text, kind = "error") {
  element("error").hidden = !text;
  element("error").className = kind;
  element("error").textContent = text;
}

function act(key, words, label, path, body, disabled) {
  const button = make("button", words, { type: "button", "aria-label": label, "data-key": key });
  button.disabled = disabled;
  button.addEventListener("click", () => move(path, body));
  return button;
}

function requestItem(request, run) {
  const item = make("li", "", request.here ? {} : { class: "gone" });
  item.append(make("strong", request.id), ` ${request.where}: ${request.asked}`);
  if (request.progress) item.append(make("br"), request.progress);
  for (const plan of request.plans) item.append(make("br"), make("em", `→ ${plan}`));
  if (request.here && !run.ended) {
    const tools = make("div", "", { class: "tools" });
    const planned = request.plans.length > 0;
    tools.append(
      act(`end ${request.id}`, "EOS next", `${request.id}: the next token is EOS`, "/end", { id: request.id }, planned),
      act(`abort ${request.id}`, "Abort", `${request.id}: abort before the step`, "/abort",
        { id: request.id }, planned || !run.can_abort),
      act(`inside ${request.id}`, "Abort inside", `${request.id}: abort inside the step`, "/abort",
        { id: request.id, inside: true }, planned || !run.can_abort));
    item.append(tools);
  }
  return item;
}

function rowOf(request, size) {
  const row = make("div", "", { class: "row" });
  const sums = {};
  const drawn = request.cells.map(([blocks, tokens]) => {
    const cell = make("div", "", { class: blocks > 1 ? "cell many" : "cell" });
    for (const [kind, count] of tokens) {
      sums[kind] = (sums[kind] || 0) + count * blocks;
      const part = make("span", MARKS[kind] + (blocks > 1 ? `×${blocks}` : ""), { class: kind });
      part.style.flex = `${count} 0 0`;
      cell.append(part);
    }
    const empty = make("span");
    empty.style.flex = `${size - tokens.reduce((sum, [, count]) => sum + count, 0)} 0 0`;
    cell.append(empty);
    return cell;
  });
  const words = Object.entries(sums).map(([kind, count]) => `${kind} ${count}`).join(", ");
  const cells = make("div", "", {
    class: "cells", role: "img", "aria-label": `${request.id}, ${request.where}, in tokens: ${words || "nothing computed"}`,
  });
  cells.append(...drawn);
  if (!drawn.length) cells.append(make("span", "nothing computed"));
  row.append(make("span", request.id, { class: "name" }), cells);
  return row;
}

function measure([name, value, limit, unit]) {
  const box = make("div", "", { class: "measure" });
  const over = value > limit;
  const text = `${name}: ${value} of ${limit} ${unit}${over ? ` ✕ beyond the limit by ${value - limit}` : ""}`;
  box.append(make("span", text, over ? { class: "broken" } : {}));
  box.append(make("meter", "", { min: 0, max: Math.max(limit, value), value, high: limit, "aria-label": name }));
  return box;
}

/* Draw how much of a limit each step used: a line over the steps, below the line of the limit. */
const SVG = "http://www.w3.org/2000/svg";
const [WIDE, HIGH] = [600, 90];

function draw(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function chart({ name, limit, unit, values }, first, broken) {
  const most = Math.max(limit, ...values.filter((value) => value !== null));
  const x = (place) => (place * WIDE) / Math.max(values.length, 10);
  const y = (value) => HIGH - (value * (HIGH - 6)) / most;
  let path = "";
  values.forEach((value, place) => {
    if (value === null) return;
    const joins = place > 0 && values[place - 1] !== null;
    path += `${joins ? "L" : "M"}${x(place)},${y(value)}H${x(place + 1)}`;
  });
  const words = `${name}, step by step; the limit is ${limit} ${unit}`;
  const picture = draw("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": words, preserveAspectRatio: "none" });
  for (const step of broken) {
    picture.append(draw("rect", { class: "at", x: x(step - first), y: 0, width: x(1), height: HIGH }));
  }
  picture.append(draw("path", { class: "limit", d: `M0,${y(limit)}H${WIDE}` }), draw("path", { class: "taken", d: path }));
  const figure = make("figure");
  figure.append(make("figcaption", `${words}; steps ${first} to ${first + values.length - 1}`), picture);
  return figure;
}

function brokenRules(last) {
  if (!last) return [];
  return last.broken.flatMap(([rule, title, says, message], place) => {
    const after = last.after || place > 0 ? " (after the first broken rule, where a replay stops)" : "";
    return [
      make("p", `✕ BROKEN ${rule} ${title}${place > 0 ? " (in the same step)" : after}`, { class: "broken" }),
      make("p", message, { class: "line" }),
      make("p", says, { class: "quiet" }),
    ];
  });
}

function show(run, why) {
  const focus = document.activeElement && document.activeElement.dataset.key;
  const { last } = run;
  document.title = run.title;
  for (const id of ["title", "config", "next"]) element(id).textContent = run[id];
  element("verdict").textContent = run.broken ? `✕ ${run.verdict}` : run.verdict;
  element("verdict").className = run.broken || run.fault ? "broken" : "";
  element("replay").textContent = run.replay;
  element("ranked").hidden = !run.has_priorities;
  element("loads").hidden = !run.has_connector;
  element("requests").replaceChildren(...run.requests.map((request) => requestItem(request, run)));
  for (const id of ["step", "steps"]) element(id).disabled = run.ended;
  element("undo").disabled = !run.can_undo;
  element("save").disabled = run.requests.length === 0;
  element("line").textContent = last ? last.line.replace(/ +/g, " ") : "no step has been taken yet";
  element("broken").replaceChildren(...brokenRules(last));
  if (run.details.length) element("broken").append(make("pre", run.details.join("\n"), { class: "line" }));
  const now = run.queues.map(([name, members]) => [name, members.join(" ") || "none"]);
  if (run.tkv !== null) now.push(["tkv", `${run.tkv} tokens`]);
  element("now").replaceChildren(...now.flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
  element("measures").replaceChildren(...run.measures.map(measure));
  const { first, lines, broken } = run.chart;
  element("chart").replaceChildren(...lines.map((line) => chart(line, first, broken)));
  const rows = run.requests.filter((request) => request.cells).map((request) => rowOf(request, run.block_size));
  element("grid").replaceChildren(...(rows.length ? rows : [make("p", "no request is unfinished")]));
  const staked = last ? last.exercised : [];
  element("staked").textContent = String(staked.length);
  element("at-stake").replaceChildren(...staked.map(([id, title]) => make("li", `${id} ${title}`)));
  const log = run.log.map(({ line, broken }) => {
    const item = make("li");
    item.append(make("span", line, { class: "line" }));
    if (broken.length) item.append(make("span", ` ✕ ${broken.join(", ")}`, { class: "broken" }));
    return item;
  }).reverse();
  if (run.left_out) log.push(make("li", `and ${run.left_out} earlier steps`));
  element("log").replaceChildren(...log);
  complain(run.notice, "quiet");
  const told = last && why === "/step" ? `${last.line}; ${run.verdict}` : `before step ${run.next}; ${run.verdict}`;
  element("live").textContent = told.replace(/ +/g, " ");
  const again = focus && document.querySelector(`[data-key="${focus}"]`);
  if (again && !again.disabled) again.focus();
  else if (focus) element("step").focus();
}

element("arrive").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = {};
  for (const id of ["prompt", "max_tokens", "shared", "priority"]) words[id] = Number(element(id).value);
  for (const input of element("loads").hidden ? [] : element("loads").querySelectorAll("input")) {
    if (input.value !== "") words[input.id] = Number(input.value);
  }
  move("/arrive", words);
});
element("steps").addEventListener("click", () => move("/step", { count: 10 }));
element("load").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  try {
    await move("/load", { scenario: JSON.parse(await file.text()) });
  } catch {
    complain(`${file.name}: not JSON; valid: a scenario file`);
  }
});
for (const id of ["step", "undo", "restart"]) element(id).addEventListener("click", () => move(`/${id}`));
element("save").addEventListener("click", () => {
  const link = make("a", "", { href: "./scenario", download: "by-hand.json" });
  document.body.append(link);
  link.click();
  link.remove();
});
show(JSON.parse(element("data").textContent), "");
