//! Who did what is written down, and nobody changes it unnoticed.

use defib_e2e::{Web, await_some};
use serde_json::Value;

use crate::bench;

#[test]
fn every_deed_is_written_down_with_who_and_what_came_of_it() {
    let bench = bench();
    let told = bench.file("told");
    let line = format!("echo $DEFIB_TOKEN > {told}.new; mv {told}.new {told}; exec sleep 100000");
    bench.up(&[
        bench.agent("a", "forever", ""),
        bench.agent("free", "forever", "capabilities = [\"privileged\"]"),
        bench.agent("bound", "forever", "capabilities = [\"read_anywhere\"]"),
        format!("[agent.teller]\ncommand = [\"sh\", \"-c\", {line:?}]\n"),
    ]);
    let token = bench.defib(&["token", "new", "--name", "ci", "--role", "operate"]).good().out;
    let who = format!("Authorization: Bearer {}", token.trim());
    let json = "Content-Type: application/json";
    let web = Web::of(&bench);
    assert_eq!(web.code("POST /api/v1/agents/a/stop", &[&who, json], "{}"), 200);
    assert_eq!(web.code("POST /api/v1/agents/none/stop", &[&who, json], "{}"), 404);
    assert_eq!(web.code("POST /api/v1/down", &[&who, json], "{}"), 403);
    assert_eq!(web.code("POST /api/v1/up", &["Authorization: Bearer guessed", json], "{}"), 401);
    // A run's own token is known too.
    let own = await_some("its token", || std::fs::read_to_string(&told).ok());
    let own = format!("Authorization: Bearer {}", own.trim());
    assert_eq!(web.code("POST /api/v1/close", &[&own, json], "{}"), 403);
    bench.kill_daemon();
    bench.defib(&["start", "a"]).good();
    let find = |entries: &Value, what: &str, outcome: &str| -> Option<Value> {
        let entries = entries.as_array().unwrap().iter();
        let is_it = |e: &&Value| e["what"] == what && e["outcome"] == outcome;
        entries.clone().find(is_it).cloned()
    };
    let entries = || bench.defib(&["audit", "--json"]).good().json();
    let of = |what: &str, outcome: &str| {
        await_some(what, || find(&entries(), what, outcome))["who"].as_str().unwrap().to_owned()
    };
    let me = of("POST /api/v1/up", "ok");
    assert!(me.starts_with("uid:"), "{me}");
    assert_eq!(of("POST /api/v1/tokens", "ok"), me);
    assert_eq!(of("POST /api/v1/agents/a/stop", "ok"), "token:ci");
    assert_eq!(of("POST /api/v1/agents/none/stop", "refused (404)"), "token:ci");
    assert_eq!(of("POST /api/v1/down", "refused (403)"), "token:ci", "refused for its role");
    assert_eq!(of("POST /api/v1/up", "refused (401)"), "unknown, at 127.0.0.1");
    assert_eq!(of("POST /api/v1/close", "refused (403)"), "agent:teller");
    assert_eq!(of("POST /api/v1/agents/a/start", "ok"), me, "and it goes on after a death");
    let up = find(&entries(), "POST /api/v1/up", "ok").unwrap();
    assert_eq!(up["detail"]["project"], "p", "{up}");
    assert_eq!(up["detail"]["privileged"], serde_json::json!(["free"]), "{up}");
    assert!(up["at"].as_str().unwrap().ends_with('Z'));
    assert!(bench.defib(&["audit"]).good().out.contains("token:ci"));
    bench.defib(&["audit", "--verify"]).good();
}

#[test]
fn an_entry_that_was_changed_or_cut_off_is_named() {
    let bench = bench();
    bench.up(&[bench.agent("a", "forever", "")]);
    for _ in 0..3 {
        bench.defib(&["restart", "a"]).good();
    }
    // The number of entries is written down a moment after them.
    bench.defib(&["down", "--all"]).good();
    bench.defib(&["audit", "--verify"]).good();
    let path = bench.home().join("audit.log");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("agents/a/restart", "agents/b/restart", 1)).unwrap();
    let changed = bench.defib(&["audit", "--verify"]);
    assert_eq!(changed.code, 1);
    assert!(changed.err.contains("entry 2: it, or one before it, was changed"), "{changed:?}");
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&path, format!("{}\n", lines[..lines.len() - 2].join("\n"))).unwrap();
    let cut = bench.defib(&["audit", "--verify", "--json"]);
    assert_eq!((cut.code, cut.json()["first_broken"].as_u64()), (1, Some(lines.len() as u64 - 1)));
    std::fs::write(&path, text).unwrap();
    bench.defib(&["audit", "--verify"]).good();
}
