// Numbers, bytes and times as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const AGES = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 12,345 exactly. */
export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

/** One digit after the point below 10, none for whole numbers. */
const trimmed = (value) => (value < 10 && value % 1 ? value.toFixed(1) : value.toFixed(0));

/** 12.3k: for figures that are glanced at. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size < 10 && size % 1) return String(Number(value.toFixed(size < 1 ? 2 : 1)));
  if (size < 10_000) return whole.format(value);
  if (size < 1e6) return `${(value / 1e3).toFixed(size < 1e5 ? 1 : 0)}k`;
  if (size < 1e9) return `${(value / 1e6).toFixed(size < 1e8 ? 1 : 0)}M`;
  return `${(value / 1e9).toFixed(1)}G`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  let size = value;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? size.toFixed(0) : size.toFixed(1)} ${UNITS[unit]}`;
}

export const rate = (value) => (value === null || value === undefined ? "–" : `${short(value)}/s`);

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms === 0) return "0 ms";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${trimmed(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${trimmed(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return twoUnits(minutes, "min", Math.floor(seconds % 60), "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return twoUnits(hours, "h", minutes % 60, "min");
  return twoUnits(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** 1 min 30 s, and 1 min rather than 1 min 0 s. */
const twoUnits = (large, unit, rest, smaller) => (rest ? `${large} ${unit} ${rest} ${smaller}` : `${large} ${unit}`);

/** A moment: the time of day today, the date as well on other days. */
export function time(ms) {
  if (!ms) return "–";
  const moment = new Date(ms);
  const millis = String(moment.getMilliseconds()).padStart(3, "0");
  const day = moment.toDateString() === new Date().toDateString() ? "" : `${moment.toLocaleDateString("en-CA")} `;
  return `${day}${clock.format(moment)}.${millis}`;
}

/** How long ago a moment was, in one unit: figures and columns that hold it are narrow. */
export function ago(ms) {
  if (!ms) return "never";
  const past = Date.now() - ms;
  const [unit, size] = AGES.find(([, each]) => past >= each) ?? [];
  return unit ? `${Math.floor(past / size)} ${unit} ago` : "just now";
}

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
