//! The formats of strings in a file: how each is read, and why a string is not in it.
//!
//! Reading is checking: a format gives the value itself, so nothing downstream parses the string
//! again. A complaint says what is wrong with this string; the field's example shows a right one.

use std::net::SocketAddr;
use std::time::Duration;

use defib_core::capability::Capability;
use defib_core::name::Name;
use defib_core::signal::Signal;
use defib_core::span;

use crate::cron;
use crate::fields::Datum;
use crate::suggest::{nearest, quoted};

use super::{Complaint, Format};

/// Any string at all, as long as the operating system can be handed it.
pub(crate) const ANY: Format = Format {
    what: "a string",
    pattern: "^[^\\x00]*$",
    read: |text| {
        if text.contains('\0') {
            return Err(Complaint::new("cannot hold a NUL character"));
        }
        Ok(Datum::Text(text.to_owned()))
    },
};

/// A string with something in it.
pub(crate) const TEXT: Format = Format {
    what: "a string",
    pattern: "^[^\\x00]*[^\\x00\\s][^\\x00]*$",
    read: |text| {
        if text.trim().is_empty() {
            return Err(Complaint::new("cannot be empty"));
        }
        (ANY.read)(text)
    },
};

/// A path, relative to the file or not.
pub(crate) const PATH: Format = Format { what: "a path", ..TEXT };

/// A span of time.
pub(crate) const DURATION: Format = Format {
    what: "a duration",
    pattern: "^([0-9]+(\\.[0-9]+)?(d|h|ms|m|s))+$",
    read: |text| match span::parse(text) {
        Ok(duration) => Ok(Datum::Duration(duration)),
        Err(bad) => Err(Complaint::not("a duration").with_help(bad.to_string())),
    },
};

/// A span of time that is not zero.
pub(crate) const LENGTH: Format = Format {
    what: "a duration",
    pattern: DURATION.pattern,
    read: |text| {
        let datum = (DURATION.read)(text)?;
        if datum == Datum::Duration(Duration::ZERO) {
            return Err(
                Complaint::new("cannot be zero").with_help("give it a length, such as \"60s\"")
            );
        }
        Ok(datum)
    },
};

/// A span of time, or `off`.
pub(crate) const LENGTH_OR_OFF: Format = Format {
    what: "a duration, or `off`",
    pattern: "^(off|([0-9]+(\\.[0-9]+)?(d|h|ms|m|s))+)$",
    read: |text| match (LENGTH.read)(text) {
        Err(_) if text == "off" => Ok(Datum::Text(text.to_owned())),
        Err(_) => Err(Complaint::not("a duration")
            .with_help("a number and a unit, such as `30s`, above zero; or `off`")),
        datum => datum,
    },
};

/// A number of bytes.
pub(crate) const SIZE: Format = Format {
    what: "a size",
    pattern: "^[0-9]+[KMGT]?$",
    read: |text| {
        let bad = || Complaint::not("a size");
        let units = "a whole number, with K, M, G or T for powers of 1024";
        let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
        let shift = match &text[digits.len()..] {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(bad().with_help(units)),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad().with_help(units));
        }
        match digits.parse::<i64>().ok().and_then(|n| n.checked_mul(1 << shift)) {
            Some(0) => Err(Complaint::new("cannot be zero")),
            Some(bytes) => Ok(Datum::Integer(bytes)),
            None => Err(Complaint::new("is larger than any machine")),
        }
    },
};

/// The name of an agent, a group, a project or a notification.
pub(crate) const NAME: Format = Format {
    what: "a name",
    // All but the ASCII characters that no name has: not every engine knows what a letter is.
    pattern: "^[^\\x00-,/:-@\\[-^`{-~]{1,64}$",
    read: |text| match Name::parse(text) {
        Ok(name) => Ok(Datum::Name(name)),
        Err(bad) => Err(Complaint::not("a name").with_help(bad.to_string())),
    },
};

