// What an agent's live run uses, looked at while somebody looks.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { agentPath, get } from "../api.ts";
import { millis } from "../format.ts";
import { connection, refetch } from "../live.ts";
import type { Agent } from "../model.ts";

interface Usage {
  run: number | null;
  at: string;
  memory_bytes: number | null;
  cpu_s: number | null;
  processes: number | null;
}

export interface Sample {
  at: number;
  run: number;
  memory: number;
  /** Of one processor, since the sample before; null for a run's first. */
  cpu: number | null;
  cpuSeconds: number;
}

const EVERY_MS = 2_000;
/** An hour of them. */
const MOST = 1_800;

/** By agent: what was seen since the page was loaded. */
export const samples = signal<ReadonlyMap<string, readonly Sample[]>>(new Map());

export function sampled(earlier: readonly Sample[], usage: Usage): readonly Sample[] {
  if (usage.run === null || usage.memory_bytes === null || usage.cpu_s === null) return earlier;
  const at = millis(usage.at);
  const last = earlier.at(-1);
  const sameRun = last?.run === usage.run && at > last.at;
  const cpu = sameRun ? Math.max(0, ((usage.cpu_s - last.cpuSeconds) / ((at - last.at) / 1000)) * 100) : null;
  const sample = { at, run: usage.run, memory: usage.memory_bytes, cpu, cpuSeconds: usage.cpu_s };
  return [...earlier.slice(-MOST + 1), sample];
}

/** The newest sample; looks for more for as long as the caller is shown. */
export function useUsage(agent: Agent): Sample | null {
  const { name } = agent;
  useEffect(() => {
    const abort = new AbortController();
    const look = async () => {
      if (document.hidden || connection.value.word !== "live") return;
      // What it last wrote and when it last beat changes without an event as well.
      refetch(name);
      try {
        const usage = await get<Usage>(agentPath(name, "/usage"), abort.signal);
        const next = sampled(samples.value.get(name) ?? [], usage);
        samples.value = new Map(samples.value).set(name, next);
      } catch {
        // The next look may have more luck.
      }
    };
    void look();
    const timer = setInterval(() => void look(), EVERY_MS);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [name]);
  const last = samples.value.get(name)?.at(-1);
  return last && last.run === agent.run && agent.pid !== null ? last : null;
}
