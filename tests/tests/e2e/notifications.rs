//! Notifications: what arrives, where, how often, and whatever dies on the way.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use defib_e2e::{Mailbox, Received, Receiver, await_that, field, proc};
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;

use crate::bench;

/// A death that is one too many.
const FRAGILE: &str = "limits = [{ deaths = 1, within = \"1h\" }]";

fn webhook(receiver: &Receiver, more: &str) -> String {
    format!("[notify.ops]\nwebhook = \"{}\"\n{more}\n", receiver.url())
}

/// What an honest receiver checks, from the guide.
fn is_signed(received: &Received, secret: &str) -> bool {
    let header = |name: &str| received.headers.get(name).cloned().unwrap_or_default();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{}.", header("x-defib-timestamp")).as_bytes());
    mac.update(&received.body);
    let hex: String = mac.finalize().into_bytes().iter().map(|b| format!("{b:02x}")).collect();
    header("x-defib-signature") == format!("sha256={hex}")
}

fn taken(all: &[Received]) -> Vec<Value> {
    all.iter().filter(|one| one.answered == 200).map(Received::json).collect()
}

#[test]
fn a_webhook_is_signed_tried_again_and_taken_once() {
    let mut bench = bench();
    bench.set("HOOK_SECRET", "a-secret-of-the-test");
    let go = bench.file("go");
    let receiver = Receiver::answering(|number| if number < 2 { 500 } else { 200 });
    let events = bench.up(&[
        bench.agent("a", "eprint 'it went wrong' exit 7", FRAGILE),
        bench.agent("b", &format!("await {go} exit 1"), FRAGILE),
        webhook(&receiver, "secret_env = \"HOOK_SECRET\""),
    ]);
    let all = receiver.find("three attempts", |all| (all.len() >= 3).then(|| all.to_vec()));
    for one in &all {
        assert!(is_signed(one, "a-secret-of-the-test"), "{one:?}");
        assert!(!is_signed(one, "another"));
        assert_eq!(one.path, "/hook?a=b");
        assert_eq!(one.headers["content-type"], "application/json");
        assert_eq!(one.headers["x-defib-event"], "crashed-out");
        assert_eq!(one.headers["x-defib-id"], one.json()["id"].as_str().unwrap());
        assert_eq!(one.json(), all[0].json(), "the same each time");
    }
    let message = all[2].json();
    assert_eq!((&message["event"], &message["agent"]), (&"crashed-out".into(), &"a".into()));
    assert_eq!((field(&message, "run"), field(&message["death"], "exit_code")), (1, 7));
    assert_eq!((&message["channel"], &message["project"]), (&"ops".into(), &"p".into()));
    let text = message["text"].as_str().unwrap();
    assert!(text.starts_with("a has crashed out after 1 death in 3600 s: error"), "{text}");

    let failed = events.find("the failure", |events| {
        events.iter().find(|event| event["type"] == "notify-failed").cloned()
    });
    assert_eq!((&failed["channel"], field(&failed, "attempts")), (&"ops".into(), 1));
    assert_eq!(failed["why"], "127.0.0.1 answered 500 Internal Server Error: well");
    assert_eq!(events.of("a", "notified")["channels"], serde_json::json!(["ops"]));

    // They go one after the other: were it sent again, that would be before the next.
    std::fs::write(&go, "").unwrap();
    let all = receiver.find("the next", |all| (all.len() >= 4).then(|| all.to_vec()));
    let told: Vec<Value> = taken(&all).iter().map(|message| message["agent"].clone()).collect();
    assert_eq!(told, ["a", "b"], "{all:#?}");
    for file in ["history.db", "history.db-wal", "intent.db", "intent.db-wal", "journal"] {
        let bytes = std::fs::read(bench.home().join(file)).unwrap_or_default();
        assert!(!proc::holds(&bytes, "a-secret-of-the-test"), "{file}");
    }
}

