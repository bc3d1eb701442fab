// The groups that are declared, with their strategies.

import { signal } from "@preact/signals";
import { get } from "./api.ts";
import { onEvent } from "./live.ts";
import type { State } from "./model.ts";
import type { Budget, Group } from "./rows.ts";

export const groups = signal<readonly Group[]>([]);

/** A group as the daemon says it, with those below it inside. */
interface Nested {
  name: string;
  project: string;
  strategy: string;
  state: State;
  budget: Budget | null;
  members: { name: string; group: Nested | null }[];
}

function flat(all: Nested[]): Group[] {
  return all.flatMap(({ members, ...group }) => {
    const inner = members.map((member) => member.group).filter((group) => group !== null);
    return [{ ...group, members: members.map((member) => member.name) }, ...flat(inner)];
  });
}

/** Events within this time are answered by one look. */
const COALESCE_MS = 500;
/** What is used of a budget comes back by itself, without an event. */
const COUNTED_MS = 5_000;
let timer: ReturnType<typeof setTimeout> | undefined;

async function fetchGroups(): Promise<void> {
  timer = undefined;
  try {
    groups.value = flat(await get<Nested[]>("/api/v1/groups"));
  } catch {
    // Without them the tree is made of what the agents say.
  }
  if (groups.value.some((group) => group.budget && group.budget.used > 0)) soon(COUNTED_MS);
}

function soon(ms: number): void {
  timer ??= setTimeout(() => void (document.hidden ? soonAgain() : fetchGroups()), ms);
}

function soonAgain(): void {
  timer = undefined;
  soon(COUNTED_MS);
}

export function startGroups(): void {
  void fetchGroups();
  onEvent((event) => {
    const isNew = event.type === "config-applied" || event.type === "daemon-started";
    if (isNew || groups.value.length > 0) soon(COALESCE_MS);
  });
}
