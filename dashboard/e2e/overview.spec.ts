// The overview: who lives and who does not, as it happens, and the button that puts it right.

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { AGENT, Daemon, expect, logIn, row, test } from "./daemon.ts";

let daemon: Daemon;

test.beforeAll(() => {
  daemon = new Daemon((project) => {
    writeFileSync(`${project}/well`, "");
    return `
[project]
name = "night"

[agent.phoenix]
command = ["${AGENT}", "rest-if", "${project}/well", "exit", "1"]
preset = "celistra"

[agent.calm]
command = ["${AGENT}", "forever"]

[agent.flappy]
command = ["${AGENT}", "exit", "3"]
backoff = { kind = "fixed", base = "2s" }
limits = [{ deaths = 1000, within = "60s" }]

[agent.locked]
command = "echo 'Invalid API key · Please run /login'; exit 1"
shell = true
kind = "claude"

[agent.beater]
command = ["${AGENT}", "beat", "forever"]
heartbeat = { ttl = "24h" }

[agent.rich]
command = ["${AGENT}", "forever"]
budget = { balance = { scrip = 100 } }

[agent.patient]
command = ["${AGENT}", "exit", "1"]
backoff = { kind = "fixed", base = "600s", cap = "600s", jitter = 0.0 }

[agent.first]
command = ["${AGENT}", "forever"]

[agent.second]
command = ["${AGENT}", "forever"]

# Nobody listens there.
[notify.ops]
webhook = "http://127.0.0.1:9/"

[group.pipeline]
strategy = "rest-for-one"
members = ["first", "second"]
`;
  });
});
test.afterAll(() => daemon?.end());

test("an agent that crashes turns, and the button revives it", async ({ page }) => {
  await logIn(page, daemon);
  await expect(row(page, "phoenix")).toHaveAttribute("data-state", "running");

  rmSync(daemon.file("well"));
  process.kill((await daemon.agent("phoenix")).pid!, "SIGKILL");
  await expect(row(page, "phoenix")).toHaveAttribute("data-state", "crashed-out");
  await expect(row(page, "phoenix")).toContainText("crashed out");
  await expect(row(page, "phoenix").locator(".cell-why")).toContainText("Died too often");
  await expect(page).toHaveTitle(/^\(\d+\) defib$/);

  writeFileSync(daemon.file("well"), "");
  await page.getByRole("button", { name: "Revive phoenix" }).click();
  await expect(row(page, "phoenix")).toHaveAttribute("data-state", "running");
  await expect(page.getByText("phoenix revived")).toBeVisible();
  expect((await daemon.agent("phoenix")).state).toBe("running");
});

test("those who need somebody come first, groups have their strategy", async ({ page }) => {
  await logIn(page, daemon);
  await expect(page.getByRole("grid").getByText("Needs attention")).toBeVisible();
  await expect(page.locator(".tag", { hasText: "rest-for-one" })).toBeVisible();
  await expect(row(page, "locked")).toHaveAttribute("data-state", "halted");
  await expect(row(page, "locked").locator(".cell-why")).toContainText("Invalid API key");
  await expect(row(page, "flappy").locator(".tag-flapping")).toBeVisible();
  const top = async (name: string) => (await row(page, name).boundingBox())!.y;
  expect(await top("locked")).toBeLessThan(await top("calm"));
  expect(await top("flappy")).toBeLessThan(await top("calm"));
});

test("every cell tells, and counts by itself", async ({ page }) => {
  await logIn(page, daemon);
  await expect(row(page, "rich").locator(".cell-balance")).toHaveText("100 scrip");
  const cell = (name: string, which: string) => row(page, name).locator(`.cell-${which}`);
  const seconds = async (name: string, which: string) => {
    const text = await cell(name, which).innerText();
    return Number(text.match(/(\d+) min/)?.[1] ?? 0) * 60 + Number(text.match(/(\d+) s/)?.[1] ?? 0);
  };
  await expect(cell("beater", "beat")).toHaveText(/^\d+ (s|min)/);
  await expect(cell("calm", "beat")).toHaveText("–");
  const beat = await seconds("beater", "beat");
  await expect.poll(() => seconds("beater", "beat")).toBeGreaterThan(beat);
  await expect(cell("patient", "next")).toHaveText(/^restart in \d+ min/);
  const left = await seconds("patient", "next");
  expect(left).toBeLessThanOrEqual(600);
  await expect.poll(() => seconds("patient", "next")).toBeLessThan(left);
  // The group's row has its state and what it has used of its restarts.
  const group = page.locator(".row.section", { hasText: "pipeline" });
  await expect(group.locator(".badge")).toHaveText("running");
  await expect(group.locator(".budget")).toHaveText("0 of 5 restarts in 1 min");
});

