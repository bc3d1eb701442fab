// The frame around every page: where one is, how fresh it is, and what just happened.

import { useEffect, useRef } from "preact/hooks";
import { dismiss, notices, question } from "../actions.ts";
import { now } from "../clock.ts";
import { moment, wholeSpan } from "../format.ts";
import { connection, retryNow } from "../live.ts";
import { helpOpen } from "../keys.tsx";
import logo from "../logo.svg";
import { route } from "../router.ts";
import { theme, toggleTheme } from "../theme.ts";

export function Header() {
  const page = route.value.page;
  const link = (to: string, word: string, here: boolean) => (
    <a href={to} aria-current={here ? "page" : undefined}>
      {word}
    </a>
  );
  return (
    <header class="top">
      <a class="brand" href="/" aria-label="defib, overview">
        <img src={logo} alt="" width="24" height="24" />
        <span>defib</span>
      </a>
      <nav aria-label="Pages">
        {link("/", "Agents", page === "overview" || page === "agent")}
        {link("/lifelines", "Lifelines", page === "lifelines")}
        {link("/lab", "Policy lab", page === "lab")}
      </nav>
      <div class="top-right">
        <Pulse />
        <button type="button" class="icon" onClick={toggleTheme} aria-label={`Use ${theme.value === "dark" ? "light" : "dark"} colours`}>
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" stroke-width="1.5" />
            <path d="M8 2.5a5.5 5.5 0 0 1 0 11z" fill="currentColor" />
          </svg>
        </button>
        <button type="button" class="icon" onClick={() => (helpOpen.value = true)} aria-label="Keyboard shortcuts">
          ?
        </button>
      </div>
    </header>
  );
}

function Pulse() {
  const word = connection.value.word;
  return (
    <span class={`pulse pulse-${word}`} role="status" data-testid="connection">
      <i aria-hidden="true" />
      {word === "live" ? "live" : word === "logged-out" ? "logged out" : word}
    </span>
  );
}

/** Says that what is shown may no longer be so. */
export function StaleBanner() {
  const how = connection.value;
  if (how.word !== "stale") return null;
  // The clock is read so that the countdown counts.
  const left = Math.max(0, Math.ceil((how.retryAt - Date.now()) / 1000));
  const age = wholeSpan((Date.now() - how.since) / 1000);
  return (
    <div class="banner" role="alert" data-tick={now.value % 2}>
      <strong>No word from the daemon for {age}.</strong>{" "}
      <span>
        What you see is from {moment(how.since, Date.now())}. {left > 0 ? `Trying again in ${left} s.` : "Trying again…"}
      </span>
      <button type="button" class="button" onClick={retryNow}>
        Try now
      </button>
    </div>
  );
}

export function LoggedOut() {
  return (
    <main class="page narrow">
      <section class="card login">
        <img src={logo} alt="" width="48" height="48" />
        <h1>Log in</h1>
        <p>This browser is not logged in, or its login has ended. On the machine where defib runs:</p>
        <pre class="command">defib dashboard</pre>
        <p>prints a link. It works once; open it here.</p>
        <button type="button" class="button primary" onClick={() => location.reload()}>
          I have opened it
        </button>
      </section>
    </main>
  );
}

export function Notices() {
  return (
    <div class="notices" aria-live="polite" role="log" aria-label="What came of actions">
      {notices.value.map((notice) => (
        <div key={notice.id} class={`notice notice-${notice.tone}`}>
          <div>
            {notice.text}
            {notice.hint ? <small>{notice.hint}</small> : null}
          </div>
          <button type="button" class="icon" aria-label="Dismiss" onClick={() => dismiss(notice.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}

/** Asks before something that cannot be taken back. */
export function Question() {
  const dialog = useRef<HTMLDialogElement>(null);
  const asked = question.value;
  useEffect(() => {
    if (asked) dialog.current?.showModal();
  }, [asked]);
  if (!asked) return null;
  const close = () => (question.value = null);
  return (
    <dialog ref={dialog} onClose={close} aria-label="Confirm">
      <p>{asked.text}</p>
      <div class="buttons">
        <button type="button" class="button" onClick={close} autofocus>
          Leave it
        </button>
        <button
          type="button"
          class="button danger"
          onClick={() => {
            close();
            asked.then();
          }}
        >
          {asked.yes}
        </button>
      </div>
    </dialog>
  );
}
