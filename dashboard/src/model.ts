// What the daemon says of agents: the words and shapes of its JSON.

export type State =
  | "idle"
  | "starting"
  | "running"
  | "backoff"
  | "waiting"
  | "stopping"
  | "stopped"
  | "done"
  | "halted"
  | "crashed-out";

export const STATES: readonly State[] = [
  "crashed-out",
  "halted",
  "waiting",
  "backoff",
  "starting",
  "running",
  "stopping",
  "idle",
  "stopped",
  "done",
];

export type Class =
  | "done"
  | "voluntary"
  | "stopped"
  | "group"
  | "error"
  | "timeout"
  | "oom"
  | "interrupted"
  | "context"
  | "lost"
  | "network"
  | "overload"
  | "throttle"
  | "quota"
  | "disk"
  | "budget"
  | "broke"
  | "config"
  | "auth"
  | "billing";

export type Kind = "clean" | "voluntary" | "dumb" | "environment" | "smart" | "fix-needed";

export type Verdict = "restart" | "wait" | "rest" | "halt" | "crash-out" | "escalate";

export interface Death {
  at: string;
  class: Class;
  kind: Kind | null;
  exit_code: number | null;
  signal: string | null;
  ran_s: number;
  evidence: string | null;
  trace: string | null;
  /** What the run used; null where nobody saw its end. */
  cpu_user_ms: number | null;
  cpu_system_ms: number | null;
  memory_peak_bytes: number | null;
}

export interface ChannelFailure {
  channel: string;
  at: string;
  why: string;
  attempts: number;
  given_up: boolean;
}

export type Amounts = Record<string, number>;

export interface Agent {
  name: string;
  project: string;
  group: string | null;
  state: State;
  reason: string | null;
  question: string | null;
  pid: number | null;
  run: number | null;
  restarts: number;
  consecutive_failures: number;
  started_at: string | null;
  uptime_s: number | null;
  next_at: string | null;
  last_activity_at: string | null;
  last_death: Death | null;
  status_text: string | null;
  heartbeat_age_s: number | null;
  balance: Amounts | null;
  spent: Amounts | null;
  /** The units of its budget that nothing measures, and what to do about each. */
  unmetered: { unit: string; fix: string }[];
  /** The units of what it has spent that are estimated from prices. */
  estimated: string[];
  capabilities: string[] | null;
  capabilities_pending: string[] | null;
  kind: string;
  command: string[];
  pty: boolean;
  /** The channels whose last message about it did not arrive. */
  channels_failing: ChannelFailure[];
  flapping: boolean;
  loop_detected: boolean;
}

export interface Run {
  agent: string;
  run: number;
  started_at: string;
  ended_at: string | null;
  ran_s: number | null;
  death: Death | null;
  verdict: Verdict | null;
}

export interface LedgerLine {
  agent: string;
  at: string;
  what: "opening" | "funded" | "spent";
  unit: string;
  amount: number;
  balance: number | null;
  run: number | null;
  by: string;
}

/** Something that was decided or has happened; its numbers are beside these fields. */
export interface DaemonEvent {
  seq: number;
  at: string;
  agent: string | null;
  run: number | null;
  type: string;
  [number: string]: unknown;
}

/** A post-mortem: why an agent is as it is, in the words that `defib why` says. */
export interface PostMortem {
  /** The run that was asked about, else the last that ended. */
  run: Run | null;
  /** What the class of its death means. */
  meaning: string | null;
  decided: { seq: number; type: string; text: string }[];
  /** What it used, in plain words. */
  used: string | null;
  last_words: string[];
  /** What its sandbox seems to have refused it. */
  denied: { line: string; capability: string | null; text: string } | null;
  /** What happens next, and what a person can do. */
  next: { at: string | null; text: string };
  /** What has to be put right before it can go on. */
  remedy: string | null;
  /** Every event of the run but its start: the numbers behind what was decided. */
  events: DaemonEvent[];
}

/** Whether a person has to do something before the agent goes on. */
export function needsPerson(agent: Agent): boolean {
  return agent.state === "crashed-out" || agent.state === "halted" || isAtPrompt(agent);
}

export function isAtPrompt(agent: Agent): boolean {
  return agent.state === "waiting" && agent.reason === "prompt";
}

/** Whether it belongs to the front of the list. */
export function needsAttention(agent: Agent): boolean {
  return needsPerson(agent) || agent.flapping;
}

/** Lower comes earlier, in the order of `defib top`: what flaps goes on dying while one looks, or has just ended it. */
export function urgency(agent: Agent): number {
  if (agent.flapping) return agent.state === "crashed-out" || agent.state === "halted" ? 0 : 1;
  if (agent.state === "crashed-out") return 2;
  if (agent.state === "halted") return 3;
  if (isAtPrompt(agent)) return 4;
  return 5;
}

export type Action = "start" | "stop" | "restart" | "revive";

/** What can be asked of an agent in its state. */
export function actionsFor(agent: Agent): Action[] {
  switch (agent.state) {
    case "crashed-out":
    case "halted":
      return ["revive"];
    case "running":
    case "starting":
      return ["restart", "stop"];
    case "backoff":
    case "waiting":
      return ["start", "stop"];
    case "stopping":
      return [];
    case "idle":
    case "stopped":
    case "done":
      return ["start"];
  }
}
