// As light or dark as the reader's other pages; where it is narrow, the legend is below and the
// title has lines.
const picture = document.getElementById("{plot_id}");
const dark = matchMedia("(prefers-color-scheme: dark)"), narrow = matchMedia("(max-width: 600px)");
const wide = { ...picture.layout.legend };
const words = [picture.layout.title.text, (picture.layout.title.subtitle || {}).text || ""];
const below = ((picture.layout.xaxis || {}).title || {}).text || "";
const lines = (text) => narrow.matches ? text.replace(/(.{24}\S*) /g, "$1<br>") : text;
function adapt() {
  const [ink, paper, faint] = dark.matches ? ["#e8ecf0", "#14181d", "#3d4752"] : ["#1b2128", "#ffffff", "#c3cad2"];
  document.body.style.background = paper;
  const under = { orientation: "h", x: 0, y: -0.3, xanchor: "left", yanchor: "top" };
  const changes = { "font.color": ink, paper_bgcolor: paper, plot_bgcolor: paper,
    legend: narrow.matches ? under : wide, "title.text": lines(words[0]), "xaxis.title.text": lines(below),
    "title.subtitle.text": lines(words[1]), "margin.l": narrow.matches ? 50 : 80,
    "margin.r": narrow.matches ? 10 : 80, "margin.t": narrow.matches ? 150 : 100 };
  for (const axis of Object.keys(picture.layout).filter((name) => /^[xy]axis/.test(name))) {
    for (const part of ["gridcolor", "linecolor", "zerolinecolor"]) changes[`${axis}.${part}`] = faint;
  }
  Plotly.relayout(picture, changes);
}
for (const query of [dark, narrow]) query.addEventListener("change", adapt);
adapt();
