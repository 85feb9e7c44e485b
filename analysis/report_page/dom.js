/* Elements and texts. Text from the data only ever becomes a text node, never HTML. */

/**
 * Make an element. Attributes that are null or false are left out; `on` maps events to listeners.
 * @param {string} name
 * @param {Object<string, any>} [attributes]
 * @param {...(Node|string|number|null|undefined|false|Array<any>)} children
 * @returns {HTMLElement}
 */
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(key, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A member of an object that has it itself. @param {any} object @param {string} key */
function own(object, key) {
  return object && Object.hasOwn(object, key) ? object[key] : undefined;
}

/** @param {string} id @returns {HTMLElement} */
function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element ${id}`);
  return element;
}

// Control characters but line break and tab, separators that end a line, bidirectional embeddings,
// overrides and isolates, byte order marks, unpaired surrogates.
const STEERING = /[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\p{Cs}]/gu;

/** @param {string} character @returns {string} such as `\x1b` */
function escapeOf(character) {
  const code = character.charCodeAt(0);
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** A text with what steers its display as escapes. @param {any} text @returns {string} */
function escaped(text) {
  return String(text).replace(STEERING, escapeOf);
}

/**
 * A text as nodes: escapes of control characters stand in a `span.control`.
 * @param {any} text
 * @returns {Array<Node|string>}
 */
function shown(text) {
  const found = [];
  let end = 0;
  for (const match of String(text).matchAll(STEERING)) {
    found.push(String(text).slice(end, match.index));
    found.push(el("span", { class: "control", dir: "ltr" }, escapeOf(match[0])));
    end = match.index + match[0].length;
  }
  found.push(String(text).slice(end));
  return found.filter((part) => part !== "");
}

/** A text of the data inside a line of ours: isolated, in its own direction. @param {any} text */
function bdi(text) {
  return el("bdi", { dir: "auto" }, shown(text));
}

/** A label such as `Preferences/Food_Drink`, which may be broken after its separators. @param {string} text */
function labelPath(text) {
  return el("bdi", { dir: "auto" }, text.split(/(?<=[/_])/).flatMap((part) => [...shown(part), el("wbr")]));
}

/** A labelled control. @param {string} text @param {HTMLElement} control @param {string} [kind] */
function labelled(text, control, kind = "") {
  const check = control instanceof HTMLInputElement && control.type === "checkbox";
  return el("label", { class: `control-label ${kind}`.trim() }, check ? [control, " ", text] : [text, " ", control]);
}

/**
 * A select of [value, text] pairs.
 * @param {string} id
 * @param {Array<[string|number, string]>} options
 * @param {string|number} chosen
 * @param {(value: string) => void} change
 * @returns {HTMLSelectElement}
 */
function select(id, options, chosen, change) {
  const found = /** @type {HTMLSelectElement} */ (el("select", { id, autocomplete: "off" }));
  for (const [value, text] of options) found.append(el("option", { value }, escaped(text)));
  setChoice(found, chosen);
  found.addEventListener("change", () => change(found.value));
  return found;
}

/** Choose a value of a select if it has it. @param {HTMLSelectElement} control @param {any} value */
function setChoice(control, value) {
  const found = [...control.options].find((option) => option.value === String(value));
  control.value = found ? found.value : control.options.length ? control.options[0].value : "";
}

/** @param {string} id @param {boolean} checked @param {(checked: boolean) => void} change */
function checkbox(id, checked, change) {
  const found = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", id, autocomplete: "off" }));
  found.checked = checked;
  found.addEventListener("change", () => change(found.checked));
  return found;
}

/** A region that scrolls within itself, by keyboard too. @param {string} name @param {Node} content */
function scrolling(name, content) {
  return el("div", { class: "scroll", role: "region", "aria-label": name, tabindex: "0" }, content);
}
