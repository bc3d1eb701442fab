// The post-mortem: what happened, what was made of it by which numbers, what to do.

import { useEffect, useState } from "preact/hooks";
import { plain } from "../ansi.ts";
import { agentPath, get } from "../api.ts";
import { now } from "../clock.ts";
import { span } from "../format.ts";
import { type Agent, actionsFor, type DaemonEvent, isAtPrompt, type Run } from "../model.ts";
import { ActionButton } from "../parts/buttons.tsx";
import { Ago } from "../parts/time.tsx";
import { agentAddress } from "../router.ts";
import { advice, CLASS_MEANINGS, decision, STATE_WORDS } from "../words.ts";

const EVENTS = 300;
const LAST_WORDS = 12;

export function Why({ agent, runs }: { agent: Agent; runs: Run[] }) {
  const run = runs.find((run) => run.death !== null) ?? null;
  const { events, words } = useEvidence(agent.name, run?.run ?? null);
  const decisions = events.map((event) => ({ event, text: decision(event) })).filter(({ text }) => text !== null);
  const gauge = decisions.map(({ event }) => gaugeOf(event)).findLast((gauge) => gauge !== null) ?? null;
  const death = run?.death ?? null;
  const isDown = agent.state === "crashed-out" || agent.state === "halted";
  return (
    <section class={`card why ${isDown ? "down" : ""}`} aria-label="Why" data-testid="why">
      <p class="headline">
        <b>{agent.name}</b> is {STATE_WORDS[agent.state]}
        {agent.reason ? ` (${agent.reason})` : ""}.{" "}
        {isAtPrompt(agent) ? <>It asks: “{agent.question}”</> : null}
      </p>
      {run && death ? (
        <>
          <p>
            Run {run.run}{" "}
            {death.exit_code !== null
              ? `exited with code ${death.exit_code}`
              : death.signal
                ? `was ended by ${death.signal}`
                : "did not come to life"}{" "}
            after {span(death.ran_s)}, <Ago at={death.at} />.
          </p>
          <dl class="findings">
            <div>
              <dt>class</dt>
              <dd>
                <span class={`class kind-${death.kind ?? "none"}`}>{death.class}</span> {CLASS_MEANINGS[death.class]}
              </dd>
            </div>
            <div>
              <dt>evidence</dt>
              <dd>{death.evidence ? <q class="mono">{death.evidence}</q> : <span class="faint">the way it ended, and nothing else</span>}</dd>
            </div>
            <div>
              <dt>verdict</dt>
              <dd>
                {run.verdict ?? "none"}
                <ul class="decisions">
                  {decisions.map(({ event, text }) => (
                    <li key={event.seq}>{text}</li>
                  ))}
                </ul>
                {gauge ? <Gauge {...gauge} /> : null}
              </dd>
            </div>
          </dl>
          {death.trace ? (
            <Words title="Stack trace" text={death.trace} />
          ) : words ? (
            <Words title="Last words" text={words} />
          ) : null}
        </>
      ) : (
        <p class="faint">None of its runs has ended yet.</p>
      )}
      <div class="advice">
        <p>{advice(agent, now.value)}</p>
        <span class="buttons">
          {isAtPrompt(agent) && agent.pty ? (
            <a class="button primary" href={agentAddress(agent.name, "terminal")}>
              Open its terminal
            </a>
          ) : null}
          {actionsFor(agent).includes("revive") ? <ActionButton agent={agent} action="revive" /> : null}
        </span>
      </div>
    </section>
  );
}

function Words({ title, text }: { title: string; text: string }) {
  return (
    <figure class="words">
      <figcaption>{title}</figcaption>
      <pre tabIndex={0} aria-label={title}>
        {text}
      </pre>
    </figure>
  );
}

/** A gauge that has more is drawn in proportion. */
const MOST_CELLS = 10;

interface GaugeOf {
  count: number;
  max: number;
  what: string;
  within: number | null;
}

function gaugeOf(event: DaemonEvent): GaugeOf | null {
  const number = (field: string) => (typeof event[field] === "number" ? (event[field] as number) : null);
  const [what, count] = number("deaths") !== null ? ["deaths", number("deaths")] : ["restarts", number("restarts")];
  const max = number("max");
  if (count === null || max === null || max <= 0) return null;
  return { count, max, what: what as string, within: number("within_s") };
}

/** Where the limit that is nearest to tripping stands. */
function Gauge({ count, max, what, within }: GaugeOf) {
  const cells = Math.min(max, MOST_CELLS);
  const text = `${count} of ${max} ${what}${within === null ? "" : ` within ${span(within)}`}`;
  return (
    <div class={`gauge ${count >= max ? "full" : ""}`} role="img" aria-label={text}>
      <div class="gauge-cells" aria-hidden="true">
        {Array.from({ length: cells }, (_, at) => (
          <i key={at} class={at < (count / max) * cells ? "on" : ""} />
        ))}
      </div>
      <small aria-hidden="true">{text}</small>
    </div>
  );
}

/** What was decided about a run, and the end of what it wrote. */
function useEvidence(name: string, run: number | null) {
  const [events, setEvents] = useState<DaemonEvent[]>([]);
  const [words, setWords] = useState("");
  useEffect(() => {
    const abort = new AbortController();
    setEvents([]);
    setWords("");
    if (run === null) return;
    const look = async () => {
      const all = await get<DaemonEvent[]>(`/api/v1/events?agent=${encodeURIComponent(name)}&last=${EVENTS}`, abort.signal);
      setEvents(all.filter((event) => event.agent === name && event.run === run));
      const tail = await fetch(agentPath(name, `/runs/${run}/tail`), { signal: abort.signal });
      if (!tail.ok) return;
      const lines = plain((await tail.text()).replace(/\r\n/g, "\n").replace(/\n+$/, "")).split("\n");
      setWords(lines.slice(-LAST_WORDS).join("\n"));
    };
    // What cannot be had is left out; the rest is shown.
    look().catch(() => {});
    return () => abort.abort();
  }, [name, run]);
  return { events, words };
}
