// Diagnoses, the agreement of nodes, the system's conditions, participation and label mixes.
const computeShares = (picture) => picture.shown.map((row) => {
  const total = row.reduce((sum, count) => sum + count, 0) || 1;
  return row.map((count) => (100 * count) / total);
});
// one scale for all label mixes, so that they can be compared
const largestShare = Math.max(1, ...data.mixes.flatMap((picture) => computeShares(picture).flat()));

// by kind of picture, a function that returns its traces and its layout
const PICTURES = {
  diagnosis: (picture) => [
    picture.lines.map((line, k) => ({
      x: line.round, y: line.value, name: escapeText(line.label), mode: chooseMode(line.value),
      legendgroup: line.label, showlegend: k === picture.lines.findIndex((other) => other.label === line.label),
      line: { color: getColour(line.label), dash: data.styles[line.label].dash, width: data.styles[line.label].strong ? 3 : 2 },
      marker: { color: getColour(line.label), size: 8 },
      hovertemplate: `%{y:${picture.percent ? ".2f" : ".3~g"}}<extra>${escapeText(line.name)}</extra>`,
    })),
    { hovermode: "x unified", showlegend: Boolean(picture.legend), legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
      xaxis: makeSmallAxis(picture.x || "round"),
      yaxis: makeSmallAxis("", picture.log
        ? makeLogAxis("", picture.lines.flatMap((line) => line.value)) : { ticksuffix: picture.percent ? " %" : "" }) },
  ],
  search: (picture) => {
    const isChoice = typeof picture.points[0]?.[0] === "string";
    const getX = (point) => (isChoice ? escapeText(point[0]) : point[0]);
    const select = (state) => picture.points.filter((point) => point[3] === state);
    const makeTrace = (state, marker) => ({
      type: "scatter", mode: "markers", name: state, x: select(state).map((p) => getX(p)), y: select(state).map((p) => p[1]),
      customdata: select(state).map((p) => p[2]), marker,
      hovertemplate: `trial %{customdata}: %{y:.4~g} at %{x}<extra>${state}</extra>`,
    });
    const blue = isDark() ? "#4DA3E6" : "#0072B2", grey = isDark() ? "#A8A8A8" : "#7F7F7F";
    const traces = [makeTrace("finished", { color: blue, size: 8 }), makeTrace("pruned", { color: grey, size: 8, symbol: "circle-open" })]
      .filter((trace) => trace.x.length);
    if (picture.best.length) {
      traces.push({ type: "scatter", mode: "lines", name: "best so far", x: picture.best.map((p) => p[0]), y: picture.best.map((p) => p[1]),
        line: { shape: "hv", color: isDark() ? "#F4814A" : "#D55E00" }, hovertemplate: "best up to trial %{x}: %{y:.4~g}<extra></extra>" });
    }
    return [traces, {
      hovermode: "closest", showlegend: picture.best.length > 0, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
      xaxis: makeSmallAxis(picture.x_title, picture.log
        ? makeLogAxis(picture.x_title, picture.points.map((p) => p[0])) : isChoice ? { type: "category" } : {}),
      yaxis: makeSmallAxis(picture.y_title),
    }];
  },
  participation: (picture) => [
    [{ type: "bar", x: picture.times.map((t) => t[0]), y: picture.times.map((t) => t[1]),
      marker: { color: isDark() ? "#4DA3E6" : "#0072B2" }, hovertemplate: "%{y:.4~g} clients took part in %{x} rounds<extra></extra>" }],
    { bargap: 0.08, yaxis: makeSmallAxis("clients"),
      xaxis: makeSmallAxis("rounds that a client took part in", picture.times.length < 12 ? { dtick: 1 } : {}) },
  ],
  clients: (picture) => [
    [{ type: "bar", x: picture.bins.map((bin) => bin[0]), y: picture.bins.map((bin) => bin[1]), width: 0.92 * picture.width,
      marker: { color: isDark() ? "#4DA3E6" : "#0072B2" }, hovertemplate: `%{y} ${picture.counted} near %{x:.3~g}<extra></extra>` }],
    { yaxis: makeSmallAxis(picture.counted), xaxis: makeSmallAxis(picture.metric) },
  ],
  mixes: (picture) => {
    const shares = computeShares(picture);
    const classes = shares.length ? shares[0].map((_, k) => k) : [];
    const paper = printing ? "#ffffff" : getVariable("--paper");
    return [
      [{ type: "heatmap", z: classes.map((k) => shares.map((row) => row[k])), x: shares.map((_, k) => k + 1), y: classes,
        colorscale: [[0, paper], [1, isDark() ? "#8ED1F6" : "#00456b"]], zmin: 0, zmax: largestShare, xgap: 1, ygap: shares.length && classes.length < 40 ? 1 : 0,
        colorbar: { title: { text: "share of<br>a client's<br>examples" }, ticksuffix: " %", thickness: 10, outlinewidth: 0 },
        hovertemplate: "client %{x}, class %{y}: %{z:.1f} %<extra></extra>" }],
      { xaxis: makeSmallAxis("client", { showgrid: false }), yaxis: makeSmallAxis("class", { showgrid: false, dtick: classes.length > 20 ? 20 : 1 }) },
    ];
  },
};
PICTURES.agreement = PICTURES.diagnosis;
PICTURES.system = (picture) => (picture.bins ? PICTURES.clients(picture) : PICTURES.diagnosis(picture));
function makeSmallAxis(title, extra = {}) {
  return { ...makeAxis("round"), title: { text: title, standoff: 6 }, ...extra };
}
function drawPictures() {
  for (const figure of document.querySelectorAll("[data-picture]")) {
    const [kind, k] = figure.dataset.picture.split(" ");
    const [traces, extra] = PICTURES[kind](data[kind][Number(k)]);
    Plotly.react(figure.querySelector(".plot"), traces, makeLayout(extra), { ...CONFIG, displayModeBar: false });
  }
}
