// Diagnoses, participation and label mixes.
const shares = (picture) => picture.shown.map((row) => {
  const all = row.reduce((sum, count) => sum + count, 0) || 1;
  return row.map((count) => (100 * count) / all);
});
// one scale for all label mixes, so that they can be compared
const largest = Math.max(1, ...data.mixes.flatMap((picture) => shares(picture).flat()));

const DRAWN = {
  diagnosis: (picture) => [
    picture.lines.map((line, k) => ({
      x: line.round, y: line.value, name: plain(line.label), mode: line.round.length < 2 ? "markers" : "lines",
      legendgroup: line.label, showlegend: k === picture.lines.findIndex((other) => other.label === line.label),
      line: { color: colour(line.label), dash: data.looks[line.label].dash, width: data.looks[line.label].strong ? 3 : 2 },
      marker: { color: colour(line.label), size: 8 }, hovertemplate: `%{y:.3~g}<extra>${plain(line.name)}</extra>`,
    })),
    { hovermode: "x unified", showlegend: Boolean(picture.legend), legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
      xaxis: small("round"), yaxis: small("", { type: picture.log ? "log" : "linear", exponentformat: "power" }) },
  ],
  participation: (picture) => [
    [{ type: "bar", x: picture.times.map((t) => t[0]), y: picture.times.map((t) => t[1]),
      marker: { color: isDark() ? "#4DA3E6" : "#0072B2" }, hovertemplate: "%{y:.4~g} clients took part in %{x} rounds<extra></extra>" }],
    { bargap: 0.08, xaxis: small("rounds that a client took part in", { rangemode: "tozero" }), yaxis: small("clients") },
  ],
  mixes: (picture) => {
    const mix = shares(picture);
    const classes = mix.length ? mix[0].map((_, k) => k) : [];
    const paper = printing ? "#ffffff" : variable("--paper");
    return [
      [{ type: "heatmap", z: classes.map((k) => mix.map((row) => row[k])), x: mix.map((_, k) => k + 1), y: classes,
        colorscale: [[0, paper], [1, isDark() ? "#8ED1F6" : "#00456b"]], zmin: 0, zmax: largest, xgap: 1, ygap: mix.length && classes.length < 40 ? 1 : 0,
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