test("the totals are those of the daemon", async ({ page }) => {
  await logIn(page, daemon);
  // One that is halted, and one that is started again and again.
  const known = () => daemon.get<{ restarts: number; permanent_deaths: number; median_recovery_s: number | null }>("/api/v1/totals?since=24h");
  await expect.poll(async () => (await known()).restarts).toBeGreaterThan(0);
  const least = await known();
  expect(least.permanent_deaths).toBeGreaterThan(0);
  const total = async (name: string) => Number(await page.getByTestId(`total-${name}`).innerText());
  await expect.poll(() => total("restarts")).toBeGreaterThanOrEqual(least.restarts);
  await expect.poll(() => total("permanent")).toBe((await known()).permanent_deaths);
  await expect(page.getByTestId("total-recovery")).toHaveText(/^\d/);
});

test("a channel by which nobody is reached is said", async ({ page }) => {
  await logIn(page, daemon);
  await expect(page.getByTestId("unheard")).toContainText("Channel night/ops fails:");
  await expect(page.getByTestId("unheard")).toContainText("defib notify test");
});

test("everything works from the keyboard", async ({ page }) => {
  await logIn(page, daemon);
  await page.keyboard.press("/");
  await page.keyboard.type("calm");
  await expect(page.locator(".row.agent")).toHaveCount(1);
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await expect(row(page, "calm")).toBeFocused();
  const before = (await daemon.agent("calm")).run;
  await page.keyboard.press("r");
  await expect.poll(async () => (await daemon.agent("calm")).run).toBeGreaterThan(before);
  // What is stopping cannot be stopped, one thing is done at a time, and the page may be a moment behind.
  await expect(page.getByText("calm told to restart")).toBeVisible();
  await expect(row(page, "calm")).toHaveAttribute("data-state", "running");
  await page.keyboard.press("s");
  await expect(page.getByText("calm told to stop")).toBeVisible();
  await expect(row(page, "calm")).toHaveAttribute("data-state", "stopped");
  await page.keyboard.press("s");
  await expect(row(page, "calm")).toHaveAttribute("data-state", "running");
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toContainText("Keyboard");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/agents\/calm$/);
  await page.keyboard.press("Escape");
  await expect(page).toHaveURL(/\/$/);
});

test("no page has a serious fault for those who do not see or point", async ({ page }) => {
  await logIn(page, daemon);
  const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  const origin = new URL(page.url()).origin;
  const pages = ["/", "/lifelines", "/lab?agent=flappy", "/agents/flappy", "/agents/calm/logs", "/agents/calm/charts", "/agents/calm/rights"];
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    for (const path of pages) {
      await page.goto(origin + path);
      await expect(page.getByTestId("connection")).toHaveText("live");
      await expect(page.locator("main")).toBeVisible();
      await page.evaluate(axe);
      const faults = await page.evaluate(async () => {
        const { axe } = window as unknown as { axe: { run: () => Promise<{ violations: Fault[] }> } };
        interface Fault {
          id: string;
          impact: string;
          nodes: { target: string[]; failureSummary: string }[];
        }
        return (await axe.run()).violations
          .filter((fault) => fault.impact === "serious" || fault.impact === "critical")
          .map((fault) => `${fault.id}: ${fault.nodes[0]?.target.join(" ")} ${fault.nodes[0]?.failureSummary}`);
      });
      expect(faults, `${scheme} ${path}`).toEqual([]);
    }
  }
});

test("on a phone's width nothing is cut off", async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 800 });
  await logIn(page, daemon);
  const origin = new URL(page.url()).origin;
  for (const path of ["/", "/lifelines", "/lab?agent=flappy", "/agents/flappy"]) {
    await page.goto(origin + path);
    await expect(page.locator("main")).toBeVisible();
    const beyond = await page.evaluate(() => {
      const edge = document.documentElement.clientWidth;
      if (document.documentElement.scrollWidth <= edge) return [];
      const all = [...document.querySelectorAll("body *")].filter((element) => !element.closest(".scroll-x, .tabs, .unseen"));
      return all.filter((element) => element.getBoundingClientRect().right > edge + 1).map((element) => `${element.tagName} ${element.className}`);
    });
    expect(beyond, path).toEqual([]);
  }
});
