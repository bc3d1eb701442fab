//! What the view knows after which keys and news, and what it looks like: snapshots of whole screens.

use defib_core::Name;
use defib_daemon::wire::{Action, AgentStatus, CapabilityChange, GroupStatus, Why};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

use super::app::{App, Effect, Focus, News, Prompt};
use super::keys::Press;
use super::look::Look;
use super::view;
use crate::failure::{Code, Failure};

const NOW: &str = "2026-03-01T03:00:00Z";
const LOOK: Look = Look { has_colours: true, has_shapes: true };

/// An agent that runs, with these things different.
fn agent(name: &str, changes: &Value) -> AgentStatus {
    let mut agent = json!({
        "name": name, "project": "nightshift", "state": "running", "goal": "up", "restarts": 0,
        "consecutive_failures": 0, "kind": "generic", "command": ["agent"], "pty": false,
        "flapping": false, "loop_detected": false, "uptime_s": 7380.0, "run": 1, "pid": 4711,
    });
    for (key, value) in changes.as_object().unwrap() {
        agent[key] = value.clone();
    }
    serde_json::from_value(agent).unwrap()
}

fn died(at: &str, class: &str, exit_code: i32) -> Value {
    json!({ "at": at, "class": class, "exit_code": exit_code, "ran_s": 12.0 })
}

/// An agent in each state, with long and foreign names among them.
fn agents() -> Vec<AgentStatus> {
    let quota = died("2026-03-01T02:10:00Z", "quota", 1);
    let error = died("2026-03-01T02:59:55Z", "error", 1);
    let auth = died("2026-02-28T20:00:00Z", "auth", 1);
    vec![
        agent("ingest", &json!({ "group": "pipeline", "heartbeat_age_s": 3.2 })),
        agent(
            "enrich",
            &json!({ "group": "pipeline", "state": "backoff", "uptime_s": null, "restarts": 2,
                "next_at": "2026-03-01T03:00:12.400Z", "last_death": error }),
        ),
        agent("publish", &json!({ "group": "pipeline", "state": "starting", "uptime_s": 0.3 })),
        agent(
            "crashloop",
            &json!({ "state": "crashed-out", "reason": "limit over a window", "uptime_s": null,
                "restarts": 4, "last_death": error, "loop_detected": true }),
        ),
        agent(
            "reviewer",
            &json!({ "state": "waiting", "reason": "quota", "uptime_s": null, "restarts": 12,
                "next_at": "2026-03-01T05:03:00Z", "last_death": quota,
                "balance": { "usd": 2.5, "tokens": 120_000.0 } }),
        ),
        agent(
            "asker",
            &json!({ "state": "waiting", "reason": "prompt", "question": "Allow rm -rf build?",
                "uptime_s": 65.0, "pty": true }),
        ),
        agent(
            "planner",
            &json!({ "state": "halted", "reason": "auth", "uptime_s": null,
            "last_death": auth, "balance": { "usd": 0.0 } }),
        ),
        agent(
            "a-name-that-is-much-longer-than-any-column-would-like-it-to-be",
            &json!({ "restarts": 3, "flapping": true, "uptime_s": 4.0, "last_death": error,
                "status_text": "reading the whole of the internet again" }),
        ),
        agent("δοκιμή-東京", &json!({ "state": "stopping", "next_at": "2026-03-01T03:00:08Z" })),
        agent(
            "nightly",
            &json!({ "state": "idle", "uptime_s": null,
            "next_at": "2026-03-03T07:00:00Z" }),
        ),
        agent("parked", &json!({ "state": "stopped", "uptime_s": null })),
        agent(
            "once",
            &json!({ "state": "done", "uptime_s": null,
            "last_death": died("2026-03-01T01:00:00Z", "done", 0) }),
        ),
    ]
}

fn groups() -> Vec<GroupStatus> {
    let group = json!([{
        "name": "pipeline", "project": "nightshift", "strategy": "rest-for-one",
        "state": "backoff", "budget": { "max": 5, "within_s": 60.0, "used": 2 },
        "members": [
            { "name": "ingest", "state": "running", "group": null },
            { "name": "enrich", "state": "backoff", "group": null },
            { "name": "publish", "state": "starting", "group": null },
        ],
    }]);
    serde_json::from_value(group).unwrap()
}

