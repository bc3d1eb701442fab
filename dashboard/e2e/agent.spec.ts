// One agent's page: why, logs, terminal, lifeline, charts, money.

import { appendFileSync, writeFileSync } from "node:fs";
import { cpuOf } from "../src/agent/series.ts";
import { bytes, span } from "../src/format.ts";
import type { PostMortem } from "../src/model.ts";
import { AGENT, Daemon, DEFIB, expect, logIn, test } from "./daemon.ts";

let daemon: Daemon;

test.beforeAll(() => {
  daemon = new Daemon(
    (project) => `
[project]
name = "night"

[agent.talker]
command = ["/bin/sh", "-c", "printf '\\\\033[31mred words\\\\033[0m\\\\n'; exec tail -n +1 -F ${project}/said"]
stop_timeout = "1s"

[agent.echo]
command = ["/bin/cat"]
pty = true

[agent.tracer]
command = ["/bin/sh", "-c", "printf 'Traceback (most recent call last):\\\\n  File \\"a.py\\", line 1, in <module>\\\\nValueError: no such thing\\\\n'; exit 1"]
kind = "python"
backoff = { kind = "fixed", base = "1s" }
limits = [{ deaths = 3, within = "600s" }]

[agent.patient]
command = ["${AGENT}", "exit", "1"]
backoff = { kind = "fixed", base = "600s", cap = "600s", jitter = 0.0 }

[agent.worker]
command = ["${AGENT}", "allocate", "64", "burn", "300", "exit", "1"]
backoff = { kind = "fixed", base = "1s" }
limits = [{ deaths = 3, within = "600s" }]

[agent.spender]
command = ["${AGENT}", "run", "${DEFIB} self spend 3 scrip", "forever"]
budget = { balance = { scrip = 100 } }

[agent.confined]
command = ["/bin/sleep", "100000"]
capabilities = ["read:/"]

[agent.refused]
command = ["/bin/cat", "${project}/../secret"]
capabilities = ["net"]
trigger = "manual"
restart = "never"
`,
  );
  writeFileSync(daemon.file("said"), "");
  writeFileSync(daemon.file("../secret"), "not for it");
});
test.afterAll(() => daemon?.end());

test("the log is live, searched, and in its colours", async ({ page }) => {
  await logIn(page, daemon);
  await page.goto(new URL("/agents/talker/logs", page.url()).href);
  const lines = page.locator(".lines .line");
  await expect(lines.filter({ hasText: "red words" })).toBeVisible();
  await expect(page.locator(".fg-ansi-1", { hasText: "red words" })).toBeVisible();
  appendFileSync(daemon.file("said"), "a word while you watch\nanother <b>line</b>\n");
  await expect(lines.filter({ hasText: "a word while you watch" })).toBeVisible();
  await expect(lines.filter({ hasText: "another <b>line</b>" })).toBeVisible();
  await page.getByLabel("Search the log").fill("watch");
  await expect(page.locator("mark")).toHaveText("watch");
  await page.getByLabel("only these").check();
  await expect(lines).toHaveCount(1);
});

test("the terminal shows and takes what is typed", async ({ page }) => {
  await logIn(page, daemon);
  await page.goto(new URL("/agents/echo/terminal", page.url()).href);
  await expect(page.getByTestId("terminal-said")).toContainText("run ");
  await page.locator(".xterm").click();
  await page.keyboard.type("hello there");
  await page.keyboard.press("Enter");
  // Once as it is typed, once as cat says it.
  const rows = page.locator(".xterm-rows");
  await expect(rows).toContainText("hello there");
  await expect.poll(async () => ((await rows.innerText()).match(/hello there/g) ?? []).length).toBe(2);
  // The page's policy lets no style in that stands in the page; the terminal is styled all the same.
  const font = await rows.evaluate((element) => getComputedStyle(element).fontFamily);
  expect(font).toContain("mono");
});

