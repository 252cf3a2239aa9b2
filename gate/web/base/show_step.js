// The fields of a step, and the requests in it.

const MOST_HAPPENINGS = 12;

function told(step) {
  if (!run.steps) return "no step ran";
  const kind = run.kinds[at(run.run.kind, step)];
  const parts = [`step ${step} of ${last}: ${kind}`];
  const tokens = at(run.run.tokens, step);
  if (kind !== "idle") parts.push(`${shown(at(run.run.batch, step))} scheduled, ${shown(tokens)} token${tokens === 1 ? "" : "s"}`);
  const tkv = at(run.run.tkv, step), volume = at(run.run.volume, step);
  if (volume !== null) {
    const batch = at(run.run.batch, step);
    parts.push(`${batch} request${batch === 1 ? "" : "s"} × tkv ${shown(tkv)} = ${shown(volume)} of ${shown(run.limit)}`);
  } else if (tkv) parts.push(`tkv ${shown(tkv)}`);
  for (const [rule, broke] of run.broken) {
    if (broke === step) parts.push(`${rule} BROKEN`);
    else if (broke > last && step === last) parts.push(`then, in step ${broke}, ${rule} BROKEN`);
  }
  return parts.join("; ");
}

function drawHappenings(step) {
  const all = byStep.get(step) || [];
  const shownFirst = [...all.filter((happening) => happening[1] === "broken"), ...all.filter((happening) => happening[1] !== "broken")];
  const lines = shownFirst.slice(0, MOST_HAPPENINGS).map((happening) => element("li", { "data-what": happening[1] }, sentence(happening)));
  if (all.length > MOST_HAPPENINGS) lines.push(element("li", {}, `and ${all.length - MOST_HAPPENINGS} more`));
  byId("happenings").replaceChildren(...(lines.length ? lines : [element("li", {}, "no events")]));
}

function drawAfter(step) {
  const rows = [];
  for (const [name, changes] of Object.entries(run.queues)) {
    const found = since(changes, step);
    if (found) rows.push([name, found[1].map((place) => run.ids[place]).join(", ") || "none"]);
  }
  for (const [name, words] of [["held", "blocks held"], ["shared", "of them shared"], ["cached", "of them found in the cache"], ["free", "blocks free"], ["reserved", "free blocks promised"]]) {
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
    const left = (byStep.get(step) || []).find((happening) => happening[1] === "finished" && happening[2] === request);
    const words = left ? `${STATE_WORDS[state]}, finished (${left[5]})` : STATE_WORDS[state];
    rows.push(element("tr", { "data-request": name, class: request === chosen.request ? "chosen" : null },
      element("th", { scope: "row" }, choose), element("td", { "data-field": "state" }, words),
      ...COLUMNS.map(([field]) => element("td", { class: "number", "data-field": field }, shown(of(request, field, step))))));
  });
  table.tBodies[0].replaceChildren(...rows);
}
