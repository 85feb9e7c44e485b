/* Compressed blocks of the page, each unpacked when it is first needed. */

/** @type {Map<string, Promise<any>>} */
const blockValues = new Map();

/**
 * The text of a block: base64 of zlib's format.
 * @param {string} name
 * @returns {Promise<string>}
 */
async function blockText(name) {
  const element = document.getElementById(`block-${name}`);
  if (!element) throw new Error(`the page has no block ${name}: the file is damaged`);
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is too old to unpack the data of the page (DecompressionStream)");
  }
  const stream = new Blob([bytesOf(element.textContent || "")]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

/** @param {string} base64 @returns {Uint8Array<ArrayBuffer>} */
function bytesOf(base64) {
  const decode = /** @type {any} */ (Uint8Array).fromBase64; // ten times faster, in newer browsers
  if (decode) return decode.call(Uint8Array, base64);
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** The JSON value of a block; read once. @param {string} name @returns {Promise<any>} */
function blockValue(name) {
  let found = blockValues.get(name);
  if (!found) {
    found = blockText(name).then((text) => JSON.parse(text));
    blockValues.set(name, found);
  }
  return found;
}

/** Show what went wrong at the top of the page. @param {any} error */
function showFault(error) {
  const place = byId("fault");
  place.textContent = `Something went wrong: ${error instanceof Error ? error.message : error}`;
  place.hidden = false;
  console.error(error);
}
