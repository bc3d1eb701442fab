//! Who is told of what, and how.
//!
//! A notification that comes out of here has exactly one way to reach somebody, and at least one
//! thing to tell.

use std::time::Duration;

use crate::config::{Event, Notify, NotifyTarget, Smtp};
use crate::diagnostic::Findings;
use crate::fields::{Item, Layers};
use crate::words::meaning;

use super::Spelled;
use super::command::command;

/// What somebody is told of who does not say: that which needs a person.
const USUAL: [Event; 4] = [Event::CrashedOut, Event::Halted, Event::Escalated, Event::Down];

pub(super) fn notify(name: &Spelled, own: Layers<'_>, findings: &mut Findings) -> Option<Notify> {
    let event = |item: &Item| meaning(item.datum.as_text()?, Event::MEANINGS);
    let on = match own.list("on") {
        Some(items) => items.iter().filter_map(event).collect(),
        None => USUAL.to_vec(),
    };
    Some(Notify {
        name: name.name.clone(),
        on,
        target: target(own, findings)?,
        cooldown: own.duration("cooldown").unwrap_or(Duration::from_secs(600)),
    })
}

/// The one target there is; its shape has seen to that.
fn target(own: Layers<'_>, findings: &mut Findings) -> Option<NotifyTarget> {
    if let Some(url) = own.text("webhook") {
        return Some(NotifyTarget::Webhook(url.to_owned()));
    }
    if let Some(url) = own.text("slack") {
        return Some(NotifyTarget::Slack(url.to_owned()));
    }
    if let Some(item) = own.item("command") {
        return command("command", item, findings).map(NotifyTarget::Command);
    }
    if let Some(email) = own.replaced("email") {
        return smtp(email.replaced("smtp")?).map(NotifyTarget::Email);
    }
    if own.bool("desktop")? {
        return Some(NotifyTarget::Desktop);
    }
    findings
        .error(own.item("desktop")?.span, "`desktop = false` tells nobody")
        .label("the only target is switched off")
        .help("set it to `true`, or remove this table");
    None
}

fn smtp(own: Layers<'_>) -> Option<Smtp> {
    let to = match own.text("to") {
        Some(one) => vec![one.to_owned()],
        None => own.texts("to")?,
    };
    Some(Smtp {
        host: own.text("host")?.to_owned(),
        port: own.integer("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(587),
        user: own.text("user").map(str::to_owned),
        password_env: own.text("password_env").map(str::to_owned),
        from: own.text("from")?.to_owned(),
        to,
    })
}
