// The numbers behind the charts.

import { millis } from "../format.ts";
import type { Death, LedgerLine, Run } from "../model.ts";

export interface Series {
  /** Seconds since the epoch. */
  at: number[];
  values: (number | null)[];
}

/** Deaths that led to a restart, by stretch of time: as many stretches as fit the runs that are known. */
export function restartsOver(runs: readonly Run[], until: number): Series {
  const first = runs.at(-1);
  if (!first) return { at: [], values: [] };
  const from = millis(first.started_at);
  const step = [60, 300, 900, 3600, 6 * 3600, 86_400].find((step) => (until - from) / 1000 / step <= 60) ?? 7 * 86_400;
  const begin = Math.floor(from / 1000 / step) * step;
  const count = Math.floor(until / 1000 / step) - begin / step + 1;
  const values = new Array<number>(count).fill(0);
  // A bar stands to the right of its moment, so the picture goes on for as long as the last one lasts.
  const end = begin + count * step;
  for (const run of runs) {
    if (!run.death || run.verdict !== "restart") continue;
    const at = Math.floor(millis(run.death.at) / 1000 / step) - begin / step;
    if (at >= 0 && at < count) values[at]! += 1;
  }
  return { at: [...values.map((_, i) => begin + i * step), end], values: [...values, null] };
}

/** What every run that ended used, at the moment of its end; those that nobody saw end are left out. */
export function usedOver(runs: readonly Run[], what: (death: Death) => number | null): Series {
  const known = runs
    .flatMap(({ death }) => (death && what(death) !== null ? [{ at: millis(death.at) / 1000, value: what(death) }] : []))
    .sort((a, b) => a.at - b.at);
  return { at: known.map(({ at }) => at), values: known.map(({ value }) => value) };
}

/** Seconds of CPU time, in user mode and in the kernel. */
export function cpuOf(death: Death): number | null {
  return death.cpu_user_ms === null || death.cpu_system_ms === null ? null : (death.cpu_user_ms + death.cpu_system_ms) / 1000;
}

/** What was spent of a unit, added up. */
export function spentOver(lines: readonly LedgerLine[], unit: string): Series {
  const own = lines.filter((line) => line.unit === unit && line.what === "spent").sort((a, b) => millis(a.at) - millis(b.at));
  let sum = 0;
  return { at: own.map((line) => millis(line.at) / 1000), values: own.map((line) => (sum += Math.abs(line.amount))) };
}
