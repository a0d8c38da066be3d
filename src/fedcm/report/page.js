// The page as a whole: what it shows first, what it remembers, and when it looks for a newer one.
function showMeasure() {
  document.body.dataset.measure = state.measure;
  for (const radio of document.querySelectorAll('input[name="measure"]')) radio.checked = radio.value === state.measure;
}
for (const radio of document.querySelectorAll('input[name="measure"]')) {
  radio.addEventListener("change", () => { state.measure = radio.value; showMeasure(); remember(); });
}

function draw() {
  paintSwatches();
  drawCurves();
  drawPictures();
}

const cells = form.elements.cell;
data.cells.forEach((cell, k) => cells.append(element("option", cell.title, { value: k })));
cells.closest("label").hidden = data.cells.length < 2;
for (const [name, value] of Object.entries(state.picks)) {
  const control = form.elements[name];
  if (control?.type === "checkbox") control.checked = value;
  else if (control) control.value = value;
}
if (cells.selectedIndex < 0) cells.selectedIndex = 0;
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", () => {
  state.picks = picks();
  state.zoom = null;
  remember();
  drawCurves();
});
showMeasure();
draw();
plot.on?.("plotly_relayout", () => {
  const kept = (which) => (plot.layout[which].autorange ? null : plot.layout[which].range);
  state.zoom = { x: kept("xaxis"), y: kept("yaxis") };
  remember();
});
dark.addEventListener("change", draw);
window.addEventListener("beforeprint", () => { printing = true; draw(); });
window.addEventListener("afterprint", () => { printing = false; draw(); });

const details = [...document.querySelectorAll("details")];
if (state.scroll !== null) {
  details.forEach((one, k) => { one.open = state.open.includes(k); });
  window.scrollTo(0, state.scroll);
  state.scroll = null;
  remember();
}
if (data.stamp !== null) {
  const look = () => {
    const asked = element("script", undefined, { src: `stamp.js?${Date.now()}` });
    asked.addEventListener("load", () => {
      asked.remove();
      if (window.fedcmStamp !== data.stamp) {
        state.scroll = window.scrollY;
        state.open = details.flatMap((one, k) => (one.open ? [k] : []));
        remember();
        window.location.reload();
      }
    });
    asked.addEventListener("error", () => asked.remove());
    document.head.append(asked);
  };
  window.setInterval(look, 2000);
}
