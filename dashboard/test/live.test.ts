// The connection: whose clock counts, and when silence is the end of it. The daemon is played.

import { afterEach, beforeEach, expect, test, vi } from "vitest";

const listed = (more: object) => [{ name: "a", state: "running", started_at: null, uptime_s: null, heartbeat_age_s: 1, balance: null, spent: null, ...more }];
/** How often each address was asked for. */
let asked: Map<string, number>;
let date: () => Date;
let agents: () => object[];

beforeEach(() => {
  vi.resetModules();
  vi.useFakeTimers();
  asked = new Map();
  date = () => new Date();
  agents = () => listed({});
  vi.stubGlobal("document", { hidden: false, addEventListener: () => {} });
  vi.stubGlobal("addEventListener", () => {});
  vi.stubGlobal("fetch", (address: string, { signal }: { signal: AbortSignal | null }) => {
    const path = address.split("?")[0]!;
    asked.set(path, (asked.get(path) ?? 0) + 1);
    const headers = { date: date().toUTCString() };
    if (path !== "/api/v1/events") return Promise.resolve(new Response(JSON.stringify(agents()), { headers }));
    // A stream that is open and says nothing.
    const body = new ReadableStream({
      start: (control) => signal?.addEventListener("abort", () => control.error(new Error("called off"))),
    });
    return Promise.resolve(new Response(body, { headers }));
  });
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("a stream that has fallen silent is given up, though questions are answered", async () => {
  const { startLive } = await import("../src/live.ts");
  startLive();
  await vi.advanceTimersByTimeAsync(30_000);
  // Beats are asked for all the while.
  expect(asked.get("/api/v1/agents")).toBeGreaterThan(3);
  expect(asked.get("/api/v1/events")).toBe(1);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(asked.get("/api/v1/events")).toBe(2);
});

test("the time is what the daemon's answers say, whatever an agent's clock adds up to", async () => {
  const { startLive } = await import("../src/live.ts");
  const { daemonNow } = await import("../src/clock.ts");
  // It began before the clock was set back by an hour.
  agents = () => listed({ started_at: new Date(Date.now() + 3_600_000).toISOString(), uptime_s: 60 });
  startLive();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(Math.abs(daemonNow() - Date.now())).toBeLessThan(10);
  date = () => new Date(Date.now() - 600_000);
  await vi.advanceTimersByTimeAsync(6_000);
  expect(Math.abs(daemonNow() - (Date.now() - 600_000))).toBeLessThan(1_500);
});