#[test]
fn a_storm_of_a_thousand_deaths_is_a_handful_of_messages() {
    let bench = bench();
    let receiver = Receiver::answering(|_| 200);
    let mut parts: Vec<String> = (0..20)
        .map(|agent| {
            let limits = "limits = [{ deaths = 50, within = \"1h\" }]";
            format!("[agent.a{agent}]\ncommand = [\"/bin/false\"]\n{limits}\n")
        })
        .collect();
    parts.push(webhook(&receiver, ""));
    let events = bench.up(&parts);
    let count =
        |events: &[Value], kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    events.find("twenty that have crashed out", |events| {
        (count(events, "crashed-out") == 20).then_some(())
    });
    let deaths = events.find("their deaths", |events| Some(count(events, "run-died")));
    assert_eq!(deaths, 1000);
    let told = receiver.find("word of all of them", |all| {
        let mut told = BTreeSet::new();
        for message in taken(all) {
            told.extend(message["agent"].as_str().map(str::to_owned));
            let agents = message["agents"].as_array().unwrap();
            assert!(agents.len() <= 10, "{message}");
            let digested: u64 = message["counts"]["crashed-out"].as_u64().unwrap_or(0);
            told.extend((0..digested).map(|number| format!("{}/{number}", message["id"])));
        }
        (told.len() >= 20).then_some(all.len())
    });
    println!("{deaths} deaths, {told} messages");
    assert!((2..=5).contains(&told), "{told} messages: {:#?}", taken(&receiver.all()));
}

#[test]
fn what_was_decided_is_told_whoever_dies_before_it_arrives() {
    let bench = bench();
    // It hangs up on everybody until the daemon has died.
    let died = bench.file("died");
    let path = died.clone();
    let receiver =
        Receiver::answering(move |_| if std::path::Path::new(&path).exists() { 200 } else { 0 });
    let go = bench.file("go");
    let events = bench.up(&[
        bench.agent("a", "exit 1", FRAGILE),
        bench.agent("b", &format!("await {go} exit 1"), FRAGILE),
        webhook(&receiver, ""),
    ]);
    // One that has been tried and is on disk; and one whose decision was only just taken.
    receiver.find("an attempt", |all| (!all.is_empty()).then_some(()));
    let (_, daemon) = bench.who();
    std::fs::write(&go, "").unwrap();
    events.of("b", "notified");
    proc::kill(daemon, "KILL");
    std::fs::write(&died, "").unwrap();
    bench.successor_of(daemon);
    let all = receiver.find("both", |all| {
        let agents: BTreeSet<String> =
            taken(all).iter().map(|message| message["agent"].to_string()).collect();
        (agents.len() == 2).then(|| all.to_vec())
    });
    for agent in ["a", "b"] {
        let ids: BTreeSet<String> = all
            .iter()
            .map(Received::json)
            .filter(|message| message["agent"] == agent)
            .map(|message| message["id"].to_string())
            .collect();
        assert_eq!(ids.len(), 1, "a message that comes twice has one id: {all:#?}");
    }
    assert_eq!(taken(&all).len(), 2, "{all:#?}");
}

#[test]
fn a_command_is_told_of_trouble_and_of_its_end() {
    let bench = bench();
    let well = bench.file("well");
    let line = format!("cat >> {0}.$DEFIB_EVENT; echo >> {0}.$DEFIB_EVENT", bench.file("told"));
    bench.up(&[
        bench.agent("a", &format!("rest-if {well} exit 3"), FRAGILE),
        format!("[notify.script]\ncommand = [\"/bin/sh\", \"-c\", {line:?}]\n"),
    ]);
    let told = |event: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(bench.file(&format!("told.{event}")));
        let text = text.unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    await_that("the trouble", || !told("crashed-out").is_empty());
    std::fs::write(&well, "").unwrap();
    bench.defib(&["revive", "a"]).good();
    await_that("the recovery", || !told("recovered").is_empty());
    assert_eq!(told("recovered")[0]["text"], "a is well again; it was crashed-out");
    assert_eq!((told("crashed-out").len(), told("recovered").len()), (1, 1));
    assert!(told("revived").is_empty(), "it is not in `on`");
}

