// Ages, runtimes and countdowns: small parts that change with the one clock, and nothing around them.

import { now } from "../clock.ts";
import { age, millis, moment, span, wholeSpan } from "../format.ts";

/** How long ago something was. */
export function Ago({ at }: { at: string }) {
  const then = millis(at);
  return <time dateTime={at} title={moment(then, now.peek())}>{age((now.value - then) / 1000)} ago</time>;
}

/** How long something has lasted. */
export function Lasting({ since }: { since: string }) {
  return <span title={`since ${moment(millis(since), now.peek())}`}>{wholeSpan((now.value - millis(since)) / 1000)}</span>;
}

/** How long it is until something. */
export function Until({ at }: { at: string }) {
  const left = (millis(at) - now.value) / 1000;
  return (
    <time dateTime={at} title={moment(millis(at), now.peek())}>
      {left <= 0 ? "now" : `in ${left < 60 ? `${Math.ceil(left)} s` : span(left)}`}
    </time>
  );
}
