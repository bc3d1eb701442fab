// What is known of the agents, kept up to date.
//
// Events say that something has changed; what it is now is asked for, once for many events. A lost
// connection is taken up again after the last event that came, so that nothing is missed. How things
// stand with the connection is part of what is known, and is shown.

import { batch, computed, signal } from "@preact/signals";
import { agentPath, get, stream, Trouble, whenLoggedOut } from "./api.ts";
import type { Agent, DaemonEvent } from "./model.ts";
import { MessageReader } from "./sse.ts";

export type Connection =
  | { word: "connecting" }
  | { word: "live" }
  | { word: "stale"; since: number; retryAt: number }
  | { word: "logged-out" };

export const agents = signal<ReadonlyMap<string, Agent>>(new Map());
/** Whether the first answer has come. */
export const loaded = signal(false);
export const connection = signal<Connection>({ word: "connecting" });
/** When the daemon last said anything. */
export const lastWord = signal(Date.now());
/** When the stream of events last said anything. Answers to questions say nothing of it. */
let lastHeard = Date.now();

export const agentList = computed(() => [...agents.value.values()]);

/** Without a word for this long, the connection is taken for dead. The daemon says something every 15 s. */
const SILENCE_MS = 40_000;
const FIRST_RETRY_MS = 250;
const LONGEST_RETRY_MS = 10_000;
/** Events within this time are answered by one request. */
const COALESCE_MS = 120;
/** All of many agents are asked for no more often than this. */
const MANY = 200;
const COALESCE_MANY_MS = 700;
/** With more agents than this to ask for, all are asked for. */
const FEW = 8;
/** Beats and balances change without events. */
const QUIET_CHANGES_MS = 5_000;
/** A page that nobody looks at gives its connection back after this: browsers have six for a host. */
const HIDDEN_MS = 60_000;

type Listener = (event: DaemonEvent) => void;
const listeners = new Set<Listener>();

/** Hears every event from now on; gives back what ends that. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let lastSeq: number | null = null;
let retryMs = FIRST_RETRY_MS;
let current: AbortController | null = null;
let retryTimer: ReturnType<typeof setTimeout> | undefined;

export function startLive(): void {
  whenLoggedOut(() => {
    connection.value = { word: "logged-out" };
    current?.abort();
  });
  void connect();
  setInterval(watchSilence, 5_000);
  setInterval(refetchQuietChanges, QUIET_CHANGES_MS);
  let hiddenTimer: ReturnType<typeof setTimeout> | undefined;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(() => current?.abort(), HIDDEN_MS);
    else if (connection.value.word !== "live") retryNow();
    else refetchAll();
  });
  addEventListener("online", retryNow);
}

/** Tries again at once. */
export function retryNow(): void {
  clearTimeout(retryTimer);
  retryMs = FIRST_RETRY_MS;
  if (!current) void connect();
}

async function connect(): Promise<void> {
  clearTimeout(retryTimer);
  const abort = new AbortController();
  current = abort;
  try {
    // The stream first, then the list: what changes in between is told.
    const reader = new MessageReader();
    const path = lastSeq === null ? "/api/v1/events?follow=true&last=1" : "/api/v1/events?follow=true";
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (lastSeq !== null) headers["last-event-id"] = String(lastSeq);
    const following = stream(path, { headers, signal: abort.signal }, (bytes) => {
      lastHeard = lastWord.value = Date.now();
      for (const message of reader.push(bytes)) heed(message.data);
    });
    await Promise.race([fetchAll(abort.signal), following]);
    batch(() => {
      connection.value = { word: "live" };
      lastHeard = lastWord.value = Date.now();
    });
    retryMs = FIRST_RETRY_MS;
    await following;
    lost(abort);
  } catch (error) {
    if (error instanceof Trouble && error.status === 401) {
      current = null;
      return;
    }
    lost(abort);
  }
}

function lost(abort: AbortController): void {
  abort.abort();
  if (current !== abort) return;
  current = null;
  if (connection.value.word === "logged-out") return;
  if (document.hidden && connection.value.word === "live") {
    connection.value = { word: "connecting" };
    return;
  }
  const since = connection.value.word === "stale" ? connection.value.since : lastWord.value;
  connection.value = { word: "stale", since, retryAt: Date.now() + retryMs };
  retryTimer = setTimeout(() => void connect(), retryMs);
  retryMs = Math.min(retryMs * 2, LONGEST_RETRY_MS);
}

function watchSilence(): void {
  if (current && connection.value.word === "live" && Date.now() - lastHeard > SILENCE_MS) {
    current.abort();
  }
}

function heed(data: string): void {
  let event: DaemonEvent;
  try {
    event = JSON.parse(data) as DaemonEvent;
  } catch {
    return;
  }
  // The first is the newest of the past: it says where we are, and is no news.
  const isNews = lastSeq !== null;
  if (typeof event.seq === "number") {
    if (lastSeq !== null && event.seq <= lastSeq) return;
    lastSeq = event.seq;
  }
  if (isNews) for (const listener of listeners) listener(event);
  if (event.agent) refetch(event.agent);
  else refetchAll();
}

const due = new Set<string>();
let allDue = false;
let dueTimer: ReturnType<typeof setTimeout> | undefined;
let busy = false;

/** Asks for an agent anew, soon and together with others. */
export function refetch(name: string): void {
  due.add(name);
  schedule();
}

export function refetchAll(): void {
  allDue = true;
  schedule();
}

function schedule(): void {
  if (busy || dueTimer !== undefined) return;
  const isLarge = agents.value.size > MANY && (allDue || due.size > FEW);
  dueTimer = setTimeout(
    () => {
      dueTimer = undefined;
      void fetchDue();
    },
    isLarge ? COALESCE_MANY_MS : COALESCE_MS,
  );
}

async function fetchDue(): Promise<void> {
  busy = true;
  const names = [...due];
  const all = allDue || names.length > FEW;
  due.clear();
  allDue = false;
  try {
    if (all) await fetchAll();
    else await Promise.all(names.map(fetchOne));
    lastWord.value = Date.now();
  } catch {
    // The connection's own loop sees that there is nobody, and everything is asked for when there is.
  } finally {
    busy = false;
    if (allDue || due.size > 0) schedule();
  }
}

async function fetchAll(signal?: AbortSignal): Promise<void> {
  const list = await get<Agent[]>("/api/v1/agents", signal);
  batch(() => {
    agents.value = new Map(list.map((agent) => [agent.name, agent]));
    loaded.value = true;
  });
}

async function fetchOne(name: string): Promise<void> {
  try {
    const answer = await get<Agent | Agent[]>(agentPath(name));
    const next = new Map(agents.value);
    for (const agent of Array.isArray(answer) ? answer : [answer]) next.set(agent.name, agent);
    agents.value = next;
  } catch (error) {
    if (!(error instanceof Trouble) || error.status !== 404) throw error;
    const next = new Map(agents.value);
    next.delete(name);
    agents.value = next;
  }
}

function refetchQuietChanges(): void {
  if (document.hidden || connection.value.word !== "live") return;
  const quiet = (agent: Agent) => agent.heartbeat_age_s !== null || agent.balance !== null || agent.spent !== null;
  if (agentList.value.some(quiet)) refetchAll();
}
