// An agent's log: live, in its colours, searched. It follows until somebody scrolls up.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Look, Piece } from "../ansi.ts";
import { agentPath, stream, Trouble } from "../api.ts";
import { useKeys } from "../keys.tsx";
import { LogBuffer } from "../logbuffer.ts";

const LINE_PX = 19;
const FIRST = 500;
const MORE = 5_000;
const RETRY_MS = 1_000;
const BEYOND = 20;

export function Logs({ name, run }: { name: string; run: number | null }) {
  const [wanted, setWanted] = useState(FIRST);
  const [buffer, setBuffer] = useState(() => new LogBuffer());
  const [grown, setGrown] = useState(0);
  const [trouble, setTrouble] = useState<string | null>(null);
  const [search, setSearch] = useState("");
  const [onlyMatches, setOnlyMatches] = useState(false);
  const [follow, setFollow] = useState(true);
  const searchBox = useRef<HTMLInputElement>(null);
  useKeys((key) => {
    if (key !== "/") return false;
    searchBox.current?.focus();
    return true;
  });

  useEffect(() => {
    const abort = new AbortController();
    let frame = 0;
    const read = async () => {
      let fresh = new LogBuffer();
      const show = () => {
        frame = 0;
        setBuffer(fresh);
        setGrown((count) => count + 1);
      };
      for (;;) {
        fresh = new LogBuffer();
        const path = agentPath(name, `/logs?lines=${wanted}&follow=true${run === null ? "" : `&run=${run}`}`);
        try {
          await stream(path, { signal: abort.signal }, (bytes) => {
            fresh.push(bytes);
            setTrouble(null);
            frame ||= requestAnimationFrame(show);
          });
          // A run that is over has been told in whole.
          if (run !== null) return;
        } catch (error) {
          if (abort.signal.aborted) return;
          setTrouble(error instanceof Trouble ? error.message : "The daemon cannot be reached; trying again.");
          if (error instanceof Trouble && error.status === 404) return;
        }
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        if (abort.signal.aborted) return;
      }
    };
    void read();
    return () => {
      abort.abort();
      cancelAnimationFrame(frame);
    };
  }, [name, run, wanted]);

  const matching = search === "" ? null : buffer.matching(search);
  const indices = onlyMatches && matching ? matching : null;
  const count = indices ? indices.length : buffer.length;
  const isAll = buffer.length < wanted && buffer.gone === 0;

  return (
    <section class="card logs" aria-label={`Log of ${name}`}>
      <div class="tools">
        <input
          ref={searchBox}
          type="search"
          placeholder="Search the log   /"
          aria-label="Search the log"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
        {matching ? (
          <label class="check">
            <input type="checkbox" checked={onlyMatches} onChange={(event) => setOnlyMatches(event.currentTarget.checked)} />
            only these
          </label>
        ) : null}
        <span class="count" role="status">
          {trouble ?? (matching ? `${matching.length} of ${buffer.length} lines` : `${buffer.length} lines`)}
          {run !== null ? ` of run ${run}` : ""}
        </span>
        <button type="button" class="button" disabled={isAll} onClick={() => setWanted(wanted + MORE)}>
          Load older
        </button>
        <button type="button" class="button" aria-pressed={follow} onClick={() => setFollow(!follow)}>
          {follow ? "Following" : "Follow"}
        </button>
      </div>
      <Lines
        count={count}
        line={(at) => buffer.pieces(indices ? indices[at]! : at)}
        number={(at) => buffer.gone + (indices ? indices[at]! : at) + 1}
        highlight={search}
        grown={grown}
        follow={follow}
        onFollow={setFollow}
      />
    </section>
  );
}

function Lines({
  count,
  line,
  number,
  highlight,
  grown,
  follow,
  onFollow,
}: {
  count: number;
  line: (at: number) => Piece[];
  number: (at: number) => number;
  highlight: string;
  grown: number;
  follow: boolean;
  onFollow: (follow: boolean) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const before = useRef({ count: 0, scrolled: 0 });

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    setHeight(element.clientHeight);
    if (follow) {
      element.scrollTop = element.scrollHeight;
    } else if (count - before.current.count > MORE / 10 && before.current.count > 0) {
      // Older lines have come in front: what was seen stays where it was.
      element.scrollTop += (count - before.current.count) * LINE_PX;
    }
    before.current.count = count;
  }, [count, grown, follow]);

  const onScroll = () => {
    const element = box.current;
    if (!element) return;
    const next = Math.floor(element.scrollTop / LINE_PX / 5) * 5;
    if (next !== top) setTop(next);
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < LINE_PX * 2;
    const wentUp = element.scrollTop < before.current.scrolled - 1;
    before.current.scrolled = element.scrollTop;
    if (follow && wentUp && !atEnd) onFollow(false);
    else if (!follow && atEnd && !wentUp) onFollow(true);
  };

  const first = Math.max(0, top - BEYOND);
  const end = Math.min(count, top + Math.ceil(height / LINE_PX) + BEYOND + 5);
  const shown = [];
  for (let at = first; at < end; at++) {
    shown.push(
      <div key={at} class="line" style={{ transform: `translateY(${at * LINE_PX}px)` }}>
        <span class="line-number" aria-hidden="true">
          {number(at)}
        </span>
        {line(at).map((piece, i) => (
          <span key={i} class={classes(piece.look)} style={colours(piece.look)}>
            {marked(piece.text, highlight)}
          </span>
        ))}
      </div>,
    );
  }
  return (
    <div ref={box} class="lines mono" role="log" aria-label="Lines" aria-live="off" tabIndex={0} onScroll={onScroll}>
      <div class="lines-all" style={{ height: `${count * LINE_PX}px` }}>
        {shown}
      </div>
      {count === 0 ? <p class="faint nothing">Nothing here.</p> : null}
    </div>
  );
}

function marked(text: string, wanted: string) {
  if (wanted === "") return text;
  const parts = [];
  const lower = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(wanted.toLowerCase()); at >= 0; at = lower.indexOf(wanted.toLowerCase(), from)) {
    parts.push(text.slice(from, at), <mark key={at}>{text.slice(at, at + wanted.length)}</mark>);
    from = at + wanted.length;
  }
  return from === 0 ? text : [...parts, text.slice(from)];
}

function classes(look: Look): string | undefined {
  const names = [];
  const [fg, bg] = look.inverse ? [look.bg, look.fg] : [look.fg, look.bg];
  if (fg?.startsWith("ansi")) names.push(`fg-${fg}`);
  if (bg?.startsWith("ansi")) names.push(`bg-${bg}`);
  if (look.inverse) names.push("ansi-inverse");
  for (const word of ["bold", "dim", "italic", "underline", "strike"] as const) if (look[word]) names.push(`ansi-${word}`);
  return names.length > 0 ? names.join(" ") : undefined;
}

function colours(look: Look): Record<string, string> | undefined {
  const [fg, bg] = look.inverse ? [look.bg, look.fg] : [look.fg, look.bg];
  const style: Record<string, string> = {};
  if (fg?.startsWith("rgb")) style["color"] = fg;
  if (bg?.startsWith("rgb")) style["backgroundColor"] = bg;
  return Object.keys(style).length > 0 ? style : undefined;
}
