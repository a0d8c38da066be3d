// The page as a whole: what it shows first, the choices it keeps, and how a live page reloads itself.
function showMeasure() {
  const measures = [...document.querySelectorAll('input[name="measure"]')].map((radio) => radio.value);
  if (!measures.includes(state.measure)) state.measure = DEFAULTS.measure; // stored by an older version of the page
  document.body.dataset.measure = state.measure;
  for (const radio of document.querySelectorAll('input[name="measure"]')) radio.checked = radio.value === state.measure;
}
for (const radio of document.querySelectorAll('input[name="measure"]')) {
  radio.addEventListener("change", () => { state.measure = radio.value; showMeasure(); sortTables(); saveState(); });
}

// Long tables of results and costs can be sorted by a column: the best first, then the worst, then as before.
const MIN_SORTED = 13; // rows
const longTables = [...document.querySelectorAll("table.result, table.costs")].filter((table) =>
  [...table.tBodies].some((body) => body.rows.length >= MIN_SORTED));
const tableRows = longTables.map((table) => [...table.tBodies].map((body) => [...body.rows]));
function readNumber(row, column) {
  const cell = row.cells[column];
  const measure = cell.querySelector(`.measure.${state.measure}`);
  return Number.parseFloat((measure || cell.firstChild).textContent); // without the bytes that follow the rounds
}
function sortTables() {
  longTables.forEach((table, k) => {
    const [column, order] = state.sort[k] || [0, ""];
    const sign = order === "descending" ? -1 : 1;
    const compare = (a, b) => (Number.isNaN(a) ? 1 : 0) - (Number.isNaN(b) ? 1 : 0) || sign * (a - b) || 0;
    [...table.tHead.rows[0].cells].forEach((cell, c) => {
      if (order && c === column) cell.setAttribute("aria-sort", order);
      else cell.removeAttribute("aria-sort");
    });
    [...table.tBodies].forEach((body, b) => {
      const heads = tableRows[k][b].filter((row) => row.cells.length === 1), rows = tableRows[k][b].filter((row) => row.cells.length > 1);
      if (order) rows.sort((one, other) => compare(readNumber(one, column), readNumber(other, column)));
      body.append(...heads, ...rows);
    });
  });
}
longTables.forEach((table, k) => {
  const firstOrder = table.matches(".costs") || table.dataset.better === "lower" ? "ascending" : "descending";
  const orders = [firstOrder, firstOrder === "ascending" ? "descending" : "ascending", ""];
  [...table.tHead.rows[0].cells].slice(1).forEach((cell, c) => {
    const button = makeElement("button", undefined, { type: "button" });
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const [column, order] = state.sort[k] || [0, ""];
      state.sort[k] = [c + 1, column === c + 1 ? orders[(orders.indexOf(order) + 1) % 3] : firstOrder];
      sortTables();
      saveState();
    });
  });
});

function drawAll() {
  drawSwatches();
  drawCurves();
  drawPictures();
}

for (const [name, quantity] of Object.entries(data.quantities)) {
  form.elements.y.append(makeElement("option", quantity.title, { value: name }));
}
const cells = form.elements.cell;
data.cells.forEach((cell, k) => cells.append(makeElement("option", cell.title, { value: k })));
cells.closest("label").hidden = data.cells.length < 2;
for (const [name, value] of Object.entries(state.choices)) {
  const control = form.elements[name];
  if (control?.type === "checkbox") control.checked = value;
  else if (control) control.value = value;
}
if (cells.selectedIndex < 0) cells.selectedIndex = 0;

// Remove quantities that no run has. Show the cell's own metric, unless the reader chose a quantity that the cell has.
const hasValues = (cell, name) => cell.rows.some((row) => (row.mean[name] || []).some((value) => value !== null));
for (const option of [...form.elements.y.options]) {
  if (!data.cells.some((cell) => hasValues(cell, option.value))) option.remove();
}
for (const option of [...form.elements.x.options].filter((one) => one.value === "simulated_seconds")) {
  if (!data.cells.some((cell) => hasValues(cell, option.value))) option.remove();
}
function selectMetric() {
  const cell = data.cells[Number(cells.value)];
  if (!cell || (state.choseY && hasValues(cell, form.elements.y.value))) return;
  form.elements.y.value = hasValues(cell, cell.metric) ? cell.metric : "train_loss";
}
selectMetric();
form.addEventListener("submit", (event) => event.preventDefault());
function handleChoice(event) {
  if (event.target.name === "y") state.choseY = true;
  if (event.target.name === "cell") selectMetric();
  state.choices = readChoices();
  state.zoom = null;
  saveState();
  drawCurves();
}
form.addEventListener("input", handleChoice);
form.addEventListener("change", handleChoice); // some browsers send only this one for a list that a program changes
showMeasure();
sortTables();
drawAll();
plot.on?.("plotly_relayout", (change) => {
  const keys = Object.keys(change);
  const getZoom = (which) => {
    if (keys.includes(`${which}axis.autorange`)) return null;
    const { autorange, range } = plot.layout[`${which}axis`];
    const isZoomed = keys.some((key) => key.startsWith(`${which}axis.range`)) || Boolean(state.zoom?.[which]);
    return autorange || !isZoomed ? null : [...range];
  };
  state.zoom = { x: getZoom("x"), y: getZoom("y") };
  saveState();
  if (form.elements.logx.checked || form.elements.logy.checked) drawCurves(); // with ticks for what is visible now
});
dark.addEventListener("change", drawAll);
window.addEventListener("beforeprint", () => { printing = true; drawAll(); });
window.addEventListener("afterprint", () => { printing = false; drawAll(); });

const details = [...document.querySelectorAll("details")];
if (state.scroll !== null) {
  details.forEach((one, k) => { one.open = state.open.includes(k); });
  window.scrollTo(0, state.scroll);
  state.scroll = null;
  saveState();
}
if (data.stamp !== null) {
  const checkStamp = () => {
    const script = makeElement("script", undefined, { src: `stamp.js?${Date.now()}` });
    script.addEventListener("load", () => {
      script.remove();
      if (window.fedcmStamp !== data.stamp) {
        state.scroll = window.scrollY;
        state.open = details.flatMap((one, k) => (one.open ? [k] : []));
        saveState();
        window.location.reload();
      }
    });
    script.addEventListener("error", () => script.remove());
    document.head.append(script);
  };
  window.setInterval(checkStamp, 2000);
}
