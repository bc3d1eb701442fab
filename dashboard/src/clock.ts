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

export function setDaemonTime(at: number): void {
  const difference = at - Date.now();
  ahead = Math.abs(difference) > TOLERATED ? difference : 0;
}

export function startClock(): void {
  const tick = () => {
    if (!document.hidden) now.value = daemonNow();
  };
  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", tick);
}
