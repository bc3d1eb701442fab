// Which of many rows are on the screen. Rows have heights that are known beforehand.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Rows beyond the edges, so that a quick scroll does not show nothing. */
const BEYOND_PX = 240;
/** The shown range changes in steps, so that not each pixel of a scroll is work. */
const STEP_PX = 120;

export interface Visible {
  first: number;
  /** One beyond the last. */
  end: number;
}

/** Where each row begins; one more for the end. */
export function offsets(heights: readonly number[]): Float64Array {
  const at = new Float64Array(heights.length + 1);
  for (let i = 0; i < heights.length; i++) at[i + 1] = at[i]! + heights[i]!;
  return at;
}

/** The row at a place. */
export function rowAt(at: Float64Array, y: number): number {
  let low = 0;
  let high = at.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (at[middle]! <= y) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}

export function visible(at: Float64Array, top: number, height: number, beyond = BEYOND_PX): Visible {
  if (at.length <= 1) return { first: 0, end: 0 };
  return { first: rowAt(at, top - beyond), end: rowAt(at, top + height + beyond) + 1 };
}

/** So many rows are made at once; more wait for the next frame, so that no frame takes long. */
const AT_ONCE = 10;

/**
 * The indices of the rows to draw now: those that are drawn already, and as many more as one frame
 * takes, those in sight first. The others follow by themselves.
 */
export function useGradually(range: Visible, sight: Visible, keyAt: (index: number) => string): number[] {
  const drawn = useRef<ReadonlySet<string>>(new Set());
  const [, again] = useState(0);
  let left = AT_ONCE;
  const chosen = new Set<number>();
  const take = (from: number, end: number) => {
    for (let index = from; index < end; index++) {
      if (chosen.has(index)) continue;
      if (drawn.current.has(keyAt(index))) chosen.add(index);
      else if (left > 0) {
        left -= 1;
        chosen.add(index);
      }
    }
  };
  take(Math.max(range.first, sight.first), Math.min(range.end, sight.end));
  take(range.first, range.end);
  const isMissing = chosen.size < range.end - range.first;
  const indices = [...chosen].sort((a, b) => a - b);
  drawn.current = new Set(indices.map(keyAt));
  useEffect(() => {
    if (!isMissing) return;
    const frame = requestAnimationFrame(() => again((count) => count + 1));
    return () => cancelAnimationFrame(frame);
  });
  return indices;
}

/** The window on a list that scrolls with the page. */
export function useWindow<T extends HTMLElement>() {
  const container = useRef<T>(null);
  const [view, setView] = useState({ top: 0, height: innerHeight });
  useLayoutEffect(() => {
    let frame = 0;
    const measure = () => {
      frame = 0;
      const box = container.current?.getBoundingClientRect();
      if (!box) return;
      const top = Math.max(0, Math.floor(-box.top / STEP_PX) * STEP_PX);
      const height = innerHeight + STEP_PX;
      setView((old) => (old.top === top && old.height === height ? old : { top, height }));
    };
    const soon = () => {
      if (frame === 0) frame = requestAnimationFrame(measure);
    };
    measure();
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
    };
  }, []);
  return { container, view };
}
