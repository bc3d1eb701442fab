// Lifelines in the page: one agent or all of them, zoomed and panned by wheel, pointer and keys.

import { type ReadonlySignal, useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { daemonNow, now } from "../clock.ts";
import { ending, moment, span } from "../format.ts";
import { useKeys } from "../keys.tsx";
import { connection, onEvent } from "../live.ts";
import { Badge } from "../parts/badge.tsx";
import { agentAddress } from "../router.ts";
import { theme } from "../theme.ts";
import { CLASS_MEANINGS } from "../words.ts";
import { fetchLifelines, LEGEND, type Line, type Mark } from "./data.ts";
import { draw } from "./draw.ts";
import { bounds, panned, PRESETS, SHORTEST, type Stretch, zoomed } from "./scale.ts";

const HEAD = 24;
/** What is above and below the picture on its own page. */
const AROUND = 212;
/** Names are made in steps of so many, and so many beyond the edges. */
const STEP = 8;
/** With more agents than this it is looked again less often. */
const MANY = 200;
const COALESCE_MANY_MS = 5_000;
/** Events within this time are answered by one look. */
const COALESCE_MS = 700;
/** While the picture is moved it is not asked for at each step. */
const SETTLE_MS = 150;

export function LifelineChart({ agent, filter = "" }: { agent: string | null; filter?: string }) {
  const stretch = useSignal<Stretch>({ length: PRESETS[1]![1], end: null });
  const all = useSignal<Line[]>([]);
  const trouble = useSignal<string | null>(null);
  const chosen = useSignal<{ agent: string; mark: Mark } | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const scrolled = useSignal(0);
  const row = agent === null ? 28 : 44;
  const wanted = useSignal(filter);
  wanted.value = filter;
  const lines = useComputed(() => all.value.filter((line) => line.agent.toLowerCase().includes(wanted.value.toLowerCase())));

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let busy = false;
    let again = false;
    let isFitted = false;
    /** A fleet that is only minutes old is not shown as a sliver of an hour. */
    const fit = () => {
      isFitted = true;
      const young = daemonNow() - SHORTEST * 0.9;
      const isYoung = all.value.every((line) => line.marks.every((mark) => mark.from > young));
      if (isYoung && all.value.some((line) => line.marks.length > 0)) stretch.value = { length: SHORTEST, end: null };
    };
    const look = async () => {
      timer = undefined;
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      const { from, to } = bounds(stretch.value, daemonNow());
      try {
        all.value = await fetchLifelines(from - (to - from) * 0.5, Math.min(to + (to - from) * 0.5, daemonNow() + 1000), agent);
        trouble.value = null;
        if (!isFitted) fit();
      } catch (error) {
        trouble.value = error instanceof Error ? error.message : String(error);
      }
      busy = false;
      if (again) {
        again = false;
        soon(COALESCE_MS);
      }
    };
    const soon = (ms: number) => {
      timer ??= setTimeout(() => void look(), ms);
    };
    void look();
    const stopEvents = onEvent((event) => {
      if (event.agent && (agent === null || event.agent === agent)) soon(all.value.length > MANY ? COALESCE_MANY_MS : COALESCE_MS);
    });
    const stopStretch = stretch.subscribe(() => soon(SETTLE_MS));
    const stopConnection = connection.subscribe((how) => {
      if (how.word === "live") soon(COALESCE_MS);
    });
    return () => {
      stopEvents();
      stopStretch();
      stopConnection();
      clearTimeout(timer);
    };
  }, [agent]);

  const onScroll = () => {
    scrolled.value = Math.floor((box.current?.scrollTop ?? 0) / row / STEP) * STEP;
    paint();
  };
  const paint = () => {
    const element = canvas.current;
    const around = box.current;
    if (!element || !around) return;
    const { from, to } = bounds(stretch.value, now.value);
    draw(element, lines.value, {
      from,
      to,
      now: now.value,
      width: element.clientWidth,
      height: element.clientHeight,
      row,
      scrolled: around.scrollTop,
      head: HEAD,
      chosen: chosen.value?.mark ?? null,
    });
  };
  // Everything that is drawn is read here, so that a change of it draws again.
  void [stretch.value, lines.value, now.value, chosen.value, theme.value];
  useLayoutEffect(paint);
  useEffect(() => {
    const watcher = new ResizeObserver(paint);
    if (canvas.current) watcher.observe(canvas.current);
    return () => watcher.disconnect();
  }, []);

  const place = (event: { clientX: number; clientY: number }) => {
    const bounding = canvas.current!.getBoundingClientRect();
    const at = (event.clientX - bounding.left) / bounding.width;
    const index = Math.floor((event.clientY - bounding.top - HEAD + (box.current?.scrollTop ?? 0)) / row);
    return { at, index, width: bounding.width };
  };
  const markAt = (event: { clientX: number; clientY: number }) => {
    const { at, index, width } = place(event);
    const line = lines.value[index];
    if (!line) return null;
    const { from, to } = bounds(stretch.value, now.value);
    const time = from + (to - from) * at;
    const slack = ((to - from) / width) * 3;
    const ending = (mark: Mark) => (mark.to === Infinity ? now.value : mark.to);
    const hits = line.marks.filter((mark) => mark.from - slack <= time && ending(mark) + slack >= time);
    const mark = hits.find((mark) => mark.kind === "run") ?? hits[0];
    return mark ? { agent: line.agent, mark } : null;
  };

  const zoom = (factor: number, at = 1) => (stretch.value = zoomed(stretch.value, factor, at, daemonNow()));
  const pan = (fraction: number) => (stretch.value = panned(stretch.value, fraction, daemonNow()));
  useKeys((key) => {
    if (key === "+" || key === "=") zoom(1 / 1.6);
    else if (key === "-" || key === "−") zoom(1.6);
    else if (key === "0") stretch.value = { ...stretch.value, end: null };
    else if (key === "ArrowLeft" && !step(-1)) pan(-0.2);
    else if (key === "ArrowRight" && !step(1)) pan(0.2);
    else return key === "ArrowLeft" || key === "ArrowRight";
    return true;
  });
  /** On a focused lifeline, the keys go from mark to mark. */
  const step = (by: number): boolean => {
    const name = document.activeElement?.closest<HTMLElement>("[data-lifeline]")?.dataset["lifeline"];
    const line = lines.value.find((line) => line.agent === name);
    if (!line || line.marks.length === 0) return false;
    const index = chosen.value?.agent === name ? line.marks.indexOf(chosen.value!.mark) : line.marks.length - (by < 0 ? 0 : 1);
    const mark = line.marks[Math.min(line.marks.length - 1, Math.max(0, index + by))]!;
    chosen.value = { agent: line.agent, mark };
    return true;
  };

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const onWheel = (event: WheelEvent) => {
      const around = box.current!;
      const scrolls = around.scrollHeight > around.clientHeight + 1;
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
      if (sideways) pan((event.deltaX || event.deltaY) / 800);
      else if (event.ctrlKey || event.metaKey || event.altKey || (!scrolls && agent === null)) {
        zoom(Math.exp(event.deltaY / 400), place(event).at);
      } else return;
      event.preventDefault();
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [agent]);

  // The picture stays in sight while the list scrolls, and is no higher than what it shows.
  const whole = HEAD + lines.value.length * row;
  const high = agent === null ? Math.min(whole, Math.max(200, innerHeight - AROUND)) : HEAD + row;
  let dragged: { x: number; stretch: Stretch } | null = null;
  const shown = useComputed(() => bounds(stretch.value, now.value)).value;
  const described = `Lifelines from ${moment(shown.from, now.peek())} to ${moment(Math.min(shown.to, now.peek()), now.peek())}`;

  return (
    <section class={`lifelines ${agent === null ? "" : "single"}`} aria-label={agent === null ? "Lifelines" : `Lifeline of ${agent}`}>
      <div class="tools">
        <div class="buttons presets" role="group" aria-label="Zoom">
          {PRESETS.map(([word, length]) => (
            <button
              type="button"
              key={word}
              class="button"
              aria-pressed={stretch.value.length === length}
              onClick={() => (stretch.value = { length, end: null })}
            >
              {word}
            </button>
          ))}
          <button type="button" class="button" aria-label="Earlier" onClick={() => pan(-0.5)}>
            ‹
          </button>
          <button type="button" class="button" aria-label="Later" disabled={stretch.value.end === null} onClick={() => pan(0.5)}>
            ›
          </button>
          <button type="button" class="button" aria-pressed={stretch.value.end === null} onClick={() => (stretch.value = { ...stretch.value, end: null })}>
            Now
          </button>
        </div>
        {trouble.value ? <span class="low">{trouble.value}</span> : null}
        <Detail chosen={chosen.value} />
      </div>
      <div class="lifeline-box" ref={box} onScroll={onScroll} tabIndex={agent === null ? 0 : -1} role="group" aria-label={described}>
        {agent === null ? (
          <Names lines={lines} row={row} scrolled={scrolled} />
        ) : null}
        <div class="lifeline-picture" style={{ minHeight: `${HEAD + lines.value.length * row}px` }}>
          <canvas
            ref={canvas}
            role="img"
            aria-label={described}
            data-testid="lifeline"
            data-marks={lines.value.reduce((sum, line) => sum + line.marks.length, 0)}
            style={{ height: `${high}px` }}
            onPointerDown={(event) => {
              dragged = { x: event.clientX, stretch: stretch.value };
              event.currentTarget.setPointerCapture(event.pointerId);
            }}
            onPointerMove={(event) => {
              if (dragged && Math.abs(event.clientX - dragged.x) > 3) {
                const width = event.currentTarget.clientWidth;
                stretch.value = panned(dragged.stretch, (dragged.x - event.clientX) / width, daemonNow());
              } else if (!dragged) chosen.value = markAt(event);
            }}
            onPointerUp={() => (dragged = null)}
            onPointerLeave={() => (chosen.value = null)}
          />
        </div>
      </div>
      {agent === null ? <Legend more={lines.value.some((line) => line.more)} /> : null}
      {agent !== null && lines.value.some((line) => line.more) ? <p class="faint untold">{UNTOLD}: the newest are</p> : null}
    </section>
  );
}

