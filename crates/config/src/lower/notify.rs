//! Who is told of what, and how.
//!
//! A notification that comes out of here has exactly one way to reach somebody, and at least one
//! thing to tell.

use std::time::Duration;

use crate::config::{Event, Notify, NotifyTarget, Secret, Smtp, SmtpTls};
use crate::diagnostic::Findings;
use crate::fields::{Item, Layers};
use crate::words::meaning;

use super::Spelled;
use super::command::{Shell, command};

/// What somebody is told of who does not say: that which needs a person, and that it no longer does.
const USUAL: [Event; 6] = [
    Event::CrashedOut,
    Event::Halted,
    Event::Escalated,
    Event::Down,
    Event::BurnAlarm,
    Event::Recovered,
];

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
        secret: secret(own, findings),
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
        return command("command", item, Shell::Named, findings).map(NotifyTarget::Command);
    }
    if let Some(email) = own.replaced("email") {
        return smtp(email.replaced("smtp")?, findings).map(NotifyTarget::Email);
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

/// What a webhook is signed with, where it is. Nobody else could check a signature.
fn secret(own: Layers<'_>, findings: &mut Findings) -> Option<Secret> {
    for key in ["secret_env", "secret_file"] {
        if let Some(span) = own.key_span(key).filter(|_| !own.has("webhook")) {
            findings
                .error(span, format!("`{key}` is for a `webhook`"))
                .label("nothing else is signed")
                .help("remove it");
            return None;
        }
    }
    match (own.text("secret_env"), own.text("secret_file")) {
        (Some(_), Some(_)) => {
            findings
                .error(
                    own.key_span("secret_file")?,
                    "`secret_env` and `secret_file` exclude each other",
                )
                .help("a webhook is signed with one secret: remove one of them");
            None
        }
        (Some(name), None) => Some(Secret::Env(name.to_owned())),
        (None, Some(path)) => Some(Secret::File(path.into())),
        (None, None) => None,
    }
}

fn smtp(own: Layers<'_>, findings: &mut Findings) -> Option<Smtp> {
    let to = match own.text("to") {
        Some(one) => vec![one.to_owned()],
        None => own.texts("to")?,
    };
    let port = own.integer("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(587);
    let usual = if port == 465 { SmtpTls::Implicit } else { SmtpTls::Starttls };
    let tls = own.word("tls", SmtpTls::MEANINGS).unwrap_or(usual);
    if tls == SmtpTls::Off && own.has("password_env") {
        findings
            .error(
                own.item("tls")?.span,
                "with `tls = \"off\"` the password could be read on its way",
            )
            .label("nothing encrypts it")
            .help("leave `tls` out, or send without logging in");
        return None;
    }
    Some(Smtp {
        host: own.text("host")?.to_owned(),
        port,
        tls,
        user: own.text("user").map(str::to_owned),
        password_env: own.text("password_env").map(str::to_owned),
        from: own.text("from")?.to_owned(),
        to,
    })
}
