// Charts: restarts, memory and CPU (live, and of every run that ended), and what was spent. The library is loaded when they are looked at.

import { useEffect, useRef, useState } from "preact/hooks";
import { agentPath, get } from "../api.ts";
import { now } from "../clock.ts";
import { amount, bytes, span } from "../format.ts";
import type { Agent, LedgerLine, Run } from "../model.ts";
import { theme } from "../theme.ts";
import { cpuOf, restartsOver, type Series, spentOver, usedOver } from "./series.ts";
import { samples } from "./usage.ts";

export function Charts({ agent, runs }: { agent: Agent; runs: Run[] }) {
  const [lines, setLines] = useState<LedgerLine[]>([]);
  const spent = JSON.stringify(agent.spent);
  useEffect(() => {
    const abort = new AbortController();
    get<LedgerLine[]>(agentPath(agent.name, "/ledger"), abort.signal)
      .then(setLines)
      .catch(() => {});
    return () => abort.abort();
  }, [agent.name, spent]);
  const seen = samples.value.get(agent.name) ?? [];
  const at = seen.map((sample) => sample.at / 1000);
  const units = [...new Set(lines.filter((line) => line.what === "spent").map((line) => line.unit))];
  // Of a run that is over, nothing is so now.
  const live: Told = agent.pid === null ? ["last"] : ["now"];
  const minute = Math.floor(now.value / 60_000);
  return (
    <div class="charts">
      <Chart title="Restarts" told={["in all", String(runs.filter((run) => run.verdict === "restart").length)]} series={restartsOver(runs, minute * 60_000)} kind="bars" colour="bar-dumb" show={(value) => amount(value)} />
      <Chart title="Memory" note="while this page is open" told={live} series={{ at, values: seen.map((sample) => sample.memory) }} kind="line" colour="wait" show={bytes} />
      <Chart
        title="CPU"
        note="of one processor, while this page is open"
        told={live}
        series={{ at, values: seen.map((sample) => sample.cpu) }}
        kind="line"
        colour="bar-alive"
        show={(value) => `${amount(Number(value.toFixed(1)))} %`}
      />
      <Chart title="Memory by run" note="at the most" series={usedOver(runs, (death) => death.memory_peak_bytes)} kind="points" colour="wait" show={bytes} />
      <Chart title="CPU time by run" note="when it ended" series={usedOver(runs, cpuOf)} kind="points" colour="bar-alive" show={span} />
      {units.map((unit) => (
        <Chart key={unit} title={unit === "usd" ? "Cost, usd" : `Spent, ${unit}`} told={["in all"]} series={spentOver(lines, unit)} kind="line" colour="bar-smart" show={amount} />
      ))}
      {units.length === 0 ? <Chart title="Tokens and cost" series={{ at: [], values: [] }} kind="line" colour="bar-smart" show={amount} /> : null}
    </div>
  );
}

export interface ChartLook {
  /** Points stand for themselves: nothing is known of what is between them. */
  kind: "line" | "bars" | "points";
  colour: string;
  show: (value: number) => string;
}

/** What the figure beside a title is, and which, where it is not the last value. */
type Told = [when: "now" | "last" | "in all", figure?: string];

function Chart({ title, note, told = ["last"], series, ...look }: { title: string; note?: string; told?: Told; series: Series } & ChartLook) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<{ update: (series: Series) => void; end: () => void } | null>(null);
  const latest = useRef(series);
  latest.current = series;
  const dark = theme.value;
  const isEmpty = isNothing(look.kind, series);
  useEffect(() => {
    if (isEmpty) return;
    let gone = false;
    void import("./plot.ts").then(({ plot }) => {
      if (!gone && place.current) chart.current = plot(place.current, latest.current, look);
    });
    return () => {
      gone = true;
      chart.current?.end();
      chart.current = null;
    };
  }, [dark, isEmpty]);
  useEffect(() => chart.current?.update(series));
  const last = series.values.findLast((value) => value !== null);
  const highest = Math.max(0, ...series.values.map((value) => value ?? 0));
  const [when, figure = last == null ? "" : look.show(last)] = told;
  const most = when === "in all" && look.kind === "line" ? "" : `, ${look.show(highest)} at the most${look.kind === "bars" ? " at a time" : ""}`;
  const described = last == null && isEmpty ? `${title}: nothing yet` : `${title}: ${figure} ${when}${most}`;
  return (
    <figure class="card chart">
      <figcaption>
        <b>{title}</b> {isEmpty && last == null ? null : <span title={when}>{figure}</span>} {note ? <small>{note}</small> : null}
      </figcaption>
      <div ref={place} class="chart-place" role="img" aria-label={described} />
      {isEmpty ? <p class="faint nothing">Nothing yet.</p> : null}
    </figure>
  );
}

function isNothing(kind: ChartLook["kind"], series: Series): boolean {
  switch (kind) {
    case "bars":
      return series.values.every((value) => !value);
    case "line":
      return series.at.length < 2;
    case "points":
      return series.at.length === 0;
  }
}