/// A signal by its name.
pub(crate) const SIGNAL: Format = Format {
    what: "a signal",
    pattern: "^(SIG)?[A-Z]+[0-9]?$",
    read: |text| {
        let short = text.strip_prefix("SIG").unwrap_or(text);
        if Signal::names().any(|name| name == short) {
            return Ok(Datum::Text(short.to_owned()));
        }
        let complaint = Complaint::not("a signal");
        Err(match nearest(short, Signal::names()) {
            Some(meant) => complaint.with_help(format!("did you mean `{meant}`?")),
            None => complaint.with_help("signals go by their names, such as `TERM` or `SIGINT`"),
        })
    },
};

/// What starts an agent.
pub(crate) const TRIGGER: Format = Format {
    what: "`boot`, `manual` or `cron:…`",
    pattern: "^(boot|manual|cron:.+)$",
    read: |text| {
        if let "boot" | "manual" = text {
            return Ok(Datum::Text(text.to_owned()));
        }
        if let Some(expression) = text.strip_prefix("cron:") {
            return cron::check(expression)
                .map(|()| Datum::Text(text.to_owned()))
                .map_err(|bad| Complaint::new(bad.message()).with_help(bad.help()));
        }
        let complaint = Complaint::new(format!("cannot be {}", quoted(text)));
        Err(match nearest(text, ["boot", "manual"]) {
            Some(meant) => complaint.with_help(format!("did you mean `{meant}`?")),
            None => complaint.with_help("it is `boot`, `manual` or `cron:` and five fields"),
        })
    },
};

/// A file mode creation mask.
pub(crate) const UMASK: Format = Format {
    what: "an octal mask in quotes",
    pattern: "^[0-7]{1,4}$",
    read: |text| {
        let octal = (1..=4).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
        match i64::from_str_radix(text, 8) {
            Ok(mask) if octal && mask <= 0o777 => Ok(Datum::Integer(mask)),
            Ok(_) | Err(_) => Err(Complaint::not("an octal mask")
                .with_help("three digits from 0 to 7, such as \"022\"")),
        }
    },
};

/// The name of an environment variable.
pub(crate) const VARIABLE: Format = Format {
    what: "the name of a variable",
    pattern: "^[^=\\x00]+$",
    read: |text| {
        if text.is_empty() {
            return Err(Complaint::new("is not the name of a variable: it is empty"));
        }
        if let Some(bad) = text.chars().find(|c| matches!(c, '=' | '\0')) {
            return Err(Complaint::new(format!(
                "is not the name of a variable: it cannot hold {bad:?}"
            )));
        }
        Ok(Datum::Text(text.to_owned()))
    },
};

/// The name of an environment variable, with `?` after one that may be absent, or with `*` for anything.
pub(crate) const VARIABLES: Format = Format {
    what: "the name of a variable, or a pattern with `*`",
    pattern: r"^([^=\x00?*]+\??|[^=\x00?]+)$",
    read: |text| {
        let name = text.strip_suffix('?').unwrap_or(text);
        let is_odd = name.contains('?') || name.contains('*') && name.len() < text.len();
        if is_odd {
            let complaint = Complaint::new("has a `?` where none can be");
            return Err(complaint.with_help("`NAME?` is one variable, which may be absent"));
        }
        (VARIABLE.read)(name)?;
        Ok(Datum::Text(text.to_owned()))
    },
};

/// An exit code, as a key.
pub(crate) const EXIT_CODE: Format = Format {
    what: "an exit code",
    pattern: "^(0|[1-9][0-9]{0,2})$",
    read: |text| match text.parse::<u8>() {
        Ok(code) if code.to_string() == text => Ok(Datum::Integer(code.into())),
        Ok(_) | Err(_) => Err(Complaint::not("an exit code").with_help("exit codes are 0 to 255")),
    },
};

