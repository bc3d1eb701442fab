// The stretch of time that lifelines show: zoomed, panned, and divided by round moments.

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
export const SHORTEST = 10 * MINUTE;
export const LONGEST = 30 * DAY;

export const PRESETS: [string, number][] = [
  ["10 min", SHORTEST],
  ["1 h", HOUR],
  ["6 h", 6 * HOUR],
  ["24 h", DAY],
  ["7 d", 7 * DAY],
  ["30 d", LONGEST],
];

export interface Stretch {
  length: number;
  /** Where it ends; null is now, and goes with it. */
  end: number | null;
}

export function bounds(stretch: Stretch, now: number): { from: number; to: number } {
  // A little of what is to come: the edge of now is not the edge of the picture.
  const to = stretch.end ?? now + stretch.length * 0.02;
  return { from: to - stretch.length, to };
}

/** Zooms so that the moment at a fraction of the width stays where it is. */
export function zoomed(stretch: Stretch, factor: number, at: number, now: number): Stretch {
  const { from, to } = bounds(stretch, now);
  const length = Math.min(LONGEST, Math.max(SHORTEST, stretch.length * factor));
  if (stretch.end === null && at > 0.9) return { length, end: null };
  const fixed = from + (to - from) * at;
  return settled({ length, end: fixed + length * (1 - at) }, now);
}

export function panned(stretch: Stretch, fraction: number, now: number): Stretch {
  const { to } = bounds(stretch, now);
  return settled({ length: stretch.length, end: to + stretch.length * fraction }, now);
}

/** Nobody looks into the future: there it becomes now. */
function settled(stretch: Stretch, now: number): Stretch {
  return stretch.end !== null && stretch.end >= now ? { length: stretch.length, end: null } : stretch;
}

const STEPS = [MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY, 7 * DAY];

/** Round moments, in local time, with what to write at them. */
export function ticks(from: number, to: number, most: number): { at: number; label: string }[] {
  const step = STEPS.find((step) => (to - from) / step <= most) ?? 10 * DAY;
  const midnight = new Date(from);
  midnight.setHours(0, 0, 0, 0);
  const found: { at: number; label: string }[] = [];
  for (let at = midnight.getTime(); at <= to; at += step) {
    if (at < from) continue;
    const date = new Date(at);
    const isDay = date.getHours() === 0 && date.getMinutes() === 0;
    const label =
      step >= DAY || isDay
        ? date.toLocaleDateString(undefined, { day: "numeric", month: "short" })
        : date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
    found.push({ at, label });
  }
  return found;
}
