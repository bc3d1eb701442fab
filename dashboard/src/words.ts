// What states and deaths mean, in plain words.

import { plural } from "./format.ts";
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
