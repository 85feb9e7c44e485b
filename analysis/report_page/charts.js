/* Charts by plotly.js, which is unpacked after the page can be read. Each chart has a table beside it. */

/** @type {Promise<any>|null} */
let plotlyLoaded = null;

/** Wait until the page has been painted, or half a second in a window that is not shown. */
function painted() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve, 0));
    setTimeout(resolve, 500);
  });
}

/** @returns {Promise<any>} Plotly */
function loadPlotly() {
  if (!plotlyLoaded) {
    plotlyLoaded = painted().then(() => blockText("plotly")).then((source) => {
      // The page's policy knows this source by its hash: no other script can run.
      const script = document.createElement("script");
      script.textContent = source;
      document.head.append(script);
      script.remove();
      const found = /** @type {any} */ (window).Plotly;
      if (!found) throw new Error("plotly.js did not start");
      return found;
    });
  }
  return plotlyLoaded;
}

/** Text for plotly, which reads a few tags and entities of HTML. @param {any} text */
function plotText(text) {
  return escaped(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

const SYMBOLS = ["circle", "square", "triangle-down", "diamond", "triangle-up", "star", "x", "hexagon", "cross"];
const DASHES = ["solid", "dash", "dashdot", "dot", "longdash", "longdashdot"];
/** The stroke of the legend for each dash. */
const STROKES = ["", "7 3", "7 3 2 3", "2 3", "11 4", "11 4 2 4"];
/** The outline of each symbol around (0, 0). */
const OUTLINES = [
  "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z", "M-3.5-3.5H3.5V3.5H-3.5Z", "M-4.5-3.5H4.5L0 4.5Z", "M0-5L4.5 0L0 5L-4.5 0Z",
  "M-4.5 3.5H4.5L0-4.5Z", "M0-5L1.3-1.6 4.8-1.5 2 .7 3 4.2 0 2.1-3 4.2-2 .7-4.8-1.5-1.3-1.6Z",
  "M-4-2.5L-2.5-4 0-1.5 2.5-4 4-2.5 1.5 0 4 2.5 2.5 4 0 1.5-2.5 4-4 2.5-1.5 0Z",
  "M-2.2-4H2.2L4.5 0 2.2 4H-2.2L-4.5 0Z", "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
];
const COLOURS = 7;

/** @param {number} number of a retriever @returns {string} the name of its colour in the style sheet */
function colourName(number) {
  return `--c${number % COLOURS}`;
}

/** A colour of the style sheet as the theme has it now. @param {string} name @returns {string} */
function colour(name) {
  const probe = el("span", { class: "probe" });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** @param {string} rgb @param {number} opacity @returns {string} */
function faded(rgb, opacity) {
  const parts = rgb.match(/[\d.]+/g) || ["0", "0", "0"];
  return `rgba(${parts.slice(0, 3).join(",")},${opacity})`;
}

/** The line and marker of a curve for the legend. @param {[number, number]} look */
function swatch([retriever, source]) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  for (const [key, value] of Object.entries({ class: "swatch", viewBox: "-18 -7 36 14", "aria-hidden": "true" })) {
    svg.setAttribute(key, value);
  }
  svg.style.color = `var(${colourName(retriever)})`;
  const line = document.createElementNS(space, "path");
  const dashes = STROKES[source % STROKES.length];
  for (const [key, value] of Object.entries({ d: "M-18 0H18", stroke: "currentColor", "stroke-width": "2", "stroke-dasharray": dashes })) {
    line.setAttribute(key, value);
  }
  const mark = document.createElementNS(space, "path");
  mark.setAttribute("d", OUTLINES[retriever % OUTLINES.length]);
  mark.setAttribute("fill", "currentColor");
  svg.append(line, mark);
  return svg;
}

/** How plotly draws a curve. @param {[number, number]} look */
function traceStyle([retriever, source]) {
  const ink = colour(colourName(retriever));
  return {
    mode: "lines+markers",
    line: { color: ink, width: 2, dash: DASHES[source % DASHES.length] },
    marker: { color: ink, size: 8, symbol: SYMBOLS[retriever % SYMBOLS.length] },
  };
}

/** The layout that all charts share, in the colours of the theme. @param {any} more */
function layoutWith(more) {
  const ink = colour("--ink");
  const grid = colour("--grid");
  const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, tickcolor: grid, automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
    margin: { l: 56, r: 16, t: 12, b: 48 },
    showlegend: false,
    dragmode: false,
    hoverlabel: { bgcolor: colour("--panel"), bordercolor: colour("--line"), font: { color: ink }, namelength: 40 },
    ...more,
    xaxis: { ...axis, ...more.xaxis },
    yaxis: { ...axis, ...more.yaxis },
  };
}

/** @typedef {{div: HTMLElement, describe: () => any, stale: boolean}} Chart */
/** @type {Chart[]} */
const charts = [];

/**
 * Make a chart. `describe` returns its traces, its layout, and a text that names it; null if there
 * is nothing to draw.
 * @param {string} id
 * @param {() => {traces: any[], layout: any, label: string, height?: number}|null} describe
 * @returns {Chart}
 */
function makeChart(id, describe) {
  const div = el("div", { id, class: "chart", role: "img", "data-state": "waiting" });
  const chart = { div, describe, stale: true };
  charts.push(chart);
  return chart;
}

/** Draw a chart again, now if it can be seen, else when its tab is shown. @param {Chart} chart */
function redraw(chart) {
  chart.stale = true;
  drawStale();
}

/** Draw what is stale and in the tab that is shown. */
function drawStale() {
  for (const chart of charts) {
    if (chart.stale && isShown(chart)) draw(chart);
  }
}

/** Whether the place of a chart is shown; one without anything to draw is hidden itself. @param {Chart} chart */
function isShown({ div }) {
  return div.parentElement !== null && div.parentElement.offsetParent !== null;
}

/** @param {Chart} chart */
async function draw(chart) {
  chart.stale = false;
  try {
    drawWith(await loadPlotly(), chart);
  } catch (error) {
    const { div } = chart;
    div.dataset.state = "unavailable";
    div.textContent = `The chart cannot be drawn (${error instanceof Error ? error.message : error}). The table has its figures.`;
  }
}

/** @param {any} plotly @param {Chart} chart */
function drawWith(plotly, { div, describe }) {
  const found = describe();
  div.hidden = found === null;
  if (found === null) return;
  div.setAttribute("aria-label", found.label);
  const width = document.documentElement.dataset.printing ? { width: div.clientWidth } : {};
  const layout = layoutWith({ height: found.height || 420, ...width, ...found.layout });
  plotly.react(div, found.traces, layout, { displayModeBar: false, responsive: true }).then(() => {
    // The window may have changed while the chart was hidden or printed.
    const { _fullLayout: drawn } = /** @type {any} */ (div);
    if (div.offsetParent !== null && drawn.width !== div.clientWidth) plotly.Plots.resize(div);
    div.dataset.state = "ready";
  });
}

/** Draw every chart at once, whatever tab is shown, such as for the printer. */
function drawForPrint() {
  const plotly = /** @type {any} */ (window).Plotly;
  for (const chart of charts) {
    if (plotly && isShown(chart)) drawWith(plotly, chart);
    chart.stale = true;
  }
}

/** Draw all charts in new colours. */
function recolour() {
  for (const chart of charts) chart.stale = true;
  drawStale();
}
