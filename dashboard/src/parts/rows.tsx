// The rows of the overview: agents, and the groups and projects above them.

import { amounts, ending, plural, span, wholeSpan } from "../format.ts";
import { type Agent, isAtPrompt, needsPerson } from "../model.ts";
import { agentAddress } from "../router.ts";
import type { Budget, Row } from "../rows.ts";
import { CLASS_MEANINGS, nextStep, sentence } from "../words.ts";
import { Badge, Flapping } from "./badge.tsx";
import { ActionButton } from "./buttons.tsx";
import { Ago, Lasting, Until } from "./time.tsx";

interface Place {
  top: number;
  height: number;
  index: number;
}

const style = (place: Place, depth = 0) => ({
  transform: `translateY(${place.top}px)`,
  height: `${place.height}px`,
  "--depth": String(depth),
});

export function SectionRow({ row, place }: { row: Extract<Row, { kind: "section" }>; place: Place }) {
  const isAttention = row.key === "#attention";
  return (
    <div role="row" aria-rowindex={place.index} class={`row section ${isAttention ? "attention" : ""}`} style={style(place, row.depth)}>
      <span role="gridcell" aria-colspan={8}>
        <b>{row.title}</b>
        {row.note ? <span class="tag">{row.note}</span> : null}
        {row.group?.state ? <Badge state={row.group.state} /> : null}
        <small>{isAttention ? plural(row.count, "agent") : row.summary}</small>
        {row.group?.budget ? <BudgetNote {...row.group.budget} /> : null}
      </span>
    </div>
  );
}

/** How much of its restarts a group has used. */
function BudgetNote({ max, used, within_s }: Budget) {
  const text = `${used} of ${plural(max, "restart")}${within_s === null ? "" : ` in ${span(within_s)}`}`;
  return (
    <small class={used >= max ? "budget low" : "budget"} title="What the group may restart before it is given up">
      {text}
    </small>
  );
}

export function AgentRow({
  row,
  place,
  selected,
  reachable,
  onSelect,
}: {
  row: Extract<Row, { kind: "agent" }>;
  place: Place;
  selected: boolean;
  reachable: boolean;
  onSelect: () => void;
}) {
  const { agent, loud, depth } = row;
  const tone = needsPerson(agent) ? (isAtPrompt(agent) ? "asks" : "down") : agent.flapping ? "flaps" : "";
  return (
    <div
      role="row"
      class={`row agent ${loud ? "loud" : ""} ${tone}`}
      data-key={agent.name}
      data-state={agent.state}
      aria-rowindex={place.index}
      aria-selected={selected}
      tabIndex={reachable ? 0 : -1}
      style={style(place, depth)}
      onFocus={onSelect}
      onClick={onSelect}
    >
      <span role="gridcell" class="cell-state">
        <Badge state={agent.state} reason={agent.reason} />
      </span>
      <span role="gridcell" class="cell-name">
        <a href={agentAddress(agent.name)}>{agent.name}</a>
        {agent.flapping ? <Flapping /> : null}
        {loud ? null : <Note agent={agent} />}
      </span>
      <span role="gridcell" class="cell-runtime">
        <span class={agent.restarts > 0 ? "restarts some" : "restarts"} title={plural(agent.restarts, "automatic restart")}>
          <span aria-hidden="true">↻</span> {agent.restarts}
          <span class="unseen"> restarts</span>
        </span>
        {agent.started_at && agent.uptime_s !== null ? <Lasting since={agent.started_at} /> : <span class="faint">–</span>}
      </span>
      <span role="gridcell" class="cell-death">
        <LastDeath agent={agent} />
      </span>
      <span role="gridcell" class="cell-beat" data-label="beat">
        {agent.heartbeat_age_s === null ? <span class="faint">–</span> : wholeSpan(agent.heartbeat_age_s)}
      </span>
      <span role="gridcell" class="cell-balance" data-label="balance">
        <Balance agent={agent} />
      </span>
      <span role="gridcell" class="cell-next">
        <Next agent={agent} />
      </span>
      <span role="gridcell" class="cell-actions">
        <RowAction agent={agent} />
      </span>
      {loud ? (
        <span role="gridcell" class="cell-why" title={sentence(agent)}>
          {sentence(agent)}
        </span>
      ) : null}
    </div>
  );
}

function Note({ agent }: { agent: Agent }) {
  const text = agent.state === "waiting" ? sentence(agent) : agent.status_text;
  return text ? <small title={text}>{text}</small> : null;
}

function LastDeath({ agent }: { agent: Agent }) {
  const death = agent.last_death;
  if (!death) return <span class="faint">–</span>;
  return (
    <>
      <span class={`class kind-${death.kind ?? "none"}`} title={CLASS_MEANINGS[death.class]}>
        {death.class}
      </span>{" "}
      <span class="faint">
        {ending(death)}, <Ago at={death.at} />
      </span>
    </>
  );
}

function Balance({ agent }: { agent: Agent }) {
  if (agent.unmetered[0]) {
    return (
      <span class="low" title={agent.unmetered[0].fix}>
        {agent.unmetered.map((missed) => missed.unit).join(", ")} not metered
      </span>
    );
  }
  if (!agent.balance) return <span class="faint">–</span>;
  const isLow = Object.values(agent.balance).some((left) => left <= 0);
  return <span class={isLow ? "low" : ""}>{amounts(agent.balance)}</span>;
}

function Next({ agent }: { agent: Agent }) {
  const step = nextStep(agent);
  if (step && agent.next_at) {
    return (
      <>
        {step} <Until at={agent.next_at} />
      </>
    );
  }
  if (agent.state === "crashed-out" || agent.state === "halted") return <span class="faint">waits for you</span>;
  return <span class="faint">–</span>;
}

/** The one thing that is most likely wanted; the others are on the agent's page and on keys. */
function RowAction({ agent }: { agent: Agent }) {
  switch (agent.state) {
    case "crashed-out":
    case "halted":
      return <ActionButton agent={agent} action="revive" />;
    case "waiting":
      if (isAtPrompt(agent) && agent.pty) {
        return (
          <a class="button primary" href={agentAddress(agent.name, "terminal")}>
            Answer
          </a>
        );
      }
      return <ActionButton agent={agent} action="start" />;
    case "backoff":
    case "stopped":
    case "idle":
    case "done":
      return <ActionButton agent={agent} action="start" />;
    case "running":
    case "starting":
      return <ActionButton agent={agent} action="restart" />;
    case "stopping":
      return null;
  }
}
