// The post-mortem: what happened, what was made of it by which numbers, what to do. The daemon puts it
// together, as it does for `defib why`; this shows it.

import { useEffect, useRef, useState } from "preact/hooks";
import { agentPath, get } from "../api.ts";
import { now } from "../clock.ts";
import { span } from "../format.ts";
import { type Agent, actionsFor, type DaemonEvent, isAtPrompt, type PostMortem, type Run } from "../model.ts";
import { ActionButton } from "../parts/buttons.tsx";
import { Ago } from "../parts/time.tsx";
import { agentAddress } from "../router.ts";
import { STATE_WORDS } from "../words.ts";

/** About a run of an agent; without one, about the last that ended. */
export function Why({ agent, runs, run: wanted }: { agent: Agent; runs: Run[]; run: number | null }) {
  const found = usePostMortem(agent, runs, wanted);
  const run = found?.run ?? null;
  const gauge = found?.events.map(gaugeOf).findLast((gauge) => gauge !== null) ?? null;
  const death = run?.death ?? null;
  const isDown = agent.state === "crashed-out" || agent.state === "halted";
  return (
    <section class={`card why ${isDown ? "down" : ""}`} aria-label="Why" data-testid="why">
      <p class="headline">
        <b>{agent.name}</b> is {STATE_WORDS[agent.state]}
        {agent.reason ? ` (${agent.reason})` : ""}.{" "}
        {isAtPrompt(agent) ? <>It asks: “{agent.question}”</> : null}
      </p>
      {found && run && death ? (
        <>
          <p>
            Run {run.run}{" "}
            {death.exit_code !== null
              ? `exited with code ${death.exit_code}`
              : death.signal
                ? `was ended by ${death.signal}`
                : death.class === "lost"
                  ? "was lost"
                  : "did not come to life"}{" "}
            after {span(death.ran_s)}, <Ago at={death.at} />.
          </p>
          <dl class="findings">
            <div>
              <dt>class</dt>
              <dd>
                <span class={`class kind-${death.kind ?? "none"}`}>{death.class}</span> {found.meaning}
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
                  {found.decided.map(({ seq, text }) => (
                    <li key={seq}>{text}</li>
                  ))}
                </ul>
                {gauge ? <Gauge {...gauge} /> : null}
              </dd>
            </div>
            {found.used ? (
              <div>
                <dt>used</dt>
                <dd>{found.used}</dd>
              </div>
            ) : null}
          </dl>
          {death.trace ? (
            <Words title="Stack trace" text={death.trace} />
          ) : found.last_words.length > 0 ? (
            <Words title="Last words" text={found.last_words.join("\n")} />
          ) : null}
          {found.denied ? (
            <div class="denied" data-testid="denied">
              <Words title="Its sandbox may have refused it something" text={found.denied.line} />
              <p>{found.denied.text}</p>
            </div>
          ) : null}
        </>
      ) : run ? (
        <p class="faint">Run {run.run} has not ended yet.</p>
      ) : found && agent.last_death ? (
        <p class="faint">
          Its last run that ended died of {agent.last_death.class}
          {found.meaning ? `: ${found.meaning}` : ""}. The history does not have this death: it cannot be written at
          the moment, or was lost.
        </p>
      ) : found ? (
        <p class="faint">None of its runs has ended yet.</p>
      ) : null}
      <div class="advice">
        <p data-testid="next">{found ? <Commands text={found.next.text} /> : null}</p>
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

/** What the daemon says, with the commands in it set apart. */
function Commands({ text }: { text: string }) {
  return <>{text.split("`").map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part))}</>;
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
}

function gaugeOf(event: DaemonEvent): GaugeOf | null {
  const number = (field: string) => (typeof event[field] === "number" ? (event[field] as number) : null);
  const [what, count] = number("deaths") !== null ? ["deaths", number("deaths")] : ["restarts", number("restarts")];
  const max = number("max");
  if (count === null || max === null || max <= 0) return null;
  return { count, max, what: what as string };
}

/** Where the limit that is nearest to tripping stands. */
function Gauge({ count, max, what }: GaugeOf) {
  const cells = Math.min(max, MOST_CELLS);
  const text = `${count} of ${max} ${what}`;
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

/** How long it is to something is told in words, so those are asked for again. */
const COUNTDOWN_MS = 10_000;

/** Asked for again whenever the runs or the agent were: what follows a death may be decided after it. */
function usePostMortem(agent: Agent, runs: Run[], wanted: number | null): PostMortem | null {
  const { name, state, reason, next_at } = agent;
  const tick = next_at === null ? 0 : Math.floor(now.value / COUNTDOWN_MS);
  const [found, setFound] = useState<{ turn: number; name: string; wanted: number | null; told: PostMortem } | null>(null);
  const turns = useRef(0);
  useEffect(() => {
    const turn = ++turns.current;
    // An agent that dies faster than it is asked about is told of all the same, so nothing is called off.
    get<PostMortem>(agentPath(name, wanted === null ? "/why" : `/why?run=${wanted}`))
      .then((told) => setFound((before) => (before && before.turn > turn ? before : { turn, name, wanted, told })))
      // What was there stays; the next event asks again.
      .catch(() => {});
  }, [name, runs, wanted, state, reason, next_at, tick]);
  return found?.name === name && found.wanted === wanted ? found.told : null;
}
