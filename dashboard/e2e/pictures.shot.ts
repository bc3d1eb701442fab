// Pictures of every page for the README, of agents that behave like the real world.

import { join } from "node:path";
import { type Page } from "@playwright/test";
import { Daemon, expect, logIn, row, test } from "./daemon.ts";

const FOLDER = join(import.meta.dirname, "../../docs/img");
/** Long enough for the lifelines to tell something. */
const NIGHT_MS = 100_000;

test("pictures", async ({ page, browser }) => {
  test.setTimeout(400_000);
  const daemon = new Daemon(() => CONFIG);
  try {
    await logIn(page, daemon);
    const origin = new URL(page.url()).origin;
    const begun = Date.now();
    await expect(row(page, "importer")).toHaveAttribute("data-state", "crashed-out");
    for (const amount of ["0.84", "1.31", "0.42", "2.07"]) {
      daemon.run("fund", "planner", amount, "usd");
    }
    await page.waitForTimeout(Math.max(0, NIGHT_MS - (Date.now() - begun)));

    await shoot(page, `${origin}/`, "overview", "light");
    await shoot(page, `${origin}/`, "overview-dark", "dark");
    await shoot(page, `${origin}/lifelines`, "lifelines", "light", async () => {
      await page.getByRole("button", { name: "10 min" }).click();
    });
    await shoot(page, `${origin}/agents/importer`, "agent", "light", async () => {
      await page.getByRole("button", { name: "10 min" }).click();
      await expect(page.getByTestId("why")).toContainText("Last words");
    });
    await shoot(page, `${origin}/agents/builder/logs`, "logs", "dark", async () => {
      await page.getByLabel("Search the log").fill("warning");
    });
    await shoot(page, `${origin}/agents/shell/terminal`, "terminal", "dark", async () => {
      await expect(page.getByTestId("terminal-said")).toContainText("run ");
      await page.locator(".xterm").click();
      await page.keyboard.type("ls -la --color /etc/apt\n");
      await expect(page.locator(".xterm-rows")).toContainText("sources");
    });
    await shoot(page, `${origin}/agents/builder/charts`, "charts", "light", async () => {
      await page.waitForTimeout(20_000);
    });
    await shoot(page, `${origin}/agents/planner/rights`, "money", "light");
    await shoot(page, `${origin}/lab?agent=flaky`, "lab", "light", async () => {
      await expect(page.getByTestId("lab-outcome")).toContainText("restart");
      await page.getByRole("button", { name: "celistra" }).click();
      await expect(page.getByTestId("lab-outcome")).toContainText("crash-out");
    });
    const phone = await browser.newPage({ viewport: { width: 390, height: 800 }, deviceScaleFactor: 1 });
    await logIn(phone, daemon);
    await shoot(phone, `${origin}/`, "phone", "dark");
  } finally {
    daemon.end();
  }
});

async function shoot(page: Page, address: string, name: string, colorScheme: "light" | "dark", prepare?: () => Promise<void>): Promise<void> {
  await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
  await page.goto(address);
  await expect(page.getByTestId("connection")).toHaveText("live");
  await prepare?.();
  // The last answers are in, and the clock has ticked.
  await page.waitForTimeout(1_500);
  await page.screenshot({ path: join(FOLDER, `${name}.png`) });
}

const CONFIG = String.raw`
[project]
name = "nightshift"

[defaults]
shell = true
stop_timeout = "2s"

[agent.reviewer]
command = "while :; do echo 'reviewed a pull request'; sleep 5; done"

[agent.planner]
command = "while :; do echo planning; sleep 7; done"
kind = "claude"
budget = { balance = { usd = 12.5, tokens = 2_000_000 } }

[agent.builder]
command = "for n in 1 2 3 4 5 6 7 8; do for f in core host daemon cli; do printf '\\033[32m   Compiling\\033[0m defib-%s v0.1.0\\n' $f; head -c 3000000 /dev/urandom | sha256sum > /dev/null; sleep 0.3; done; printf '\\033[33mwarning\\033[0m: unused variable\\n'; done; head -c $((DEFIB_RUN % 4 * 9 + 6))000000 /dev/urandom | base64 | sort -S 100M > /dev/null"
restart = "always"
stable_after = "5s"

[agent.flaky]
command = "echo up for a while; sleep 4; echo 'TypeError: undefined is not a function' >&2; exit 1"
backoff = { kind = "fixed", base = "2500ms", jitter = 0.3 }
limits = [{ deaths = 500, within = "60s" }]

[agent.importer]
command = "echo 'reading orders.csv'; sleep 1; echo 'KeyError: customer_id' >&2; exit 1"

[agent.writer]
command = "echo writing; sleep 12; echo 'Claude AI usage limit reached'; exit 1"
kind = "claude"

[agent.translator]
command = "echo 'Invalid API key · Please run /login'; exit 1"
kind = "claude"

[agent.watcher]
command = "echo watching; sleep 10000"
heartbeat = { ttl = "25s" }

[agent.shell]
command = "PS1='agent$ ' exec /bin/bash --norc"
pty = true

[agent.nightly]
command = "echo backed up"
trigger = "cron:0 3 * * *"

[agent.ingest]
command = "sleep 10000"
[agent.enrich]
command = "sleep 23; echo 'lost the database' >&2; exit 1"
[agent.publish]
command = "sleep 10000"

[group.pipeline]
strategy = "rest-for-one"
members = ["ingest", "enrich", "publish"]
`;
