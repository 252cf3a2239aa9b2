// On a phone, the sections of a long page are folded behind their headings.
const PHONE = "(max-width: 600px)";
const LONG = 10000; // pixels

function foldSections() {
  const page = document.querySelector("article");
  if (!matchMedia(PHONE).matches || page.scrollHeight < LONG) return;
  for (const heading of page.querySelectorAll(":scope > h2")) {
    const section = document.createElement("details");
    section.className = "section";
    heading.replaceWith(section);
    section.append(document.createElement("summary"));
    section.firstChild.append(heading);
    while (section.nextSibling && section.nextSibling.nodeName !== "H2") section.append(section.nextSibling);
  }
}

// A link to a heading or a rule opens the block that is folded around it.
function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  for (let node = target?.closest("details"); node; node = node.parentElement?.closest("details")) {
    node.open = true;
  }
  target?.scrollIntoView();
}

addEventListener("hashchange", openTarget);
addEventListener("DOMContentLoaded", () => {
  foldSections();
  openTarget();
});
