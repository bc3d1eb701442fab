// Which page is shown: the address, and nothing beside it.

import { computed, signal } from "@preact/signals";

export type Route =
  | { page: "overview" }
  | { page: "lifelines" }
  | { page: "lab"; agent: string | null }
  | { page: "agent"; name: string; tab: string; run: number | null };

const address = signal(location.pathname + location.search);

export const route = computed<Route>(() => parse(address.value));

export function parse(text: string): Route {
  const url = new URL(text, "http://page");
  const [first, second, third] = url.pathname.split("/").slice(1).map(decode);
  if (first === "agents" && second) {
    const run = Number(url.searchParams.get("run") ?? NaN);
    return { page: "agent", name: second, tab: third || "why", run: Number.isInteger(run) ? run : null };
  }
  if (first === "lifelines") return { page: "lifelines" };
  if (first === "lab") return { page: "lab", agent: url.searchParams.get("agent") };
  return { page: "overview" };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function agentAddress(name: string, tab?: string): string {
  return `/agents/${encodeURIComponent(name)}${tab && tab !== "why" ? `/${tab}` : ""}`;
}

export function go(to: string, how: "push" | "replace" = "push"): void {
  if (how === "push") history.pushState(null, "", to);
  else history.replaceState(null, "", to);
  address.value = location.pathname + location.search;
  if (how === "push") window.scrollTo(0, 0);
}

/** Links inside of the page change it without loading it anew. */
export function startRouter(): void {
  addEventListener("popstate", () => {
    address.value = location.pathname + location.search;
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = (event.target as Element).closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || link.target || link.origin !== location.origin) return;
    if (link.hasAttribute("data-native")) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
