// uPlot, put into the page. A chunk of its own: whoever looks at no chart does not load it.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { colour } from "../theme.ts";
import type { ChartLook } from "./charts.tsx";
import type { Series } from "./series.ts";

const HIGH = 150;
const DAY_S = 86_400;

/** Times of day on a clock of 24 hours; days where the picture is longer than one. */
function times(_: uPlot, ticks: number[]): string[] {
  const isLong = (ticks.at(-1) ?? 0) - (ticks[0] ?? 0) > DAY_S;
  const isShort = (ticks.at(-1) ?? 0) - (ticks[0] ?? 0) < 300;
  return ticks.map((at) =>
    isLong
      ? new Date(at * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short" })
      : new Date(at * 1000).toLocaleTimeString(undefined, {
          hour: "2-digit",
          minute: "2-digit",
          second: isShort ? "2-digit" : undefined,
          hourCycle: "h23",
        }),
  );
}

export function plot(place: HTMLElement, series: Series, look: ChartLook) {
  const stroke = colour(look.colour);
  const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "11px system-ui" };
  const chart = new uPlot(
    {
      width: Math.max(200, place.clientWidth),
      height: HIGH,
      legend: { show: false },
      cursor: { y: false },
      scales: { y: { range: (_, __, highest) => [0, highest > 0 ? highest * 1.12 : 1] } },
      axes: [{ ...axis, space: 70, values: times }, { ...axis, size: 64, values: (_, ticks) => ticks.map((value) => look.show(value)) }],
      series: [
        {},
        drawn(look.kind, stroke),
      ],
    },
    data(series),
    place,
  );
  const watcher = new ResizeObserver(() => chart.setSize({ width: Math.max(200, place.clientWidth), height: HIGH }));
  watcher.observe(place);
  return {
    update: (next: Series) => chart.setData(data(next)),
    end: () => {
      watcher.disconnect();
      chart.destroy();
    },
  };
}

function drawn(kind: ChartLook["kind"], stroke: string): uPlot.Series {
  switch (kind) {
    case "bars":
      return { stroke, fill: stroke, paths: uPlot.paths.bars!({ size: [0.8, 40], align: 1 }), points: { show: false } };
    case "line":
      return { stroke, width: 1.5, fill: `color-mix(in srgb, ${stroke} 14%, transparent)`, points: { show: false }, spanGaps: false };
    case "points":
      return { stroke, paths: () => null, points: { show: true, size: 6, width: 0, fill: stroke } };
  }
}

function data(series: Series): uPlot.AlignedData {
  return [series.at, series.values];
}
