//! The ways to read one message: as it stands, and without what programs put in front of one.
//!
//! A rule is anchored at the start of what the agent says. Time stamps, levels, names of modules and
//! of exceptions, `API Error: 529` and the like come before that and are taken off one by one; each
//! rest is a view. On the way the status and the code words that machines are told by are picked up.

use std::sync::LazyLock;

use regex::Regex;

use crate::lines::unmarked;
use crate::rules::compile_own;

/// No message has more things in front of it than this.
const MOST_VIEWS: usize = 10;
/// No more code words than this are picked up from one message.
const MOST_WORDS: usize = 12;

/// One message, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Views<'t> {
    /// The text from each place where a message may begin, the longest first.
    pub(crate) texts: Vec<&'t str>,
    /// Types, names and codes of errors in it, the most telling first.
    pub(crate) words: Vec<&'t str>,
    /// The HTTP status it states.
    pub(crate) status: Option<u16>,
}

/// Something that stands in front of a message.
#[derive(Debug)]
struct Prefix {
    regex: Regex,
    /// Whether what follows it is an error for certain.
    error: bool,
}

/// What stands in front of messages. The first group of an expression, where it has one, is an HTTP
/// status if it is a number and else a code word.
static PREFIXES: LazyLock<Vec<Prefix>> = LazyLock::new(|| {
    let names = "an?|unexpected|unhandled|uncaught|fatal|internal|stream|streaming|provider|api|request|\
                 network|execution|agent|llm|model|server|connection|response|runtime|turn|session|\
                 critical|unknown|startup|authentication|transport|client|the|last|this";
    let table: &[(&str, bool)] = &[
        // 2026-01-02T03:04:05.678Z, 2026-01-02 03:04:05,678, [2026/01/02 03:04:05]
        (
            r"^[\[(]?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)? ?(?:Z|UTC|[+-]\d\d:?\d\d)?[\])]?[\s:|-]*",
            false,
        ),
        (r"^[\[(]?\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?[AP]M)?[\])]?[\s:|-]+", false),
        // Jan  2 03:04:05 host name[123]:
        (r"^[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \S+ [\w./-]+(?:\[\d+\])?: +", false),
        (r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w.-]+:\d+\] ", false),
        // logging's `name - ERROR - `, `ERROR:root:`, loguru's `ERROR | module:function:12 - `
        (r"^[\w.:-]+ +(?:- +)?(?-i:ERROR|CRITICAL|FATAL|WARNING) *[-|] *", true),
        (r"^(?-i:ERROR|CRITICAL|FATAL|WARNING):[\w.]+:", true),
        (r"^\|? *(?-i:ERROR|CRITICAL|FATAL|WARNING) *\| *[\w.:<>]+ +- +", true),
        (
            r"^[\[(<]?(?-i:ERROR|ERR|FATAL|CRITICAL|SEVERE|PANIC|WARN|WARNING|ERR!)[\])>]?[\s:|-]+",
            true,
        ),
        (r"^[\[(<](?:error|err|fatal|critical|severe|warn|warning)[\])>][\s:|-]*", true),
        (r"^(?:npm|pnpm|yarn) (?:error|err!|warn) +", true),
        (r"^(?:error|fatal|fatal error|panic|failed|failure|warning) ?(?:\[[\w.-]+\])?: *", true),
        // A module of Rust, a component in brackets, the program's own name.
        (r"^[a-z_]\w*(?:::\w+)+(?:\{[^}]*\})?: +", false),
        (r"^\[[\w./-]{1,40}\]:? +", false),
        (
            r"^(?:claude|codex|gemini|opencode|goose|aider|openhands|node|bun|deno|python[\d.]*|npm|litellm)(?:\[\d+\])?: +",
            false,
        ),
        (
            r"^(?:\(node:\d+\) ?)?(?:uncaught|unhandled ?promise ?rejection(?:warning)?|unhandled rejection|unhandled)(?: \(in promise\))?[\s:]+",
            true,
        ),
        // Exceptions: `openai.RateLimitError: `, `Error [ERR_X]: `, `TypeError: `
        (
            r"^(?:[A-Za-z_$][\w$]*\.)*((?-i:[A-Z])[\w$]*(?:error|exception|exhausted|unavailable|denied|timeout|refused|exceeded|overload|overloaded|toomanyrequests|unauthenticated|unauthorized))(?: \[[\w.-]+\])?: *",
            true,
        ),
        (
            r"^(?:[A-Za-z_$][\w$]*\.)*((?-i:[A-Z])[\w$]*(?:error|exception|exhausted|unavailable))$",
            true,
        ),
        (r"^litellm\.(\w+): *", true),
        (r"^(?:[a-z_]\w*\.)+(\w*error): *", true),
        (r#"^exception in thread "[^"]*" "#, true),
        (r"^((?-i:[a-z]+(?:_[a-z]+)*_(?:error|exceeded|quota|limit|reached|exhausted))): +", true),
        (r"^[\w./-]+: error: +", true),
        (r"^(?:curl|wget|git|ssh): (?:\(\d+\) )?", true),
        (
            r"^(?:[A-Z]\w*Exception|Anthropic|OpenAI|Gemini|Vertex ?AI|Bedrock|OpenRouter|Azure) - ",
            true,
        ),
        // What providers' clients and the agents say before they repeat an answer.
        (r"^\[?api error ?[:(]? ?\(?(\d{3})\b[\s:,·|{(-]*", true),
        (r"^\[?api (?:error|call failed|request failed)(?: occurred)?[\s:·(-]+", true),
        (r"^request (?:rejected|failed|denied) \((\d{3})\)[\s:·|-]*", true),
        (r"^repeated (\d{3}) +", true),
        (
            r"^(?:error )?(?:status|status code|error code|code|http|http error|http status|http/[\d.]+|unexpected status|unexpected status code|(?:request|server|api|call)(?: \w+)? (?:failed|responded|returned|error)(?: an?)?(?: (?:error|with|with a))?(?: http)?(?: status| error| status code| code)?(?: of)?)[\s:=(]+(\d{3})\b[\s:,).-]*",
            true,
        ),
        (r"^exceeded retry limit, last (?:status|error): (\d{3})\b ?", true),
        (
            r"^(?:(?:the )?(?:request|call|turn|session|agent|task|run|command|query|completion|generation)(?: \w+)?) (?:failed|aborted|ended|error)(?: with(?: an)?(?: error)?| due to| because(?: of)?)?[:-] *",
            true,
        ),
        (r"^ran into (?:this|an|the following) error: *", true),
        (
            r"^(?:failed|unable) to (?:connect|reach|access|fetch|send|load|get|call|complete|create|start|initiali[sz]e|stream|process|generate|run|parse|read|resume|query|execute|open|establish|refresh|obtain)\b(?: \S+?){0,8}?: +",
            true,
        ),
        (r"^retry(?:ing)? (?:failed|attempts? exhausted|limit (?:reached|exceeded))[:-] *", true),
        (r"^thread '[^']*' (?:\(\d+\) )?panicked at [^:]+:\d+:\d+:?\s*", true),
        (r"^thread '[^']*' panicked at '", true),
        (r"^caused by:? *", true),
        (r"^received from peer[^:]*: *", true),
    ];
    let own = format!(
        "^(?:(?:{names}) ){{1,4}}(?:error|failure|exception)(?: (?:occurred|happened|raised|returned))?\
         (?: (?:during|while|in|from|by|calling|with|of) [^:]{{1,60}})?: *"
    );
    let prefix = |(pattern, error): (&str, bool)| {
        // They are part of the program; a test builds them.
        let regex = compile_own(pattern).unwrap_or_else(|error| panic!("{error}"));
        Prefix { regex, error }
    };
    table.iter().copied().chain([(own.as_str(), true)]).map(prefix).collect()
});

