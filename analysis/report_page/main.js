/* Tabs, theme, and the start of the page. */

/** @type {Array<[string, string, (panel: HTMLElement) => void]>} */
const TABS = [
  ["results", "Results", buildResults],
  ["queries", "Queries", buildQueries],
  ["significance", "Significance", buildSignificance],
  ["breakdown", "Breakdown", buildBreakdown],
  ["frontier", "Frontier", buildFrontier],
  ["audit", "Audit", buildAudit],
  ["runs", "Runs", buildRuns],
];

/** @returns {string} the tab that the state names; an open query is in its own */
function chosenTab() {
  const wish = state.get("tab");
  if (TABS.some(([name]) => name === wish)) return wish;
  return state.get("q") ? "queries" : "results";
}

function buildTabs() {
  const bar = byId("tabs");
  for (const [name, text, build] of TABS) {
    bar.append(el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, on: { click: () => openTab(name) } }, text));
    let panel = document.getElementById(`panel-${name}`);
    if (!panel) {
      panel = el("section", { id: `panel-${name}`, "aria-labelledby": `tab-${name}` }, el("h2", {}, text));
      byId("main").append(panel);
    }
    panel.setAttribute("role", "tabpanel");
    build(panel);
  }
  bar.addEventListener("keydown", (event) => {
    const names = TABS.map(([name]) => name);
    const at = names.indexOf(chosenTab());
    const to = { ArrowRight: (at + 1) % names.length, ArrowLeft: (at + names.length - 1) % names.length, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    openTab(names[to]);
    byId(`tab-${names[to]}`).focus();
  });
}

/** @param {string} name */
function openTab(name) {
  state.set({ tab: name === "results" && !state.get("q") ? null : name }, true);
}

function showTab() {
  const chosen = chosenTab();
  for (const [name] of TABS) {
    const tab = byId(`tab-${name}`);
    tab.setAttribute("aria-selected", String(name === chosen));
    tab.setAttribute("tabindex", name === chosen ? "0" : "-1");
    byId(`panel-${name}`).hidden = name !== chosen;
  }
  drawStale();
}

function buildTheme() {
  const control = /** @type {HTMLSelectElement} */ (byId("theme"));
  const apply = () => {
    const theme = ["light", "dark"].includes(state.get("theme")) ? state.get("theme") : "auto";
    control.value = theme;
    if (document.documentElement.dataset.theme !== theme) {
      document.documentElement.dataset.theme = theme;
      recolour();
    }
  };
  control.addEventListener("change", () => state.set({ theme: control.value === "auto" ? null : control.value }));
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    document.documentElement.dataset.printing = "true";
    drawForPrint();
  });
  window.addEventListener("afterprint", () => {
    delete document.documentElement.dataset.printing;
    apply();
    recolour();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  state.listeners.push(apply);
}

function start() {
  report = JSON.parse(byId("report-data").textContent || "");
  const skip = document.querySelector("a.skip");
  if (skip) {
    skip.addEventListener("click", (event) => {
      event.preventDefault(); // the fragment holds the reader's choices
      byId("main").focus();
    });
  }
  buildTheme();
  buildTabs();
  state.listeners.push(showTab);
  window.addEventListener("hashchange", () => state.read());
  state.read();
  document.documentElement.dataset.ready = "true";
}

try {
  start();
} catch (error) {
  showFault(error);
}
