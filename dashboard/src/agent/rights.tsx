// What an agent may spend and what it may do, with what is pending until its next run.

import { useEffect, useState } from "preact/hooks";
import { change, fund } from "../actions.ts";
import { agentPath, get } from "../api.ts";
import { now } from "../clock.ts";
import { amount, millis, moment } from "../format.ts";
import type { Agent, LedgerLine } from "../model.ts";

const LINES = 50;

export function Rights({ agent }: { agent: Agent }) {
  return (
    <div class="rights">
      <Budget agent={agent} />
      <Capabilities agent={agent} />
      <Ledger agent={agent} />
    </div>
  );
}

function Budget({ agent }: { agent: Agent }) {
  const missed = agent.unmetered.map((missed) => missed.unit);
  const units = [...new Set([...Object.keys(agent.balance ?? {}), ...Object.keys(agent.spent ?? {}), ...missed])];
  const [given, setGiven] = useState("10");
  const [unit, setUnit] = useState(Object.keys(agent.balance ?? {})[0] ?? "usd");
  return (
    <section class="card" aria-label="Budget">
      <h2>Budget</h2>
      {units.length === 0 ? <p class="faint">It has no balance, and nothing is known of what it spends.</p> : null}
      <dl class="facts">
        {units.map((word) => (
          <div key={word}>
            <dt>{word}</dt>
            <dd>
              {agent.balance?.[word] !== undefined ? (
                <span class={agent.balance[word]! <= 0 ? "low" : ""}>{amount(agent.balance[word]!)} left</span>
              ) : null}
              {missed.includes(word) ? (
                <small class="low"> not metered</small>
              ) : agent.spent?.[word] !== undefined ? (
                <small>
                  {" "}
                  {amount(agent.spent[word]!)} spent{agent.estimated.includes(word) ? " (estimated)" : ""}
                </small>
              ) : null}
            </dd>
          </div>
        ))}
      </dl>
      {agent.unmetered[0] ? <p class="low">Not metered: {agent.unmetered[0].fix}</p> : null}
      <form
        class="top-up"
        onSubmit={(event) => {
          event.preventDefault();
          void fund(agent.name, Number(given), unit.trim());
        }}
      >
        <label>
          Amount
          <input type="number" min="0.000001" step="any" required value={given} onInput={(event) => setGiven(event.currentTarget.value)} />
        </label>
        <label>
          Unit
          <input type="text" required pattern="[A-Za-z0-9._\-]+" list="units" value={unit} onInput={(event) => setUnit(event.currentTarget.value)} />
        </label>
        <datalist id="units">
          {[...new Set([...units, "usd", "tokens", "scrip"])].map((word) => (
            <option key={word} value={word} />
          ))}
        </datalist>
        <button type="submit" class="button primary">
          Top up
        </button>
      </form>
    </section>
  );
}

function Capabilities({ agent }: { agent: Agent }) {
  const [wanted, setWanted] = useState("");
  const has = agent.capabilities;
  const will = agent.capabilities_pending;
  if (has === null && will === null) {
    return (
      <section class="card" aria-label="Capabilities">
        <h2>Capabilities</h2>
        <p class="faint">No sandbox: it may do what its user may. `capabilities` in its file gives it one.</p>
      </section>
    );
  }
  const all = [...new Set([...(has ?? []), ...(will ?? [])])];
  return (
    <section class="card" aria-label="Capabilities">
      <h2>Capabilities</h2>
      <ul class="capabilities">
        {all.map((capability) => {
          const now = has?.includes(capability) ?? false;
          const next = will === null ? now : will.includes(capability);
          const mark = now === next ? null : next ? "granted from its next run on" : "revoked from its next run on";
          return (
            <li key={capability} class={mark ? "pending" : ""}>
              <code>{capability}</code>
              {mark ? <span class="tag tag-flapping">{mark}</span> : null}
              <button
                type="button"
                class="link"
                aria-label={`${next ? "Revoke" : "Grant"} ${capability}`}
                onClick={() => void change(agent.name, next ? "revoke" : "grant", capability)}
              >
                {next ? "revoke" : "grant again"}
              </button>
            </li>
          );
        })}
      </ul>
      {all.length === 0 ? <p class="faint">It may do nothing beyond its own folder.</p> : null}
      <form
        class="top-up"
        onSubmit={(event) => {
          event.preventDefault();
          void change(agent.name, "grant", wanted.trim()).then((done) => done && setWanted(""));
        }}
      >
        <label>
          Capability
          <input type="text" required placeholder="read:/etc" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
        </label>
        <button type="submit" class="button">
          Grant
        </button>
      </form>
    </section>
  );
}

function Ledger({ agent }: { agent: Agent }) {
  const [lines, setLines] = useState<LedgerLine[]>([]);
  const balances = JSON.stringify([agent.balance, agent.spent]);
  useEffect(() => {
    const abort = new AbortController();
    get<LedgerLine[]>(agentPath(agent.name, "/ledger"), abort.signal)
      .then((all) => setLines(newestFirst(all).slice(0, LINES)))
      .catch(() => {});
    return () => abort.abort();
  }, [agent.name, balances]);
  if (lines.length === 0) return null;
  return (
    <section class="card wide" aria-label="Ledger">
      <h2>Ledger</h2>
      <div class="scroll-x" tabIndex={0} role="group" aria-label="Ledger, scrolls sideways">
        <table>
          <thead>
            <tr>
              <th>When</th>
              <th>What</th>
              <th class="right">Amount</th>
              <th>Unit</th>
              <th class="right">Left</th>
              <th>Run</th>
              <th>By</th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line, at) => (
              <tr key={at}>
                <td>{moment(millis(line.at), now.peek())}</td>
                <td>{line.what}</td>
                <td class="right">{amount(line.amount)}</td>
                <td>{line.unit}</td>
                <td class="right">{line.balance === null ? "–" : amount(line.balance)}</td>
                <td>{line.run ?? "–"}</td>
                <td>{line.by}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function newestFirst(lines: LedgerLine[]): LedgerLine[] {
  return [...lines].sort((a, b) => millis(b.at) - millis(a.at));
}
