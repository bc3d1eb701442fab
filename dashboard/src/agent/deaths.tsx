// The runs of an agent and how they ended, with the stack trace of those that left one.

import { useState } from "preact/hooks";
import { now } from "../clock.ts";
import { ending, millis, moment, span } from "../format.ts";
import type { Run } from "../model.ts";
import { Lasting } from "../parts/time.tsx";
import { agentAddress } from "../router.ts";
import { CLASS_MEANINGS } from "../words.ts";

const FIRST = 15;

export function Deaths({ runs }: { runs: Run[] }) {
  const [all, setAll] = useState(false);
  const shown = all ? runs : runs.slice(0, FIRST);
  return (
    <section class="card deaths" aria-label="Runs and deaths">
      <h2>Runs and deaths</h2>
      <div class="scroll-x" tabIndex={0} role="group" aria-label="Runs and deaths, scrolls sideways">
        <table>
          <thead>
            <tr>
              <th>Run</th>
              <th>Began</th>
              <th>Lived</th>
              <th>Death</th>
              <th>End</th>
              <th>Verdict</th>
              <th>Evidence</th>
              <th>
                <span class="unseen">Log</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((run) => (
              <RunRow key={run.run} run={run} />
            ))}
          </tbody>
        </table>
      </div>
      {runs.length > FIRST && !all ? (
        <button type="button" class="button" onClick={() => setAll(true)}>
          Show {runs.length - FIRST} more
        </button>
      ) : null}
    </section>
  );
}

function RunRow({ run }: { run: Run }) {
  const [open, setOpen] = useState(false);
  const { death } = run;
  const isLong = (death?.evidence?.length ?? 0) > 80;
  const hasMore = death !== null && (death.trace !== null || isLong);
  return (
    <>
      <tr>
        <td>
          {death ? (
            <a href={`${agentAddress(run.agent)}?run=${run.run}`} aria-label={`Why run ${run.run} ended`}>
              {run.run}
            </a>
          ) : (
            run.run
          )}
        </td>
        <td>
          <time dateTime={run.started_at}>{moment(millis(run.started_at), now.peek())}</time>
        </td>
        <td>{run.ran_s !== null ? span(run.ran_s) : death === null && run.ended_at === null ? <Lasting since={run.started_at} /> : "–"}</td>
        <td>
          {death ? (
            <span class={`class kind-${death.kind ?? "none"}`} title={CLASS_MEANINGS[death.class]}>
              {death.class}
            </span>
          ) : (
            <span class="kind-alive">{run.ended_at === null ? "alive" : "–"}</span>
          )}
        </td>
        <td>{death ? ending(death) : "–"}</td>
        <td>{run.verdict ?? "–"}</td>
        <td class="evidence">
          {hasMore ? (
            <button type="button" class="link" aria-expanded={open} onClick={() => setOpen(!open)}>
              {death?.trace ? "stack trace" : "all of it"} {open ? "▾" : "▸"}
            </button>
          ) : null}{" "}
          {death?.evidence ?? ""}
        </td>
        <td>
          <a href={`${agentAddress(run.agent, "logs")}?run=${run.run}`} aria-label={`Log of run ${run.run}`}>
            log
          </a>
        </td>
      </tr>
      {open && death ? (
        <tr>
          <td colSpan={8}>
            <pre class="trace" tabIndex={0} aria-label={`Stack trace of run ${run.run}`}>
              {death.trace ?? death.evidence}
            </pre>
          </td>
        </tr>
      ) : null}
    </>
  );
}
