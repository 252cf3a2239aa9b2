// The pictures of the whole run.

const MOST_LETTERS = 14;
const MOST_REPEATED = 40, MOST_BARS = 300, MOST_MARKED = 60, MOST_NAMED = 12;
const NEAR = 20; // the range shown, in multiples of the tokens beyond the limit
const TURN = 137; // degrees: hues that follow each other are far apart
const hue = (request) => `hsl(${request * TURN % 360}deg 65% var(--tone))`;

// A gap of one step is a prefill between two decode steps, so the line continues across it. `says`
// returns the words for a step and a value.
function points(line, says) {
  const found = [];
  let before = -Infinity;
  for (const [first, value, slope, steps] of pieces(line, MOST_REPEATED)) {
    if (found.length && first > before + 2) found.push(null);
    for (const step of new Set([first, first + steps - 1])) {
      const at = value + slope * (step - first);
      found.push([step, at, says(step, at)]);
    }
    before = first + steps - 1;
  }
  return found;
}

const BARS = {
  waiting: ["right", "dots"], prefill: ["prompt", "rising"], decode: ["generated", ""], held: ["rest", "level"],
  paused: ["now", "crossed"], preempted: ["bad", "falling"],
  loading: ["cached", "dots"], in_flight: ["prompt", "level"], sending: ["cached", "crossed"],
  between_turns: ["prompt", "dots"],
};

function timeline() {
  const all = run.of.map((_, request) => runsOf(request, false));
  const many = all.reduce((sum, runs) => sum + runs.length, 0);
  const drawn = many <= MOST_BARS ? all : run.of.map((_, request) => runsOf(request));
  const series = run.states.map((state, place) => {
    const found = [];
    drawn.forEach((runs, request) => runs.forEach(([first, at, steps]) => {
      if (at !== place) return;
      const to = steps > 1 ? `steps ${first} to ${first + steps - 1}` : `step ${first}`;
      found.push([first, steps, request, `${run.ids[request]}: ${STATE_WORDS[state]}, ${to}`]);
    }));
    const [tint, weave] = BARS[state];
    return { name: STATE_WORDS[state], bars: found, tint: `var(--${tint})`, weave };
  }).filter((entry) => entry.bars.length);
  const prefill = run.states.indexOf("prefill");
  const chunks = [];
  const prefills = all.flat().reduce((sum, [, state, steps]) => sum + (state === prefill ? steps : 0), 0);
  if (prefills <= MOST_MARKED) all.forEach((runs, request) => runs.forEach(([first, state, steps]) => {
    for (let step = first; state === prefill && step < first + steps; step += 1) {
      chunks.push([step, request, `${run.ids[request]}: ${shown(of(request, "now", step))} tokens of the prompt in step ${step}`]);
    }
  }));
  if (chunks.length) series.push({ name: "prefill chunk", alone: true, points: chunks, mark: "tick", size: 6, tint: "var(--ink)" });
  return { series, rows: run.ids, height: 80 + 18 * run.of.length };
}

function tkvs() {
  const named = run.of.length <= MOST_NAMED;
  const series = run.of.map((lines, request) => ({
    name: named ? shortened(run.ids[request], MOST_LETTERS) : "", tint: hue(request), wide: 1.5, dash: DASHES[request % DASHES.length],
    mark: (lines.tkv || []).length < SEVEN * MOST_MARKED ? "circle" : null, size: 1.5,
    points: points(lines.tkv, (step, tkv) => `${run.ids[request]}: tkv ${shown(tkv)} in step ${step}`),
  })).filter((entry) => entry.points.length);
  const whole = points(run.run.volume, (step) => `max-tkv ${shown(at(run.run.tkv, step))} in step ${step}`)
    .map((point) => point && [point[0], at(run.run.tkv, point[0]), point[2]]).filter((point) => point);
  const jumps = run.happenings.filter((happening) => happening[1] === "jump");
  return {
    series: [
      { name: "max-tkv", points: whole, wide: 3, tint: "var(--ink)" },
      ...series,
      ...(jumps.length ? [{ name: "jump", alone: true, mark: "diamond", size: jumps.length < 2 * MOST_MARKED ? 5 : 2, tint: "var(--bad)",
        points: jumps.map((jump) => [jump[0], jump[4], `step ${jump[0]}: ${sentence(jump)}`]) }] : []),
    ],
    ...scaled([whole, ...series.map((entry) => entry.points)], true), height: 360, unit: "tokens",
  };
}

