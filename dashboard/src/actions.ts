// What a person can do: ask the daemon, and say what came of it.

import { signal } from "@preact/signals";
import { agentPath, post, Trouble } from "./api.ts";
import { refetch } from "./live.ts";
import type { Action } from "./model.ts";

export interface Notice {
  id: number;
  tone: "good" | "bad";
  text: string;
  hint: string | null;
}

export const notices = signal<readonly Notice[]>([]);
/** The action that is under way for an agent. */
export const underWay = signal<ReadonlyMap<string, string>>(new Map());
/** A question that has to be answered before something is done. */
export const question = signal<{ text: string; yes: string; then: () => void } | null>(null);

let nextId = 1;
const NOTICE_MS = 6_000;

export function notify(tone: Notice["tone"], text: string, hint: string | null = null): void {
  const id = nextId++;
  notices.value = [...notices.value.slice(-3), { id, tone, text, hint }];
  setTimeout(() => dismiss(id), tone === "bad" ? NOTICE_MS * 2 : NOTICE_MS);
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

const DONE: Record<string, string> = {
  start: "started",
  stop: "told to stop",
  restart: "told to restart",
  revive: "revived",
  kill: "killed",
};

export async function act(name: string, action: Action | "kill"): Promise<void> {
  const path = agentPath(name, `/${action === "kill" ? "stop" : action}`);
  await attempt(name, action, `${name} ${DONE[action]}`, () => post(path, { kill: action === "kill", no_wait: true }));
}

export function askToKill(name: string): void {
  question.value = {
    text: `Kill ${name}? It gets no chance to put anything away, and stays down until it is started.`,
    yes: "Kill it",
    then: () => void act(name, "kill"),
  };
}

export async function fund(name: string, amount: number, unit: string): Promise<boolean> {
  return attempt(name, "fund", `${name} was given ${amount} ${unit}`, () => post(agentPath(name, "/fund"), { amount, unit }));
}

/** Lets an agent do more or less, from its next run on. */
export async function change(name: string, what: "grant" | "revoke", capability: string): Promise<boolean> {
  const said = `${capability} ${what === "grant" ? "granted to" : "revoked from"} ${name}, from its next run on`;
  return attempt(name, what, said, () => post(agentPath(name, `/${what}`), { capabilities: [capability] }));
}

/** Does something for an agent and says what came of it. */
export async function attempt(name: string, word: string, said: string, ask: () => Promise<unknown>): Promise<boolean> {
  const earlier = underWay.value.get(name);
  if (earlier !== undefined) {
    notify("bad", `${name} was left alone: ${earlier} is still under way.`);
    return false;
  }
  underWay.value = new Map(underWay.value).set(name, word);
  try {
    await ask();
    notify("good", said);
    return true;
  } catch (error) {
    if (error instanceof Trouble) notify("bad", error.message, error.hint);
    else notify("bad", `The daemon could not be reached: ${name} was left as it is.`);
    return false;
  } finally {
    const rest = new Map(underWay.value);
    rest.delete(name);
    underWay.value = rest;
    refetch(name);
  }
}
