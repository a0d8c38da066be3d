// What all pictures of the page share: the data, what the reader picked, colours and axes.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const form = document.querySelector(".controls");
const plot = document.getElementById("curves-plot");
const legend = document.querySelector(".legend");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 40rem)");
const KEY = `fedcm-report ${window.location.pathname}`;
const state = { measure: "mean_last", picks: {}, pickedY: false, hidden: [], zoom: null, open: [], scroll: null, ...remembered() };
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

const AXES = {
  round: "round", bytes: "bytes down and up", bytes_up: "bytes up", seconds: "seconds",
  test_accuracy: "test accuracy, %", test_loss: "test loss", train_loss: "training loss",
};

function axis(name, log, extra) {
  return {
    title: { text: AXES[name], standoff: 8 }, type: log ? "log" : "linear", automargin: true, gridcolor: rule(),
    zeroline: false, linecolor: rule(), ticks: "outside", tickcolor: rule(), exponentformat: "SI", ...extra,
  };
}

function layout(extra) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    ...(printing ? { width: 660 } : { autosize: true }), // paper has no size yet when it is drawn for it
    font: { family: variable("--sans"), size: narrow.matches ? 12 : 13, color: ink() },
    margin: { l: 8, r: 8, t: 8, b: 8 },
    hoverlabel: { bgcolor: printing ? "#fff" : variable("--wash"), bordercolor: rule(), font: { color: ink() } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("--faint"), activecolor: ink() },
    dragmode: narrow.matches ? false : "zoom", ...extra,
  };
}
const CONFIG = {
  responsive: true, displaylogo: false, displayModeBar: narrow.matches ? false : "hover",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], // named, so that none of them leaves the page
};