test("why says what happened, by which numbers, and what to do", async ({ page }) => {
  await logIn(page, daemon);
  await page.goto(new URL("/agents/tracer", page.url()).href);
  const why = page.getByTestId("why");
  await expect(why).toContainText("tracer is crashed out");
  await expect(why).toContainText("exited with code 1");
  await expect(why).toContainText("a limit tripped: 3 of 3 deaths within 10m");
  await expect(why).toContainText("ValueError: no such thing");
  await expect(why.getByRole("button", { name: "Revive tracer" })).toBeVisible();
  await expect(page.locator(".deaths tbody tr")).toHaveCount(3);
  await page.locator(".deaths button", { hasText: "stack trace" }).first().click();
  await expect(page.locator(".trace")).toContainText("ValueError");
});

test("what to do is told as `defib why` tells it, whatever the agent does", async ({ page }) => {
  await logIn(page, daemon);
  for (const name of ["tracer", "confined"]) {
    const { next } = await daemon.get<PostMortem>(`/api/v1/agents/${name}/why`);
    await page.goto(new URL(`/agents/${name}`, page.url()).href);
    await expect(page.getByTestId("next")).toHaveText(next.text.replaceAll("`", ""));
    await expect(page.getByTestId("next").locator("code").last()).toHaveText(next.text.split("`").at(-2)!);
  }
  // How long it is still is told anew as it becomes less.
  await page.goto(new URL("/agents/patient", page.url()).href);
  await expect(page.getByTestId("next")).toContainText(/It starts again in \d+m\d*s?; defib start patient starts it now/);
  const before = await page.getByTestId("next").innerText();
  await expect(page.getByTestId("next")).not.toHaveText(before);
  daemon.run("stop", "patient");
  await expect(page.getByTestId("next")).toHaveText("defib start patient starts it.");
  daemon.run("start", "patient");
  await expect(page.locator(".title .badge")).toHaveText("backoff");
});

test("why is told in the words of the daemon, as `defib why` tells it, of any run", async ({ page }) => {
  daemon.run("start", "refused");
  await expect.poll(async () => (await daemon.agent("refused")).state).toBe("stopped");
  await logIn(page, daemon);
  const why = page.getByTestId("why");
  const inOneLine = (text: string) => text.replace(/\s+/g, " ").trim();
  for (const { name, run } of [{ name: "tracer", run: 3 }, { name: "tracer", run: 1 }, { name: "refused", run: 1 }]) {
    const told = await daemon.get<PostMortem>(`/api/v1/agents/${name}/why?run=${run}`);
    await page.goto(new URL(`/agents/${name}?run=${run}`, page.url()).href);
    await expect(why).toContainText(`Run ${run} exited with code 1`);
    await expect(why.locator(".decisions li")).toHaveText(told.decided.map(({ text }) => text));
    await expect(why.locator(".findings")).toContainText(told.meaning!);
    const printed = daemon.run("why", name, "--run", String(run));
    const shown = inOneLine(await why.innerText());
    const words = [told.meaning!, told.used!, ...told.decided.map(({ text }) => text), ...(told.denied ? [told.denied.line, told.denied.text] : [])];
    words.push(...(told.run!.death!.trace?.split("\n") ?? told.last_words));
    for (const word of words) {
      expect(shown, "the page").toContain(inOneLine(word));
      expect(inOneLine(printed), "`defib why`").toContain(inOneLine(word));
    }
    expect(told.decided.length > 0).toBe(name === "tracer");
    expect(told.denied !== null).toBe(name === "refused");
    await expect(page.getByTestId("denied")).toHaveCount(name === "refused" ? 1 : 0);
  }
  // What it was refused, and what would permit that.
  await expect(page.getByTestId("denied")).toContainText("Permission denied");
  await expect(page.getByTestId("denied")).toContainText("defib grant refused read:");
  await page.goto(new URL("/agents/tracer", page.url()).href);
  await page.getByRole("link", { name: "Why run 2 ended" }).click();
  await expect(why).toContainText("Run 2 exited with code 1");
});

