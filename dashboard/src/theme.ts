// Dark or light: the system's choice until somebody makes one here.

import { signal } from "@preact/signals";

type Theme = "light" | "dark";
const KEY = "defib-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function chosen(): Theme | null {
  const stored = localStorage.getItem(KEY);
  return stored === "light" || stored === "dark" ? stored : null;
}

export const theme = signal<Theme>(chosen() ?? (system.matches ? "dark" : "light"));

function apply(): void {
  document.documentElement.dataset["theme"] = theme.value;
}

export function startTheme(): void {
  apply();
  system.addEventListener("change", () => {
    if (chosen()) return;
    theme.value = system.matches ? "dark" : "light";
    apply();
  });
}

export function toggleTheme(): void {
  theme.value = theme.value === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, theme.value);
  apply();
}

/** A colour of the theme, for what is drawn and not styled. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
