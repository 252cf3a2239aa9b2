// Moving from step to step.

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

// If the focus is on a table that is wider than the window, arrow keys scroll the table.
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
byId("zoom").addEventListener("click", () => { chosen.whole = !chosen.whole; drawGrid(chosen.step); });
addEventListener("keydown", pressed);
addEventListener("hashchange", () => { if (fromFragment() !== null) go(fromFragment()); });
byId("near").addEventListener("click", () => { chosen.fromZero = !chosen.fromZero; drawPictures(); });
let resized = 0;
addEventListener("resize", () => {
  drawGrid(chosen.step);
  clearTimeout(resized);
  resized = setTimeout(drawPictures, 100);
});
chosen.step = Math.min(fromFragment() ?? run.opens, last);
drawLegend();
draw();
document.documentElement.dataset.ready = "yes";
drawPictures();
