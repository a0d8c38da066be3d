// The curves, their legend, and their numbers as a table.
const addValues = (a, b) => a.map((value, k) => value + b[k]);
const getX = (curve, name) => (name === "bytes" ? addValues(curve.bytes_down, curve.bytes_up) : curve[name] ?? []);

function smooth(values, window) {
  return values.map((value, k) => {
    if (value === null) return null;
    const recent = values.slice(Math.max(0, k + 1 - window), k + 1).filter((one) => one !== null);
    return recent.reduce((sum, one) => sum + one, 0) / recent.length;
  });
}

function readChoices() {
  const choices = Object.fromEntries(["cell", "y", "x", "smooth"].map((name) => [name, form.elements[name].value]));
  for (const name of ["logx", "logy", "single"]) choices[name] = form.elements[name].checked;
  return choices;
}

function scaleValues(values, choices) {
  const scale = isShare(choices.y) ? 100 : 1;
  return smooth(values, Number(choices.smooth)).map((value) => (value === null ? null : value * scale));
}
const getColumn = (columns, name, row) => columns[name] || row.round.map(() => null); // some rows lack a metric
function makeSeries(row, choices) {
  const x = choices.x === "round" ? row.round : getX(row.mean, choices.x);
  return { x, y: scaleValues(getColumn(row.mean, choices.y, row), choices), spread: scaleValues(getColumn(row.deviation, choices.y, row), choices) };
}

// the curves that the reader has hidden, or else those that a crowded cell does not show at first
const listHidden = (cell) => state.hidden ?? cell.hidden;
const isCrowded = (cell) => cell.hidden.length > 0;

function makeTraces(row, choices, hidden) {
  const { x, y, spread } = makeSeries(row, choices);
  const style = data.styles[row.label];
  const visible = !hidden.includes(row.label);
  const line = { color: getColour(row.label), dash: style.dash, width: style.strong ? 3 : 2 };
  const traces = [];
  const banded = x.map((_, k) => k).filter((k) => y[k] !== null && spread[k] !== null);
  if (!choices.single && banded.length > 1) {
    const getLow = (k) => (choices.logy ? Math.max(y[k] - spread[k], y[k] / 20) : y[k] - spread[k]);
    const back = [...banded].reverse();
    traces.push({
      x: [...banded, ...back].map((k) => x[k]), y: [...banded.map((k) => y[k] + spread[k]), ...back.map(getLow)],
      fill: "toself", fillcolor: line.color, opacity: 0.16, line: { width: 0 }, mode: "lines", hoverinfo: "skip", visible,
    });
  }
  if (choices.single) {
    for (const run of row.runs) {
      const values = scaleValues(run[choices.y] || run.round.map(() => null), choices);
      traces.push({
        x: getX(run, choices.x), y: values, name: escapeText(run.name), mode: chooseMode(values),
        line: { ...line, width: 1 }, marker: { color: line.color, size: 6 }, opacity: 0.6, hoverinfo: "skip", visible,
      });
    }
  }
  const mode = chooseMode(y);
  traces.push({
    x, y, name: escapeText(row.label), mode, line, marker: { color: line.color, size: 9 }, visible,
    error_y: { type: "data", array: spread, visible: mode === "markers" && !choices.single && spread.some(isKnown) },
    customdata: spread.map((value) => (value === null ? "" : ` ± ${value.toPrecision(3)}`)),
    hovertemplate: isShare(choices.y) ? "%{y:.2f}%{customdata} %" : "%{y:.4~g}%{customdata}",
  });
  return traces;
}

// few rounds: without fractions between them
const isShort = (name, cell) => name === "round" && Math.max(0, ...cell.rows.flatMap((row) => row.round)) <= 10;
function makeCurvesAxis(which, choices, cell) {
  const name = choices[which], zoom = (state.zoom || {})[which];
  const extra = choices[`log${which}`]
    ? makeLogAxis(name, cell.rows.flatMap((row) => makeSeries(row, choices)[which]), zoom)
    : zoom ? { range: zoom } : { autorange: true, ...(isShort(name, cell) ? { dtick: 1 } : {}) };
  return makeAxis(name, extra);
}

