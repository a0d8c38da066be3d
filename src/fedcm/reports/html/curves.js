// The curves, their legend, and their numbers as a table.
const plus = (a, b) => a.map((value, k) => value + b[k]);
const along = (curve, name) => (name === "bytes" ? plus(curve.bytes_down, curve.bytes_up) : curve[name]);

function smoothed(values, window) {
  return values.map((value, k) => {
    if (value === null) return null;
    const recent = values.slice(Math.max(0, k + 1 - window), k + 1).filter((one) => one !== null);
    return recent.reduce((sum, one) => sum + one, 0) / recent.length;
  });
}

function picks() {
  const chosen = Object.fromEntries(["cell", "y", "x", "smooth"].map((name) => [name, form.elements[name].value]));
  for (const name of ["logx", "logy", "single"]) chosen[name] = form.elements[name].checked;
  return chosen;
}

function series(row, pick) {
  const scale = pick.y === "test_accuracy" ? 100 : 1;
  const window = Number(pick.smooth);
  const scaled = (values) => smoothed(values, window).map((value) => (value === null ? null : value * scale));
  const x = pick.x === "round" ? row.round : along(row.mean, pick.x);
  return { x, y: scaled(row.mean[pick.y]), spread: scaled(row.deviation[pick.y]), scaled };
}

function traces(row, pick) {
  const { x, y, spread, scaled } = series(row, pick);
  const look = data.looks[row.label];
  const visible = !state.hidden.includes(row.label);
  const line = { color: colour(row.label), dash: look.dash, width: look.strong ? 3 : 2 };
  const made = [];
  const banded = x.map((_, k) => k).filter((k) => y[k] !== null && spread[k] !== null);
  if (!pick.single && banded.length > 1) {
    const low = (k) => (pick.logy ? Math.max(y[k] - spread[k], y[k] / 20) : y[k] - spread[k]);
    const back = [...banded].reverse();
    made.push({
      x: [...banded, ...back].map((k) => x[k]), y: [...banded.map((k) => y[k] + spread[k]), ...back.map(low)],
      fill: "toself", fillcolor: line.color, opacity: 0.16, line: { width: 0 }, mode: "lines", hoverinfo: "skip", visible,
    });
  }
  if (pick.single) {
    for (const run of row.runs) {
      made.push({
        x: along(run, pick.x), y: scaled(run[pick.y]), name: plain(run.name), mode: "lines",
        line: { ...line, width: 1 }, opacity: 0.6, hoverinfo: "skip", visible,
      });
    }
  }
  const marked = y.filter((value) => value !== null).length < 2;
  made.push({
    x, y, name: plain(row.label), mode: marked ? "markers" : "lines", line, marker: { color: line.color, size: 8 }, visible,
    customdata: spread.map((value) => (value === null ? "" : ` ± ${value.toPrecision(3)}`)),
    hovertemplate: `%{y:${pick.y === "test_accuracy" ? ".2f" : ".4~g"}}%{customdata}`,
  });
  return made;
}

function drawCurves() {
  const pick = picks();
  const cell = data.cells[Number(pick.cell)];
  if (!cell) return;
  const seeds = Math.max(0, ...cell.rows.map((row) => row.runs.length));
  const over = seeds > 1 ? (pick.single ? ", mean and every seed" : ", mean over seeds with a band of one standard deviation") : "";
  const caption = document.getElementById("curves-caption");
  caption.replaceChildren(element("strong", cell.title), `: ${AXES[pick.y]} against ${AXES[pick.x]}${over}`);
  form.elements.smoothed.value = pick.smooth === "1" ? "off" : `mean of ${pick.smooth}`;
  legend.replaceChildren(...cell.rows.map((row) => entry(row.label, cell)));
  const zoom = state.zoom || {};
  Plotly.react(plot, cell.rows.flatMap((row) => traces(row, pick)), layout({
    hovermode: "x unified",
    xaxis: axis(pick.x, pick.logx, zoom.x ? { range: zoom.x } : { autorange: true }),
    yaxis: axis(pick.y, pick.logy, zoom.y ? { range: zoom.y } : { autorange: true }),
  }), CONFIG);
  tabulate(cell, pick);
}

function entry(label, cell) {
  const button = element("button", undefined, { type: "button", "aria-pressed": String(!state.hidden.includes(label)) });
  button.append(swatch(label), label);
  button.addEventListener("click", () => {
    state.hidden = state.hidden.includes(label) ? state.hidden.filter((one) => one !== label) : [...state.hidden, label];
    redrawKeepingFocus(label);
  });
  button.addEventListener("dblclick", () => {
    const others = cell.rows.map((row) => row.label).filter((one) => one !== label);
    state.hidden = others.every((one) => state.hidden.includes(one)) ? [] : others;
    redrawKeepingFocus(label);
  });
  return button;
}
function redrawKeepingFocus(label) {
  remember();
  drawCurves();
  [...legend.children].find((button) => button.textContent === label)?.focus();
}

const told = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toLocaleString("en"));
function tabulate(cell, pick) {
  const lines = cell.rows.map((row) => ({ label: row.label, round: row.round, ...series(row, pick) }));
  const rounds = [...new Set(lines.flatMap((line) => line.round))].sort((a, b) => a - b);
  const step = Math.max(1, Math.ceil(rounds.length / 16));
  const shown = rounds.filter((_, k) => (rounds.length - 1 - k) % step === 0);
  const table = document.querySelector("#curves-numbers table");
  const head = element("tr");
  head.append(element("th", "round", { scope: "col" }));
  for (const line of lines) head.append(element("th", line.label, { scope: "col" }));
  const body = shown.map((round) => {
    const made = element("tr");
    made.append(element("th", String(round), { scope: "row" }));
    for (const line of lines) {
      const k = line.round.indexOf(round);
      const spread = k < 0 || line.spread[k] === null ? "" : ` ± ${told(line.spread[k])}`;
      const place = k < 0 || pick.x === "round" ? "" : ` at ${told(line.x[k])}`;
      made.append(element("td", k < 0 ? "–" : told(line.y[k]) + spread + place));
    }
    return made;
  });
  const thead = element("thead");
  thead.append(head);
  const tbody = element("tbody");
  tbody.append(...body);
  table.replaceChildren(element("caption", `${cell.title}: ${AXES[pick.y]} against ${AXES[pick.x]}`), thead, tbody);
}
