// Which agents the overview is to show.

import { signal } from "@preact/signals";
import type { Wanted } from "./rows.ts";

export const wanted = signal<Wanted>({ search: "", state: "all" });

/** Shows only agents of a state; asked for a second time, all of them again. */
export function filterBy(state: Wanted["state"]): void {
  wanted.value = { ...wanted.value, state: wanted.value.state === state ? "all" : state };
}
