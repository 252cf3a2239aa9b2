// The story of one request.

const MOST_TOLD = 200;

function tell(request) {
  chosen.request = request;
  const sent = run.requests[request];
  const content = sent.content.length > 1 || sent.content[0][0] !== run.ids[request]
    ? ` (${sent.content.map(([stream, tokens]) => `${stream} ${shown(tokens)}`).join(" + ")})` : "";
  const early = sent.stops_after < sent.max_tokens ? `, stops after ${shown(sent.stops_after)}` : "";
  const rank = run.ranked ? `, priority ${sent.priority}` : "";
  let lines = [];
  for (const [first, state, steps] of runsOf(request)) {
    const to = steps > 1 ? `steps ${first} to ${first + steps - 1}` : `step ${first}`;
    lines.push([first, `${to}: ${STATE_WORDS[run.states[state]]}`]);
  }
  for (const happened of run.happenings) {
    if (happened[2] !== request) continue;
    lines.push([happened[0], `step ${happened[0]}: ${sentence(happened)}`, happened[1] === "border"]);
  }
  if (lines.length > MOST_TOLD) lines = lines.filter((line) => !line[2]);
  lines.sort((a, b) => a[0] - b[0]);
  const story = byId("story");
  story.hidden = false;
  const told = lines.slice(0, MOST_TOLD).map(([step, words]) => element("li", {}, goButton(step, words)));
  if (lines.length > MOST_TOLD) told.push(element("li", {}, `and ${shown(lines.length - MOST_TOLD)} more`));
  const close = element("button", { type: "button", click: () => { story.hidden = true; chosen.request = -1; draw(); } }, "close");
  const held = element("p", { id: "story-blocks" });
  story.replaceChildren(
    element("h3", {}, `${run.ids[request]}: prompt ${shown(sent.prompt)}${content}, max_tokens ${shown(sent.max_tokens)}${early}${rank}`),
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

// The phases of a request as [first step, state, steps]. With `merged`, prefill steps of other
// requests do not interrupt a phase.
function runsOf(request, merged = true) {
  const found = [];
  const held = run.states.indexOf("held");
  for (const [first, value, slope, steps] of pieces(run.of[request].state)) {
    const singles = slope ? steps : 1;
    for (let index = 0; index < singles; index += 1) {
      const state = value + slope * index, many = slope ? 1 : steps;
      const open = found[found.length - 1];
      if (open && (open[1] === state || (merged && state === held)) && open[0] + open[2] === first + index) open[2] += many;
      else found.push([first + index, state, many]);
    }
  }
  return found;
}
