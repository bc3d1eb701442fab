// Who gets in: one link, one browser, once.

import { AGENT, complaints, Daemon, expect, logIn, test } from "./daemon.ts";

let daemon: Daemon;
// Who is not let in is answered with 401, which browsers note in the console.
const REFUSED = /401/;
test.use({ allowed: REFUSED });

test.beforeAll(() => {
  daemon = new Daemon(() => `[project]\nname = "night"\n[agent.calm]\ncommand = ["${AGENT}", "forever"]\n`);
});
test.afterAll(() => daemon?.end());

test("a login link works once, and nobody gets in without one", async ({ browser }) => {
  const link = daemon.link();
  const first = await browser.newContext();
  const page = await first.newPage();
  const said = complaints(page, REFUSED);
  await page.goto(link);
  await expect(page.getByTestId("connection")).toHaveText("live");
  expect(page.url()).not.toContain("key=");
  // The cookie is out of reach of scripts.
  expect(await page.evaluate(() => document.cookie)).toBe("");

  const second = await browser.newContext();
  const other = await second.newPage();
  const refused = await other.goto(link);
  expect(refused!.status()).toBe(401);
  await expect(other.locator("body")).toContainText("defib dashboard");
  await expect(other.getByTestId("connection")).toHaveCount(0);
  const origin = new URL(page.url()).origin;
  expect((await other.goto(origin))!.status()).toBe(401);
  expect((await second.request.get(`${origin}/api/v1/agents`)).status()).toBe(401);
  expect(said).toEqual([]);
  await first.close();
  await second.close();
});

test("one whose login has ended is told what to do", async ({ page, context }) => {
  await logIn(page, daemon);
  await context.clearCookies();
  await page.getByRole("searchbox").waitFor();
  daemon.run("restart", "calm");
  await expect(page.getByRole("heading", { name: "Log in" })).toBeVisible();
  await expect(page.locator(".command")).toHaveText("defib dashboard");
});
