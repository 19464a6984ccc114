// @ts-check
/**
 * Quantities as text, to the letter as the server writes them (`svc/domain/quantities.py`), and texts made visible
 * (`svc/web/shell/words.py`); `tests/quantities.json` holds both. What is not known is a dash.
 */

const NOT_KNOWN = "–";

/** @typedef {number | null} Quantity */

/** 18,204; of what is not whole 12.5 and 0.72. @param {Quantity} number */
export function count(number) {
  if (number === null || !Number.isFinite(number)) return NOT_KNOWN;
  const [amount, sign] = parted(number);
  if (amount >= 99.95 || Number.isInteger(amount)) return sign + fixed(amount, 0);
  if (amount >= 0.995) return sign + short(fixed(amount, 1));
  return amount >= 0.01 ? sign + short(amount.toPrecision(2)) : `${sign}<0.01`;
}

/** 1 span, 2 spans. @param {number} number @param {string} one */
export function counted(number, one) {
  return `${count(number)} ${one}${number === 1 ? "" : "s"}`;
}

/** 950, 18.2 k, 3.1 M. @param {Quantity} number */
export function compact(number) {
  if (number === null || !Number.isFinite(number)) return NOT_KNOWN;
  const [amount, sign] = parted(number);
  for (const [unitSize, unit] of /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (amount >= unitSize * 0.9995) return `${sign}${fixed(amount / unitSize, amount / unitSize >= 99.95 ? 0 : 1)} ${unit}`;
  }
  return count(number);
}

/** 30 %, 1.7 %, 0.34 %. @param {Quantity} share */
export function percent(share) {
  if (share === null || !Number.isFinite(share)) return NOT_KNOWN;
  const [amount, sign] = parted(share * 100);
  if (amount === 0) return "0 %";
  if (amount < 0.01) return `${sign}<0.01 %`;
  if (amount < 9.95) return `${sign}${amount.toPrecision(2)} %`;
  if (amount >= 99.95 && amount < 100) return `${sign}>99.9 %`;
  return `${sign}${fixed(amount, amount >= 99.5 && amount < 100 ? 1 : 0)} %`;
}

/** ×14, ×1.9, ×1.15, ×0.42. @param {Quantity} factor */
export function times(factor) {
  if (factor === null || !Number.isFinite(factor)) return NOT_KNOWN;
  if (factor >= 9.95) return `×${fixed(factor, 0)}`;
  if (factor >= 1.995) return `×${short(fixed(factor, 1))}`;
  if (factor >= 0.995) return `×${short(fixed(factor, 2))}`;
  return factor >= 0.001 ? `×${short(factor.toPrecision(2))}` : "<×0.001";
}

/** 0.42 ms, 312 ms, 9.23 s, 2 m 03 s, 3 h 20 m, 4 d 2 h. @param {Quantity} ms @returns {string} */
export function duration(ms) {
  if (ms === null || !Number.isFinite(ms)) return NOT_KNOWN;
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms === 0) return "0 ms";
  if (ms < 0.001) return "<0.001 ms";
  if (ms < 0.9995) return `${short(ms.toPrecision(3))} ms`;
  if (ms < 999.5) return `${ms.toPrecision(3)} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${seconds.toPrecision(3)} s`;
  const whole = Math.floor(seconds + 0.5);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} m ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} m`;
  return `${fixed(Math.floor(hours / 24), 0)} d ${hours % 24} h`;
}

/** $1,234.50, $0.0190, $0.00042. @param {Quantity} usd */
export function money(usd) {
  if (usd === null || !Number.isFinite(usd)) return NOT_KNOWN;
  const [amount, sign] = parted(usd);
  if (amount === 0) return "$0";
  if (amount >= 0.99995) return `${sign}$${fixed(amount, 2)}`;
  if (amount < 0.0000001) return `${sign}<$0.0000001`;
  const leading = Number(amount.toExponential(1).split("e")[1]);
  return `${sign}$${fixed(amount, Math.max(4, 1 - leading))}`;
}

/** 812 B, 4.1 KiB, 2.3 MiB. @param {Quantity} bytes */
export function size(bytes) {
  if (bytes === null || !Number.isFinite(bytes)) return NOT_KNOWN;
  const [amount, sign] = parted(bytes);
  if (amount < 1023.5) return `${sign}${fixed(amount, 0)} B`;
  let [scaled, unit] = [amount, ""];
  for (unit of ["KiB", "MiB", "GiB", "TiB"]) {
    scaled /= 1024;
    if (scaled < 1023.5) break;
  }
  return `${sign}${fixed(scaled, scaled >= 99.95 ? 0 : 1)} ${unit}`;
}

/** @param {number} number @returns {[number, string]} */
function parted(number) {
  return [Math.abs(number), number < 0 ? "-" : ""];
}

/** @param {number} number @param {number} places */
function fixed(number, places) {
  const [whole, rest] = number.toFixed(places).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return rest ? `${grouped}.${rest}` : grouped;
}

/** Without the zeros that end a fraction. @param {string} text */
function short(text) {
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}
