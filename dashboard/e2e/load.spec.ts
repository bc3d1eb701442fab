// What the page weighs, how soon it paints, and a thousand agents.
//
// Times are the best of several tries: others use this machine as well, and what is asked is whether
// the page can, not whether it always gets a processor.

import { AGENT, complaints, Daemon, expect, logIn, test } from "./daemon.ts";
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
      return `[agent.${name}]\ncommand = ["/bin/sleep", "100000"]\n`;
    });
    return `[project]\nname = "crowd"\n${agents.join("\n")}\n[agent.zz-crasher]\ncommand = ["${AGENT}", "exit", "1"]\n`;
  });
});
test.afterAll(() => {
  test.setTimeout(240_000);
  daemon?.end();
});

test("the page is under 200 KB; how soon it paints is printed", async ({ page }) => {
  await logIn(page, daemon);
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  let bytes = 0;
  session.on("Network.loadingFinished", (event) => (bytes += event.encodedDataLength));
  const assets: string[] = [];
  page.on("response", (response) => {
    if (!response.url().includes("/api/")) assets.push(new URL(response.url()).pathname);
  });
  await session.send("Network.setCacheDisabled", { cacheDisabled: true });
  // Only what the page itself is made of counts: how much the agents say is theirs.
  await page.route("**/api/v1/**", (route) => route.abort());
  await page.goto(new URL("/", page.url()).href);
  await page.waitForLoadState("load");
  await expect.poll(() => bytes).toBeGreaterThan(0);
  await page.unroute("**/api/v1/**");
  console.log(`  page load: ${(bytes / 1000).toFixed(1)} KB compressed in ${assets.length} files`);
  expect(assets.some((asset) => asset.includes("xterm"))).toBe(false);
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

test("a thousand agents scroll without a long task", async ({ page, browser }) => {
  test.setTimeout(240_000);
  const said = complaints(page);
  await logIn(page, daemon);
  await expect(page.locator(".count")).toHaveText(`${AGENTS + 1} agents`);
  const longest: number[] = [];
  for (let at = 0; at < TRIES; at++) {
    longest.push(await longestTask(page, browser));
    if (longest.at(-1)! < 50) break;
  }
  console.log(`  longest task with ${AGENTS + 1} agents, while scrolling and hearing events: ${longest.map((ms) => `${ms.toFixed(0)} ms`).join(", ")}; goal 50 ms`);
  expect(await page.locator(".row.agent").count()).toBeLessThan(80);
  expect(said).toEqual([]);
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
