//! One mail by SMTP.

use std::time::Duration;

use defib_config::config::{Smtp, SmtpTls};
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message as Mail, Tokio1Executor};

use super::message::Message;
use crate::post::distrust;

/// How long a mail server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(12);

type Transport = AsyncSmtpTransport<Tokio1Executor>;

/// Sends a message to everybody it goes to. The mail's own number is the message's, so that a mail
/// which comes twice is known for what it is.
pub(super) async fn send(
    smtp: &Smtp,
    password: Option<&str>,
    message: &Message,
) -> Result<(), String> {
    let Smtp { host, port, user, tls, from, to, .. } = smtp;
    let address =
        |text: &str| text.parse().map_err(|error| format!("{text:?} is no mail address: {error}"));
    let sender: lettre::message::Mailbox = address(from)?;
    let domain = sender.email.domain().to_owned();
    let mut mail = Mail::builder()
        .from(sender)
        .subject(message.subject())
        .message_id(Some(format!("<{}@{domain}>", message.id)))
        .date_now()
        .header(ContentType::TEXT_PLAIN);
    for receiver in to {
        mail = mail.to(address(receiver)?);
    }
    let mail = mail.body(message.plain()).map_err(|error| error.to_string())?;
    let failed = |error: lettre::transport::smtp::Error| match distrust(&error) {
        Some(why) => format!("{host}: {why}"),
        None => format!("{host}: {error}"),
    };
    let transport = match tls {
        SmtpTls::Implicit => Transport::relay(host).map_err(failed)?,
        SmtpTls::Starttls => Transport::starttls_relay(host).map_err(failed)?,
        SmtpTls::Off => Transport::builder_dangerous(host),
    };
    let mut transport = transport.port(*port).timeout(Some(PATIENCE));
    if let (Some(user), Some(password)) = (user, password) {
        transport = transport.credentials(Credentials::new(user.clone(), password.to_owned()));
    }
    transport.build().send(mail).await.map(drop).map_err(failed)
}
