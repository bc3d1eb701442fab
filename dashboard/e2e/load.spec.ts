// What the page weighs, how soon it paints, and a thousand agents.
//
// Times are the best of several tries: others use this machine as well, and what is asked is whether
// the page can, not whether it always gets a processor. Time on the clock is printed; what is held to a
// bound is bytes and processor time.

import { AGENT, Daemon, expect, logIn, test } from "./daemon.ts";
import type { Browser, Page } from "@playwright/test";

const AGENTS = 1000;
const TRIES = 5;
let daemon: Daemon;
// A recording of everything that is drawn takes longer than the drawing.
test.use({ trace: "off" });

test.beforeAll(() => {
  test.setTimeout(240_000);
  daemon = new Daemon(() => {
    const agents = Array.from({ length: AGENTS }, (_, at) => {
      const name = `agent-${String(at).padStart(4, "0")}`;
      // Beats are told by no event: where there are some, the page asks for all agents every few seconds.
      if (at % 20 === 0) return `[agent.${name}]\ncommand = "touch $DEFIB_HEARTBEAT_FILE; exec sleep 100000"\nshell = true\nheartbeat = { ttl = "24h" }\n`;
      return `[agent.${name}]\ncommand = ["/bin/sleep", "100000"]\n`;
    });
    return `[project]\nname = "crowd"\n${agents.join("\n")}\n[agent.zz-crasher]\ncommand = ["${AGENT}", "exit", "1"]\n`;
  });
});
test.afterAll(() => {
  test.setTimeout(240_000);
  daemon?.end();
});

test.describe("the page", () => {
  // What it asks of the daemon is not answered while it is weighed.
  test.use({ allowed: /ERR_FAILED/ });

  test("is under 200 KB; how soon it paints is printed", async ({ page }) => {
    await logIn(page, daemon);
    const session = await page.context().newCDPSession(page);
    await session.send("Network.enable");
    const assets = new Map<string, string>();
    const weights = new Map<string, number>();
    session.on("Network.requestWillBeSent", ({ requestId, request }) => {
      if (!request.url.includes("/api/")) assets.set(requestId, new URL(request.url).pathname);
    });
    session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
      if (assets.has(requestId)) weights.set(requestId, encodedDataLength);
    });
    await session.send("Network.setCacheDisabled", { cacheDisabled: true });
    // Only what the page itself is made of counts: how much the agents say is theirs.
    await page.route("**/api/v1/**", (route) => route.abort());
    await page.goto(new URL("/", page.url()).href);
    await page.waitForLoadState("load");
    await page.waitForLoadState("networkidle");
    // Whatever was begun has come: the page, its script, its style and its mark at the least.
    await expect.poll(() => [assets.size > 3, [...assets.keys()].filter((id) => !weights.has(id)).map((id) => assets.get(id))]).toEqual([true, []]);
    await page.unroute("**/api/v1/**");
    const bytes = [...weights.values()].reduce((sum, weight) => sum + weight, 0);
    console.log(`  page load: ${(bytes / 1000).toFixed(1)} KB compressed in ${assets.size} files`);
    expect([...assets.values()].filter((asset) => asset.includes("xterm"))).toEqual([]);
    expect(bytes).toBeLessThan(200_000);

    const paints: number[] = [];
    for (let at = 0; at < TRIES; at++) {
      await page.goto(new URL("/", page.url()).href);
      const paint = await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
      paints.push((await paint.jsonValue()) as number);
    }
    console.log(`  first contentful paint: ${paints.map((ms) => `${ms.toFixed(0)} ms`).join(", ")}; best ${Math.min(...paints).toFixed(0)} ms, goal 300 ms`);
    // A busy machine paints late whatever the page does: the figure is for people, the goal 300 ms.
  });
});

test("a thousand agents scroll without a long task", async ({ page, browser }) => {
  test.setTimeout(240_000);
  await logIn(page, daemon);
  await expect(page.locator(".count")).toHaveText(`${AGENTS + 1} agents`);
  const longest: number[] = [];
  for (let at = 0; at < TRIES; at++) {
    longest.push(await longestTask(page, browser));
    if (longest.at(-1)! < 50) break;
  }
  console.log(`  longest task with ${AGENTS + 1} agents, while scrolling and hearing events: ${longest.map((ms) => `${ms.toFixed(0)} ms`).join(", ")}; goal 50 ms`);
  // Processor time is the page's own doing, and one quiet try shows what it can.
  expect(Math.min(...longest)).toBeLessThan(50);
  expect(await page.locator(".row.agent").count()).toBeLessThan(80);
});

/**
 * Scrolls from end to end while agents restart: the longest task of the page's thread, in milliseconds
 * of processor time. How long it had to wait for a processor is not its own doing.
 */
async function longestTask(page: Page, browser: Browser): Promise<number> {
  await page.evaluate(() => window.scrollTo(0, 0));
  await browser.startTracing(page, { categories: ["toplevel"] });
  daemon.run("restart", "--no-wait", ...Array.from({ length: 20 }, (_, at) => `agent-00${at + 10}`));
  const high = await page.evaluate(() => document.documentElement.scrollHeight);
  expect(high).toBeGreaterThan(AGENTS * 35);
  for (let y = 0; y < high; y += 800) {
    await page.mouse.wheel(0, 800);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => done(null))));
  }
  await expect(page.locator(`.row.agent[data-key="agent-0999"]`)).toBeVisible();
  // All of them are asked for again, because some beat; that is part of it.
  await page.waitForResponse((response) => new URL(response.url()).pathname === "/api/v1/agents");
  await page.waitForTimeout(500);
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] };
  const thread = (event: TraceEvent) => `${event.pid} ${event.tid}`;
  const pages = new Set(traceEvents.filter((event) => event.name === "thread_name" && event.args?.name === "CrRendererMain").map(thread));
  const tasks = traceEvents.filter((event) => pages.has(thread(event)) && event.name.endsWith("RunTask") && event.tdur !== undefined);
  expect(tasks.length).toBeGreaterThan(10);
  return Math.max(...tasks.map((event) => event.tdur!)) / 1000;
}

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  /** Processor time in microseconds. */
  tdur?: number;
  args?: { name?: string };
}