/// A bare status, as it may stand once an error has been announced.
static BARE_STATUS: LazyLock<Regex> = LazyLock::new(|| built(r"^\(?([45]\d\d)\b(?:[\s:,.)|-]+|$)"));

/// A code word in an answer, be it JSON, a piece of JSON or a dictionary of Python.
static PAIR: LazyLock<Regex> = LazyLock::new(|| {
    built(
        r#"["']?\b(?:type|code|status|name|reason|error|error_type|error_code)["']?\s*[:=]\s*\\?["']?([A-Za-z_][\w.-]*)"#,
    )
});

/// Where an answer states its message.
static MESSAGE: LazyLock<Regex> = LazyLock::new(|| {
    built(r#"["'](?:message|detail|error|error_message|error_description)\\?["']\s*:\s*\\?["']"#)
});

static STATUS_PAIR: LazyLock<Regex> = LazyLock::new(|| {
    built(
        r#"["'](?:status|statusCode|status_code|code|http_status)\\?["']\s*:\s*\\?["']?([45]\d\d)\b"#,
    )
});

fn built(pattern: &str) -> Regex {
    // They are part of the program; a test builds them.
    compile_own(pattern).unwrap_or_else(|error| panic!("{error}"))
}

impl<'t> Views<'t> {
    /// Takes a message apart. `error` says that it is one for certain.
    pub(crate) fn of(text: &'t str, error: bool) -> Views<'t> {
        let mut views = Views::default();
        let mut announced = error;
        let mut named = Vec::new();
        let mut rest = unmarked(text);
        views.texts.push(rest);
        while views.texts.len() < MOST_VIEWS {
            let Some((after, group, is_error)) = strip(rest, announced) else {
                break;
            };
            announced |= is_error;
            match group.map(|word| (word, word.parse())) {
                Some((_, Ok(status))) => views.status = views.status.or(Some(status)),
                Some((word, Err(_))) => named.push(word),
                None => {}
            }
            rest = after;
            views.texts.push(rest);
        }
        if announced || rest.starts_with(['{', '[']) {
            views.pick_up(rest);
        }
        views.words.extend(named.into_iter().rev());
        views
    }

    /// Picks up messages, code words and the status of an answer that is repeated in the text.
    fn pick_up(&mut self, rest: &'t str) {
        let messages = MESSAGE.find_iter(rest).map(|found| &rest[found.end()..]);
        self.texts.extend(messages.take(MOST_VIEWS));
        let words = PAIR.captures_iter(rest).filter_map(|found| found.get(1));
        let words = words.map(|word| word.as_str().trim_end_matches(['.', '-']));
        self.words.extend(words.take(MOST_WORDS));
        if self.status.is_none() {
            let found = STATUS_PAIR.captures(rest).and_then(|found| found.get(1));
            self.status = found.and_then(|status| status.as_str().parse().ok());
        }
    }
}

/// What is left without the first prefix that fits, its group, and whether it announces an error.
fn strip(text: &str, announced: bool) -> Option<(&str, Option<&str>, bool)> {
    let fitting = PREFIXES.iter().find_map(|prefix| {
        let found = prefix.regex.captures(text)?;
        Some((found, prefix.error))
    });
    let bare =
        || announced.then(|| BARE_STATUS.captures(text)).flatten().map(|found| (found, true));
    let (found, error) = fitting.or_else(bare)?;
    let whole = found.get(0)?;
    // An exception may quote its message.
    let rest = unmarked(text[whole.end()..].trim_start_matches('"'));
    (whole.end() > 0).then(|| (rest, found.get(1).map(|group| group.as_str()), error))
}
