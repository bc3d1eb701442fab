// Everybody's lifelines: one picture of the night.

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { useKeys } from "../keys.tsx";
import { LifelineChart } from "../lifeline/chart.tsx";

export function LifelinesPage() {
  const filter = useSignal("");
  const search = useRef<HTMLInputElement>(null);
  useKeys((key) => {
    if (key !== "/") return false;
    search.current?.focus();
    return true;
  });
  return (
    <main class="page" id="main">
      <div class="heading">
        <h1>Lifelines</h1>
        <input
          ref={search}
          type="search"
          placeholder="Search agents   /"
          aria-label="Search agents"
          value={filter.value}
          onInput={(event) => (filter.value = event.currentTarget.value)}
        />
      </div>
      <LifelineChart agent={null} filter={filter.value} />
    </main>
  );
}
