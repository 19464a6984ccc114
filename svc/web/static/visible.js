// @ts-check
/** Texts of strangers with what nobody sees in them made visible, as the server does it (`svc/web/shell/words.py`). */

const UNSEEN =
  // What it names is control and combining by purpose.
  // eslint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]+/gu;
const PICTURE = "[\\u2190-\\u21ff\\u2300-\\u23ff\\u25a0-\\u27bf\\u2b00-\\u2bff\\u{1f000}-\\u{1faff}]";
const LETTER =
  "[\\u0620-\\u08ff\\u0900-\\u0dff\\u1000-\\u109f\\u1780-\\u17b3\\u17b6-\\u17ff\\u1820-\\u18af\\ufb50-\\ufdff\\ufe70-\\ufefc]";
/** A joiner where it belongs: between two pictures of one emoji, or behind a letter of a script that needs it. */
// eslint-disable-next-line no-misleading-character-class
const JOINED = new RegExp(`(?<=${PICTURE}\\ufe0f?)\\u200d(?=${PICTURE})|(?<=${LETTER})[\\u200c\\u200d]`, "uy");
/** The flags of England, Scotland and Wales: a black flag with tags behind it. */
const FLAGS = ["gbeng", "gbsct", "gbwls"].map(
  (region) => [...region].map((letter) => String.fromCodePoint(0xe0000 + letter.charCodeAt(0))).join("") + "\u{e007f}",
);

/** @param {string} text */
export function visible(text) {
  return text.replace(UNSEEN, (run, /** @type {number} */ first) => {
    if (FLAGS.includes(run) && text.slice(first - 2, first) === "\u{1f3f4}") return run;
    let at = first;
    return [...run].map((char) => {
      JOINED.lastIndex = at;
      at += char.length;
      return JOINED.test(text) ? char : `⟨U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
    }).join("");
  });
}
