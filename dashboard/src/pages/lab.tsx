// The policy lab: an agent's real deaths under another policy, what would have happened beside what did.

import { useEffect, useState } from "preact/hooks";
import { agentPath, get, post, Trouble } from "../api.ts";
import { ending, millis, span } from "../format.ts";
import { compare, type Compared, type Simulation } from "../lab.ts";
import { agentList } from "../live.ts";
import { go } from "../router.ts";
import { CLASS_MEANINGS, STATE_WORDS } from "../words.ts";

const PRESETS = ["default", "aide", "celistra", "ecology", "aivex", "weft"];
/** So many deaths are shown; the summary counts them all. */
const SHOWN = 200;

export function LabPage({ agent }: { agent: string | null }) {
  const names = agentList.value.map((agent) => agent.name).sort();
  // Whose deaths are the most interesting, until somebody chooses.
  const troubled = [...agentList.value].sort((a, b) => b.restarts - a.restarts)[0]?.name ?? null;
  const chosen = agent ?? troubled;
  return (
    <main class="page" id="main">
      <div class="heading">
        <h1>Policy lab</h1>
        <label class="inline">
          Deaths of{" "}
          <select value={chosen ?? ""} onChange={(event) => go(`/lab?agent=${encodeURIComponent(event.currentTarget.value)}`, "replace")}>
            {names.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <small>Nothing here changes anything: the supervisor itself plays the deaths again, on a clock of its own.</small>
      </div>
      {chosen ? <Bench key={chosen} name={chosen} /> : <p class="faint">There are no agents yet.</p>}
    </main>
  );
}

function Bench({ name }: { name: string }) {
  const [own, setOwn] = useState<string | null>(null);
  const [text, setText] = useState("");
  const [compared, setCompared] = useState<Compared | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [busy, setBusy] = useState(false);

  const play = async (toml: string) => {
    setBusy(true);
    try {
      setCompared(compare(await post<Simulation>(agentPath(name, "/simulate"), { toml })));
      setTrouble(null);
    } catch (error) {
      setTrouble(error instanceof Trouble ? error : new Trouble(0, "failed", "The daemon cannot be reached.", null));
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => {
    const abort = new AbortController();
    get<{ toml: string }>(agentPath(name, "/policy"), abort.signal)
      .then(({ toml }) => {
        setOwn(toml);
        setText(toml);
        void play(toml);
      })
      .catch((error: unknown) => {
        if (error instanceof Trouble) setTrouble(error);
      });
    return () => abort.abort();
  }, [name]);

  return (
    <div class="lab">
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          void play(text);
        }}
      >
        <h2>
          <label for="policy">Policy, as in [agent.{name}]</label>
        </h2>
        <textarea
          id="policy"
          class="mono"
          spellcheck={false}
          rows={14}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void play(text);
          }}
        />
        <div class="buttons">
          <button type="submit" class="button primary" disabled={busy}>
            {busy ? "…" : "Try it"}
          </button>
          <button type="button" class="button" disabled={own === null || own === text} onClick={() => own !== null && (setText(own), void play(own))}>
            Its own policy
          </button>
        </div>
        <div class="buttons presets" role="group" aria-label="Rule sets">
          {PRESETS.map((preset) => (
            <button
              type="button"
              key={preset}
              class="button"
              onClick={() => {
                const toml = `preset = "${preset}"\n`;
                setText(toml);
                void play(toml);
              }}
            >
              {preset}
            </button>
          ))}
        </div>
        {trouble ? (
          <div class="lab-trouble" role="alert">
            <pre>{trouble.message}</pre>
            {trouble.hint ? <small>{trouble.hint}</small> : null}
          </div>
        ) : null}
      </form>
      {compared ? <Outcome compared={compared} /> : null}
    </div>
  );
}

function Outcome({ compared }: { compared: Compared }) {
  const { rows, did, would, outcome } = compared;
  return (
    <section class="card" aria-label="What did happen and what would" data-testid="lab-outcome">
      <div class="lab-sums">
        <Sum title="What did happen" {...did} />
        <Sum title="What would happen" {...would} />
      </div>
      <p>
        {outcome.state ? (
          <>
            It would end <b>{STATE_WORDS[outcome.state]}</b>
            {outcome.at_s > 0 ? `, ${span(outcome.at_s)} after its first start` : ""}.
          </>
        ) : (
          "It would go on for ever."
        )}
      </p>
      <div class="scroll-x" tabIndex={0} role="group" aria-label="Deaths, scrolls sideways">
        <table>
          <thead>
            <tr>
              <th>Run</th>
              <th>Lived</th>
              <th>Death</th>
              <th>At</th>
              <th>Did happen</th>
              <th>At</th>
              <th>Would happen</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, SHOWN).map((row) => (
              <tr key={row.run} class={row.differs ? "differs" : ""}>
                <td>{row.run}</td>
                <td>{span(row.death.ran_s)}</td>
                <td>
                  <span class={`class kind-${row.death.kind ?? "none"}`} title={CLASS_MEANINGS[row.death.class]}>
                    {row.death.class}
                  </span>{" "}
                  <span class="faint">{ending(row.death)}</span>
                </td>
                <td>{span((millis(row.death.at) - compared.begin) / 1000)}</td>
                <td>{row.did}</td>
                <td>{row.wouldAt === null ? "–" : span(row.wouldAt)}</td>
                <td>
                  <b>{row.would ?? <span class="faint">not reached</span>}</b>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > SHOWN ? <p class="faint">and {rows.length - SHOWN} more</p> : null}
    </section>
  );
}

function Sum({ title, restarts, gaveUp, down }: { title: string } & Compared["did"]) {
  return (
    <div>
      <h3>{title}</h3>
      <dl class="facts">
        <div>
          <dt>restarts</dt>
          <dd>{restarts}</dd>
        </div>
        <div>
          <dt>gave up</dt>
          <dd class={gaveUp > 0 ? "low" : ""}>{gaveUp}</dd>
        </div>
        <div>
          <dt>time down</dt>
          <dd>{span(down)}</dd>
        </div>
      </dl>
    </div>
  );
}