function drawCurves() {
  const choices = readChoices();
  const cell = data.cells[Number(choices.cell)];
  if (!cell) return;
  const seeds = Math.max(0, ...cell.rows.map((row) => row.runs.length));
  const note = choices.single ? ", mean and every seed" : ", mean over seeds with a band of one standard deviation";
  const caption = document.getElementById("curves-caption");
  const between = choices.x.startsWith("bytes") && cell.rows.some((row) => row.decentralised);
  const axes = `${TITLES[choices.y]} against ${TITLES[choices.x]}${between ? " (without a server: between all neighbours)" : ""}`;
  const hidden = listHidden(cell);
  const visible = cell.rows.filter((row) => !hidden.includes(row.label));
  caption.replaceChildren(makeElement("strong", cell.title), `: ${axes}${seeds > 1 ? note : ""}`);
  form.elements.smoothed.value = choices.smooth === "1" ? "off" : `mean of ${choices.smooth}`;
  legend.classList.toggle("grouped", isCrowded(cell));
  legend.replaceChildren(...(isCrowded(cell) ? makeGroupedLegend(cell) : cell.rows.map((row) => makeLegendButton(row.label, cell))));
  Plotly.react(plot, cell.rows.flatMap((row) => makeTraces(row, choices, hidden)), makeLayout({
    hovermode: isCrowded(cell) && visible.length > 12 ? "closest" : "x unified", xaxis: makeCurvesAxis("x", choices, cell), yaxis: makeCurvesAxis("y", choices, cell),
  }), CONFIG);
  fillNumbers(cell, choices);
}

function makeLegendButton(label, cell) {
  const pressed = String(!listHidden(cell).includes(label));
  const button = makeElement("button", undefined, { type: "button", "aria-pressed": pressed });
  button.append(makeSwatch(label), label);
  button.addEventListener("click", () => {
    const hidden = listHidden(cell);
    state.hidden = hidden.includes(label) ? hidden.filter((one) => one !== label) : [...hidden, label];
    redrawKeepingFocus(label);
  });
  button.addEventListener("dblclick", () => {
    const others = cell.rows.map((row) => row.label).filter((one) => one !== label);
    state.hidden = others.every((one) => listHidden(cell).includes(one)) ? [] : others;
    redrawKeepingFocus(label);
  });
  return button;
}
// More curves than can be told apart: one line per group of methods, whose name shows or hides the group.
function makeGroupedLegend(cell) {
  const labels = cell.rows.map((row) => row.label);
  const shown = makeElement("div", undefined, { class: "choices" });
  const choices = [["the best", null], ["all", []], ["none", labels]];
  shown.append(makeElement("span", "show"), ...choices.map(([text, hidden]) => makeTextButton(text, () => { state.hidden = hidden; })));
  shown.children[1].title = "the best methods, FedCM and FedAvg";
  const groups = data.method_groups.map((group) => {
    const own = cell.rows.filter((row) => row.group === group).map((row) => row.label);
    if (!own.length) return null;
    const line = makeElement("div", undefined, { class: "choices", role: "group", "aria-label": group });
    const name = makeTextButton(group, () => {
      const hidden = listHidden(cell), others = hidden.filter((one) => !own.includes(one));
      state.hidden = own.some((one) => hidden.includes(one)) ? others : [...others, ...own];
    });
    line.append(name, ...own.map((label) => makeLegendButton(label, cell)));
    return line;
  });
  return [shown, ...groups.filter(isKnown)];
}
function makeTextButton(text, change) {
  const button = makeElement("button", text, { type: "button", class: "text" });
  button.addEventListener("click", () => { change(); redrawKeepingFocus(text); });
  return button;
}
function redrawKeepingFocus(label) {
  saveState();
  drawCurves();
  [...legend.querySelectorAll("button")].find((button) => button.textContent === label)?.focus();
}

const formatNumber = (value) => (isKnown(value) ? Number(value.toPrecision(4)).toLocaleString("en") : "–");
function fillNumbers(cell, choices) {
  const lines = cell.rows.map((row) => ({ label: row.label, round: row.round, ...makeSeries(row, choices) }));
  const rounds = [...new Set(lines.flatMap((line) => line.round))].sort((a, b) => a - b);
  const step = Math.max(1, Math.ceil(rounds.length / 16));
  const shown = rounds.filter((_, k) => (rounds.length - 1 - k) % step === 0);
  const table = document.querySelector("#curves-numbers table");
  const head = makeElement("tr");
  head.append(makeElement("th", "round", { scope: "col" }));
  for (const line of lines) head.append(makeElement("th", line.label, { scope: "col" }));
  const body = shown.map((round) => {
    const row = makeElement("tr");
    row.append(makeElement("th", String(round), { scope: "row" }));
    for (const line of lines) {
      const k = line.round.indexOf(round);
      const spread = k < 0 || line.spread[k] === null ? "" : ` ± ${formatNumber(line.spread[k])}`;
      const position = k < 0 || choices.x === "round" ? "" : ` at ${formatNumber(line.x[k])}`;
      row.append(makeElement("td", k < 0 ? "–" : formatNumber(line.y[k]) + spread + position));
    }
    return row;
  });
  const thead = makeElement("thead");
  thead.append(head);
  const tbody = makeElement("tbody");
  tbody.append(...body);
  const unit = isShare(choices.y) ? " in %" : "";
  const caption = `${cell.title}: ${TITLES[choices.y]}${unit} against ${TITLES[choices.x]}`;
  table.replaceChildren(makeElement("caption", caption), thead, tbody);
}
