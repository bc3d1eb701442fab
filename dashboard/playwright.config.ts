// How the browser tests run: Debian's Chromium, one after the other, against daemons of their own.

import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "e2e",
  outputDir: "results",
  workers: 1,
  // Beside other work a browser may be starved. What passes only the second time is told as flaky.
  retries: process.env["CI"] ? 1 : 0,
  fullyParallel: false,
  // Deadlines only a failure reaches; the machine may be busy.
  timeout: 120_000,
  expect: { timeout: 45_000 },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    launchOptions: {
      executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
      // Chromium's own sandbox does not work for root, and containers are root.
      args: ["--no-sandbox", "--disable-dev-shm-usage"],
    },
    viewport: { width: 1280, height: 800 },
    trace: "retain-on-failure",
  },
  projects: [
    { name: "tests", testMatch: /.*\.spec\.ts/ },
    { name: "screenshots", testMatch: /.*\.shot\.ts/ },
  ],
});