test("the lifeline is drawn, zoomed and told", async ({ page }) => {
  await logIn(page, daemon);
  await page.goto(new URL("/lifelines", page.url()).href);
  const picture = page.getByTestId("lifeline");
  await expect.poll(async () => Number(await picture.getAttribute("data-marks"))).toBeGreaterThanOrEqual(6);
  const colours = () =>
    picture.evaluate((canvas: HTMLCanvasElement) => {
      const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
      const seen = new Map<string, number>();
      for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3]! < 250) continue;
        const key = `${data[at]},${data[at + 1]},${data[at + 2]}`;
        seen.set(key, (seen.get(key) ?? 0) + 1);
      }
      return Object.fromEntries(seen);
    });
  const rgb = (name: string) =>
    page.evaluate((name) => {
      const probe = document.createElement("i");
      probe.style.color = `var(--${name})`;
      document.body.append(probe);
      const found = getComputedStyle(probe).color.match(/\d+/g)!.slice(0, 3).join(",");
      probe.remove();
      return found;
    }, name);
  const [alive, dead] = [await rgb("bar-alive"), await rgb("bar-dumb")];
  await page.getByRole("button", { name: "10 min" }).click();
  await expect.poll(async () => (await colours())[alive] ?? 0).toBeGreaterThan(50);
  await expect.poll(async () => (await colours())[dead] ?? 0).toBeGreaterThan(10);
  await page.getByRole("link", { name: "tracer" }).focus();
  await page.keyboard.press("ArrowLeft");
  await expect(page.locator(".lifelines .count")).toContainText("tracer");
});

test("of many agents every page is drawn, and what is left out is said", async ({ page }) => {
  await logIn(page, daemon);
  let pages = 0;
  // As if there were more than fit, of agents and of runs.
  await page.route("**/api/v1/lifelines?*", (route) => {
    const address = new URL(route.request().url());
    if (address.searchParams.has("cursor")) pages += 1;
    address.searchParams.set("limit", "3");
    address.searchParams.set("bars", "1");
    return route.continue({ url: address.href });
  });
  await page.goto(new URL("/lifelines", page.url()).href);
  const names = page.locator(".lifeline-names li");
  const agents = await daemon.get<{ name: string }[]>("/api/v1/agents");
  await expect(names).toHaveCount(agents.length);
  expect(pages).toBeGreaterThanOrEqual(Math.ceil(agents.length / 3) - 1);
  await expect(page.getByLabel("Legend")).toContainText("earlier runs not shown");
  await expect(names.filter({ hasText: "tracer" })).toContainText("earlier runs not shown");
  await expect(names.filter({ hasText: "confined" })).not.toContainText("earlier");
});

test("a wait is hatched, on one's own lifeline too", async ({ page }) => {
  await logIn(page, daemon);
  const picture = page.getByTestId("lifeline");
  const hatched = () => picture.evaluate(thinlyPainted, "faint");
  await page.goto(new URL("/agents/patient", page.url()).href);
  await expect(page.locator(".title .badge")).toHaveText("backoff");
  await expect(picture).toHaveAttribute("data-marks", /^[2-9]/);
  // Ten minutes of waiting are drawn up to their end, which is not yet.
  await page.getByRole("button", { name: "10 min" }).click();
  await expect.poll(hatched).toBeGreaterThan(50);
  await page.goto(new URL("/agents/confined", page.url()).href);
  await expect(picture).toHaveAttribute("data-marks", "1");
  expect(await hatched()).toBe(0);
});

test("money is topped up, charts are drawn, killing asks", async ({ page }) => {
  await logIn(page, daemon);
  await page.goto(new URL("/agents/spender/rights", page.url()).href);
  await expect(page.getByLabel("Budget")).toContainText("97 left");
  await page.getByRole("button", { name: "Top up" }).click();
  await expect(page.getByLabel("Budget")).toContainText("107 left");
  // Each of its runs spends.
  daemon.run("restart", "spender");
  await expect(page.getByLabel("Budget")).toContainText("104 left");
  await page.getByRole("tab", { name: "Charts" }).click();
  const spent = page.getByRole("img", { name: "Spent, scrip: 6 in all" });
  await expect.poll(() => spent.evaluate(painted, "bar-smart")).toBeGreaterThan(30);
  const before = await daemon.agent("spender");
  await page.getByRole("button", { name: "Kill spender" }).click();
  await page.getByRole("button", { name: "Leave it" }).click();
  expect((await daemon.agent("spender")).run).toBe(before.run);
  await page.getByRole("button", { name: "Kill spender" }).click();
  await page.getByRole("button", { name: "Kill it" }).click();
  await expect(page.locator(".title .badge")).toHaveText("stopped");
});

