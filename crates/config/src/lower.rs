//! From checked fields to a [`Config`]: defaults applied, what must agree compared.
//!
//! Every part lowers what it can and reports what it cannot, so that a mistake in one agent does
//! not hide one in another. A `Config` is made only if nothing was reported as an error.

mod agent;
mod command;
mod notify;
mod policy;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use defib_core::limit::{Limit, Span as Stretch};
use defib_core::name::Name;
use defib_core::preset::Preset;
use defib_core::topology::Strategy;

use crate::config::{
    self, AgentKind, Config, Group, History, Listen, Metrics, Module, Otlp, Price, Rule, Server,
    Supervisor, Tls,
};
use crate::diagnostic::Findings;
use crate::fields::{Datum, Entry, Fields, Item, Layers};
use crate::foreign::Watchdog;
use crate::order::{self, Order};
use crate::source::Span;
use crate::words::{CLASSES, STRATEGIES, meaning};

/// A name and where it is written.
#[derive(Debug, Clone)]
pub(crate) struct Spelled {
    pub(crate) name: Name,
    pub(crate) span: Span,
}

/// Lowers a whole file that lies in `folder`.
pub(crate) fn file(
    fields: &Fields,
    folder: &Path,
    watchdog: Watchdog,
    findings: &mut Findings,
) -> Option<Config> {
    let project = project(fields, folder, findings);
    let defaults = fields.table("defaults");
    let mut order = Order {
        whole: !["agent", "module", "group"].into_iter().any(|key| fields.has_broken(key)),
        ..Order::default()
    };
    let mut agents = Vec::new();
    for (name, own, item, usual) in declared(fields, findings) {
        let layers = Layers { over: own, under: defaults };
        let mut after = names(layers.list("after").unwrap_or_default());
        if own.item("after").is_none() {
            // A default that makes everybody wait for one agent does not mean that one itself.
            after.retain(|other| other.name != name.name);
        }
        let origin = agent::Origin { name: &name, span: item.span, usual, watchdog };
        let lowered = agent::agent(&origin, layers, findings);
        agents.extend(lowered.map(|agent| config::Agent {
            module: module(&name, own.alone()).map(Box::new),
            after: after.iter().map(|other| other.name.clone()).collect(),
            ..agent
        }));
        order.agents.push(order::Agent {
            name,
            after,
            enabled: layers.bool("enabled").unwrap_or(true),
        });
    }
    let mut groups = Vec::new();
    for (name, own, _) in tables(fields.table("group")) {
        let members = names(own.alone().list("members").unwrap_or_default());
        groups.push(group(&name, &members, own.alone()));
        order.groups.push(order::Group { name, members });
    }
    order.unusable = ["agent", "module", "group"]
        .into_iter()
        .flat_map(|kind| &fields.table(kind).entries)
        .filter(|entry| entry.item.datum == Datum::Broken)
        .filter_map(|entry| Name::parse(&entry.key).ok())
        .collect();
    order.check(findings);
    let notify = tables(fields.table("notify"))
        .filter_map(|(name, own, _)| notify::notify(&name, own.alone(), findings))
        .collect();
    let server = server(fields.table("server").alone(), findings);
    let metrics = metrics(fields.table("metrics").alone(), findings);
    let rules = rules(fields);
    if findings.has_errors() {
        return None;
    }
    Some(Config {
        folder: folder.to_owned(),
        project: project?,
        agents,
        groups,
        rules,
        notify,
        server,
        history: History { keep: fields.table("history").alone().duration("keep") },
        supervisor: Supervisor {
            max_total_restarts: fields.table("supervisor").alone().count("max_total_restarts"),
        },
        metrics,
        prices: prices(fields),
    })
}

/// Agents, then modules, each with the rule set of its sort.
fn declared<'f>(
    fields: &'f Fields,
    findings: &mut Findings,
) -> Vec<(Spelled, &'f Fields, &'f Item, Option<Preset>)> {
    let of = |key, usual| {
        tables(fields.table(key)).map(move |(name, own, item)| (name, own, item, usual))
    };
    let mut declared: Vec<_> = of("agent", None).collect();
    for module in of("module", Some(Preset::Aivex)) {
        let name = &module.0;
        match declared.iter().find(|(other, ..)| other.name == name.name) {
            Some((other, ..)) => {
                findings
                    .error(name.span, format!("`{}` is both an agent and a module", name.name))
                    .label("the module")
                    .related(other.span, "the agent")
                    .help("agents and modules share their names; call one of them otherwise");
            }
            None => declared.push(module),
        }
    }
    declared
}

/// What a module is checked for at the start.
fn module(name: &Spelled, own: Layers<'_>) -> Option<Module> {
    let package = own.text("package").unwrap_or(name.name.as_str());
    Some(Module {
        runner: own.text("runner")?.into(),
        package: package.into(),
        registry: own.text("registry").map(Into::into),
    })
}

/// The tables of a map by name. A name that is none has been told of, and its entry is gone.
fn tables(map: &Fields) -> impl Iterator<Item = (Spelled, &Fields, &Item)> {
    map.entries.iter().filter_map(|Entry { key, key_span, item }| {
        let name = Spelled { name: Name::parse(key).ok()?, span: *key_span };
        let Datum::Table(fields) = &item.datum else {
            return None;
        };
        Some((name, fields, item))
    })
}

fn names(items: &[Item]) -> Vec<Spelled> {
    let spelled = |item: &Item| {
        let Datum::Name(name) = &item.datum else {
            return None;
        };
        Some(Spelled { name: name.clone(), span: item.span })
    };
    items.iter().filter_map(spelled).collect()
}