/** The names beside the picture: those in sight. It is its own part, so that the clock does not concern it. */
function Names({ lines, row, scrolled }: { lines: ReadonlySignal<Line[]>; row: number; scrolled: ReadonlySignal<number> }) {
  const first = Math.max(0, scrolled.value - STEP);
  const shown = lines.value.slice(first, scrolled.value + Math.ceil(innerHeight / row) + 2 * STEP);
  return (
    <ul class="lifeline-names" style={{ height: `${HEAD + lines.value.length * row}px` }}>
      {shown.map((line, at) => (
        <li key={line.agent} data-lifeline={line.agent} style={{ height: `${row}px`, transform: `translateY(${HEAD + (first + at) * row}px)` }}>
          <a href={agentAddress(line.agent)} title={line.agent}>
            {line.agent}
          </a>
          <Badge state={line.state} />
          {line.more ? <span class="unseen">; {UNTOLD}</span> : null}
        </li>
      ))}
    </ul>
  );
}

/** What the dots in front of a lifeline mean. */
const UNTOLD = "earlier runs not shown";

function Detail({ chosen }: { chosen: { agent: string; mark: Mark } | null }) {
  if (!chosen) return <span class="count faint">Point at a bar, or focus an agent and press ← →</span>;
  const { mark } = chosen;
  const lasted = span(((mark.to === Infinity ? now.value : mark.to) - mark.from) / 1000);
  const begin = moment(mark.from, now.peek());
  const text = mark.bar
    ? mark.bar.class
      ? `run ${mark.bar.run}: ${begin}, lived ${lasted}, ${mark.bar.class} (${ending(mark.bar)}): ${CLASS_MEANINGS[mark.bar.class]}`
      : `run ${mark.bar.run}: since ${begin}, ${mark.to === Infinity ? `alive for ${lasted}` : `lived ${lasted}`}`
    : `${mark.wait!.reason === "backoff" ? "backoff" : `waits for ${mark.wait!.reason}`}: ${begin}, ${lasted}`;
  return (
    <span class="count" role="status">
      <b>{chosen.agent}</b> {text}
    </span>
  );
}

function Legend({ more }: { more: boolean }) {
  return (
    <ul class="legend" aria-label="Legend">
      {LEGEND.map(([name, word]) => (
        <li key={name}>
          <i class={name} aria-hidden="true" /> {word}
        </li>
      ))}
      <li>
        <i class="hatched" aria-hidden="true" /> waiting
      </li>
      {more ? (
        <li>
          <i class="dotted" aria-hidden="true" /> {UNTOLD}
        </li>
      ) : null}
    </ul>
  );
}
