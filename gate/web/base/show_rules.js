// The rules, and the state of each rule in a step.

function drawRules(step) {
  const body = byId("rules").tBodies[0];
  if (!body.rows.length) foldNever();
  if (!body.rows.length) {
    body.append(...run.rules.map((rule, place) => {
      let steps = 0;
      for (const [, , , many] of pieces(rule.stakes)) steps += many;
      const words = `${shown(steps)} step${steps === 1 ? "" : "s"}`;
      return element("tr", { "data-rule": rule.id, hidden: rule.stakes.length || broken.has(rule.id) ? null : "" },
        element("th", { scope: "row" }, element("button", { type: "button", class: "plain", click: () => seek(place) }, rule.id)),
        element("td", {}), element("td", { class: "number" }, words),
        element("td", {}, element("strong", {}, rule.title), ` ${rule.says} `, element("small", {}, rule.source)));
    }));
  }
  run.rules.forEach((rule, place) => {
    const row = body.rows[place];
    const broke = run.broken.some(([id, number]) => id === rule.id && Math.min(number, last) === step);
    const never = rule.stakes.length ? "held" : "never exercised";
    const state = broke ? "BROKEN" : at(rule.stakes, step) ? "held, exercised" : never;
    row.cells[1].textContent = state;
    row.className = [broke ? "broken" : "", chosen.rule === place ? "chosen" : ""].join(" ").trim();
  });
}

const broken = new Set(run.broken.map(([id]) => id));

// List only the names of rules that this run never exercised.
function foldNever() {
  const never = run.rules.filter((rule) => !rule.stakes.length && !broken.has(rule.id));
  const fold = byId("never");
  fold.hidden = !never.length;
  fold.querySelector("summary").textContent = `${never.length} rule${never.length === 1 ? " was" : "s were"} never exercised in this run`;
  fold.querySelector("p").textContent = never.map((rule) => `${rule.id} ${rule.title}`).join("; ");
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
