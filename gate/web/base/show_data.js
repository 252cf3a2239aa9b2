// The run that Python has judged. Every number was recorded step by step; the page computes none.

const run = await unpacked(document.getElementById("data").textContent);
const last = Math.max(run.steps - 1, 0);
const chosen = { step: 0, request: -1, rule: -1, whole: false, fromZero: false };

const STATE_WORDS = {
  waiting: "waiting",
  prefill: "prefill",
  decode: "decode",
  held: "running, no token in this step",
  paused: "paused",
  preempted: "preempted, waits again",
  loading: "parked, its blocks are loaded",
  in_flight: "in flight, no token yet",
  sending: "has ended, its blocks are sent",
  between_turns: "between two turns",
};

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// The number of a line in a step, or null if it has none. Seven numbers of a line form a piece:
// first step, value, slope, steps; and for its repetitions: stride, rise, times.
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

// Yields the pieces of a line as [first step, value, slope, steps]. A pattern that repeats more than
// `most` times is drawn as one piece, from its first step to its last.
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

// The latest entry of [step, ...] rows that applies in a step.
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
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const shown = (number) => (number === null ? "" : grouped.format(number));

const byStep = new Map();
for (const happening of run.happenings) {
  const step = Math.min(happening[0], last);
  if (!byStep.has(step)) byStep.set(step, []);
  byStep.get(step).push(happening);
}
const stops = [...byStep.keys()]
  .filter((step) => byStep.get(step).some((happening) => run.stops.includes(happening[1])))
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
    else if (key === "style") made.style.cssText = value; // the page's policy forbids style attributes
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);
const goButton = (step, words) =>
  element("button", { type: "button", class: "plain", click: () => go(step) }, words);