/// What is spent, as a key.
pub(crate) const UNIT: Format = Format {
    what: "a unit",
    pattern: "^[A-Za-z][A-Za-z0-9_-]*$",
    read: |text| {
        let mut bytes = text.bytes();
        let starts = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic());
        if starts && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
            return Ok(Datum::Text(text.to_owned()));
        }
        Err(Complaint::not("a unit").with_help("a unit is a word, such as `tokens` or `usd`"))
    },
};

/// An address of a web service.
pub(crate) const URL: Format = Format {
    what: "a URL",
    pattern: "^https?://[^/\\s]+\\S*$",
    read: |text| {
        let rest = ["http://", "https://"].into_iter().find_map(|s| text.strip_prefix(s));
        match rest {
            Some(rest)
                if !rest.is_empty()
                    && !rest.starts_with('/')
                    && !rest.contains(|c: char| c.is_whitespace() || c.is_control()) =>
            {
                Ok(Datum::Text(text.to_owned()))
            }
            Some(_) | None => Err(Complaint::not("a URL")
                .with_help("a URL starts with `http://` or `https://` and a host")),
        }
    },
};

/// A receiver of OpenTelemetry.
pub(crate) const OTLP: Format = Format {
    what: "a URL, or `env`",
    pattern: "^(env|https?://[^/\\s]+\\S*)$",
    read: |text| match text {
        "env" => Ok(Datum::Text(text.to_owned())),
        url => (URL.read)(url).map_err(|complaint| {
            complaint.with_help(
                "such as `http://127.0.0.1:4318`, or `env` for what \
                `OTEL_EXPORTER_OTLP_ENDPOINT` says",
            )
        }),
    },
};

/// A host and a port.
pub(crate) const HOST_PORT: Format = Format {
    what: "a host and a port",
    pattern: "^\\S+:[0-9]{1,5}$",
    read: |text| match text.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty()
                && !host.contains(char::is_whitespace)
                && port.parse::<u16>().is_ok_and(|port| port > 0) =>
        {
            Ok(Datum::Text(text.to_owned()))
        }
        Some(_) | None => Err(Complaint::not("a host and a port")
            .with_help("such as `127.0.0.1:5432` or `[::1]:5432`")),
    },
};

/// Where the web server listens.
pub(crate) const LISTEN: Format = Format {
    what: "an address, or `off`",
    pattern: "^(off|\\S+:[0-9]{1,5})$",
    read: |text| match text.parse::<SocketAddr>() {
        Ok(_) => Ok(Datum::Text(text.to_owned())),
        Err(_) if text == "off" => Ok(Datum::Text(text.to_owned())),
        Err(_) => Err(Complaint::not("an address")
            .with_help("an IP address and a port, such as `127.0.0.1:7433`, or `off`")),
    },
};

/// A regular expression that says where a line begins.
pub(crate) const ANCHORED: Format = Format {
    what: "a regular expression",
    pattern: "^(\\(\\?[a-z]+\\))?\\^",
    read: |text| {
        if let Err(bad) = regex_lite::Regex::new(text) {
            return Err(Complaint::new(format!("is not a regular expression: {bad}")));
        }
        if !is_anchored(text) {
            return Err(Complaint::new("is not anchored: it could match inside other text").with_help(
                "begin it with `^`, and each of its alternatives too, or put them in parentheses: `^(a|b)`",
            ));
        }
        Ok(Datum::Text(text.to_owned()))
    },
};

/// Something an agent may do.
pub(crate) const CAPABILITY: Format = Format {
    what: "a capability",
    pattern: "^((read|write|exec):.+|(net|listen):[0-9]{1,5}|net|workspace_rw|read_anywhere|subprocess|privileged)$",
    read: |text| match Capability::parse(text) {
        Ok(_) => Ok(Datum::Text(text.to_owned())),
        Err(bad) => Err(Complaint::not("a capability").with_help(bad.help())),
    },
};

