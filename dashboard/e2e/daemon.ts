// A daemon of a test's own, with real agents, and a browser page that is logged in to it.

import { execFileSync } from "node:child_process";
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { request } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { expect, test as base, type Page } from "@playwright/test";

export const DEFIB = required("DEFIB_BIN");
export const AGENT = required("FAKE_AGENT");

function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run scripts/browser-test`);
  return value;
}

export class Daemon {
  private readonly root = mkdtempSync("/tmp/b");
  readonly home = join(this.root, "h");
  readonly project = join(this.root, "p");

  constructor(config: (project: string) => string) {
    mkdirSync(this.project);
    writeFileSync(join(this.project, "defib.toml"), config(this.project));
    try {
      this.run("up", "--detach");
    } catch (error) {
      this.end();
      throw error;
    }
  }

  /** Runs a command of defib and gives back what it printed. */
  run(...words: string[]): string {
    return execFileSync(DEFIB, words, {
      cwd: this.project,
      env: { ...process.env, DEFIB_HOME: this.home },
      encoding: "utf8",
      timeout: 100_000,
      stdio: ["ignore", "pipe", "pipe"],
    });
  }

  /** A link that logs a browser in, once. */
  link(): string {
    return this.run("dashboard").trim();
  }

  /** Asks the daemon something over its socket. */
  get<T>(path: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const asked = request({ socketPath: join(this.home, "defib.sock"), path, headers: { host: "defib" } }, (answer) => {
        let text = "";
        answer.setEncoding("utf8");
        answer.on("data", (piece: string) => (text += piece));
        answer.on("end", () => {
          try {
            resolve(JSON.parse(text) as T);
          } catch (error) {
            reject(error);
          }
        });
      });
      asked.on("error", reject);
      asked.end();
    });
  }

  async agent(name: string): Promise<{ state: string; pid: number | null; run: number }> {
    const [agent] = await this.get<{ state: string; pid: number | null; run: number }[]>(`/api/v1/agents/${name}`);
    return agent!;
  }

  file(name: string): string {
    return join(this.project, name);
  }

  /** Leaves nothing behind. */
  end(): void {
    try {
      this.run("down", "--all");
    } catch {
      // There was none.
    }
    rmSync(this.root, { recursive: true, force: true });
  }
}

/**
 * A port that nobody has. The usual ones go to whichever daemon comes first: while one is away, another
 * test's on the same machine may take its place.
 */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

/** What the console may not say, and did. */
export function complaints(page: Page, allowed: RegExp | null = null): string[] {
  const found: string[] = [];
  // Tests read pictures back more often than pages do, and are told how that would be faster.
  const own = /willReadFrequently/;
  const note = (text: string) => {
    if (!own.test(text) && !allowed?.test(text)) found.push(text);
  };
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") note(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => note(`thrown: ${error.message}`));
  return found;
}

/** While nobody listens, a browser says so; that is what a test of it is about. */
export const LOST = /ERR_CONNECTION|ERR_INTERNET_DISCONNECTED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_NETWORK|WebSocket connection/;

export async function logIn(page: Page, daemon: Daemon): Promise<void> {
  await page.goto(daemon.link());
  await expect(page.getByTestId("connection")).toHaveText("live");
}

export function row(page: Page, name: string) {
  return page.locator(`.row.agent[data-key="${name}"]`);
}

/** Every page of every test is to be quiet in its console; `allowed` is what a test is about. */
export const test = base.extend<{ allowed: RegExp | null; quiet: void }>({
  allowed: [null, { option: true }],
  quiet: [
    async ({ page, allowed }, use) => {
      const said = complaints(page, allowed);
      await use();
      expect(said).toEqual([]);
    },
    { auto: true },
  ],
});
export { expect };
