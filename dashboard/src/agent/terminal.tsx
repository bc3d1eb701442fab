// An agent's terminal: what it shows, and what is typed to it. Loaded only when it is looked at.

import { useEffect, useRef, useState } from "preact/hooks";
import { moment } from "../format.ts";
import { colour, theme } from "../theme.ts";
import { STATE_WORDS } from "../words.ts";
import type { State } from "../model.ts";

type News =
  | { type: "shown"; run: number }
  | { type: "ended"; run: number }
  | { type: "without"; state: State; next_at: string | null };

const RETRY_MS = 1_000;

export function TerminalView({ name }: { name: string }) {
  const place = useRef<HTMLDivElement>(null);
  const [said, setSaid] = useState("connecting");
  useEffect(() => {
    let close = () => {};
    let gone = false;
    void import("./xterm.ts").then(({ openTerminal }) => {
      if (gone || !place.current) return;
      close = openTerminal(place.current, name, setSaid);
    });
    return () => {
      gone = true;
      close();
    };
  }, [name]);
  return (
    <section class="card terminal-card" aria-label={`Terminal of ${name}`}>
      <div class="tools">
        <span class="faint" role="status" data-testid="terminal-said">
          {said}
        </span>
        <span class="count">What you type goes to the agent.</span>
      </div>
      <div class="terminal-place" ref={place} data-testid="terminal" />
    </section>
  );
}

/** The connection of a viewer: binary messages are what is shown and typed, text is news. */
export function attach(
  name: string,
  size: () => { rows: number; columns: number },
  show: (bytes: Uint8Array) => void,
  anew: () => void,
  say: (text: string) => void,
) {
  let socket: WebSocket | null = null;
  let closed = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const connect = () => {
    const { rows, columns } = size();
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const path = `/api/v1/agents/${encodeURIComponent(name)}/terminal?rows=${rows}&columns=${columns}`;
    socket = new WebSocket(`${scheme}://${location.host}${path}`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = (message: MessageEvent<ArrayBuffer | string>) => {
      if (typeof message.data !== "string") {
        show(new Uint8Array(message.data));
        return;
      }
      const news = JSON.parse(message.data) as News;
      if (news.type === "shown") {
        anew();
        say(`run ${news.run}`);
      } else if (news.type === "ended") say(`run ${news.run} is over`);
      else {
        const next = news.next_at ? `, next at ${moment(Date.parse(news.next_at), Date.now())}` : "";
        say(`${STATE_WORDS[news.state]}${next}: its next run is shown here`);
      }
    };
    socket.onclose = () => {
      if (closed) return;
      say("the connection is lost; trying again");
      timer = setTimeout(connect, RETRY_MS);
    };
  };
  connect();
  const isOpen = () => socket?.readyState === WebSocket.OPEN;
  return {
    type(text: string) {
      if (isOpen()) socket!.send(new TextEncoder().encode(text));
    },
    resize(rows: number, columns: number) {
      if (isOpen()) socket!.send(JSON.stringify({ type: "resize", rows, columns }));
    },
    close() {
      closed = true;
      clearTimeout(timer);
      socket?.close();
    },
  };
}

export function terminalColours() {
  // The theme is read so that whoever calls this in an effect hears of a change.
  const isDark = theme.value === "dark";
  return {
    background: colour("card"),
    foreground: colour("text"),
    cursor: colour("accent"),
    selectionBackground: isDark ? "#33506e" : "#b9d7f5",
    black: isDark ? "#3a4552" : "#1b2027",
    red: colour("bad"),
    green: colour("good"),
    yellow: colour("warn"),
    blue: colour("wait"),
    magenta: isDark ? "#c792ea" : "#8a3fa0",
    cyan: colour("accent"),
    white: isDark ? "#d5dbe1" : "#6a7480",
    brightBlack: colour("faint"),
    brightWhite: isDark ? "#ffffff" : "#3a4552",
  };
}
