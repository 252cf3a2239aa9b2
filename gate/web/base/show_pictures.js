// The pictures of the whole run.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// Plotly reads some HTML, TeX between dollars, and names of fields behind a percent sign.
const quoted = (text) => text.replace(/[&<>$%]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const MOST_LETTERS = 14;
const label = (request) => {
  const name = run.ids[request];
  return quoted(name.length > MOST_LETTERS ? `${name.slice(0, MOST_LETTERS - 1)}…` : name);
};
const MOST_REPEATED = 40, MOST_BARS = 300, MOST_MARKED = 60, MOST_NAMED = 12;
const NARROW = 600, LEGEND_LINE = 20; // pixels: a narrow legend has an entry a line
const NEAR = 20; // times the tokens beyond the limit
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
  const axis = { gridcolor: colour("faint"), linecolor: colour("faint"), zeroline: false, automargin: true };
  return {
    height, margin: { l: 50, r: 10, t: 10, b: 40 }, paper_bgcolor: colour("paper"), plot_bgcolor: colour("paper"),
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
  loading: ["cached", "."], in_flight: ["prompt", "-"], sending: ["cached", "x"],
};

function timeline() {
  const all = run.of.map((_, request) => runsOf(request, false));
  const many = all.reduce((sum, one) => sum + one.length, 0);
  const bars = many <= MOST_BARS ? all : run.of.map((_, request) => runsOf(request));
  const traces = run.states.map((state, place) => {
    const trace = { type: "bar", orientation: "h", width: 0.75, name: STATE_WORDS[state], base: [], x: [], y: [], customdata: [],
      marker: { color: colour(BARS[state][0]), line: { width: 0 }, pattern: { shape: BARS[state][1], size: 6, fillmode: "overlay", fgcolor: colour("paper") } },
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
  const prefills = all.flat().reduce((sum, [, state, steps]) => sum + (state === prefill ? steps : 0), 0);
  if (prefills <= MOST_MARKED) all.forEach((runs, request) => runs.forEach(([first, state, steps]) => {
    for (let step = first; state === prefill && step < first + steps; step += 1) {
      chunks.x.push(step); chunks.y.push(request);
      chunks.text.push(`${quoted(run.ids[request])}: ${shown(of(request, "now", step))} tokens of the prompt in step ${step}`);
    }
  }));
  const rows = run.of.length;
  const every = Math.ceil(rows / 40);
  const places = run.of.map((_, place) => place).filter((place) => place % every === 0);
  return [chunks.x.length ? [...traces, chunks] : traces, layout(140 + 18 * rows, {
    barmode: "overlay",
    yaxis: { range: [rows - 0.5, -0.5], tickvals: places, ticktext: places.map(label) },
  })];
}

function tkvs() {
  const traces = run.of.map((lines, request) => ({
    type: "scatter", mode: (lines.tkv || []).length < SEVEN * MOST_MARKED ? "lines+markers" : "lines", marker: { size: 3 },
    name: label(request), ...points(lines.tkv),
    line: { width: 1.5, dash: DASHES[request % DASHES.length] }, showlegend: run.of.length <= MOST_NAMED,
    hovertemplate: `${quoted(run.ids[request])}: tkv %{y:,} in step %{x}<extra></extra>`,
  })).filter((trace) => trace.x.length);
  const whole = { x: [], y: [] };
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
  return [traces, layout(340, { yaxis: { title: { text: "tokens" }, rangemode: "tozero", ...nearTheLimit() } })];
}

// A limit that is exceeded by a few tokens: they are what there is to see. A double click shows all.
function nearTheLimit() {
  let most = 0;
  for (const [, value, slope, steps] of pieces(run.run.volume)) most = Math.max(most, value, value + slope * (steps - 1));
  const over = most - run.limit;
  if (over <= 0 || over * NEAR > run.limit) return {};
  return { range: [run.limit - NEAR * over, run.limit + NEAR * over / 4], title: { text: "tokens, near the limit" } };
}

function pool() {
  const drawn = [["held", "held", "prompt", "solid"], ["shared", "shared", "cached", "dot"], ["cached", "found in the cache", "generated", "dashdot"],
    ["free", "free", "quiet", "dash"], ["reserved", "promised", "now", "longdash"]];
  const traces = drawn.filter(([name]) => run.run[name]).map(([name, words, tint, dash]) => ({
    type: "scatter", mode: "lines", name: words, ...points(run.run[name]), line: { width: 2, dash, shape: "hv", color: colour(tint) },
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
    const named = traces.filter((one) => one.showlegend !== false).length;
    const height = shape.height + (innerWidth < NARROW ? LEGEND_LINE * named : 0);
    Plotly.react(id, traces, { ...shape, height, shapes: cursor() }, { displayModeBar: false, responsive: true });
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

const cursor = () => [{ type: "line", xref: "x", yref: "paper", x0: chosen.step, x1: chosen.step, y0: 0, y1: 1, line: { width: 1.5, color: colour("mark") } }];
let moving = 0;

// The slider moves faster than four pictures are drawn.
function moveCursors() {
  clearTimeout(moving);
  moving = setTimeout(() => {
    for (const id of pictured) Plotly.relayout(id, { shapes: cursor() });
    document.documentElement.dataset.cursor = chosen.step;
  }, 60);
}
