// The parts of the page that decide something, without a browser.

import { describe, expect, test, vi } from "vitest";
import { overwritten, pieces, PLAIN, plain } from "../src/ansi.ts";
import { cpuOf, restartsOver, spentOver, usedOver } from "../src/agent/series.ts";
import { age, ending, span } from "../src/format.ts";
import { compare } from "../src/lab.ts";
import { LogBuffer, MOST_LINES } from "../src/logbuffer.ts";
import { bounds, DAY, LONGEST, MINUTE, panned, SHORTEST, ticks, zoomed } from "../src/lifeline/scale.ts";
import type { Agent, LedgerLine, Run, State } from "../src/model.ts";
import { offsets, rowAt, visible } from "../src/parts/virtual.ts";
import { type Group, rowsOf } from "../src/rows.ts";
import { MessageReader } from "../src/sse.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

describe("colours", () => {
  test("a line is cut where its look changes, and the next line begins with the last look", () => {
    const { pieces: found, end } = pieces("a\x1b[1;31mred\x1b[0m b \x1b[38;5;208mx", PLAIN);
    expect(found.map((piece) => [piece.text, piece.look.fg, piece.look.bold])).toEqual([
      ["a", null, false],
      ["red", "ansi-1", true],
      [" b ", null, false],
      ["x", "rgb(255 135 0)", false],
    ]);
    expect(end.fg).toBe("rgb(255 135 0)");
  });

  test("what is meant for a terminal is never shown", () => {
    expect(plain("\x1b]0;title\x07a\x1b[2Kb\x1b(Bc\x07\x1b[?25l\x1b")).toBe("abc");
    expect(plain("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\")).toBe("link");
    expect(pieces("a\x07\x00b\x9bc", PLAIN).pieces).toEqual([{ text: "abc", look: PLAIN }]);
    expect(plain("a\u202eb\u2066c")).toBe("a\ufffdb\ufffdc");
    expect(overwritten("10%\r50%\r100%\r")).toBe("100%");
  });

  test("a colour that makes no sense is none", () => {
    for (const line of ["\x1b[38;5;999mx", "\x1b[38;2;1;2mx", "\x1b[38mx", "\x1b[999mx", "\x1b[;;;mx"]) {
      expect(pieces(line, PLAIN).pieces, JSON.stringify(line)).toEqual([{ text: "x", look: PLAIN }]);
    }
  });
});

test("a log is the same however it is cut", () => {
  const text = "one\n\x1b[31mtwo é\nthree\x1b[0m\nfour";
  for (let size = 1; size < 12; size++) {
    const log = new LogBuffer();
    const all = bytes(text);
    for (let at = 0; at < all.length; at += size) log.push(all.slice(at, at + size));
    expect([0, 1, 2, 3].map((at) => log.text(at)), `in pieces of ${size}`).toEqual(["one", "two é", "three", "four"]);
    expect(log.pieces(2)[0]!.look.fg).toBe("ansi-1");
    expect(log.length).toBe(4);
    expect(log.matching("T")).toEqual([1, 2]);
  }
});

test("a line that never ends is kept no longer than it is shown", () => {
  const log = new LogBuffer();
  for (let at = 0; at < 200; at++) log.push(bytes("x".repeat(1000)));
  expect(String(Reflect.get(log, "rest")).length).toBeLessThan(20_000);
  expect(log.text(0)).toBe("x".repeat(5000));
  // What is written over is gone, however much of it there was.
  log.push(bytes("\r"));
  log.push(bytes("done\nnext"));
  expect([log.text(0), log.text(1)]).toEqual(["done", "next"]);
});

test("of a log that grows, only what has come is searched", () => {
  const log = new LogBuffer();
  const lines = (count: number, word: string) => bytes(Array.from({ length: count }, (_, at) => `${word} ${at}\n`).join(""));
  log.push(lines(1000, "one"));
  log.push(bytes("ONE more"));
  expect(log.matching("one").length).toBe(1001);
  const read = vi.spyOn(log, "text");
  log.push(bytes(" of it\ntwo\n"));
  expect(log.matching("one").length).toBe(1001);
  expect(read.mock.calls.length).toBeLessThan(5);
  expect(log.matching("two")).toEqual([1001]);
  // Those that go at the front take their places with them.
  log.push(lines(MOST_LINES, "three"));
  expect([log.gone, log.matching("two")]).toEqual([1002, []]);
  log.push(bytes("two again\n"));
  expect(log.matching("two")).toEqual([MOST_LINES - 1]);
});

test("events are the same however they are cut", () => {
  const text = ": beat\n\nid: 7\ndata: {\"a\":1}\n\nid: 8\r\ndata: x\r\ndata: y\r\n\r\n";
  for (let size = 1; size < 20; size++) {
    const reader = new MessageReader();
    const all = bytes(text);
    const found = [];
    for (let at = 0; at < all.length; at += size) found.push(...reader.push(all.slice(at, at + size)));
    expect(found, `in pieces of ${size}`).toEqual([
      { id: "7", data: '{"a":1}' },
      { id: "8", data: "x\ny" },
    ]);
  }
});

function agent(name: string, state: State, more: Partial<Agent> = {}): Agent {
  return {
    name, project: "p", group: null, state, reason: null, question: null, pid: null, run: 1, restarts: 0,
    consecutive_failures: 0, started_at: null, uptime_s: null, next_at: null, last_activity_at: null, last_death: null,
    status_text: null, heartbeat_age_s: null, balance: null, spent: null, capabilities: null, capabilities_pending: null,
    kind: "generic", command: [], pty: false, channels_failing: [], unmetered: [], estimated: [], flapping: false, loop_detected: false, ...more,
  };
}

function group(name: string, members: string[]): Group {
  return { name, project: "p", strategy: "one-for-all", state: "running", budget: { max: 5, within_s: 60, used: 0 }, members };
}

describe("the order of the overview", () => {
  const all = { search: "", state: "all" } as const;
  const said = (rows: ReturnType<typeof rowsOf>) => rows.map((row) => (row.kind === "section" ? `#${row.title}` : row.agent.name));

  test("who needs somebody comes first, and of them what flaps, as in `defib top`", () => {
    const agents = [
      agent("calm", "running"),
      agent("flappy", "running", { flapping: true }),
      agent("out", "crashed-out", { flapping: true }),
      agent("asks", "waiting", { reason: "prompt" }),
      agent("broken", "halted"),
      agent("gone", "crashed-out"),
      agent("waits", "waiting", { reason: "quota" }),
    ];
    expect(said(rowsOf(agents, [], all))).toEqual(["#Needs attention", "out", "flappy", "gone", "broken", "asks", "#p", "calm", "waits"]);
  });

  test("groups are a tree, in the order in which they start", () => {
    const agents = [agent("b", "running", { group: "inner" }), agent("a", "running", { group: "inner" }), agent("c", "running", { group: "outer" }), agent("d", "running")];
    const groups = [group("outer", ["c", "inner"]), group("inner", ["a", "b"])];
    expect(said(rowsOf(agents, groups, all))).toEqual(["#p", "d", "#outer", "c", "#inner", "a", "b"]);
  });

  test("a group is there and counts its members also when all of them stand above", () => {
    const agents = [agent("a", "crashed-out", { group: "g" }), agent("b", "halted", { group: "g" }), agent("c", "halted")];
    const rows = rowsOf(agents, [group("g", ["a", "b"])], all);
    expect(said(rows)).toEqual(["#Needs attention", "a", "b", "c", "#p", "#g"]);
    const last = rows.at(-1)!;
    expect(last.kind === "section" && [last.summary, last.group?.budget?.max]).toEqual(["1 crashed out · 1 halted", 5]);
    // Who has no calm agent and no group has nothing more to say.
    expect(said(rowsOf([agent("c", "halted")], [], all))).toEqual(["#Needs attention", "c"]);
    expect(said(rowsOf(agents, [group("g", ["a", "b"])], { search: "", state: "attention" }))).toEqual(["#Needs attention", "a", "b", "c"]);
  });

  test("every word of a search has to be found", () => {
    const agents = [agent("web-1", "running"), agent("web-2", "stopped"), agent("db", "running")];
    expect(said(rowsOf(agents, [], { search: "WEB running", state: "all" }))).toEqual(["#p", "web-1"]);
    expect(said(rowsOf(agents, [], { search: "", state: "stopped" }))).toEqual(["#p", "web-2"]);
  });
});

test("the rows that are shown are those on the screen and a few more", () => {
  const at = offsets(Array.from({ length: 1000 }, (_, index) => (index % 10 === 0 ? 60 : 40)));
  expect(at[1000]).toBe(42_000);
  for (const y of [0, 59, 60, 61, 20_000, 41_999]) {
    const row = rowAt(at, y);
    expect(at[row]! <= y && y < at[row + 1]!, `at ${y}`).toBe(true);
  }
  const { first, end } = visible(at, 20_000, 800);
  expect(at[first]!).toBeLessThanOrEqual(19_760);
  expect(at[end]!).toBeGreaterThanOrEqual(21_040);
  expect(end - first).toBeLessThan(50);
  expect(visible(offsets([]), 0, 800)).toEqual({ first: 0, end: 0 });
});

describe("the stretch of time", () => {
  const now = Date.UTC(2026, 10, 16, 12);

  test("zooming keeps the moment under the pointer, between ten minutes and thirty days", () => {
    const before = { length: DAY, end: now - DAY };
    const { from, to } = bounds(before, now);
    const after = zoomed(before, 0.5, 0.25, now);
    const next = bounds(after, now);
    expect(next.from + (next.to - next.from) * 0.25).toBeCloseTo(from + (to - from) * 0.25, 3);
    expect(zoomed(before, 1e-9, 0.5, now).length).toBe(SHORTEST);
    expect(zoomed(before, 1e9, 0.5, now).length).toBe(LONGEST);
  });

  test("nobody pans into the future", () => {
    expect(panned({ length: DAY, end: null }, 5, now).end).toBeNull();
    expect(panned({ length: DAY, end: null }, -1, now).end).toBeLessThan(now);
  });

  test("times are round and as many as fit", () => {
    for (const length of [10 * MINUTE, DAY, LONGEST]) {
      const found = ticks(now - length, now, 10);
      expect(found.length).toBeGreaterThan(1);
      expect(found.length).toBeLessThanOrEqual(11);
    }
  });
});

function run(number: number, at: number, verdict: Run["verdict"]): Run {
  const ended = new Date(at + 1000).toISOString();
  const used = { cpu_user_ms: 1000 * number, cpu_system_ms: 500, memory_peak_bytes: number << 20 };
  const death = { at: ended, class: "error", kind: "dumb", exit_code: 1, signal: null, ran_s: 1, evidence: null, trace: null, ...used } as const;
  return { agent: "a", run: number, started_at: new Date(at).toISOString(), ended_at: ended, ran_s: 1, death, verdict };
}

test("restarts are counted where they were", () => {
  const begin = Date.UTC(2026, 10, 16, 12);
  const runs = [run(3, begin + 190_000, "crash-out"), run(2, begin + 61_000, "restart"), run(1, begin, "restart")];
  const { at, values } = restartsOver(runs, begin + 200_000);
  expect(at[0]).toBe(begin / 1000);
  expect(values).toEqual([1, 1, 0, 0, null]);
  expect(at.at(-1)).toBe(begin / 1000 + 240);
});

test("what every run used stands at its end, and what nobody saw is left out", () => {
  const begin = Date.UTC(2026, 10, 16, 12);
  const unseen = run(2, begin + 61_000, "restart");
  unseen.death = { ...unseen.death!, cpu_user_ms: null, cpu_system_ms: null, memory_peak_bytes: null };
  const alive: Run = { ...run(4, begin + 200_000, null), ended_at: null, death: null };
  const runs = [alive, run(3, begin + 190_000, "restart"), unseen, run(1, begin, "restart")];
  const at = [begin / 1000 + 1, begin / 1000 + 191];
  expect(usedOver(runs, (death) => death.memory_peak_bytes)).toEqual({ at, values: [1 << 20, 3 << 20] });
  expect(usedOver(runs, cpuOf)).toEqual({ at, values: [1.5, 3.5] });
});

test("what did happen is beside what would", () => {
  const begin = Date.UTC(2026, 10, 16, 12);
  const did = [run(1, begin, "restart"), run(2, begin + 3000, "crash-out")];
  const would = [
    { at_s: 0, type: "run-started" },
    { at_s: 1, type: "run-died", verdict: "restart" },
    { at_s: 1, type: "restart-scheduled", delay_ms: 500 },
    { at_s: 1.5, type: "run-started" },
  ];
  const compared = compare({ agent: "a", did, replayed: [1, 2], would, outcome: { end: "at-rest", state: "done", at_s: 2 } });
  expect(compared.rows.map((row) => [row.did, row.would])).toEqual([
    ["restart after 2.0 s", "restart after 500 ms"],
    ["crash-out", null],
  ]);
  expect([compared.did, compared.would]).toEqual([
    { restarts: 1, gaveUp: 1, down: 2 },
    { restarts: 1, gaveUp: 0, down: 0.5 },
  ]);
});

test("spans are said as people say them", () => {
  expect([0.4, 59, 96, 8040].map(age)).toEqual(["0 s", "59 s", "1 min", "2 h"]);
  expect([0.25, 3.14, 59.9, 60, 8040, 90_000].map(span)).toEqual(["250 ms", "3.1 s", "59 s", "1 min", "2 h 14 min", "1 d 1 h"]);
});

test("what was spent is added up, by unit and in the order of time", () => {
  const line = (second: number, what: LedgerLine["what"], unit: string, amount: number): LedgerLine => {
    const at = new Date(Date.UTC(2026, 10, 16, 12, 0, second)).toISOString();
    return { agent: "a", at, what, unit, amount, balance: null, run: 1, by: "agent" };
  };
  const begin = Date.UTC(2026, 10, 16, 12) / 1000;
  const lines = [line(0, "opening", "usd", 9), line(5, "spent", "usd", -0.5), line(3, "spent", "usd", -0.25), line(4, "spent", "tokens", -800), line(6, "funded", "usd", 1)];
  expect(spentOver(lines, "usd")).toEqual({ at: [begin + 3, begin + 5], values: [0.25, 0.75] });
  expect(spentOver(lines, "tokens")).toEqual({ at: [begin + 4], values: [800] });
  expect(spentOver(lines, "scrip")).toEqual({ at: [], values: [] });
});

test("an end that nobody saw is not one that never began", () => {
  const none = { exit_code: null, signal: null };
  expect(ending({ class: "lost", ...none })).toBe("unseen");
  expect(ending({ class: "config", ...none })).toBe("not spawned");
  expect(ending({ class: "error", exit_code: 2, signal: null })).toBe("exit 2");
  expect(ending({ class: "oom", exit_code: null, signal: "SIGKILL" })).toBe("SIGKILL");
});
