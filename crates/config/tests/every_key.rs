//! The file that uses every key is clean, and comes out as it was meant.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use defib_config::config::{
    AgentKind, Budget, Burn, Command, Config, Event, Isolation, Leftovers, Listen, Log,
    NotifyTarget, OsLimits, Otlp, Probe, ProbeTarget, ReadyBy, Secret, Smtp, SmtpTls, Tls, Views,
};
use defib_config::parse_in;
use defib_core::backoff::{Backoff, Growth};
use defib_core::capability::Capability;
use defib_core::class::Class;
use defib_core::limit::{Limit, Span};
use defib_core::name::Name;
use defib_core::policy::{Heartbeat, Mode, Order, Ready, Reset, Trigger};
use defib_core::preset::Preset;
use defib_core::signal::Signal;
use defib_core::topology::Strategy;

const TEXT: &str = include_str!("fixtures/every-key.toml");

fn config() -> Config {
    let outcome = parse_in(Path::new("/srv/night"), TEXT);
    assert_eq!(outcome.diagnostics, []);
    outcome.config.unwrap()
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn words(words: &[&str]) -> Command {
    Command::Words(words.iter().map(|word| (*word).to_owned()).collect())
}

fn amounts(unit: &str, amount: f64) -> BTreeMap<String, f64> {
    BTreeMap::from([(unit.to_owned(), amount)])
}

#[test]
fn what_an_agent_says_is_what_it_gets() {
    let config = config();
    let reviewer = &config.agents[1];
    assert_eq!(reviewer.name, name("reviewer"));
    assert_eq!(
        reviewer.command,
        words(&[
            "claude",
            "-p",
            "review the open PRs",
            "--output-format",
            "stream-json",
            "--verbose",
        ])
    );
    assert_eq!(reviewer.cwd, Some(PathBuf::from("work/reviewer")));
    assert_eq!(reviewer.env_pass, ["ANTHROPIC_API_KEY", "GITHUB_TOKEN?", "XDG_*", "*_PROXY"]);
    assert_eq!(reviewer.env_file, Some(PathBuf::from(".env")));
    assert_eq!(reviewer.kind, AgentKind::Claude);
    assert!(reviewer.pty && reviewer.enabled);
    assert_eq!(reviewer.user.as_deref(), Some("agent"));
    assert_eq!(reviewer.umask, Some(0o022));
    assert_eq!(
        reviewer.resume.as_deref(),
        Some(&words(&["claude", "-p", "continue", "--resume", "{session}"]))
    );
    assert_eq!(reviewer.heartbeat_file, Some(PathBuf::from("run/alive")));
    assert_eq!(
        reviewer.probe.as_deref(),
        Some(&Probe {
            target: ProbeTarget::Http("http://127.0.0.1:8080/health".to_owned()),
            every: Duration::from_secs(20),
            timeout: Duration::from_secs(3),
            failures: 4,
        })
    );
    assert_eq!(reviewer.ready, ReadyBy::Notify);
    assert_eq!(reviewer.after, [name("database")]);
    assert_eq!(reviewer.cron.as_deref(), Some("*/5 * * * *"));
    assert_eq!(reviewer.stop_signal, Signal(2));
    assert_eq!(reviewer.leftovers, Leftovers::Keep);
    assert_eq!(reviewer.account.as_deref(), Some("anthropic-main"));
    assert_eq!(
        reviewer.capabilities.as_deref().unwrap(),
        ["read:/", "write:.", "net:443", "exec:/usr/bin"]
            .map(|token| Capability::parse(token).unwrap())
    );
    assert_eq!(reviewer.isolation, Some(Isolation::Namespaces));
    assert_eq!(reviewer.views, Views::Project);
    assert_eq!(
        *reviewer.limits_os,
        OsLimits {
            memory: Some(2 << 30),
            processes: Some(256),
            files: Some(4096),
            cpu: Some(Duration::from_secs(7200)),
        }
    );
    assert_eq!(
        *reviewer.budget,
        Budget {
            balance: amounts("scrip", 100.0),
            per_run: amounts("tokens", 200_000.0),
            per_day: amounts("usd", 5.0),
            burn: Burn::Stop,
            unmetered: defib_config::config::Unmetered::Allow,
        }
    );
}

#[test]
fn what_an_agent_says_of_its_deaths_is_its_policy() {
    let config = config();
    let reviewer = &config.agents[1];
    let minute = Duration::from_secs(60);
    assert_eq!(reviewer.preset, Preset::Ecology);
    let usual = Preset::Ecology.policy();
    let policy = &reviewer.policy;
    assert_eq!(policy.mode, Mode::Always);
    assert_eq!(
        policy.backoff,
        Backoff {
            growth: Growth::Exponential,
            base: Duration::from_millis(100),
            factor: 3.0,
            cap: Duration::from_secs(30),
            jitter: 0.2,
            first_exponent: 1,
        }
    );
    assert_eq!(
        policy.limits,
        [
            Limit::deaths(5, minute),
            Limit::restarts(5, Span::Tumbling(minute)).escalating(),
            Limit::restarts(10, Span::Consecutive),
            Limit::restarts(0, Span::Rolling(60 * minute)),
            Limit::restarts(100, Span::Lifetime),
        ]
    );
    assert_eq!(policy.reset, Reset::Beat);
    assert_eq!(policy.stable_after, Duration::from_secs(90));
    assert!(policy.revive_on_boot);
    assert_eq!(policy.exit_codes, BTreeMap::from([(2, Class::Config), (75, Class::Quota)]));
    assert_eq!(
        policy.on,
        BTreeMap::from([
            (Class::Quota, Order::Wait),
            (Class::Config, Order::Halt),
            (Class::Error, Order::Restart),
            (Class::Done, Order::Rest),
        ])
    );
    assert_eq!(policy.treatments, usual.treatments);
    assert_eq!(policy.trigger, Trigger::Cron);
    assert_eq!(policy.max_runtime, Some(Duration::from_secs(6 * 3600)));
    assert_eq!(policy.heartbeat, Some(Heartbeat { ttl: 2 * minute, grace: minute }));
    assert_eq!(policy.silent_for, Some(15 * minute));
    assert_eq!(policy.ready, Ready::WhenTold);
    assert_eq!(policy.stop_timeout, Duration::from_secs(20));
}

#[test]
fn defaults_lie_beneath_every_agent() {
    let config = config();
    let [database, reviewer, ingest, publish, ..] = config.agents.as_slice() else {
        panic!("{:?}", config.agents);
    };
    let env = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    assert_eq!(reviewer.env, env(&[("FOO", "bar"), ("MODE", "own"), ("TZ", "UTC")]));
    assert_eq!(database.env, env(&[("MODE", "default"), ("TZ", "UTC")]));
    let ten = 10 << 20;
    assert_eq!(reviewer.log, Log { max_size: ten, keep: 7 });
    assert_eq!(database.log, Log { max_size: ten, keep: 5 });
    assert_eq!(database.command, words(&["postgres", "-D", "my data"]));
    assert_eq!(database.policy.ready, Ready::WhenTold);
    assert_eq!(
        database.probe.as_deref(),
        Some(&Probe {
            target: ProbeTarget::Tcp("127.0.0.1:5432".to_owned()),
            every: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
            failures: 3,
        })
    );
    assert_eq!(ingest.command, Command::Shell("tail -f feed | grep news".to_owned()));
    assert_eq!(ingest.policy.trigger, Trigger::Manual);
    assert_eq!(ingest.capabilities, None);
    assert_eq!(ingest.views, Views::Own);
    assert_eq!(ingest.isolation, None);
    assert_eq!(ingest.stop_signal, Signal::TERM);
    assert_eq!(*ingest.budget, Budget::default());
    assert!(!publish.enabled);
    assert!(matches!(
        publish.probe.as_deref(),
        Some(Probe { target: ProbeTarget::Exec(command), .. }) if *command == words(&["check", "--quick"])
    ));
}

#[test]
fn a_module_is_an_agent_that_its_runner_runs() {
    let config = config();
    let module = |who: &str| config.agents.iter().find(|agent| agent.name == name(who)).unwrap();
    let news = module("news");
    assert_eq!(news.preset, Preset::Aivex, "whatever the agents have in common");
    assert_eq!(news.command, words(&["python3", "watchdog/module_runner.py", "news"]));
    let declared = news.module.as_ref().unwrap();
    assert_eq!(declared.package, Path::new("packages/news"));
    assert_eq!(declared.registry.as_deref(), Some(Path::new("watchdog/registry.py")));
    let chart = module("chart");
    assert_eq!(chart.preset, Preset::Celistra);
    assert_eq!(chart.command, words(&["./run", "chart"]));
    assert_eq!(chart.module.as_ref().unwrap().package, Path::new("chart"));
    assert_eq!(module("reviewer").module, None);
    assert_eq!(module("reviewer").strategy, Some(Strategy::OneForAll));
}

#[test]
fn what_is_not_an_agent_is_read_too() {
    let config = config();
    assert_eq!(config.project, name("nightshift"));
    assert_eq!(config.folder, Path::new("/srv/night"));
    assert_eq!(config.groups[0].strategy, Strategy::RestForOne);
    assert_eq!(config.groups[0].members, [name("ingest"), name("publish")]);
    assert_eq!(
        config.groups[0].budget,
        Some(Limit::restarts(3, Span::Rolling(Duration::from_secs(300))))
    );
    assert_eq!(config.groups[1].strategy, Strategy::OneForOne);
    let usual = Limit::restarts(5, Span::Rolling(Duration::from_secs(60)));
    assert_eq!(config.groups[1].budget, Some(usual));
    assert_eq!(
        config.agents_of(&name("all")),
        [&name("database"), &name("ingest"), &name("publish")]
    );
    assert_eq!(config.agents_of(&name("reviewer")), [&name("reviewer")]);
    assert_eq!(config.rules[0].kind, Some(AgentKind::Generic));
    assert_eq!(config.rules[0].pattern, "^FATAL: license");
    assert_eq!(config.rules[0].class, Class::Config);
    assert_eq!(config.rules[1].kind, None);
    assert_eq!(config.server.listen, Some(Listen::At("0.0.0.0:7433".parse().unwrap())));
    assert!(config.server.allow_remote);
    assert_eq!(
        config.server.tls,
        Some(Tls { cert: "tls/cert.pem".into(), key: "tls/key.pem".into() })
    );
    assert_eq!(config.history.keep, Some(Duration::from_secs(90 * 86_400)));
    assert_eq!(config.supervisor.max_total_restarts, Some(1000));
    assert_eq!(config.metrics.otlp, Some(Otlp::At("https://otlp.example.org/intake".to_owned())));
    assert_eq!(config.metrics.interval, Some(Duration::from_secs(15)));
    assert_eq!(config.metrics.variables().collect::<Vec<_>>(), ["OTLP_HEADERS"]);
}

#[test]
fn everybody_is_told_in_their_own_way() {
    let config = config();
    let [ops, chat, script, mail, screen, board] = config.notify.as_slice() else {
        panic!("{:?}", config.notify);
    };
    assert_eq!(ops.on.len(), 7);
    assert_eq!(ops.target, NotifyTarget::Webhook("https://example.org/hook".to_owned()));
    assert_eq!(ops.secret, Some(Secret::Env("WEBHOOK_SECRET".to_owned())));
    assert_eq!(board.secret, Some(Secret::File("board.secret".into())));
    assert_eq!(ops.variables().collect::<Vec<_>>(), ["WEBHOOK_SECRET"]);
    assert_eq!(mail.variables().collect::<Vec<_>>(), ["SMTP_PASSWORD"]);
    assert_eq!(board.variables().count(), 0);
    assert_eq!(ops.cooldown, Duration::from_secs(300));
    assert_eq!(
        chat.on,
        [
            Event::CrashedOut,
            Event::Halted,
            Event::Escalated,
            Event::Down,
            Event::BurnAlarm,
            Event::Recovered
        ]
    );
    assert_eq!(chat.cooldown, Duration::from_secs(600));
    assert!(matches!(&chat.target, NotifyTarget::Slack(_)));
    assert_eq!(script.target, NotifyTarget::Command(words(&["logger", "-t", "defib"])));
    assert_eq!(
        mail.target,
        NotifyTarget::Email(Smtp {
            host: "mail.example.org".to_owned(),
            port: 465,
            user: Some("defib".to_owned()),
            password_env: Some("SMTP_PASSWORD".to_owned()),
            tls: SmtpTls::Implicit,
            from: "defib@example.org".to_owned(),
            to: vec!["ops@example.org".to_owned()],
        })
    );
    assert_eq!(screen.target, NotifyTarget::Desktop);
}

#[test]
fn a_config_is_the_same_after_a_way_through_json() {
    let config = config();
    let json = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
}
