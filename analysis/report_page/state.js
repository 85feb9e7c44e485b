/* What the reader has chosen, kept in the fragment of the address: #q=ID&a=LABEL&n=100. */

const state = {
  /** @type {Map<string, string>} */
  values: new Map(),
  /** @type {Array<() => void>} */
  listeners: [],

  /** @param {string} key @returns {string} empty if nothing is chosen */
  get(key) {
    return this.values.get(key) || "";
  },

  /**
   * Choose. A null or empty value is the default. `push` makes an entry of the history.
   * @param {Object<string, string|number|null>} changes
   * @param {boolean} [push]
   */
  set(changes, push = false) {
    const fragment = this.fragment(changes);
    if (fragment === this.fragment({})) return;
    this.values = parseFragment(fragment);
    if (push) history.pushState(null, "", fragment);
    else history.replaceState(null, "", fragment);
    this.tell();
  },

  /** The fragment with some changes, for a link. @param {Object<string, string|number|null>} changes */
  fragment(changes) {
    const values = new Map(this.values);
    for (const [key, value] of Object.entries(changes)) {
      if (value === null || value === "") values.delete(key);
      else values.set(key, String(value));
    }
    const parts = [...values].map(([key, value]) => `${encoded(key)}=${encoded(value)}`);
    return `#${parts.join("&")}`;
  },

  read() {
    this.values = parseFragment(location.hash);
    this.tell();
  },

  tell() {
    for (const listener of this.listeners) listener();
  },
};

/** @param {string} text @returns {string} percent-encoded; an unpaired surrogate becomes U+FFFD */
function encoded(text) {
  return encodeURIComponent(text.replace(/\p{Cs}/gu, "\ufffd"));
}

/** @param {string} text @returns {string} */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {string} fragment @returns {Map<string, string>} */
function parseFragment(fragment) {
  const found = new Map();
  for (const part of fragment.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at > 0) found.set(decoded(part.slice(0, at)), decoded(part.slice(at + 1)));
  }
  return found;
}