fn listed(agents: Vec<AgentStatus>) -> App {
    let mut app = App::new(NOW.parse().unwrap(), TimeZone::UTC);
    app.take(News::Listed { agents, groups: groups() });
    app
}

fn app() -> App {
    listed(agents())
}

/// Presses one key after the other; `^` is Escape, `\n` Enter, `\t` Tab.
fn type_in(app: &mut App, keys: &str) -> Vec<Effect> {
    let press = |key| match key {
        '^' => Press::Escape,
        '\n' => Press::Enter,
        '\t' => Press::Tab,
        character => Press::Char(character),
    };
    keys.chars().flat_map(|key| app.press(press(key))).collect()
}

fn terminal(app: &mut App, look: Look, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, app, look)).unwrap();
    terminal
}

fn drawn(app: &mut App, width: u16, height: u16) -> String {
    terminal(app, LOOK, width, height).backend().to_string()
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn listed_names(app: &App) -> Vec<String> {
    app.rows.iter().map(|row| app.name(row).to_string()).collect()
}

fn why() -> Box<Why> {
    let crashloop = agents().swap_remove(3);
    let decided = "its limit of 5 deaths in 1m was reached: 5 deaths";
    Box::new(
        serde_json::from_value(json!({
            "agent": crashloop,
            "run": { "agent": "crashloop", "run": 5, "started_at": "2026-03-01T02:59:54.000Z",
                "ended_at": "2026-03-01T02:59:55.000Z", "ran_s": 1.0, "verdict": "crash-out",
                "death": { "at": "2026-03-01T02:59:55.000Z", "class": "error", "kind": "dumb",
                    "exit_code": 1, "signal": null, "ran_s": 1.0, "evidence": "exit code 1",
                    "trace": null } },
            "meaning": "it failed, and nothing says that it was anybody's fault but its own",
            "decided": [{ "seq": 9, "type": "limit-tripped", "text": decided }],
            "last_words": ["Traceback (most recent call last):", "ValueError: no such model"],
            "money": null,
            "next": { "at": null, "text": "It stays down until somebody revives it: `defib revive crashloop`." },
            "remedy": null,
            "events": [],
        }))
        .unwrap(),
    )
}

#[test]
fn flapping_agents_come_first_then_what_needs_a_person_then_the_rest_as_declared() {
    let mut app = app();
    let long = "a-name-that-is-much-longer-than-any-column-would-like-it-to-be";
    let expected = [
        long,
        "crashloop",
        "planner",
        "ingest",
        "enrich",
        "publish",
        "reviewer",
        "asker",
        "δοκιμή-東京",
        "nightly",
        "parked",
        "once",
    ];
    assert_eq!(listed_names(&app), expected);
    type_in(&mut app, "o");
    let mut sorted = expected.map(str::to_owned);
    sorted.sort();
    assert_eq!(listed_names(&app), sorted);
    type_in(&mut app, "o");
    assert_eq!(listed_names(&app), expected);
}

#[test]
fn the_selection_stays_on_its_agent_when_the_list_changes() {
    let mut app = app();
    for _ in 0..4 {
        app.press(Press::Down);
    }
    assert_eq!(app.selected(), Some(&name("enrich")));
    // Others begin to flap, and come before it.
    let mut changed = agents();
    changed[9].flapping = true;
    changed[10].flapping = true;
    app.take(News::Listed { agents: changed, groups: groups() });
    assert_eq!(app.selected(), Some(&name("enrich")));
    assert_eq!(app.position(), Some(6));
    // It is gone: whoever has its place is selected, and nobody else.
    let mut fewer = agents();
    fewer.remove(1);
    app.take(News::Listed { agents: fewer, groups: groups() });
    assert_eq!(app.position(), Some(6));
    app.take(News::Listed { agents: Vec::new(), groups: Vec::new() });
    assert_eq!(app.selected(), None);
}

#[test]
fn the_filter_narrows_as_it_is_typed_and_escape_gives_back_what_was() {
    let mut app = app();
    type_in(&mut app, "/RE");
    assert_eq!(listed_names(&app), ["reviewer"]);
    assert_eq!(app.selected(), Some(&name("reviewer")));
    // Keys that would do something are letters here.
    assert!(type_in(&mut app, "v").iter().all(|effect| !matches!(effect, Effect::Act { .. })));
    type_in(&mut app, "^");
    assert_eq!(app.rows.len(), 12);
    assert_eq!(app.selected(), Some(&name("reviewer")));
    type_in(&mut app, "/zzz\n");
    assert!(app.rows.is_empty());
    assert_eq!(app.press(Press::Char('v')), [], "nobody is there to be revived");
    assert!(app.notice.as_ref().is_some_and(|(_, is_wrong)| *is_wrong));
    type_in(&mut app, "^");
    assert_eq!(app.rows.len(), 12);
}

#[test]
fn each_key_asks_for_its_action_on_the_selected_agent() {
    let table =
        [('s', Action::Start), ('x', Action::Stop), ('r', Action::Restart), ('v', Action::Revive)];
    let mut app = app();
    app.press(Press::Down);
    for (key, action) in table {
        let effect = Effect::Act { name: name("crashloop"), action, kill: false };
        assert_eq!(app.press(Press::Char(key)), [effect]);
    }
    app.take(News::Done(Ok("crashloop: running".to_owned())));
    assert_eq!(app.notice, Some(("crashloop: running".to_owned(), false)));
    let failure = Failure::new(Code::NotInState, "it is running").hint("look at it");
    assert_eq!(app.take(News::Done(Err(failure))), [Effect::List]);
    assert_eq!(app.notice, Some(("it is running (look at it)".to_owned(), true)));
}

#[test]
fn a_kill_asks_first_and_anything_but_yes_is_no() {
    let mut app = app();
    assert_eq!(type_in(&mut app, "kn"), []);
    assert_eq!(type_in(&mut app, "k\n"), []);
    let [Effect::Act { action, kill, .. }] = &type_in(&mut app, "ky")[..] else {
        panic!("no kill was asked for");
    };
    assert_eq!((*action, *kill), (Action::Stop, true));
}

#[test]
fn a_fund_wants_an_amount_and_a_unit() {
    let mut app = app();
    app.press(Press::Down);
    for wrong in ["f10\n", "f-1 usd\n", "fusd 10\n", "f10 usd more\n", "finf usd\n"] {
        assert_eq!(type_in(&mut app, wrong), [], "{wrong}");
        assert!(matches!(app.prompt, Some(Prompt::Fund { .. })), "{wrong}");
        type_in(&mut app, "^");
    }
    let effect = Effect::Fund { name: name("crashloop"), amount: 2.5, unit: "usd".to_owned() };
    assert_eq!(type_in(&mut app, "f2.5 usd\n"), [effect]);
}

#[test]
fn a_capability_is_granted_or_after_a_minus_revoked() {
    let mut app = app();
    app.press(Press::Down);
    for wrong in ["c\n", "cfly\n", "c-\n", "cnet:x\n"] {
        assert_eq!(type_in(&mut app, wrong), [], "{wrong}");
        assert!(matches!(app.prompt, Some(Prompt::Change { .. })), "{wrong}");
        type_in(&mut app, "^");
    }
    let effect =
        |change| Effect::Change { name: name("crashloop"), change, token: "net:443".to_owned() };
    assert_eq!(type_in(&mut app, "cnet:443\n"), [effect(CapabilityChange::Grant)]);
    assert_eq!(type_in(&mut app, "c-net:443\n"), [effect(CapabilityChange::Revoke)]);
}

#[test]
fn that_nobody_is_told_is_said_whether_or_not_somebody_is_needed() {
    let failing = json!({ "channels_failing": [{ "channel": "ops", "at": NOW, "attempts": 3,
        "why": "127.0.0.1 refused the connection", "given_up": false }] });
    let mut app = listed(vec![agent("a", &failing), agent("b", &failing)]);
    let said = "channel nightshift/ops fails: 127.0.0.1 refused the connection";
    assert!(drawn(&mut app, 80, 24).contains(said));
    let mut all = agents();
    all.push(agent("a", &failing));
    let mut app = listed(all);
    let screen = drawn(&mut app, 80, 24);
    assert!(screen.contains("2 need you: crashloop, planner") && screen.contains(said), "{screen}");
}

#[test]
fn what_a_day_adds_up_to_is_in_the_head_where_it_fits() {
    let mut app = listed(vec![agent("a", &json!({}))]);
    assert!(!drawn(&mut app, 80, 24).contains("permanent"));
    let totals = json!({ "since": NOW, "runs": 9, "deaths": 8, "restarts": 6, "permanent_deaths": 2,
        "recoveries": 6, "mean_recovery_s": 9.0, "median_recovery_s": 1.2345 });
    app.take(News::Totals(serde_json::from_value(totals).unwrap()));
    let screen = drawn(&mut app, 80, 24);
    assert!(screen.contains("2 permanent deaths, back in 1.2s"), "{screen}");
    // States go before it.
    let screen = drawn(&mut app, 50, 24);
    assert!(screen.contains("1 running") && !screen.contains("permanent"), "{screen}");
}

#[test]
fn only_an_agent_with_a_terminal_is_attached_to() {
    let mut app = app();
    assert_eq!(type_in(&mut app, "a"), []);
    assert!(app.notice.as_ref().is_some_and(|(text, _)| text.contains("pty = true")));
    type_in(&mut app, "/asker\n");
    assert_eq!(type_in(&mut app, "a"), [Effect::Attach(name("asker"))]);
}

#[test]
fn panes_follow_the_selection_and_ask_only_for_what_has_changed() {
    let mut app = app();
    app.press(Press::Down);
    assert_eq!(type_in(&mut app, "w"), [Effect::Why(name("crashloop"))]);
    assert_eq!(app.take(News::Listed { agents: agents(), groups: groups() }), []);
    let mut changed = agents();
    changed[3].restarts += 1;
    let asked = app.take(News::Listed { agents: changed, groups: groups() });
    assert_eq!(asked, [Effect::Why(name("crashloop"))]);
    assert_eq!(app.press(Press::Down), [Effect::Why(name("planner"))]);
    // An answer about another agent is late.
    app.take(News::Why { agent: name("crashloop"), answer: Ok(why()) });
    assert!(app.pane.as_ref().unwrap().is_empty());
    let [Effect::Follow { watch, .. }] = type_in(&mut app, "l")[..] else { panic!("no log") };
    app.take(News::Log { watch: watch - 1, bytes: b"of another\n".to_vec() });
    assert!(app.pane.as_ref().unwrap().is_empty());
    app.take(News::Log { watch, bytes: b"of this one\n".to_vec() });
    assert!(!app.pane.as_ref().unwrap().is_empty());
    assert_eq!(type_in(&mut app, "\t^"), [Effect::Unfollow]);
    assert!(app.pane.is_none());
    assert_eq!(app.focus, Focus::List);
}

#[test]
fn it_ends_by_q_and_by_ctrl_c_wherever_one_is() {
    assert_eq!(type_in(&mut app(), "q"), [Effect::Quit]);
    let mut app = app();
    assert_eq!(type_in(&mut app, "/q"), []);
    assert_eq!(app.press(Press::Interrupt), [Effect::Quit]);
    assert_eq!(type_in(&mut app, "^?q"), [], "a key closes the help and does nothing else");
    assert!(!app.shows_help);
}

#[test]
fn it_wakes_up_by_itself_only_while_something_counts() {
    let rests = |changes| listed(vec![agent("a", &changes)]).rests_for().map(|span| span.as_secs());
    assert_eq!(rests(json!({ "state": "stopped", "uptime_s": null })), None);
    assert_eq!(rests(json!({})), Some(60));
    assert_eq!(rests(json!({ "uptime_s": 5.0 })), Some(1));
    assert_eq!(rests(json!({ "next_at": "2026-03-01T03:10:00Z" })), Some(1));
    assert_eq!(rests(json!({ "next_at": "2026-03-01T09:00:00Z" })), Some(60));
    assert_eq!(rests(json!({ "heartbeat_age_s": 2.0 })), Some(1));
    // A beat is told by no event.
    let mut app = listed(vec![agent("a", &json!({ "heartbeat_age_s": 2.0 }))]);
    assert_eq!(app.tick(), []);
    app.now = "2026-03-01T03:00:06Z".parse().unwrap();
    assert_eq!(app.tick(), [Effect::List]);
}

#[test]
fn whoever_has_scrolled_up_stays_there_and_the_end_is_followed_again() {
    let mut app = app();
    let [Effect::Follow { watch, .. }] = type_in(&mut app, "l\t")[..] else { panic!("no log") };
    let log = |from: u32, to: u32| {
        let bytes = (from..to).map(|at| format!("line {at}\n")).collect::<String>().into_bytes();
        News::Log { watch, bytes }
    };
    app.take(log(0, 100));
    drawn(&mut app, 80, 24);
    app.press(Press::PageUp);
    let seen: Vec<String> = app.pane.as_ref().unwrap().visible().map(str::to_owned).collect();
    app.take(log(100, 200));
    let still: Vec<String> = app.pane.as_ref().unwrap().visible().map(str::to_owned).collect();
    assert_eq!(seen, still);
    app.press(Press::End);
    assert_eq!(app.pane.as_ref().unwrap().visible().last(), Some("line 199"));
    app.take(log(200, 201));
    assert_eq!(app.pane.as_ref().unwrap().visible().last(), Some("line 200"));
    // A search finds the last one first, then those above it, then those below it.
    type_in(&mut app, "/LINE 15\n");
    let shows = |app: &App, line: &str| app.pane.as_ref().unwrap().visible().any(|is| is == line);
    assert!(shows(&app, "line 159"));
    type_in(&mut app, "n");
    assert!(shows(&app, "line 158"));
    for _ in 0..9 {
        type_in(&mut app, "n");
    }
    assert!(shows(&app, "line 15") && !shows(&app, "line 150"));
    type_in(&mut app, "N");
    assert!(shows(&app, "line 150"));
}

#[test]
fn what_agents_write_does_nothing_to_the_terminal() {
    let mut app = app();
    let [Effect::Follow { watch, .. }] = type_in(&mut app, "l")[..] else { panic!("no log") };
    let bytes = b"\x1b[31mred\x1b[0m\x07 10%\r 20%\r\n\tindented\r\nhalf".to_vec();
    app.take(News::Log { watch, bytes });
    drawn(&mut app, 80, 24);
    let pane = app.pane.as_ref().unwrap();
    assert_eq!(pane.visible().collect::<Vec<_>>(), ["red 10%", " 20%", "    indented"]);
    assert_eq!(pane.unfinished(), Some("half".to_owned()));
}

#[test]
fn all_states_at_80_by_24() {
    insta::assert_snapshot!(drawn(&mut app(), 80, 24));
}

#[test]
fn all_states_at_160_by_50() {
    insta::assert_snapshot!(drawn(&mut app(), 160, 50));
}

#[test]
fn a_terminal_without_colours_and_shapes_shows_the_same() {
    let look = Look { has_colours: false, has_shapes: false };
    let terminal = terminal(&mut app(), look, 80, 24);
    let buffer = terminal.backend().buffer();
    assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    insta::assert_snapshot!(terminal.backend().to_string());
}

#[test]
fn what_needs_a_person_is_loud_and_the_selected_row_stands_out() {
    let terminal = terminal(&mut app(), LOOK, 80, 24);
    let buffer = terminal.backend().buffer();
    // The banner, the selected row, and the state of the one that is crashed-out below it.
    assert!(buffer[(1, 1)].modifier.contains(Modifier::REVERSED | Modifier::BOLD));
    assert_eq!(buffer[(1, 1)].fg, Color::Red);
    assert!(buffer[(20, 3)].modifier.contains(Modifier::REVERSED));
    assert_eq!((buffer[(4, 4)].symbol(), buffer[(4, 4)].fg), ("c", Color::Red));
    assert!(!buffer[(20, 4)].modifier.contains(Modifier::REVERSED));
}

#[test]
fn groups_as_a_tree() {
    let mut app = app();
    type_in(&mut app, "g");
    insta::assert_snapshot!(drawn(&mut app, 100, 20));
    // What is done to a group's row is done to its members.
    app.press(Press::Home);
    let effect = Effect::Act { name: name("pipeline"), action: Action::Restart, kill: false };
    assert_eq!(type_in(&mut app, "r"), [effect]);
    type_in(&mut app, "/publ\n");
    assert_eq!(listed_names(&app), ["pipeline", "publish"]);
}

#[test]
fn the_why_pane() {
    let mut app = app();
    app.press(Press::Down);
    type_in(&mut app, "w");
    app.take(News::Why { agent: name("crashloop"), answer: Ok(why()) });
    insta::assert_snapshot!(drawn(&mut app, 80, 24));
}

#[test]
fn the_logs_pane_with_a_search() {
    let mut app = app();
    let [Effect::Follow { watch, .. }] = type_in(&mut app, "l\t")[..] else { panic!("no log") };
    for at in 0..200 {
        let word = if at % 40 == 0 { "error" } else { "fine" };
        let bytes = format!("{at:03} {word}: a line of what an agent writes, 東京\n").into_bytes();
        app.take(News::Log { watch, bytes });
    }
    drawn(&mut app, 80, 24);
    type_in(&mut app, "/error\n");
    insta::assert_snapshot!(drawn(&mut app, 80, 24));
}

#[test]
fn the_events_pane() {
    let mut app = app();
    let event = |seq: u64, r#type: &str| {
        json!({ "seq": seq, "at": "2026-03-01T02:59:55.123Z", "agent": "crashloop", "run": 5,
            "type": r#type, "deaths": 5, "max": 5 })
    };
    // Those from before it was opened are there as well.
    app.take(News::Events(vec![event(1, "run-died"), event(2, "limit-tripped")]));
    type_in(&mut app, "e");
    app.take(News::Events(vec![event(3, "crashed-out")]));
    insta::assert_snapshot!(drawn(&mut app, 80, 24));
}

#[test]
fn the_help() {
    let mut app = app();
    type_in(&mut app, "?");
    insta::assert_snapshot!(drawn(&mut app, 80, 24));
}

#[test]
fn a_daemon_that_is_away_is_said_until_it_is_back() {
    let mut app = app();
    app.take(News::Away);
    app.now = "2026-03-01T03:00:30Z".parse().unwrap();
    app.take(News::Away);
    insta::assert_snapshot!(drawn(&mut app, 80, 24));
    app.take(News::Listed { agents: agents(), groups: groups() });
    assert!(!drawn(&mut app, 80, 24).contains("stale"));
}

#[test]
fn of_a_thousand_agents_those_are_drawn_that_are_seen() {
    let many = (0..1000).map(|at| agent(&format!("agent-{at:04}"), &json!({}))).collect();
    let mut app = listed(many);
    drawn(&mut app, 80, 24);
    assert_eq!(app.visible().len(), 20);
    app.press(Press::End);
    app.press(Press::PageUp);
    insta::assert_snapshot!(drawn(&mut app, 80, 24));
    assert_eq!(app.visible().len(), 20);
    app.press(Press::Home);
    assert_eq!(app.selected(), Some(&name("agent-0000")));
}

#[test]
fn no_size_is_too_small() {
    let mut app = app();
    for keys in ["", "w", "\t", "z", "?"] {
        type_in(&mut app, keys);
        for (width, height) in [(1, 1), (2, 3), (20, 5), (40, 10), (79, 23), (300, 100)] {
            drawn(&mut app, width, height);
        }
    }
}

#[test]
fn a_clock_that_goes_back_shows_no_nonsense() {
    let mut app = app();
    app.now = "2026-02-01T00:00:00Z".parse::<Timestamp>().unwrap();
    drawn(&mut app, 160, 50);
}
