// Draws lifelines on a canvas: bars for runs, hatching for waits, a line where now is.

import { colour } from "../theme.ts";
import { colourOf, type Line, type Mark } from "./data.ts";
import { ticks } from "./scale.ts";

export interface Frame {
  from: number;
  to: number;
  now: number;
  width: number;
  height: number;
  /** Of one lifeline. */
  row: number;
  /** How far the list is scrolled. */
  scrolled: number;
  /** Room for the times at the top. */
  head: number;
  chosen: Mark | null;
}

export function draw(canvas: HTMLCanvasElement, lines: readonly Line[], frame: Frame): void {
  const density = devicePixelRatio || 1;
  const { width, height } = frame;
  if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
  }
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, width, height);
  const x = (at: number) => ((at - frame.from) / (frame.to - frame.from)) * width;
  drawTimes(pen, frame, x);
  pen.save();
  pen.beginPath();
  pen.rect(0, frame.head, width, height - frame.head);
  pen.clip();
  const colours = new Map<string, string>();
  const named = (name: string) => {
    const known = colours.get(name) ?? colour(name);
    colours.set(name, known);
    return known;
  };
  const hatch = hatching(pen, named("faint"));
  const first = Math.max(0, Math.floor(frame.scrolled / frame.row));
  const last = Math.min(lines.length, Math.ceil((frame.scrolled + height) / frame.row));
  for (let at = first; at < last; at++) {
    const top = frame.head + at * frame.row - frame.scrolled;
    const line = lines[at]!;
    if (line.more) drawUntold(pen, x(line.marks[0]?.from ?? frame.to), top + frame.row / 2, named("faint"));
    for (const mark of line.marks) drawMark(pen, mark, frame, x, top, named, hatch);
    pen.fillStyle = named("line");
    pen.fillRect(0, Math.round(top + frame.row) - 1, width, 1);
  }
  pen.fillStyle = named("accent");
  const now = x(frame.now);
  if (now >= 0 && now <= width) pen.fillRect(Math.round(now), frame.head, 1, height - frame.head);
  pen.restore();
}

/** Dots up to where it begins to be told: it lived before, and that is not shown. */
function drawUntold(pen: CanvasRenderingContext2D, end: number, y: number, colour: string): void {
  pen.save();
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.setLineDash([2, 6]);
  pen.beginPath();
  pen.moveTo(0, Math.round(y));
  pen.lineTo(end, Math.round(y));
  pen.stroke();
  pen.restore();
}

function drawMark(
  pen: CanvasRenderingContext2D,
  mark: Mark,
  frame: Frame,
  x: (at: number) => number,
  top: number,
  named: (name: string) => string,
  hatch: CanvasPattern | null,
): void {
  const end = mark.to === Infinity ? frame.now : mark.to;
  const left = Math.max(-2, x(mark.from));
  const right = Math.min(frame.width + 2, x(end));
  if (right < 0 || left > frame.width) return;
  // Whatever happened is seen, however short it was.
  const wide = Math.max(mark.kind === "run" ? 2 : 1, right - left);
  const inset = Math.max(3, Math.round(frame.row * 0.2));
  if (mark.bar) {
    pen.fillStyle = named(colourOf(mark.bar));
    const high = frame.row - inset * 2;
    pen.beginPath();
    pen.roundRect(left, top + inset, wide > 4 ? wide - 1 : wide, high, wide > 6 ? 3 : 1);
    pen.fill();
    if (mark.to === Infinity) {
      // Alive: the front fades, so that it differs by more than colour.
      pen.fillStyle = named("card");
      pen.globalAlpha = 0.45;
      pen.beginPath();
      pen.arc(right - 5, top + frame.row / 2, 2, 0, 7);
      pen.fill();
      pen.globalAlpha = 1;
    }
  } else if (hatch) {
    pen.fillStyle = hatch;
    pen.fillRect(left, top + inset + 1, wide, frame.row - inset * 2 - 2);
  }
  if (frame.chosen === mark) {
    pen.strokeStyle = named("focus");
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, top + inset - 2, wide + 2, frame.row - inset * 2 + 4);
  }
}

function drawTimes(pen: CanvasRenderingContext2D, frame: Frame, x: (at: number) => number): void {
  if (frame.head === 0) return;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const line = colour("line");
  const text = colour("dim");
  for (const tick of ticks(frame.from, frame.to, Math.max(2, frame.width / 90))) {
    const at = Math.round(x(tick.at));
    pen.fillStyle = line;
    pen.fillRect(at, 0, 1, frame.height);
    pen.fillStyle = text;
    pen.fillText(tick.label, at + 5, frame.head / 2);
  }
}

function hatching(pen: CanvasRenderingContext2D, stroke: string): CanvasPattern | null {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const own = tile.getContext("2d");
  if (!own) return null;
  own.strokeStyle = stroke;
  own.lineWidth = 1;
  own.beginPath();
  own.moveTo(-1, 5);
  own.lineTo(5, -1);
  own.moveTo(2, 8);
  own.lineTo(8, 2);
  own.stroke();
  return pen.createPattern(tile, "repeat");
}