/// The project's name: the one written, or that of the folder.
fn project(fields: &Fields, folder: &Path, findings: &mut Findings) -> Option<Name> {
    if let Some(item) = fields.table("project").item("name") {
        let Datum::Name(name) = &item.datum else {
            return None;
        };
        return Some(name.clone());
    }
    if fields.alone().is_broken("project") {
        return None;
    }
    let name = folder.file_name().and_then(|name| name_of_folder(&name.to_string_lossy()));
    if name.is_none() {
        findings
            .error(Span::START, "the project has no name, and its folder's name cannot be one")
            .help("set it: `[project]` with `name = \"…\"`");
    }
    name
}

/// A folder's name as a project's: what a name cannot hold becomes `-`.
pub(crate) fn name_of_folder(folder: &str) -> Option<Name> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = folder
        .chars()
        .map(|c| if fits(c) { c } else { '-' })
        .take(defib_core::name::MAX_NAME_LEN)
        .collect();
    if !name.chars().any(char::is_alphanumeric) {
        return None;
    }
    Name::parse(&name).ok()
}

fn group(name: &Spelled, members: &[Spelled], own: Layers<'_>) -> Group {
    let budget = own.merged("budget");
    Group {
        name: name.name.clone(),
        strategy: own.word("strategy", &STRATEGIES).unwrap_or(Strategy::OneForOne),
        members: members.iter().map(|member| member.name.clone()).collect(),
        budget: own.text("budget").is_none().then(|| {
            Limit::restarts(
                budget.count("restarts").unwrap_or(5),
                Stretch::Rolling(budget.duration("within").unwrap_or(Duration::from_secs(60))),
            )
        }),
    }
}

fn rules(fields: &Fields) -> Vec<Rule> {
    let rule = |item: &Item| {
        let Datum::Table(own) = &item.datum else {
            return None;
        };
        let own = own.alone();
        Some(Rule {
            kind: own.word("kind", AgentKind::MEANINGS),
            pattern: own.text("match")?.to_owned(),
            class: meaning(own.text("class")?, &CLASSES)?,
        })
    };
    let items = fields.alone().list("rule").unwrap_or_default();
    items.iter().filter_map(rule).collect()
}

fn server(own: Layers<'_>, findings: &mut Findings) -> Server {
    let listen = own.text("listen").and_then(|text| match text {
        "off" => Some(Listen::Off),
        address => address.parse().ok().map(Listen::At),
    });
    let allow_remote = own.bool("allow_remote").unwrap_or(false);
    let tls = own
        .replaced("tls")
        .and_then(|tls| Some(Tls { cert: tls.text("cert")?.into(), key: tls.text("key")?.into() }));
    if let (true, false, Some(item)) = (allow_remote, own.has("tls"), own.item("allow_remote")) {
        findings
            .error(item.span, "`allow_remote` needs `tls`")
            .label("beyond loopback, without a certificate")
            .help("add `tls = { cert = \"cert.pem\", key = \"key.pem\" }`");
    }
    if let (Some(Listen::At(address)), Some(item)) = (listen, own.item("listen"))
        && !address.ip().is_loopback()
        && !allow_remote
        && !own.is_broken("allow_remote")
    {
        findings
            .error(item.span, "`listen` is not a loopback address")
            .label("others could reach it")
            .help("listen on 127.0.0.1, or set `allow_remote = true` and `tls`");
    }
    Server { listen, allow_remote, tls }
}

/// What models cost; what is malformed has been said, and leaves no config.
fn prices(fields: &Fields) -> BTreeMap<String, Price> {
    let prices = fields.table("prices").entries.iter().filter_map(|entry| {
        let Datum::Table(own) = &entry.item.datum else { return None };
        let own = own.alone();
        let (input, output) = (own.number("input")?, own.number("output")?);
        Some((entry.key.clone(), Price { input, output, cached: own.number("cached") }))
    });
    prices.collect()
}

/// Where figures are sent. Without a receiver, nothing else about that means anything.
fn metrics(own: Layers<'_>, findings: &mut Findings) -> Metrics {
    for key in ["headers_env", "interval"] {
        if let Some(span) = own.key_span(key).filter(|_| !own.has("otlp")) {
            findings
                .error(span, format!("`{key}` is for `otlp`"))
                .label("figures are sent to nobody")
                .help("add `otlp = \"http://127.0.0.1:4318\"`, or remove it");
        }
    }
    let interval = own.duration("interval");
    if let (Some(short), Some(item)) = (interval, own.item("interval"))
        && short < Duration::from_secs(1)
    {
        findings
            .error(item.span, "`interval` is shorter than a second")
            .help("figures are gathered each time; \"15s\" is often");
    }
    let otlp = own.text("otlp").map(|text| match text {
        "env" => Otlp::Env,
        url => Otlp::At(url.to_owned()),
    });
    Metrics { otlp, headers_env: own.text("headers_env").map(str::to_owned), interval }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_a_name_where_it_can() {
        for (folder, name) in [
            ("nightshift", Some("nightshift")),
            ("My Project (2)", Some("My-Project--2-")),
            ("…", None),
            ("", None),
        ] {
            assert_eq!(name_of_folder(folder).as_ref().map(Name::as_str), name, "{folder}");
        }
        assert_eq!(name_of_folder(&"x".repeat(99)).map(|name| name.as_str().len()), Some(64));
    }
}
