// What did happen beside what would, death by death.

import { millis, span } from "./format.ts";
import type { Death, Run, State, Verdict } from "./model.ts";

export interface Simulation {
  agent: string;
  /** Oldest first. */
  did: Run[];
  /** The runs that were replayed: one for each death in `would`. */
  replayed: number[];
  would: WouldEvent[];
  outcome: { end: string; state: State | null; at_s: number };
}

export interface WouldEvent {
  at_s: number;
  type: string;
  [field: string]: unknown;
}

interface Sum {
  restarts: number;
  gaveUp: number;
  /** Seconds between deaths and the runs after them. */
  down: number;
}

export interface Compared {
  /** When the first run began, in milliseconds. */
  begin: number;
  rows: { run: number; death: Death; did: string; would: string | null; wouldAt: number | null; differs: boolean }[];
  did: Sum;
  would: Sum;
  outcome: Simulation["outcome"];
}

interface Would {
  at: number;
  verdict: Verdict;
  text: string;
  next: number | null;
}

export function compare(simulation: Simulation): Compared {
  const { did: runs, replayed, would: events, outcome } = simulation;
  const deaths = wouldBe(events);
  const at = new Map(runs.map((run, index) => [run.run, index]));
  const did: Sum = { restarts: 0, gaveUp: 0, down: 0 };
  const would: Sum = { restarts: 0, gaveUp: 0, down: 0 };
  const rows: Compared["rows"] = [];
  replayed.forEach((number, index) => {
    const place = at.get(number);
    const run = place === undefined ? undefined : runs[place];
    if (!run?.death) return;
    const next = runs[place! + 1];
    const pause = next ? (millis(next.started_at) - millis(run.death.at)) / 1000 : null;
    add(did, run.verdict, pause);
    const other = deaths[index];
    if (other) add(would, other.verdict, other.next === null ? null : other.next - other.at);
    rows.push({
      run: number,
      death: run.death,
      did: said(run.verdict, pause),
      would: other?.text ?? null,
      wouldAt: other?.at ?? null,
      differs: other !== undefined && other.verdict !== run.verdict,
    });
  });
  return { begin: runs[0] ? millis(runs[0].started_at) : 0, rows, did, would, outcome };
}

function add(sum: Sum, verdict: Verdict | null, pause: number | null): void {
  if (verdict === "restart" || verdict === "wait") {
    sum.restarts += 1;
    sum.down += pause ?? 0;
  } else if (verdict === "crash-out" || verdict === "halt" || verdict === "escalate") sum.gaveUp += 1;
}

function said(verdict: Verdict | null, pause: number | null): string {
  if (verdict === null) return "–";
  return pause !== null && (verdict === "restart" || verdict === "wait") ? `${verdict} after ${span(pause)}` : verdict;
}

/** The deaths of a rehearsal with what was made of each, and when the next run began. */
function wouldBe(events: readonly WouldEvent[]): Would[] {
  const deaths: Would[] = [];
  for (const event of events) {
    const last = deaths.at(-1);
    switch (event.type) {
      case "run-died": {
        const verdict = event["verdict"] as Verdict;
        deaths.push({ at: event.at_s, verdict, text: verdict, next: null });
        break;
      }
      case "restart-scheduled":
        if (last) last.text = `restart after ${span(Number(event["delay_ms"] ?? 0) / 1000)}`;
        break;
      case "wait-started":
        if (last && typeof event["wait_ms"] === "number") last.text = `wait ${span(event["wait_ms"] / 1000)}`;
        break;
      case "run-started":
        if (last && last.next === null) last.next = event.at_s;
        break;
    }
  }
  return deaths;
}