#[test]
fn a_desktop_shows_it_by_the_notify_send_of_whoever_ran_up() {
    let mut bench = bench();
    // The first on the caller's PATH, which notes what it was told: a line a word, whole at once.
    let (folder, shown) = (bench.project().join("bin"), bench.file("shown"));
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("notify-send");
    let note = format!(
        "printf '%s\\n' \"$DISPLAY\" \"$@\" > {shown}.$$ && mv {shown}.$$ {shown}.$DEFIB_EVENT"
    );
    std::fs::write(&program, format!("#!/bin/sh\n{note}\n")).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let rest = std::env::var("PATH").unwrap();
    bench.set("PATH", &format!("{}:{rest}", folder.display()));
    bench.set("DISPLAY", ":7");
    let well = bench.file("well");
    bench.up(&[
        bench.agent("a", &format!("rest-if {well} exit 3"), FRAGILE),
        "[notify.me]\ndesktop = true\n".to_owned(),
    ]);
    let told = |event: &str| -> Vec<String> {
        let text = std::fs::read_to_string(format!("{shown}.{event}")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    await_that("the trouble", || !told("crashed-out").is_empty());
    let trouble = told("crashed-out");
    let options = [":7", "--app-name=defib", "--urgency=critical", "--"];
    assert_eq!(trouble[..4], options, "{trouble:#?}");
    assert_eq!(trouble[4], "defib: a crashed-out", "{trouble:#?}");
    assert!(trouble[5].starts_with("a has crashed out after 1 death"), "{trouble:#?}");
    std::fs::write(&well, "").unwrap();
    bench.defib(&["revive", "a"]).good();
    await_that("the recovery", || !told("recovered").is_empty());
    let end = told("recovered");
    assert_eq!(end[2], "--urgency=normal", "{end:#?}");
    assert_eq!(end[5], "a is well again; it was crashed-out", "{end:#?}");
}

#[test]
fn mail_and_slack_get_it_in_their_own_form() {
    let bench = bench();
    let (mailbox, slack) = (Mailbox::open(), Receiver::answering(|_| 200));
    let port = mailbox.port;
    let smtp = format!("host = \"127.0.0.1\", port = {port}, tls = \"off\"");
    let parties = "from = \"defib@example.org\", to = [\"ops@example.org\", \"b@example.org\"]";
    bench.up(&[
        bench.agent("a", "exit 1", FRAGILE),
        format!("[notify.mail]\nemail = {{ smtp = {{ {smtp}, {parties} }} }}\n"),
        format!("[notify.chat]\nslack = \"{}\"\n", slack.url()),
    ]);
    let mail = mailbox.find("a mail", |all| all.first().cloned());
    assert!(mail.from.contains("<defib@example.org>"), "{mail:?}");
    assert_eq!(mail.to.len(), 2, "{mail:?}");
    assert!(mail.text.contains("Subject: defib: a crashed-out"), "{mail:?}");
    assert!(mail.text.contains("Message-ID: <"), "{mail:?}");
    assert!(mail.text.contains("defib revive a"), "{mail:?}");
    let said = slack.find("a message", |all| all.first().map(Received::json));
    let text = said["text"].as_str().unwrap();
    assert!(text.starts_with("a has crashed out"), "{said}");
    assert_eq!(said["blocks"][0]["text"]["type"], "mrkdwn");
}

#[test]
fn a_test_says_of_each_channel_what_came_of_it() {
    let mut bench = bench();
    let receiver = Receiver::answering(|_| 200);
    bench.declare(&[
        bench.agent("a", "forever", ""),
        webhook(&receiver, "secret_env = \"HOOK_SECRET\""),
        "[notify.script]\ncommand = [\"/bin/sh\", \"-c\", \"exit 4\"]\n".to_owned(),
        "[notify.fine]\ncommand = [\"/bin/true\"]\n".to_owned(),
    ]);
    let checked = bench.defib(&["check"]).good();
    assert!(
        checked.err.contains("[notify.ops] names HOOK_SECRET, which is not set"),
        "{checked:?}"
    );
    bench.defib(&["up", "--detach"]).good();
    let tried = bench.defib(&["notify", "test"]).bad(1);
    assert!(
        tried.out.contains("p/ops: NOT delivered by webhook: HOOK_SECRET is not set"),
        "{tried:?}"
    );
    assert!(
        tried.out.contains("p/script: NOT delivered by command: it exited with 4"),
        "{tried:?}"
    );
    assert!(tried.out.contains("p/fine: delivered by command"), "{tried:?}");
    assert!(tried.err.contains("2 of 3 did not arrive"), "{tried:?}");
    assert!(receiver.all().is_empty());
    bench.set("HOOK_SECRET", "now-it-is-set");
    bench.defib(&["up", "--detach"]).good();
    bench.defib(&["notify", "test", "p/ops"]).good();
    let got = receiver.find("the test", |all| all.first().cloned());
    assert!(is_signed(&got, "now-it-is-set"));
    assert_eq!(got.json()["event"], "test");
    let missed = bench.defib(&["notify", "test", "nobody"]).bad(1);
    assert!(missed.err.contains("no channel is called"), "{missed:?}");
    assert!(bench.defib(&["check"]).good().err.is_empty());
}

#[test]
fn a_receiver_that_never_answers_holds_up_nobody() {
    let bench = bench();
    // Nobody accepts: connections are made and nothing is ever read.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", silent.local_addr().unwrap());
    let receiver = Receiver::answering(|_| 200);
    let events = bench.up(&[
        bench.agent("a", "exit 1", FRAGILE),
        format!("[notify.deaf]\nwebhook = \"{url}\"\n"),
        webhook(&receiver, ""),
        bench.agent("b", "forever", ""),
    ]);
    receiver.find("the other's", |all| (!all.is_empty()).then_some(()));
    proc::kill(bench.pid("b"), "KILL");
    events.of_run("b", 2, "run-ready");
    bench.defib(&["restart", "b"]).good();
    assert_eq!(bench.status("a")["state"], "crashed-out");
    drop(silent);
}

#[test]
fn a_channel_that_fails_is_seen_until_a_message_arrives() {
    let bench = bench();
    let open = bench.file("open");
    let path = open.clone();
    let receiver =
        Receiver::answering(move |_| if std::path::Path::new(&path).exists() { 200 } else { 503 });
    bench.up(&[
        bench.agent("a", "exit 1", FRAGILE),
        bench.agent("b", "forever", ""),
        webhook(&receiver, ""),
        "[notify.fine]\ncommand = [\"/bin/true\"]\n".to_owned(),
    ]);
    let is_failing = |status: &Value| status["channels_failing"][0]["attempts"].as_u64() >= Some(2);
    let status = bench.await_status("b", is_failing);
    let failure = &status["channels_failing"][0];
    let why = "127.0.0.1 answered 503 Service Unavailable: well";
    assert_eq!((&failure["channel"], &failure["why"]), (&"ops".into(), &why.into()));
    assert_eq!(failure["given_up"], false);
    assert!(failure["at"].as_str().unwrap().ends_with('Z'), "{failure}");
    let shown = bench.defib(&["status"]).good().out;
    let line = shown.lines().find(|line| line.starts_with("channel ")).unwrap_or_default();
    assert!(line.starts_with(&format!("channel p/ops fails: {why} (")), "{shown}");
    assert!(line.ends_with("; it is tried again)"), "{shown}");
    let of = |name: &str| -> Value {
        let all = bench.look("/api/v1/notify").json();
        all.as_array().unwrap().iter().find(|one| one["channel"] == name).unwrap().clone()
    };
    assert_eq!((&of("ops")["failure"]["why"], &of("ops")["way"]), (&why.into(), &"webhook".into()));
    assert_eq!((field(&of("ops"), "waiting"), field(&of("fine"), "waiting")), (1, 0));
    assert!(of("fine")["failure"].is_null());
    // A daemon that was killed knows it still.
    await_that("it is on disk", || {
        let kept = ["intent.db", "intent.db-wal"].map(|file| bench.home().join(file));
        kept.iter().any(|file| proc::holds(&std::fs::read(file).unwrap_or_default(), why))
    });
    std::fs::write(&open, "").unwrap();
    bench.defib(&["notify", "test", "ops"]).good();
    let is_well = |status: &Value| status["channels_failing"].as_array().unwrap().is_empty();
    bench.await_status("b", is_well);
    // What had waited was sent at once.
    receiver
        .find("it", |all| taken(all).iter().any(|message| message["agent"] == "a").then_some(()));
    assert!(!bench.defib(&["status"]).good().out.contains("channel "));
}
