// What all figures of the page share: the data, the reader's choices, colours and axes.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const form = document.querySelector(".controls");
const plot = document.getElementById("curves-plot");
const legend = document.querySelector(".legend");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 40rem)");
const KEY = `fedcm-report ${window.location.pathname}`;
const DEFAULTS = { measure: "mean_last", choices: {}, choseY: false, hidden: null, zoom: null, sort: {}, open: [], scroll: null };
const state = { ...DEFAULTS, ...loadState() };
let printing = false;

function loadState() {
  try { return JSON.parse(sessionStorage.getItem(KEY)) || {}; } catch { return {}; }
}
function saveState() {
  try { sessionStorage.setItem(KEY, JSON.stringify(state)); } catch { /* a browser without storage still shows everything */ }
}

// plotly interprets some HTML tags in texts; a run's name must not contain any
const escapeText = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
const isDark = () => dark.matches && !printing;
const getColour = (label) => (isDark() ? data.styles[label].dark : data.styles[label].light);
const getVariable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const getInk = () => (printing ? "#000" : getVariable("--ink"));
const getRule = () => (printing ? "#ccc" : getVariable("--rule"));
const isKnown = (value) => value !== null && value !== undefined;
// a line needs two values; a single one is drawn as a point
const chooseMode = (values) => (values.filter(isKnown).length < 2 ? "markers" : "lines");

function makeElement(name, text, attributes = {}) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

const STROKES = { dash: "7 4", dashdot: "7 3 2 3", dot: "2 3", longdash: "10 3", longdashdot: "10 3 2 3", "2px 2px": "2 2" };
function makeSwatch(label) {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  const line = document.createElementNS(ns, "line");
  const style = data.styles[label];
  svg.setAttribute("width", 26);
  svg.setAttribute("height", 10);
  svg.setAttribute("aria-hidden", "true");
  const attributes = { x1: 1, x2: 25, y1: 5, y2: 5, stroke: getColour(label), "stroke-width": style.strong ? 3 : 2 };
  for (const [key, value] of Object.entries(attributes)) line.setAttribute(key, value);
  if (STROKES[style.dash]) line.setAttribute("stroke-dasharray", STROKES[style.dash]);
  svg.append(line);
  return svg;
}
function drawSwatches() {
  for (const swatch of document.querySelectorAll(".swatch[data-row]")) {
    if (data.styles[swatch.dataset.row]) swatch.replaceChildren(makeSwatch(swatch.dataset.row));
  }
}

const TITLES = {
  round: "round", bytes: "bytes down and up", bytes_up: "bytes up", seconds: "seconds", simulated_seconds: "simulated seconds",
  test_accuracy: "test accuracy", test_loss: "test loss", train_loss: "training loss",
};
for (const [name, quantity] of Object.entries(data.quantities)) TITLES[name] = quantity.title;
const isShare = (name) => name === "test_accuracy" || Boolean(data.quantities[name]?.share);
const isBytes = (name) => name === "bytes" || name === "bytes_up";

function makeAxis(name, extra = {}) {
  return {
    title: { text: TITLES[name], standoff: 8 }, type: "linear", automargin: true, gridcolor: getRule(), zeroline: false,
    linecolor: getRule(), ticks: "outside", tickcolor: getRule(), exponentformat: isBytes(name) ? "SI" : "none",
    ticksuffix: isShare(name) ? " %" : isBytes(name) ? "B" : "", ...extra,
  };
}

// Logarithmic axes have plain numbers: powers of 10, with 2 and 5 or all digits if they are too few,
// or some of the powers if they are too many.
const UNITS = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
function formatTick(value, name) {
  if (isBytes(name)) {
    const [size, unit] = UNITS.find(([least]) => value >= least) || [1, "B"];
    return `${Number((value / size).toPrecision(3))} ${unit}`;
  }
  const text = value >= 1e-6 && value < 1e7 ? value.toFixed(10).replace(/\.?0+$/, "") : value.toPrecision(2);
  return isShare(name) ? `${text} %` : text;
}
function chooseLogTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  for (const digits of [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const ticks = [];
    for (let decade = first; decade <= last; decade += 1) ticks.push(...digits.map((digit) => Number(`${digit}e${decade}`)));
    const inside = ticks.filter((tick) => low <= tick && tick <= high);
    if (inside.length >= 3) return inside.filter((_, k) => k % Math.ceil(inside.length / 8) === 0);
  }
  const magnitude = 10 ** Math.floor(Math.log10((high - low) / 5));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((one) => (high - low) / one <= 6);
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k += 1) ticks.push(Number((k * step).toPrecision(6)));
  return ticks;
}
// `range`: the visible part as plotly gives it, in powers of 10; by default all of `values`
function makeLogAxis(name, values, range = null) {
  const positive = values.filter((value) => isKnown(value) && value > 0);
  if (!positive.length) return { type: "log" };
  const ends = range || [Math.log10(Math.min(...positive) / 1.15), Math.log10(Math.max(...positive) * 1.15)];
  const ticks = chooseLogTicks(10 ** ends[0], 10 ** ends[1]);
  return { type: "log", range: ends, tickvals: ticks, ticktext: ticks.map((tick) => formatTick(tick, name)) };
}

function makeLayout(extra) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    ...(printing ? { width: 660 } : { autosize: true }), // the paper's width is not known while drawing for it
    font: { family: getVariable("--sans"), size: narrow.matches ? 12 : 13, color: getInk() },
    margin: { l: 8, r: 20, t: 8, b: 8 },
    hoverlabel: { bgcolor: printing ? "#fff" : getVariable("--wash"), bordercolor: getRule(), font: { color: getInk() } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: getVariable("--faint"), activecolor: getInk() },
    dragmode: narrow.matches ? false : "zoom", ...extra,
  };
}
const CONFIG = {
  responsive: true, displaylogo: false, displayModeBar: narrow.matches ? false : "hover",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], // listed, because others would open another site
};
