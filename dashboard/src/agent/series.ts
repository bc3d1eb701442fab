// The numbers behind the charts.

import { millis } from "../format.ts";
import type { LedgerLine, Run } from "../model.ts";

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
  for (const run of runs) {
    if (!run.death || run.verdict !== "restart") continue;
    const at = Math.floor(millis(run.death.at) / 1000 / step) - begin / step;
    if (at >= 0 && at < count) values[at]! += 1;
  }
  return { at: values.map((_, i) => begin + i * step), values };
}

/** What was spent of a unit, added up. */
export function spentOver(lines: readonly LedgerLine[], unit: string): Series {
  const own = lines.filter((line) => line.unit === unit && line.what === "spent").sort((a, b) => millis(a.at) - millis(b.at));
  let sum = 0;
  return { at: own.map((line) => millis(line.at) / 1000), values: own.map((line) => (sum += Math.abs(line.amount))) };
}
