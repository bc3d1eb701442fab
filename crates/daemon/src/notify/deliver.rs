//! Bringing a message to where its channel leads: one attempt, bounded in time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use defib_config::config::{Notify, NotifyTarget, Secret};
use defib_core::{Name, Wall};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::mail;
use super::message::Message;
use crate::errand::Errand;
use crate::post::{JSON, Refused, post, within};
use crate::recipe::argv;

/// How long a command may take.
const COMMAND: Duration = Duration::from_secs(30);

/// Somebody who is told, as a project that is up declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channel {
    pub(crate) project: Name,
    pub(crate) notify: Notify,
    /// The folder that paths start from and commands are run in.
    pub(crate) folder: PathBuf,
    /// What a command gets of the caller's environment.
    pub(crate) env: Vec<(String, String)>,
    /// The variables of the caller that it names: passwords and the like.
    pub(crate) secrets: Vec<(String, String)>,
}

impl Channel {
    /// How it tells, in the word of the config.
    pub(crate) fn way(&self) -> &'static str {
        match self.notify.target {
            NotifyTarget::Webhook(_) => "webhook",
            NotifyTarget::Slack(_) => "slack",
            NotifyTarget::Command(_) => "command",
            NotifyTarget::Email(_) => "email",
            NotifyTarget::Desktop => "desktop",
        }
    }

    /// The value of a variable that it names.
    fn variable(&self, name: &str) -> Result<&str, String> {
        let known = self.secrets.iter().find(|(known, value)| known == name && !value.is_empty());
        known.map(|(_, value)| value.as_str()).ok_or_else(|| {
            format!("{name} is not set; run `defib up` or `defib reload` where it is")
        })
    }

    /// What a webhook is signed with.
    fn secret(&self) -> Result<Option<Vec<u8>>, String> {
        match &self.notify.secret {
            None => Ok(None),
            Some(Secret::Env(name)) => Ok(Some(self.variable(name)?.as_bytes().to_vec())),
            Some(Secret::File(path)) => {
                let path = self.folder.join(path);
                let text = crate::plain::bytes_of(&path)
                    .map_err(|error| format!("secret_file {}: {error}", path.display()))?;
                let text = text.trim_ascii_end();
                if text.is_empty() {
                    return Err(format!("secret_file {} is empty", path.display()));
                }
                Ok(Some(text.to_vec()))
            }
        }
    }
}

/// Tries once to bring a message to its channel.
pub(crate) async fn deliver(
    channel: Arc<Channel>,
    message: Message,
    now: Wall,
) -> Result<(), Refused> {
    match &channel.notify.target {
        NotifyTarget::Webhook(url) => {
            let body = serde_json::to_vec(&message).map_err(|error| error.to_string())?;
            let mut headers =
                vec![("x-defib-event", message.event.clone()), ("x-defib-id", message.id.clone())];
            if let Some(secret) = channel.secret()? {
                let timestamp = (now.as_millis() / 1000).to_string();
                headers.push(("x-defib-signature", signature(&secret, &timestamp, &body)));
                headers.push(("x-defib-timestamp", timestamp));
            }
            Box::pin(within(post(url, JSON, &headers, body))).await
        }
        NotifyTarget::Slack(url) => {
            const NONE: &[(&str, String)] = &[];
            let body = serde_json::to_vec(&message.slack()).map_err(|error| error.to_string())?;
            Box::pin(within(post(url, JSON, NONE, body))).await
        }
        NotifyTarget::Email(smtp) => {
            let password = smtp.password_env.as_deref().map(|name| channel.variable(name));
            let sent = mail::send(smtp, password.transpose()?, &message);
            within(async { sent.await.map_err(Refused::from) }).await
        }
        NotifyTarget::Command(command) => {
            let input = serde_json::to_vec(&message).map_err(|error| error.to_string())?;
            run(argv(command), &channel, &message, input).await
        }
        NotifyTarget::Desktop => {
            let urgency = if message.is_trouble() { "critical" } else { "normal" };
            let words = [
                "notify-send",
                "--app-name=defib",
                &format!("--urgency={urgency}"),
                "--",
                &message.subject(),
                &message.text,
            ];
            run(words.map(str::to_owned).to_vec(), &channel, &message, Vec::new()).await
        }
    }
}

/// Runs a command where waiting harms nobody.
async fn run(
    words: Vec<String>,
    channel: &Channel,
    message: &Message,
    input: Vec<u8>,
) -> Result<(), Refused> {
    let (mut env, cwd) = (channel.env.clone(), channel.folder.clone());
    let text = |word: Option<&Name>| word.map(ToString::to_string).unwrap_or_default();
    let own = [
        ("DEFIB_EVENT", message.event.clone()),
        ("DEFIB_AGENT", text(message.agent.as_ref())),
        ("DEFIB_PROJECT", message.project.to_string()),
        ("DEFIB_CHANNEL", message.channel.to_string()),
    ];
    env.extend(own.map(|(name, value)| (name.to_owned(), value)));
    let errand = move || {
        let (words, env, cwd) = (&words, &env, &cwd);
        Errand { words, env, cwd, input: &input, timeout: COMMAND }.run()
    };
    let ran = tokio::task::spawn_blocking(errand).await;
    ran.unwrap_or_else(|error| Err(error.to_string())).map_err(Refused::from)
}

/// `sha256=` and the HMAC of the timestamp, a dot and the body. The timestamp is in it so that what
/// was once heard cannot be said again later.
fn signature(secret: &[u8], timestamp: &str, body: &[u8]) -> String {
    // A key of any length will do.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    let bytes = mac.finalize().into_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_hmac_of_timestamp_dot_body() {
        // By `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac secret`.
        assert_eq!(
            signature(b"secret", "1700000000", b"{\"a\":1}"),
            "sha256=49f24e537407743fa4a0242bb63b94b9a47ee99cbbe071ccd8a22550ae411686"
        );
    }
}
