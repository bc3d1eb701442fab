// The lines of a log as they come, with the look that each begins with. Old ones go when there are too many.

import { overwritten, pieces, PLAIN, plain, type Look, type Piece } from "./ansi.ts";

/** More lines than this are not kept here; the daemon has them. */
export const MOST_LINES = 50_000;
/** A line is cut here: nobody reads further, and the screen has to be drawn. */
const LONGEST = 5_000;

interface Line {
  raw: string;
  begin: Look;
}

/** Of a line that has not ended, what can still be shown of it: some never end. */
function bounded(rest: string): string {
  if (rest.length <= 2 * LONGEST) return rest;
  const isOver = rest.endsWith("\r");
  const shown = overwritten(rest).slice(0, LONGEST);
  return isOver ? `${shown}\r` : shown;
}

export class LogBuffer {
  private lines: Line[] = [];
  private rest = "";
  private look: Look = PLAIN;
  private readonly decoder = new TextDecoder();
  /** How many lines have gone at the front. */
  gone = 0;
  /** The numbers of the ended lines before `seen` that have `wanted` in them, counted with those that have gone. */
  private found = { wanted: "", numbers: [] as number[], seen: 0 };

  push(bytes: Uint8Array): void {
    const parts = (this.rest + this.decoder.decode(bytes, { stream: true })).split("\n");
    this.rest = bounded(parts.pop() ?? "");
    for (const part of parts) this.add(part);
    const extra = this.lines.length - MOST_LINES;
    if (extra > 0) {
      this.lines.splice(0, extra);
      this.gone += extra;
    }
  }

  private add(part: string): void {
    const raw = overwritten(part).slice(0, LONGEST);
    this.lines.push({ raw, begin: this.look });
    if (raw.includes("\x1b")) this.look = pieces(raw, this.look).end;
  }

  /** With the one that is not ended yet, where there is one. */
  get length(): number {
    return this.lines.length + (this.rest === "" ? 0 : 1);
  }

  pieces(at: number): Piece[] {
    const line = this.lines[at];
    if (line) return pieces(line.raw, line.begin).pieces;
    return pieces(overwritten(this.rest).slice(0, LONGEST), this.look).pieces;
  }

  text(at: number): string {
    return plain(this.lines[at]?.raw ?? overwritten(this.rest).slice(0, LONGEST));
  }

  /**
   * The lines that have a text in them, in any case of letters. As long as the same is asked for, only
   * what has come since is looked at.
   */
  matching(text: string): number[] {
    const wanted = text.toLowerCase();
    if (this.found.wanted !== wanted) this.found = { wanted, numbers: [], seen: this.gone };
    const has = (at: number) => this.text(at).toLowerCase().includes(wanted);
    const { numbers } = this.found;
    for (let at = Math.max(0, this.found.seen - this.gone); at < this.lines.length; at++) if (has(at)) numbers.push(this.gone + at);
    this.found.seen = this.gone + this.lines.length;
    const first = numbers.findIndex((number) => number >= this.gone);
    numbers.splice(0, first < 0 ? numbers.length : first);
    const found = numbers.map((number) => number - this.gone);
    if (this.rest !== "" && has(this.lines.length)) found.push(this.lines.length);
    return found;
  }
}
