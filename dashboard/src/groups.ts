// The groups that are declared, with their strategies.

import { signal } from "@preact/signals";
import { get } from "./api.ts";
import { onEvent } from "./live.ts";
import type { Group } from "./rows.ts";

export const groups = signal<readonly Group[]>([]);

/** A group as the daemon says it, with those below it inside. */
interface Nested {
  name: string;
  project: string;
  strategy: string;
  members: { name: string; group: Nested | null }[];
}

function flat(all: Nested[]): Group[] {
  return all.flatMap(({ name, project, strategy, members }) => {
    const inner = members.map((member) => member.group).filter((group) => group !== null);
    return [{ name, project, strategy, members: members.map((member) => member.name) }, ...flat(inner)];
  });
}

async function fetchGroups(): Promise<void> {
  try {
    groups.value = flat(await get<Nested[]>("/api/v1/groups"));
  } catch {
    // Without them the tree is made of what the agents say.
  }
}

export function startGroups(): void {
  void fetchGroups();
  onEvent((event) => {
    if (event.type === "config-applied" || event.type === "daemon-started") void fetchGroups();
  });
}
