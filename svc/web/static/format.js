// @ts-check
/** Numbers as text, in the words of the server (`words.py`): durations in µs, money in billionths of a dollar. */

/** 0.4 ms, 312 ms, 9.2 s, 2 m 03 s, 3 h 20 m. @param {number} us */
export function duration(us) {
  if (us < 0) return "–";
  const ms = us / 1000;
  if (ms < 1) return ms ? `${Number(ms.toPrecision(2))} ms` : "0 ms";
  if (ms < 999.5) return `${ms.toFixed(0)} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} m ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** $12.40, $0.019, $0.00042. @param {number} nano */
export function money(nano) {
  const usd = nano / 1e9;
  if (usd >= 1000) return `$${count(Math.round(usd))}`;
  if (usd >= 0.995) return `$${usd.toFixed(2)}`;
  if (usd >= 0.001) return `$${usd.toFixed(3)}`;
  if (usd < 0.0000001) return "<$0.0000001";
  return `$${usd.toFixed(7).replace(/0+$/, "")}`;
}

/** 18,204. @param {number} number */
export function count(number) {
  return String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** 1 span, 2 spans. @param {number} number @param {string} one */
export function counted(number, one) {
  return `${count(number)} ${one}${number === 1 ? "" : "s"}`;
}

const UNSEEN =
  // What it names is control and combining by purpose.
  // eslint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|\udb40[\udc00-\udfff]/g;

/** A text with its unseen characters shown as marks, as the server shows them. @param {string} text */
export function visible(text) {
  return text.replace(UNSEEN, (one) => `⟨U+${(one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}
