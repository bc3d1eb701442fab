// The buttons of an agent: only those that mean something in its state.

import { act, askToKill, underWay } from "../actions.ts";
import { type Action, actionsFor, type Agent } from "../model.ts";

const WORDS: Record<Action, string> = { start: "Start", stop: "Stop", restart: "Restart", revive: "Revive" };

export function ActionButton({ agent, action }: { agent: Agent; action: Action }) {
  const pending = underWay.value.get(agent.name);
  return (
    <button
      type="button"
      class={action === "revive" ? "button primary" : "button"}
      disabled={pending !== undefined}
      aria-label={`${WORDS[action]} ${agent.name}`}
      onClick={(event) => {
        event.stopPropagation();
        void act(agent.name, action);
      }}
    >
      {pending === action ? "…" : WORDS[action]}
    </button>
  );
}

export function Buttons({ agent, kill = false }: { agent: Agent; kill?: boolean }) {
  const isAlive = agent.pid !== null || agent.state === "stopping";
  return (
    <span class="buttons">
      {actionsFor(agent).map((action) => (
        <ActionButton key={action} agent={agent} action={action} />
      ))}
      {kill && isAlive ? (
        <button type="button" class="button danger" aria-label={`Kill ${agent.name}`} onClick={() => askToKill(agent.name)}>
          Kill…
        </button>
      ) : null}
    </span>
  );
}
