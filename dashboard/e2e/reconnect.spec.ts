// A daemon that goes away: the page says so, finds the next one by itself, and has missed nothing.

import { AGENT, Daemon, expect, freePort, logIn, LOST, row, test } from "./daemon.ts";

let daemon: Daemon;
test.use({ allowed: LOST });

test.beforeAll(async () => {
  const port = await freePort();
  daemon = new Daemon(() => `[project]\nname = "night"\n[server]\nlisten = "127.0.0.1:${port}"\n[agent.calm]\ncommand = ["${AGENT}", "forever"]\n[agent.other]\ncommand = ["${AGENT}", "forever"]\n`);
});
test.afterAll(() => daemon?.end());

test("a daemon that was killed is found again by itself", async ({ page }) => {
  await logIn(page, daemon);
  await expect(row(page, "calm")).toHaveAttribute("data-state", "running");
  await page.evaluate(() => {
    const words: string[] = [];
    const pulse = document.querySelector("[data-testid=connection]")!;
    new MutationObserver(() => words.push(pulse.textContent ?? "")).observe(pulse, { subtree: true, childList: true, characterData: true });
    (window as unknown as { words: string[] }).words = words;
  });
  const { pid } = await daemon.get<{ pid: number }>("/api/v1/daemon");
  const agent = (await daemon.agent("calm")).pid;
  process.kill(pid, "SIGKILL");
  await expect.poll(() => page.evaluate(() => (window as unknown as { words: string[] }).words.join(" "))).toContain("stale");
  await expect(page.getByTestId("connection")).toHaveText("live");
  const next = await daemon.get<{ pid: number }>("/api/v1/daemon");
  expect(next.pid).not.toBe(pid);
  expect((await daemon.agent("calm")).pid).toBe(agent);
  // What happens under the next daemon is seen.
  daemon.run("stop", "calm");
  await expect(row(page, "calm")).toHaveAttribute("data-state", "stopped");
});

test("without a connection the page says how old it is", async ({ page, context }) => {
  await logIn(page, daemon);
  await context.setOffline(true);
  const { pid } = await daemon.get<{ pid: number }>("/api/v1/daemon");
  process.kill(pid, "SIGKILL");
  await expect(page.getByRole("alert")).toContainText("No word from the daemon for");
  await expect(page.getByRole("alert")).toContainText("What you see is from");
  daemon.run("stop", "other");
  await expect(row(page, "other")).toHaveAttribute("data-state", "running");
  await context.setOffline(false);
  await expect(page.getByTestId("connection")).toHaveText("live");
  await expect(page.getByRole("alert")).toHaveCount(0);
  await expect(row(page, "other")).toHaveAttribute("data-state", "stopped");
});
