// One clock for everything that counts: ages, runtimes and countdowns change with it, all at once.

import { signal } from "@preact/signals";

/** How far the daemon's clock is ahead of the browser's, in milliseconds. */
let ahead = 0;

/** The time where the daemon is, in milliseconds since the epoch. Changes once a second. */
export const now = signal(Date.now());

export function daemonNow(): number {
  return Date.now() + ahead;
}

/** Less than this is how long an answer takes, not a clock that is wrong. */
const TOLERATED = 1500;

/** An answer says to the second when it was made. */
const HALF_A_SECOND = 500;

/** Sets the clock by when the daemon says that it answered. What its agents do on theirs is no clock. */
export function heedDate(response: Response): void {
  const at = Date.parse(response.headers.get("date") ?? "");
  if (Number.isNaN(at)) return;
  const difference = at + HALF_A_SECOND - Date.now();
  ahead = Math.abs(difference) > TOLERATED ? difference : 0;
}

export function startClock(): void {
  const tick = () => {
    if (!document.hidden) now.value = daemonNow();
  };
  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", tick);
}
