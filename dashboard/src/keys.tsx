// The keyboard: what keys do, in one table that the help shows as well.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export const helpOpen = signal(false);

type Press = (key: string, event: KeyboardEvent) => boolean;
const presses: Press[] = [];

/** A page's own keys while it is shown. The last one to come is asked first. */
export function useKeys(press: Press): void {
  const latest = useRef(press);
  latest.current = press;
  useEffect(() => {
    const mine: Press = (key, event) => latest.current(key, event);
    presses.unshift(mine);
    return () => {
      presses.splice(presses.indexOf(mine), 1);
    };
  }, []);
}

export function startKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    const target = event.target as HTMLElement;
    const isTyping = target.closest("input, textarea, select, [contenteditable], .xterm") !== null;
    if (isTyping) {
      if (event.key === "Escape" && !target.closest(".xterm")) target.blur();
      return;
    }
    if (event.key === "?") {
      helpOpen.value = true;
      event.preventDefault();
      return;
    }
    for (const press of presses) {
      if (press(event.key, event)) {
        event.preventDefault();
        return;
      }
    }
  });
}

const HELP: [string, [string, string][]][] = [
  [
    "Agents",
    [
      ["j k  ↓ ↑", "next, previous"],
      ["Enter", "open"],
      ["/", "search"],
      ["r", "restart"],
      ["s", "stop, or start what is down"],
      ["v", "revive"],
      ["l", "its log"],
    ],
  ],
  [
    "One agent",
    [
      ["1 … 5", "why, logs, terminal, charts, rights and money"],
      ["r s v", "as above"],
      ["Esc", "back to all"],
    ],
  ],
  [
    "Lifelines",
    [
      ["+ −", "zoom"],
      ["← →", "earlier, later; on an agent, its runs"],
      ["0", "now"],
    ],
  ],
];

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = helpOpen.value;
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  if (!open) return null;
  const close = () => (helpOpen.value = false);
  return (
    <dialog ref={dialog} class="help" onClose={close} aria-labelledby="help-title">
      <h2 id="help-title">Keyboard</h2>
      <div class="help-columns">
        {HELP.map(([title, keys]) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {keys.map(([key, what]) => (
                <div key={key}>
                  <dt>
                    <kbd>{key}</kbd>
                  </dt>
                  <dd>{what}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <button type="button" class="button" onClick={close} autofocus>
        Close
      </button>
    </dialog>
  );
}