test("what every run used is there when nobody looked while it ran", async ({ page }) => {
  await expect.poll(async () => (await daemon.agent("worker")).state).toBe("crashed-out");
  await logIn(page, daemon);
  await page.goto(new URL("/agents/worker", page.url()).href);
  const told = await daemon.get<PostMortem>("/api/v1/agents/worker/why");
  expect(told.used).toContain("MiB of memory at the most");
  await expect(page.getByTestId("why").locator(".findings")).toContainText(told.used!);
  await page.getByRole("tab", { name: "Charts" }).click();
  const death = told.run!.death!;
  expect(death.memory_peak_bytes!).toBeGreaterThanOrEqual(64 << 20);
  const memory = page.getByRole("img", { name: `Memory by run: ${bytes(death.memory_peak_bytes!)} last` });
  const cpu = page.getByRole("img", { name: `CPU time by run: ${span(cpuOf(death)!)} last` });
  const restarts = page.getByRole("img", { name: "Restarts: 2 in all" });
  await expect(page.locator(".chart", { hasText: "Restarts" }).locator("figcaption span")).toHaveText("2");
  for (const [chart, colour] of [[memory, "wait"], [cpu, "bar-alive"], [restarts, "bar-dumb"]] as const) {
    await expect(chart.locator("canvas")).toBeVisible();
    // Something is drawn that is no grid and no writing.
    await expect.poll(() => chart.evaluate(painted, colour)).toBeGreaterThan(30);
  }
});

/** How much of a picture below its times is of thin lines of a colour, which cover no place wholly. */
function thinlyPainted(canvas: Element, colour: string): number {
  const probe = document.createElement("i");
  probe.style.color = `var(--${colour})`;
  document.body.append(probe);
  const wanted = getComputedStyle(probe).color.match(/\d+/g)!.slice(0, 3).map(Number);
  probe.remove();
  const { width, height } = canvas as HTMLCanvasElement;
  const head = 24 * devicePixelRatio;
  const { data } = (canvas as HTMLCanvasElement).getContext("2d")!.getImageData(0, head, width, height - head);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (wanted.every((part, of) => Math.abs(part - data[at + of]!) < 8) && data[at + 3]! > 60) found += 1;
  }
  return found;
}

/** How much of a picture has a colour of the page's. */
function painted(picture: Element, colour: string): number {
  const probe = document.createElement("i");
  probe.style.color = `var(--${colour})`;
  document.body.append(probe);
  const wanted = getComputedStyle(probe).color.match(/\d+/g)!.slice(0, 3).map(Number);
  probe.remove();
  const canvas = picture.querySelector("canvas")!;
  const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (wanted.every((part, of) => Math.abs(part - data[at + of]!) < 3) && data[at + 3]! > 200) found += 1;
  }
  return found;
}

test("a capability that is granted is marked as pending", async ({ page }) => {
  await logIn(page, daemon);
  await page.goto(new URL("/agents/confined/rights", page.url()).href);
  const rights = page.getByLabel("Capabilities", { exact: true });
  await expect(rights).toContainText("read:/");
  await rights.getByLabel("Capability", { exact: true }).fill("net:443");
  await rights.getByRole("button", { name: "Grant", exact: true }).click();
  await expect(rights.locator("li", { hasText: "net:443" })).toContainText("granted from its next run on");
  await rights.getByRole("button", { name: "Revoke net:443" }).click();
  await expect(rights.locator("li", { hasText: "net:443" })).toHaveCount(0);
});

test.describe("the policy lab", () => {
  // A policy that makes no sense is answered with 422, which browsers note in the console.
  test.use({ allowed: /422/ });

  test("plays real deaths again under another policy", async ({ page }) => {
    await logIn(page, daemon);
    await page.goto(new URL("/lab?agent=tracer", page.url()).href);
    const outcome = page.getByTestId("lab-outcome");
    await expect(outcome).toContainText("crash-out");
    await page.getByLabel(/^Policy/).fill('restart = "never"\n');
    await page.getByRole("button", { name: "Try it" }).click();
    await expect(outcome).toContainText("not reached");
    await expect(outcome).toContainText("It would end stopped");
    await page.getByLabel(/^Policy/).fill('restart = "sometimes"\n');
    await page.getByRole("button", { name: "Try it" }).click();
    await expect(page.getByRole("alert")).toContainText("sometimes");
  });
});
