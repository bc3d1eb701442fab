// The overview's order: who needs somebody first, then everybody else below their groups.

import { needsAttention, STATES, type Agent, type State, urgency } from "./model.ts";
import { STATE_WORDS } from "./words.ts";

/** How many restarts a group may make, and has made. */
export interface Budget {
  max: number;
  within_s: number | null;
  used: number;
}

export interface Group {
  name: string;
  project: string | null;
  strategy: string | null;
  /** Of all states of its agents, the one that concerns people most. */
  state: State | null;
  budget: Budget | null;
  /** Its agents and groups, in the order they start. */
  members: string[];
}

export type Row =
  | { kind: "section"; key: string; depth: number; title: string; note: string | null; count: number; summary: string; group: Group | null }
  | { kind: "agent"; key: string; depth: number; agent: Agent; loud: boolean };

function section(key: string, depth: number, title: string, note: string | null, agents: readonly Agent[], group: Group | null = null): Row {
  const counts = new Map<State, number>();
  for (const agent of agents) counts.set(agent.state, (counts.get(agent.state) ?? 0) + 1);
  const found = STATES.filter((state) => counts.has(state));
  const summary = found.map((state) => `${counts.get(state)} ${STATE_WORDS[state]}`).join(" · ");
  return { kind: "section", key, depth, title, note, count: agents.length, summary, group };
}

export interface Wanted {
  search: string;
  state: State | "all" | "attention";
}

export function matches(agent: Agent, wanted: Wanted): boolean {
  if (wanted.state === "attention" ? !needsAttention(agent) : wanted.state !== "all" && agent.state !== wanted.state) {
    return false;
  }
  const text = wanted.search.trim().toLowerCase();
  if (text === "") return true;
  const fields = [agent.name, agent.group, agent.project, agent.kind, agent.state, agent.reason, agent.last_death?.class];
  return text.split(/\s+/).every((word) => fields.some((field) => field?.toLowerCase().includes(word)));
}

export function rowsOf(agents: readonly Agent[], groups: readonly Group[], wanted: Wanted): Row[] {
  const shown = agents.filter((agent) => matches(agent, wanted));
  const rows: Row[] = [];
  const urgent = shown.filter(needsAttention).sort((a, b) => urgency(a) - urgency(b) || a.name.localeCompare(b.name));
  if (urgent.length > 0) {
    rows.push(section("#attention", 0, "Needs attention", null, urgent));
    for (const agent of urgent) rows.push(agentRow(agent, 0, true));
  }
  // Whoever asks for those that need somebody has them above.
  const rest = wanted.state === "attention" ? [] : shown;
  const projects = new Map<string, Agent[]>();
  for (const agent of rest) {
    const list = projects.get(agent.project);
    if (list) list.push(agent);
    else projects.set(agent.project, [agent]);
  }
  for (const [project, members] of [...projects].sort(([a], [b]) => a.localeCompare(b))) {
    const below = tree(members, groups);
    if (below.length > 0) rows.push(section(`#project ${project}`, 0, project, "project", members), ...below);
  }
  return rows;
}

/**
 * Groups with their members below them, then those that are in none. Those that are above, because they
 * need somebody, are not listed twice; but their groups are there, and count them.
 */
function tree(agents: readonly Agent[], groups: readonly Group[]): Row[] {
  const known = new Map(groups.map((group) => [group.name, group]));
  for (const agent of agents) {
    if (agent.group !== null && !known.has(agent.group)) {
      known.set(agent.group, { name: agent.group, project: agent.project, strategy: null, state: null, budget: null, members: [] });
    }
  }
  const parent = new Map<string, string>();
  for (const group of known.values()) {
    for (const member of group.members) if (known.has(member)) parent.set(member, group.name);
  }
  const ofGroup = new Map<string | null, Agent[]>();
  for (const agent of agents) {
    const list = ofGroup.get(agent.group);
    if (list) list.push(agent);
    else ofGroup.set(agent.group, [agent]);
  }
  const rows: Row[] = [];
  const seen = new Set<string>();
  const below = (name: string): Agent[] => {
    const inner = known.get(name)?.members.filter((member) => parent.get(member) === name) ?? [];
    return [...(ofGroup.get(name) ?? []), ...inner.flatMap(below)];
  };
  const add = (group: Group, depth: number) => {
    if (seen.has(group.name)) return;
    seen.add(group.name);
    const all = below(group.name);
    if (all.length === 0) return;
    rows.push(section(`#group ${group.name}`, depth, group.name, group.strategy ?? "group", all, group));
    const place = new Map(group.members.map((member, at) => [member, at]));
    const own = [...(ofGroup.get(group.name) ?? [])].sort((a, b) => (place.get(a.name) ?? 0) - (place.get(b.name) ?? 0));
    for (const agent of own.filter(isCalm)) rows.push(agentRow(agent, depth, false));
    for (const member of group.members) {
      const inner = known.get(member);
      if (inner && parent.get(member) === group.name) add(inner, depth + 1);
    }
  };
  for (const group of known.values()) if (!parent.has(group.name)) add(group, 1);
  const alone = ofGroup.get(null) ?? [];
  return [...alone.filter(isCalm).map((agent) => agentRow(agent, 0, false)), ...rows];
}

const isCalm = (agent: Agent) => !needsAttention(agent);

function agentRow(agent: Agent, depth: number, loud: boolean): Row {
  return { kind: "agent", key: agent.name, depth, agent, loud };
}
