// The page as a whole: what it shows first, what it remembers, and when it looks for a newer one.
function showMeasure() {
  const known = [...document.querySelectorAll('input[name="measure"]')].map((radio) => radio.value);
  if (!known.includes(state.measure)) state.measure = "mean_last"; // remembered from a page of an older version
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

// What no run has cannot be chosen; what a cell is compared by is shown unless the reader chose something that it has.
const hasValues = (cell, name) => cell.rows.some((row) => row.mean[name].some((value) => value !== null));
for (const option of [...form.elements.y.options]) {
  if (!data.cells.some((cell) => hasValues(cell, option.value))) option.remove();
}
function followMetric() {
  const cell = data.cells[Number(cells.value)];
  if (!cell || (state.pickedY && hasValues(cell, form.elements.y.value))) return;
  form.elements.y.value = hasValues(cell, cell.metric) ? cell.metric : "train_loss";
}
followMetric();
form.addEventListener("submit", (event) => event.preventDefault());
function follow(event) {
  if (event.target.name === "y") state.pickedY = true;
  if (event.target.name === "cell") followMetric();
  state.picks = picks();
  state.zoom = null;
  remember();
  drawCurves();
}
form.addEventListener("input", follow);
form.addEventListener("change", follow); // some browsers have this alone for a list that a program chooses from
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