function volumes() {
  const projected = [];
  run.projected.forEach(([step, newcomer, largest, reaches], place) => {
    const until = place + 1 < run.projected.length ? run.projected[place + 1][0] : last;
    const words = `step ${step}: ${run.ids[newcomer]} joins; projected: ${reaches.map(([name, tkv]) => `${run.ids[name]} to ${shown(tkv)}`).slice(0, 8).join(", ")}; largest ${shown(largest)}`;
    for (const x of [step, until]) projected.push([x, largest, words]);
  });
  const volume = points(run.run.volume, (step, tokens) => `${shown(tokens)} in step ${step}`);
  const refused = points(run.refused.volume, (step, tokens) => `step ${step}: with ${run.ids[since(run.refused.to, step)[1]]} ${shown(tokens)} are projected`);
  const limit = [[0, run.limit], [Math.max(last, 1), run.limit]];
  const series = [
    { name: "batch × tkv", points: volume, tint: "var(--prompt)", mark: run.run.volume.length < SEVEN * MOST_MARKED ? "circle" : null, size: 2 },
    { name: `limit ${shown(run.limit)}`, points: limit, tint: "var(--bad)", dash: DASHES[2] },
    { name: "projected at admission", points: projected, held: true, tint: "var(--now)", wide: 1.5, dash: DASHES[1], mark: "triangle", size: 4 },
    { name: "projected and refused", points: refused, tint: "var(--bad)", wide: 1.5, dash: DASHES[1], mark: "cross", size: 3 },
  ].filter((entry) => entry.points.length);
  const near = nearTheLimit();
  const button = byId("near");
  button.hidden = !near;
  button.textContent = chosen.fromZero ? "show what is near the limit" : "the axis is cut: show it from 0";
  const scale = near && !chosen.fromZero ? near : scaled(series.map((entry) => entry.points));
  return { series, ...scale, height: 330, unit: "tokens" };
}

// If the limit is exceeded by a few tokens, show the range around it, so that they are visible.
function nearTheLimit() {
  let most = 0;
  for (const [, value, slope, steps] of pieces(run.run.volume)) most = Math.max(most, value, value + slope * (steps - 1));
  const over = most - run.limit;
  if (over <= 0 || over * NEAR > run.limit) return null;
  return { low: run.limit - NEAR * over, high: run.limit + NEAR * over / 4 };
}

function pool() {
  const kinds = [["held", "held", "prompt"], ["shared", "shared", "cached"], ["cached", "found in the cache", "generated"],
    ["free", "free", "quiet"], ["reserved", "promised", "now"]];
  const series = kinds.filter(([name]) => run.run[name]).map(([name, words, tint], place) => ({
    name: words, tint: `var(--${tint})`, dash: DASHES[place], held: true,
    points: points(run.run[name], (step, blocks) => `${words}: ${shown(blocks)} blocks in step ${step}`),
  }));
  const size = run.pool === null ? "" : ` of ${shown(run.pool)}`;
  return { series, ...scaled(series.map((entry) => entry.points)), height: 280, unit: `blocks${size}` };
}

// The scale: from 0, or from a little below the lowest value, to a little above the highest.
function scaled(lines, cut = false) {
  let least = Infinity, most = 0;
  for (const line of lines) for (const point of line) {
    if (point) { least = Math.min(least, point[1]); most = Math.max(most, point[1]); }
  }
  const room = Math.max(0.05 * (cut ? most - least : most), 1);
  return { low: cut && least > room ? least - room : 0, high: most + room };
}

const PICTURES = { timeline, tkv: tkvs, volume: volumes, pool };
const cursors = new Map();

// Draw each picture in a frame of its own, so that the slider responds in between.
async function drawPictures() {
  for (const [id, make] of Object.entries(PICTURES)) {
    await new Promise((drawn) => setTimeout(drawn));
    const there = { timeline: run.steps, tkv: run.run.volume, volume: run.run.volume, pool: run.run.held || run.run.free };
    const figure = byId(id).closest("figure");
    figure.hidden = !there[id];
    if (!there[id]) continue;
    const move = drawChart(byId(id), { ...make(), caption: figure.querySelector("figcaption").textContent });
    move(chosen.step);
    cursors.set(id, move);
  }
  document.documentElement.dataset.pictures = "yes";
  document.documentElement.dataset.cursor = chosen.step;
}

function moveCursors() {
  for (const move of cursors.values()) move(chosen.step);
  document.documentElement.dataset.cursor = chosen.step;
}
