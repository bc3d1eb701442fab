// Times, spans and amounts, as people read them.

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A span in its two largest units: `2 h 14 min`. */
export function span(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${(Math.floor(s * 10) / 10).toFixed(1)} s`;
  if (s < MINUTE) return `${Math.floor(s)} s`;
  if (s < HOUR) return two(s, MINUTE, "min", 1, "s");
  if (s < DAY) return two(s, HOUR, "h", MINUTE, "min");
  return two(s, DAY, "d", HOUR, "h");
}

/** The same for things that count in whole seconds. */
export function wholeSpan(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  return s < MINUTE ? `${s} s` : span(s);
}

/** An age: from a minute on, its largest unit says enough. */
export function age(seconds: number): string {
  return wholeSpan(seconds).split(" ").slice(0, 2).join(" ");
}

function two(s: number, large: number, largeWord: string, small: number, smallWord: string): string {
  const first = Math.floor(s / large);
  const second = Math.floor((s % large) / small);
  return second === 0 ? `${first} ${largeWord}` : `${first} ${largeWord} ${second} ${smallWord}`;
}

/** Milliseconds since the epoch of a time in JSON. */
export function millis(at: string): number {
  return Date.parse(at);
}

const clockFormat = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const dayFormat = new Intl.DateTimeFormat(undefined, {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

/** The time of day; with the day where it is not today's. */
export function moment(at: number, now: number): string {
  const sameDay = new Date(at).toDateString() === new Date(now).toDateString();
  return (sameDay ? clockFormat : dayFormat).format(at);
}

/** An amount without digits that say nothing. */
export function amount(value: number): string {
  const size = Math.abs(value);
  if (size >= 1_000_000) return `${trim(value / 1_000_000, 2)} M`;
  if (size >= 10_000) return `${trim(value / 1000, 1)} k`;
  if (Number.isInteger(value)) return String(value);
  return trim(value, size < 1 ? 4 : 2);
}

function trim(value: number, digits: number): string {
  return String(Number(value.toFixed(digits)));
}

/** Amounts by unit: `4.2 usd, 120 k tokens`. */
export function amounts(all: Record<string, number>): string {
  return Object.entries(all)
    .map(([unit, value]) => `${amount(value)} ${unit}`)
    .join(", ");
}

export function bytes(value: number): string {
  if (value >= 1 << 30) return `${trim(value / (1 << 30), 2)} GiB`;
  if (value >= 1 << 20) return `${trim(value / (1 << 20), 1)} MiB`;
  return `${trim(value / 1024, 0)} KiB`;
}

export function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** How an end looked from outside. */
export function ending(death: {
  class: string | null;
  exit_code: number | null;
  signal: string | null;
}): string {
  if (death.exit_code !== null) return `exit ${death.exit_code}`;
  if (death.signal !== null) return death.signal;
  return death.class === "lost" ? "unseen" : "not spawned";
}
