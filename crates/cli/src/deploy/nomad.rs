//! A job of Nomad's, as the JSON that its API takes.

use defib_config::Config;
use serde_json::{Value, json};

use super::{Setting, dns_name, grace, seconds};

/// The job. Its home is on the disk that moves with the allocation.
pub(crate) fn job(
    config: &Config,
    setting: &Setting<'_>,
    (name, text): (&str, &str),
    image: &str,
) -> Value {
    let project = dns_name(config.project.as_str());
    let needed = setting.needed.iter();
    let needed = needed.map(|name| (*name, format!("set {name} here, or by a template")));
    let set = setting.set.iter().map(|(name, value)| (*name, value.clone()));
    let env: serde_json::Map<String, Value> =
        set.chain(needed).map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    let arguments = ["up", "--home", "/alloc/data/defib", "--file"].map(str::to_owned);
    let mut arguments = arguments.to_vec();
    arguments.push(format!("/local/{name}"));
    arguments.extend(setting.arguments.iter().cloned());
    json!({ "Job": {
        "ID": format!("{project}-defib"),
        "Name": format!("{project}-defib"),
        "Type": "service",
        "Datacenters": ["*"],
        "TaskGroups": [{
            "Name": "defib",
            "Count": 1,
            "EphemeralDisk": { "Sticky": true, "Migrate": true, "SizeMB": 1024 },
            "RestartPolicy": { "Attempts": 10, "Interval": nanos(600), "Delay": nanos(2), "Mode": "delay" },
            "Tasks": [{
                "Name": "defib",
                "Driver": "docker",
                "Config": {
                    "image": image,
                    "command": "defib",
                    "args": arguments,
                },
                "Env": env,
                "KillSignal": "SIGTERM",
                "KillTimeout": nanos(seconds(grace(config))),
                "Templates": [{
                    "EmbeddedTmpl": text,
                    "DestPath": format!("local/{name}"),
                    "ChangeMode": "noop",
                    // The file is no template, whatever braces it has.
                    "LeftDelim": "<<<defib",
                    "RightDelim": "defib>>>",
                }],
                "Resources": { "CPU": 500, "MemoryMB": 1024 },
            }],
        }],
    } })
}

/// Durations are whole numbers of nanoseconds there.
fn nanos(seconds: u64) -> u64 {
    seconds.saturating_mul(1_000_000_000)
}
