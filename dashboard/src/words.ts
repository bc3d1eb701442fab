// What states and deaths mean, in plain words.

import { moment, plural } from "./format.ts";
import type { Agent, Class, State } from "./model.ts";

export const STATE_WORDS: Record<State, string> = {
  idle: "idle",
  starting: "starting",
  running: "running",
  backoff: "backoff",
  waiting: "waiting",
  stopping: "stopping",
  stopped: "stopped",
  done: "done",
  halted: "halted",
  "crashed-out": "crashed out",
};

export const CLASS_MEANINGS: Record<Class, string> = {
  done: "it finished",
  voluntary: "it asked to be shut down",
  stopped: "somebody stopped it",
  group: "its group was restarted",
  error: "it failed, and nothing says that it was anybody's fault but its own",
  timeout: "it no longer showed that it lives, or ran for too long",
  oom: "it was out of memory",
  interrupted: "its connection broke in the middle of something",
  context: "its context was full; it begins a fresh session",
  lost: "nobody saw how it ended",
  network: "there was no way to the network",
  overload: "the service was overloaded",
  throttle: "it was told to slow down",
  quota: "its usage limit was reached; that is no crash",
  disk: "the disk was full",
  budget: "it spent more than it may",
  broke: "it has nothing left to spend",
  config: "its command, an option or a file is wrong",
  auth: "it is not logged in, or its key is not valid",
  billing: "there is no credit on its account",
};

/** Why the agent is as it is, in one sentence. */
export function sentence(agent: Agent): string {
  const death = agent.last_death;
  const cause = death ? (death.evidence ?? CLASS_MEANINGS[death.class]) : "nothing is known of its deaths";
  switch (agent.state) {
    case "crashed-out":
      return `Died too often to be restarted by itself${agent.reason ? ` (${agent.reason})` : ""}. Last: ${cause}`;
    case "halted":
      return `Needs a fix${agent.reason ? ` (${agent.reason})` : ""}: ${cause}`;
    case "waiting":
      if (agent.reason === "prompt") return `Asks: ${agent.question ?? "something that only a person can answer"}`;
      return `Waits for ${WAITS[agent.reason ?? ""] ?? agent.reason ?? "something"}`;
    default:
      if (agent.flapping) return `Keeps dying: ${plural(agent.restarts, "restart")} so far. Last: ${cause}`;
      return agent.status_text ?? "";
  }
}

const WAITS: Record<string, string> = {
  quota: "its usage limit to be reset",
  account: "another agent on its account, which is tried first",
  disk: "space on the disk",
  budget: "the next day's allowance",
  dependency: "those that start before it",
};

/** What happens next by itself, without the time. */
export function nextStep(agent: Agent): string | null {
  if (agent.next_at === null) return null;
  switch (agent.state) {
    case "backoff":
      return "restart";
    case "waiting":
      return agent.reason === "quota" ? "resets" : "goes on";
    case "stopping":
      return "kill";
    case "idle":
    case "stopped":
    case "done":
      return "trigger";
    case "starting":
    case "running":
      return "deadline";
    case "halted":
    case "crashed-out":
      return "next";
  }
}

/** What a person can do now. */
export function advice(agent: Agent, now: number): string {
  const when = agent.next_at ? `at ${moment(Date.parse(agent.next_at), now)}` : "when that has come";
  switch (agent.state) {
    case "running":
    case "starting":
      return agent.flapping ? "It runs again. If it keeps dying, stop it and look at its last words." : "It runs. Nothing to do.";
    case "backoff":
      return `It starts again ${when}. Start tries it now.`;
    case "waiting":
      if (agent.reason === "prompt") return "Open its terminal to answer. It is not restarted meanwhile.";
      if (agent.reason === "quota") return `Its usage limit is reset ${when}. No restart is spent on waiting. Start tries it now.`;
      if (agent.reason === "disk") return "Free some space on the disk; it starts by itself then.";
      return `It goes on ${when}. Start tries it now.`;
    case "stopping":
      return "It is ending.";
    case "stopped":
    case "idle":
    case "done":
      return "Start starts it.";
    case "halted":
      return REMEDIES[agent.reason ?? ""] ?? "Look at its log, put it right, then revive it.";
    case "crashed-out":
      return "Look at its log and its last deaths, put it right, then revive it.";
  }
}

const REMEDIES: Record<string, string> = {
  auth: "Log in, or set its key where `defib up` is run. Then revive it.",
  billing: "Put credit on its account. Then revive it.",
  broke: "Give it something to spend: above zero it starts by itself.",
  budget: "Look at what it spent that on. Revive gives it a new allowance for the run.",
  config: "Look at its command, its options and its files. Then revive it.",
};
