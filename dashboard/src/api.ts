// Asking the daemon: JSON over HTTP, with its own words when something went wrong.

import { heedDate } from "./clock.ts";

export class Trouble extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string | null,
  ) {
    super(message);
  }
}

/** Called when the daemon says that this browser is not logged in. */
let onLoggedOut: () => void = () => {};
export function whenLoggedOut(tell: () => void): void {
  onLoggedOut = tell;
}

/** An answer that is not an error. */
export async function answered(response: Response): Promise<Response> {
  heedDate(response);
  if (response.ok) return response;
  if (response.status === 401) onLoggedOut();
  let detail: { code?: string; message?: string; hint?: string | null } = {};
  try {
    detail = ((await response.json()) as { error?: typeof detail }).error ?? {};
  } catch {
    // What is no JSON says nothing that we could show.
  }
  const message = detail.message ?? `the daemon answered ${response.status}`;
  throw new Trouble(response.status, detail.code ?? "failed", message, detail.hint ?? null);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await fetch(path, { headers: { accept: "application/json" }, signal: signal ?? null });
  return (await (await answered(response)).json()) as T;
}

/** A page of a list, and where the next one is. */
export async function getPage<T>(path: string, signal?: AbortSignal): Promise<{ page: T; next: string | null }> {
  const response = await answered(await fetch(path, { headers: { accept: "application/json" }, signal: signal ?? null }));
  const next = response.headers.get("link")?.match(/<([^>]*)>\s*;\s*rel="?next"?/)?.[1] ?? null;
  return { page: (await response.json()) as T, next };
}

export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  const response = await fetch(path, {
    method: "POST",
    headers: { accept: "application/json", "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return (await (await answered(response)).json()) as T;
}

export function agentPath(name: string, rest = ""): string {
  return `/api/v1/agents/${encodeURIComponent(name)}${rest}`;
}

/** Hands over a stream piece by piece until it ends. */
export async function stream(
  path: string,
  options: { headers?: Record<string, string>; signal: AbortSignal },
  take: (bytes: Uint8Array) => void,
): Promise<void> {
  const response = await answered(await fetch(path, { headers: options.headers ?? {}, signal: options.signal }));
  const reader = response.body?.getReader();
  if (!reader) return;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    take(value);
  }
}
