"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const form = document.querySelector(".controls");
  const plot = document.getElementById("curves-plot");
  const legend = document.querySelector(".legend");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 40rem)");
  const KEY = `fedcm-report ${window.location.pathname}`;
  const state = { measure: "mean_last_100", picks: {}, hidden: [], zoom: null, open: [], scroll: null, ...remembered() };
  let printing = false;

  function remembered() {
    try { return JSON.parse(sessionStorage.getItem(KEY)) || {}; } catch { return {}; }
  }
  function remember() {
    try { sessionStorage.setItem(KEY, JSON.stringify(state)); } catch { /* a browser that keeps nothing still shows all */ }
  }

  // plotly reads a few HTML tags in texts: names of runs must not be among them
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const isDark = () => dark.matches && !printing;
  const colour = (label) => (isDark() ? data.looks[label].dark : data.looks[label].light);
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ink = () => (printing ? "#000" : variable("--ink"));
  const rule = () => (printing ? "#ccc" : variable("--rule"));

  function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  const STROKES = { dash: "7 4", dashdot: "7 3 2 3", dot: "2 3", longdash: "10 3", longdashdot: "10 3 2 3", "2px 2px": "2 2" };
  function swatch(label) {
    const ns = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(ns, "svg");
    const line = document.createElementNS(ns, "line");
    svg.setAttribute("width", 26);
    svg.setAttribute("height", 10);
    svg.setAttribute("aria-hidden", "true");
    const look = { x1: 1, x2: 25, y1: 5, y2: 5, stroke: colour(label), "stroke-width": data.looks[label].strong ? 3 : 2 };
    for (const [key, value] of Object.entries(look)) line.setAttribute(key, value);
    if (STROKES[data.looks[label].dash]) line.setAttribute("stroke-dasharray", STROKES[data.looks[label].dash]);
    svg.append(line);
    return svg;
  }
  function paintSwatches() {
    for (const place of document.querySelectorAll(".swatch[data-row]")) {
      if (data.looks[place.dataset.row]) place.replaceChildren(swatch(place.dataset.row));
    }
  }

  // ------------------------------------------------------------------------------------------------ measures
  function showMeasure() {
    document.body.dataset.measure = state.measure;
    for (const radio of document.querySelectorAll('input[name="measure"]')) radio.checked = radio.value === state.measure;
  }
  for (const radio of document.querySelectorAll('input[name="measure"]')) {
    radio.addEventListener("change", () => { state.measure = radio.value; showMeasure(); remember(); });
  }

  // ------------------------------------------------------------------------------------------------ curves
  const AXES = {
    round: "round", bytes: "bytes down and up", bytes_up: "bytes up", seconds: "seconds",
    test_accuracy: "test accuracy, %", test_loss: "test loss", train_loss: "training loss",
  };
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

  function axis(name, log, extra) {
    return {
      title: { text: AXES[name], standoff: 8 }, type: log ? "log" : "linear", automargin: true, gridcolor: rule(),
      zeroline: false, linecolor: rule(), ticks: "outside", tickcolor: rule(), exponentformat: "SI", ...extra,
    };
  }

  function layout(extra) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      font: { family: variable("--sans"), size: narrow.matches ? 12 : 13, color: ink() },
      margin: { l: 8, r: 8, t: 8, b: 8 },
      hoverlabel: { bgcolor: printing ? "#fff" : variable("--wash"), bordercolor: rule(), font: { color: ink() } },
      dragmode: narrow.matches ? false : "zoom", ...extra,
    };
  }
  const CONFIG = {
    responsive: true, displaylogo: false, displayModeBar: "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d"],
  };

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

  // ------------------------------------------------------------------------------------------------ small pictures
  const DRAWN = {
    participation: (picture) => [
      [{ type: "bar", x: picture.times.map((t) => t[0]), y: picture.times.map((t) => t[1]),
        marker: { color: isDark() ? "#4DA3E6" : "#0072B2" }, hovertemplate: "%{y:.4~g} clients took part in %{x} rounds<extra></extra>" }],
      { bargap: 0.08, xaxis: small("rounds that a client took part in", { rangemode: "tozero" }), yaxis: small("clients") },
    ],
    mixes: (picture) => {
      const shares = picture.shown.map((row) => {
        const all = row.reduce((sum, count) => sum + count, 0) || 1;
        return row.map((count) => (100 * count) / all);
      });
      const classes = shares.length ? shares[0].map((_, k) => k) : [];
      const paper = printing ? "#ffffff" : variable("--paper");
      return [
        [{ type: "heatmap", z: classes.map((k) => shares.map((row) => row[k])), x: shares.map((_, k) => k + 1), y: classes,
          colorscale: [[0, paper], [1, isDark() ? "#8ED1F6" : "#00456b"]], zmin: 0, xgap: 1, ygap: shares.length && classes.length < 40 ? 1 : 0,
          colorbar: { title: { text: "% of a client" }, thickness: 10, outlinewidth: 0 },
          hovertemplate: "client %{x}, class %{y}: %{z:.1f} %<extra></extra>" }],
        { xaxis: small("client", { showgrid: false }), yaxis: small("class", { showgrid: false, dtick: classes.length > 20 ? 20 : 1 }) },
      ];
    },
  };
  function small(title, extra = {}) {
    return { ...axis("round", false, {}), title: { text: title, standoff: 6 }, ...extra };
  }
  function drawPictures() {
    for (const figure of document.querySelectorAll("[data-picture]")) {
      const [name, k] = figure.dataset.picture.split(" ");
      const [made, extra] = DRAWN[name](data[name][Number(k)]);
      Plotly.react(figure.querySelector(".plot"), made, layout(extra), { ...CONFIG, displayModeBar: false });
    }
  }

  // ------------------------------------------------------------------------------------------------ all of it
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

  // ------------------------------------------------------------------------------------------------ live
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
})();
