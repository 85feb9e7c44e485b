/* Filters, the list of queries, and which of them is open. */

const PAGE = 25;
/** What filters are called; a further field of the data has its own name. */
const GROUP_TITLES = {
  language: "Language", script_match: "Script of query and gold", label: "Label of the gold", label_path: "Full label",
  length: "Words of the gold", overlap: "Words shared with the gold", direct: "Stated or inferred",
};

/** @param {HTMLElement} panel */
function buildQueries(panel) {
  const place = el("div", {}, el("p", { class: "hint" }, "Loading the queries\u2026"));
  const hint = report.queries.texts
    ? "Every query with the memories that a retriever ranks first."
    : "The page was made without the texts of the data: it has ids, positions, ranks and scores only.";
  panel.append(el("p", {}, hint), place);
  let started = false;
  state.listeners.push(() => {
    if (started || chosenTab() !== "queries") return;
    started = true;
    blockValue("index").then((index) => {
      new QueryBrowser(place, index).update();
    }, showFault);
  });
}

/** The browser of single queries. */
class QueryBrowser {
  /** @param {HTMLElement} place @param {QueryIndex} index */
  constructor(place, index) {
    this.index = index;
    /** @type {number[]} */
    this.found = [];
    this.page = 0;
    this.key = "";
    this.open = "";
    this.filters = this.makeFilters();
    this.count = el("p", { id: "q-count", role: "status" });
    this.list = el("ol", { id: "q-list" });
    this.back = el("button", { type: "button", id: "q-page-prev", on: { click: () => this.turn(-1) } }, "Previous page");
    this.forth = el("button", { type: "button", id: "q-page-next", on: { click: () => this.turn(1) } }, "Next page");
    this.detail = el("article", { id: "q-detail", hidden: true, "aria-labelledby": "q-heading" });
    place.replaceChildren(
      this.filters,
      this.detail,
      el("section", { "aria-label": "Queries that fit" }, this.count, this.list, el("div", { class: "pages" }, this.back, this.forth)),
    );
    state.listeners.push(() => this.update());
  }

  makeFilters() {
    const choose = (key) => (value) => state.set({ [key]: value });
    const names = report.curves.map((curve) => [curve.name, curve.name]);
    const search = /** @type {HTMLInputElement} */ (el("input", { type: "search", id: "q-search", autocomplete: "off", spellcheck: "false" }));
    search.addEventListener("input", () => state.set({ s: search.value }));
    this.search = search;
    /** @type {Array<[HTMLSelectElement, () => any]>} */
    this.selects = [];
    const add = (id, text, options, now, change) => {
      const control = select(id, options, now(), change);
      this.selects.push([control, now]);
      return labelled(escaped(text), control);
    };
    const wish = chosenWish;
    const all = (column) => [["", "all"], ...column.names.map((name) => [name, name])];
    const { index } = this;
    const controls = [
      labelled(index.text ? "Search queries" : "Search ids", search, "wide"),
      add("q-a", "Retriever", names, () => report.curves[wish().a].name, choose("a")),
      add("q-b", "Second retriever", [["", "none"], ...names], () => (wish().b < 0 ? "" : report.curves[wish().b].name), choose("b")),
      add("q-n", "Distractors", report.sizes.map((n) => [n, grouped(n)]), () => wish().cell.split("/")[0], choose("n")),
      report.seeds.length > 1 && add("q-seed", "Pool seed", report.seeds.map((n) => [n, String(n)]), () => wish().cell.split("/")[1], choose("seed")),
      add("q-k", "k", report.ks.map((n) => [n, String(n)]), () => wish().k, choose("k")),
      add("q-outcome", "Outcome", OUTCOMES, () => wish().outcome, choose("f")),
    ];
    for (const [name, column] of Object.entries(index.groups || {})) {
      const key = keyOfGroup(name);
      const id = `q-${["language", "label"].includes(name) ? name : `group-${controls.length}`}`;
      controls.push(add(id, own(GROUP_TITLES, name) || name, all(column), () => state.get(key), choose(key)));
      this.selects[this.selects.length - 1][0].dataset.field = name;
    }
    const reset = el("button", { type: "button", id: "q-reset", on: { click: () => this.reset() } }, "Show all");
    const form = el("form", { id: "query-filters", class: "controls", "aria-label": "Filter queries" }, controls, reset);
    form.addEventListener("submit", (event) => event.preventDefault());
    return form;
  }

  reset() {
    const changes = { f: null, s: null };
    for (const key of state.values.keys()) if (groupOfKey(key)) changes[key] = null;
    state.set(changes);
  }

