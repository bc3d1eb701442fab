// Colours out of what a program wrote for a terminal. Everything else that is meant for a terminal is
// left out: what is shown is text, never markup.

export interface Look {
  fg: string | null;
  bg: string | null;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
  strike: boolean;
}

export const PLAIN: Look = {
  fg: null,
  bg: null,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  inverse: false,
  strike: false,
};

export interface Piece {
  text: string;
  look: Look;
}

// CSI, OSC (ended by BEL or ST), other string sequences, two-byte escapes.
const ESCAPE = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])|\x1b$/g;
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f]/g;

// Characters that change the reading direction or end a line: a text could look like another one.
const MISLEADING = /[\u202a-\u202e\u2066-\u2069\u2028\u2029]/g;

const visible = (text: string) => text.replace(CONTROL, "").replace(MISLEADING, "\ufffd");

/** A line in pieces of one look each, and the look that the next line begins with. */
export function pieces(line: string, begin: Look): { pieces: Piece[]; end: Look } {
  const found: Piece[] = [];
  let look = begin;
  let from = 0;
  const add = (text: string) => {
    const clean = visible(text);
    if (clean !== "") found.push({ text: clean, look });
  };
  for (const match of line.matchAll(ESCAPE)) {
    add(line.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m") look = turned(look, match[1] ?? "");
  }
  add(line.slice(from));
  return { pieces: found, end: look };
}

/** The text of a line without anything for terminals. */
export function plain(line: string): string {
  return visible(line.replace(ESCAPE, ""));
}

/** What is left of a line that was overwritten from its beginning, as progress bars do. */
export function overwritten(line: string): string {
  const trimmed = line.replace(/\r+$/, "");
  const last = trimmed.lastIndexOf("\r");
  return last < 0 ? trimmed : trimmed.slice(last + 1);
}

function turned(look: Look, parameters: string): Look {
  const codes = parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let next = { ...look };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i]!;
    if (code === 0) next = { ...PLAIN };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 9) next.strike = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code === 29) next.strike = false;
    else if (code >= 30 && code <= 37) next.fg = `ansi-${code - 30}`;
    else if (code >= 90 && code <= 97) next.fg = `ansi-${code - 82}`;
    else if (code >= 40 && code <= 47) next.bg = `ansi-${code - 40}`;
    else if (code >= 100 && code <= 107) next.bg = `ansi-${code - 92}`;
    else if (code === 39) next.fg = null;
    else if (code === 49) next.bg = null;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes.slice(i + 1));
      if (colour !== null) next[code === 38 ? "fg" : "bg"] = colour;
      i += used;
    }
  }
  return next;
}

/** A colour of the 256 or of all, and how many codes it took. */
function extended(codes: number[]): [string | null, number] {
  if (codes[0] === 5 && codes[1] !== undefined) return [indexed(codes[1]), 2];
  if (codes[0] === 2 && codes.length >= 4) return [rgb(codes[1]!, codes[2]!, codes[3]!), 4];
  return [null, codes.length];
}

function indexed(at: number): string | null {
  if (!(at >= 0 && at <= 255)) return null;
  if (at < 16) return `ansi-${at}`;
  if (at >= 232) {
    const grey = 8 + (at - 232) * 10;
    return rgb(grey, grey, grey);
  }
  const level = (step: number) => (step === 0 ? 0 : 55 + step * 40);
  const cube = at - 16;
  return rgb(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

function rgb(red: number, green: number, blue: number): string | null {
  const good = [red, green, blue].every((part) => part >= 0 && part <= 255);
  return good ? `rgb(${red} ${green} ${blue})` : null;
}