/// Whether every alternative of a regular expression starts with `^`, after its flags.
fn is_anchored(pattern: &str) -> bool {
    let body = match pattern.strip_prefix("(?").and_then(|rest| rest.split_once(')')) {
        Some((flags, body)) if flags.bytes().all(|byte| byte.is_ascii_alphabetic()) => body,
        Some(_) | None => pattern,
    };
    let (mut depth, mut in_class, mut escaped, mut at_start) = (0usize, false, false, true);
    for c in body.chars() {
        if at_start && c != '^' {
            return false;
        }
        at_start = false;
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => at_start = true,
            _ => {}
        }
    }
    !at_start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(format: &Format, text: &str) -> bool {
        (format.read)(text).is_ok()
    }

    #[test]
    fn an_expression_is_anchored_only_if_all_its_alternatives_are() {
        for (pattern, anchored) in [
            ("^FATAL", true),
            ("^(a|b)", true),
            ("^a|^b", true),
            ("(?i)^fatal", true),
            ("^[|]x", true),
            ("^a\\|b", true),
            ("FATAL", false),
            ("^a|b", false),
            ("^a|", false),
            ("", false),
            ("(?i)fatal", false),
            ("(^a)", false),
        ] {
            assert_eq!(is_anchored(pattern), anchored, "{pattern}");
        }
    }

    #[test]
    fn sizes_are_whole_numbers_of_powers_of_1024() {
        for (text, bytes) in [("1", 1), ("4K", 4096), ("50M", 52_428_800), ("2G", 2_147_483_648)] {
            assert_eq!((SIZE.read)(text), Ok(Datum::Integer(bytes)), "{text}");
        }
        for bad in ["", "M", "1.5G", "50MB", "5 M", "-1", "0", "9999999999T", "5KK"] {
            assert!(!reads(&SIZE, bad), "{bad}");
        }
    }

    #[test]
    fn each_format_refuses_what_it_must() {
        for (format, good, bad) in [
            (&NAME, "web-1", "a b"),
            (&SIGNAL, "SIGTERM", "sigterm"),
            (&SIGNAL, "USR1", "USR3"),
            (&TRIGGER, "cron:*/5 * * * *", "cron:"),
            (&TRIGGER, "manual", "Boot"),
            (&UMASK, "022", "0x22"),
            (&UMASK, "0077", "888"),
            (&UMASK, "7", "+22"),
            (&VARIABLE, "FOO", "A=B"),
            (&VARIABLES, "XDG_*", ""),
            (&VARIABLES, "GITHUB_TOKEN?", "?"),
            (&VARIABLES, "A", "A?B"),
            (&VARIABLES, "*_B", "A_*?"),
            (&VARIABLES, "A_?", "A=?"),
            (&EXIT_CODE, "0", "256"),
            (&EXIT_CODE, "255", "007"),
            (&UNIT, "usd", "2x"),
            (&URL, "https://a.b/c?d", "ftp://a"),
            (&URL, "http://127.0.0.1:8080/health", "http:///x"),
            (&HOST_PORT, "db:5432", "db"),
            (&HOST_PORT, "[::1]:80", "db:0"),
            (&LISTEN, "off", "localhost"),
            (&LISTEN, "[::1]:7433", "127.0.0.1"),
            (&CAPABILITY, "net:443", "net:http"),
            (&CAPABILITY, "net", "read"),
            (&CAPABILITY, "subprocess", "subprocess:"),
            (&CAPABILITY, "write:.", ":x"),
            (&LENGTH, "1ms", "0s"),
            (&LENGTH_OR_OFF, "off", "never"),
            (&LENGTH_OR_OFF, "30s", "0s"),
            (&TEXT, "x", "  "),
            (&ANY, "", "\0"),
            (&PATH, "a/b", ""),
            (&ANCHORED, "^x", "^("),
        ] {
            assert!(reads(format, good), "{good} is {}", format.what);
            assert!(!reads(format, bad), "{bad} is not {}", format.what);
        }
    }
}