  /** Show what the state says. */
  update() {
    const wish = chosenWish();
    if (document.activeElement !== this.search) this.search.value = wish.search;
    for (const [control, now] of this.selects) setChoice(control, now());
    const key = JSON.stringify(wish);
    if (key !== this.key) {
      this.key = key;
      this.found = filtered(this.index, wish);
      const at = this.found.indexOf(this.index.id.indexOf(state.get("q")));
      this.page = at > 0 ? Math.floor(at / PAGE) : 0;
      this.fillList(wish);
    }
    this.showOpen(wish, key);
  }

  /** @param {number} step */
  turn(step) {
    this.page += step;
    this.fillList(chosenWish());
    const first = this.list.querySelector("a");
    if (first) first.focus();
  }

  /** @param {Wish} wish */
  fillList(wish) {
    const { found, index } = this;
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    const start = this.page * PAGE;
    const part = pages > 1 ? `, page ${grouped(this.page + 1)} of ${grouped(pages)}` : "";
    this.count.textContent = `${grouped(found.length)} of ${counted(index.id.length, "query", "queries")}${part}`;
    this.list.setAttribute("start", String(start + 1));
    this.list.replaceChildren(...found.slice(start, start + PAGE).map((query) => this.item(wish, query)));
    /** @type {HTMLButtonElement} */ (this.back).disabled = this.page === 0;
    /** @type {HTMLButtonElement} */ (this.forth).disabled = this.page >= pages - 1;
  }

  /** @param {Wish} wish @param {number} query */
  item(wish, query) {
    const { index } = this;
    const id = index.id[query];
    const text = index.text && index.text[query].trim() ? index.text[query] : id;
    const ranks = [wish.a, wish.b].filter((curve) => curve >= 0).map((curve) => {
      const entry = entryOf(index, curve, wish.cell, query);
      const { kind, word } = outcomeOf(entry, wish.k);
      const ties = tiesOf(entry);
      const rank = ties ? ` rank ${ties.map(rankText).join(", ")}` : "";
      return el("span", { class: `outcome ${kind}` }, bdi(report.curves[curve].name), ": ", el("b", {}, word), rank);
    });
    const groups = index.groups || {};
    const facts = [id !== text && bdi(id), ...["language", "label"].map((name) => bdi(named(groups[name], query)))].filter((one) => one && one.textContent);
    const link = el("a", { href: state.fragment({ tab: null, q: id }) }, bdi(text.length > 240 ? `${text.slice(0, 240)}\u2026` : text));
    return el("li", { "data-query": id }, link, el("div", { class: "facts" }, facts.map((one) => el("span", {}, one)), ranks));
  }

  /** @param {Wish} wish @param {string} key */
  showOpen(wish, key) {
    const id = state.get("q");
    const { detail } = this;
    const now = `${id} ${key}`;
    if (now === this.open) return;
    const opened = !this.open.startsWith(`${id} `);
    this.open = now;
    if (!id) {
      detail.hidden = true;
      delete detail.dataset.query;
      return;
    }
    const query = this.index.id.indexOf(id);
    detail.hidden = false;
    detail.dataset.query = id;
    const at = this.found.indexOf(query);
    const go = (place) => () => state.set({ q: this.index.id[this.found[place]] }, true);
    const step = (name, text, place) =>
      el("button", { type: "button", id: name, disabled: place < 0 || place >= this.found.length, on: { click: go(place) } }, text);
    const buttons = el("div", { class: "pages" },
      step("q-prev", "Previous query", at < 0 ? -1 : at - 1),
      step("q-next", "Next query", at < 0 ? -1 : at + 1),
      el("button", { type: "button", id: "q-close", on: { click: () => this.close() } }, "Close"));
    const heading = el("h3", { id: "q-heading", tabindex: "-1" }, "Query ", bdi(id));
    const body = el("div");
    detail.replaceChildren(heading, buttons, body);
    for (const link of this.list.querySelectorAll("a")) link.removeAttribute("aria-current");
    const current = [...this.list.children].find((item) => /** @type {HTMLElement} */ (item).dataset.query === id);
    if (current) current.querySelector("a")?.setAttribute("aria-current", "true");
    if (opened) heading.focus();
    if (query < 0) {
      detail.dataset.state = "failed";
      body.append(el("p", {}, "The report has no query of this id."));
      return;
    }
    detail.dataset.state = "loading";
    readQuery(query).then((found) => {
      if (this.open !== now) return;
      body.replaceChildren(...queryDetail(this.index, query, found, wish));
      detail.dataset.state = "ready";
    }, (error) => {
      detail.dataset.state = "failed";
      showFault(error);
    });
  }

  close() {
    const id = state.get("q");
    state.set({ q: null, tab: "queries" }, true);
    const item = [...this.list.children].find((one) => /** @type {HTMLElement} */ (one).dataset.query === id);
    const link = item ? item.querySelector("a") : null;
    (link || this.count).focus();
  }
}
