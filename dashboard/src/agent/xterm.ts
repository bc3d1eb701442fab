// xterm, put into the page. A chunk of its own: whoever opens no terminal does not load it.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { effect } from "@preact/signals";
import { attach, terminalColours } from "./terminal.tsx";

export function openTerminal(place: HTMLElement, name: string, say: (text: string) => void): () => void {
  const terminal = new Terminal({
    cursorBlink: true,
    fontFamily: 'ui-monospace, "SF Mono", Menlo, "Liberation Mono", "DejaVu Sans Mono", monospace',
    fontSize: 13,
    scrollback: 5_000,
    screenReaderMode: true,
    theme: terminalColours(),
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  withAdoptedStyles(() => terminal.open(place));
  fit.fit();
  const connection = attach(
    name,
    () => ({ rows: terminal.rows, columns: terminal.cols }),
    (bytes) => terminal.write(bytes),
    () => terminal.reset(),
    say,
  );
  terminal.onData((text) => connection.type(text));
  terminal.onResize(({ rows, cols }) => connection.resize(rows, cols));
  const watcher = new ResizeObserver(() => fit.fit());
  watcher.observe(place);
  const stop = effect(() => {
    terminal.options.theme = terminalColours();
  });
  terminal.focus();
  return () => {
    stop();
    watcher.disconnect();
    connection.close();
    terminal.dispose();
  };
}

/**
 * Lets xterm style itself although the page's policy forbids styles that stand in the page.
 *
 * xterm makes `<style>` elements and sets their text. While it opens, it is given hidden elements of
 * no meaning instead, whose text goes into a constructed sheet. The policy has nothing against those:
 * they are made by a script that was let in.
 */
function withAdoptedStyles(open: () => void): void {
  const create = document.createElement;
  document.createElement = function (this: Document, tag: string, options?: ElementCreationOptions) {
    if (tag.toLowerCase() !== "style") return create.call(this, tag, options);
    const element = create.call(this, "i");
    element.hidden = true;
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    Object.defineProperty(element, "textContent", { set: (css: string) => sheet.replaceSync(css), get: () => "" });
    element.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
      Element.prototype.remove.call(element);
    };
    return element;
  } as typeof document.createElement;
  try {
    open();
  } finally {
    document.createElement = create;
  }
}
