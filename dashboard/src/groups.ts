// The groups that are declared, with their strategies.

import { signal } from "@preact/signals";
import { get } from "./api.ts";
import { onEvent } from "./live.ts";
import type { Group } from "./rows.ts";

export const groups = signal<readonly Group[]>([]);

async function fetchGroups(): Promise<void> {
  try {
    groups.value = await get<Group[]>("/api/v1/groups");
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
