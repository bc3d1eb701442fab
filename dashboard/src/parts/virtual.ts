// Which of many rows are on the screen. Rows have heights that are known beforehand.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Rows beyond the edges, so that a quick scroll does not show nothing. */
const BEYOND_PX = 400;
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

export function visible(at: Float64Array, top: number, height: number): Visible {
  if (at.length <= 1) return { first: 0, end: 0 };
  return { first: rowAt(at, top - BEYOND_PX), end: rowAt(at, top + height + BEYOND_PX) + 1 };
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
