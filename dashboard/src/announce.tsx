// Changes of state, said aloud to those who do not see them. Many at once become one sentence.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { plural } from "./format.ts";
import { onEvent } from "./live.ts";

const said = signal("");
const SAID: Record<string, string> = {
  "run-died": "died",
  "crashed-out": "crashed out",
  halted: "was halted",
  revived: "was revived",
  stopped: "is stopped",
  "run-ready": "runs",
};
const PAUSE_MS = 1500;

export function Announcer() {
  useEffect(() => {
    const pending = new Map<string, string>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = onEvent((event) => {
      const word = SAID[event.type];
      if (!word || !event.agent) return;
      pending.set(event.agent, word);
      timer ??= setTimeout(() => {
        timer = undefined;
        const all = [...pending];
        pending.clear();
        said.value =
          all.length <= 3
            ? all.map(([name, what]) => `${name} ${what}`).join("; ")
            : `${plural(all.length, "agent")} changed: ${all.slice(0, 2).map(([name, what]) => `${name} ${what}`).join("; ")} and more`;
      }, PAUSE_MS);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, []);
  return (
    <div class="unseen" aria-live="polite" aria-atomic="true">
      {said.value}
    </div>
  );
}
