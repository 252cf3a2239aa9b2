// A link to a rule opens the block that is folded around it.
function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  for (let node = target?.closest("details"); node; node = node.parentElement?.closest("details")) {
    node.open = true;
  }
  (target?.closest("details.rule") ?? target)?.scrollIntoView();
}

addEventListener("hashchange", openTarget);
addEventListener("DOMContentLoaded", openTarget);
