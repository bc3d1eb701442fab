// One agent: why it is as it is, what it wrote, what it uses, and everything that can be done to it.

import { useEffect, useState } from "preact/hooks";
import { Charts } from "../agent/charts.tsx";
import { Deaths } from "../agent/deaths.tsx";
import { Logs } from "../agent/logs.tsx";
import { Rights } from "../agent/rights.tsx";
import { TerminalView } from "../agent/terminal.tsx";
import { Why } from "../agent/why.tsx";
import { get } from "../api.ts";
import { amounts, bytes } from "../format.ts";
import { useKeys } from "../keys.tsx";
import { LifelineChart } from "../lifeline/chart.tsx";
import { agents, loaded, onEvent } from "../live.ts";
import type { Agent, Run } from "../model.ts";
import { Badge, Flapping } from "../parts/badge.tsx";
import { Buttons } from "../parts/buttons.tsx";
import { Ago, Lasting, Until } from "../parts/time.tsx";
import { agentAddress, go, type Route } from "../router.ts";
import { nextStep } from "../words.ts";
import { useUsage } from "../agent/usage.ts";
import { onAgentKey } from "./overview.tsx";

const TABS: [string, string][] = [
  ["why", "Why"],
  ["logs", "Logs"],
  ["terminal", "Terminal"],
  ["charts", "Charts"],
  ["rights", "Money & rights"],
];
/** So many of its runs are shown. */
const RUNS = 200;

export function AgentPage({ here }: { here: Extract<Route, { page: "agent" }> }) {
  const agent = agents.value.get(here.name);
  const runs = useRuns(here.name);
  useKeys((key) => {
    const tab = TABS[Number(key) - 1];
    if (tab) go(agentAddress(here.name, tab[0]), "replace");
    else if (key === "Escape") go("/");
    else return agent ? onAgentKey(key, agent) : false;
    return true;
  });
  if (!agent) {
    return (
      <main class="page" id="main">
        {loaded.value ? (
          <section class="card empty">
            <h1>No agent is called {here.name}</h1>
            <p>
              It may have been taken out of its file. <a href="/">All agents</a>
            </p>
          </section>
        ) : null}
      </main>
    );
  }
  return (
    <main class="page agent-page" id="main">
      <div class="heading">
        <nav class="crumbs" aria-label="Where you are">
          <a href="/">Agents</a> / {agent.project}
          {agent.group ? ` / ${agent.group}` : ""}
        </nav>
        <div class="title">
          <h1>{agent.name}</h1>
          <Badge state={agent.state} reason={agent.reason} />
          {agent.flapping ? <Flapping /> : null}
          {agent.status_text ? <small>{agent.status_text}</small> : null}
          <span class="title-buttons">
            <Buttons agent={agent} kill />
          </span>
        </div>
        <code class="command-line" title={agent.command.join(" ")}>
          {agent.command.join(" ")}
        </code>
      </div>
      <Facts agent={agent} />
      <LifelineChart agent={agent.name} />
      <div class="tabs" role="tablist" aria-label="About this agent">
        {TABS.map(([tab, word]) => (
          <a
            key={tab}
            role="tab"
            id={`tab-${tab}`}
            aria-selected={here.tab === tab}
            aria-controls="tab-panel"
            href={agentAddress(agent.name, tab)}
            onClick={(event) => {
              event.preventDefault();
              go(agentAddress(agent.name, tab), "replace");
            }}
          >
            {word}
          </a>
        ))}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${here.tab}`}>
        <Tab agent={agent} runs={runs} tab={here.tab} run={here.run} />
      </div>
    </main>
  );
}

function Tab({ agent, runs, tab, run }: { agent: Agent; runs: Run[]; tab: string; run: number | null }) {
  switch (tab) {
    case "logs":
      return <Logs name={agent.name} run={run} />;
    case "terminal":
      return agent.pty ? <TerminalView name={agent.name} /> : <NoTerminal />;
    case "charts":
      return <Charts agent={agent} runs={runs} />;
    case "rights":
      return <Rights agent={agent} />;
    default:
      return (
        <div class="why-page">
          <Why agent={agent} runs={runs} run={run} />
          <Deaths runs={runs} />
        </div>
      );
  }
}

function NoTerminal() {
  return (
    <section class="card">
      <p>This agent has no terminal. In its file,</p>
      <pre class="command">pty = true</pre>
      <p>gives it one with its next run.</p>
    </section>
  );
}

/** The runs of an agent, newest first, asked for again when one begins or ends. */
function useRuns(name: string): Run[] {
  const [runs, setRuns] = useState<Run[]>([]);
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      timer = undefined;
      try {
        setRuns(await get<Run[]>(`/api/v1/history?agent=${encodeURIComponent(name)}&limit=${RUNS}`, abort.signal));
      } catch {
        // What was there stays; the next event asks again.
      }
    };
    setRuns([]);
    void look();
    const stop = onEvent((event) => {
      if (event.agent === name) timer ??= setTimeout(() => void look(), 300);
    });
    return () => {
      stop();
      abort.abort();
      clearTimeout(timer);
    };
  }, [name]);
  return runs;
}

function Facts({ agent }: { agent: Agent }) {
  const usage = useUsage(agent);
  const step = nextStep(agent);
  return (
    <dl class="facts">
      <Fact word="run">{agent.run ?? "–"}</Fact>
      <Fact word="pid">{agent.pid ?? "–"}</Fact>
      <Fact word="runtime">{agent.started_at && agent.uptime_s !== null ? <Lasting since={agent.started_at} /> : "–"}</Fact>
      <Fact word="restarts">{agent.restarts}</Fact>
      <Fact word="failures in a row">{agent.consecutive_failures}</Fact>
      {usage ? <Fact word="memory">{bytes(usage.memory)}</Fact> : null}
      {usage?.cpu != null ? <Fact word="CPU">{usage.cpu.toFixed(usage.cpu < 10 ? 1 : 0)} %</Fact> : null}
      {agent.heartbeat_age_s !== null ? <Fact word="last beat">{Math.round(agent.heartbeat_age_s)} s ago</Fact> : null}
      {agent.last_activity_at ? (
        <Fact word="last output">
          <Ago at={agent.last_activity_at} />
        </Fact>
      ) : null}
      {agent.balance ? <Fact word="balance">{amounts(agent.balance)}</Fact> : null}
      {agent.spent ? <Fact word="spent">{amounts(agent.spent)}</Fact> : null}
      {step && agent.next_at ? (
        <Fact word={step}>
          <Until at={agent.next_at} />
        </Fact>
      ) : null}
    </dl>
  );
}

function Fact({ word, children }: { word: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{word}</dt>
      <dd>{children}</dd>
    </div>
  );
}
