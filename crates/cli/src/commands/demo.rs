//! `defib demo`: six agents that behave like the real world, and a tour of what becomes of them.

use std::io::IsTerminal;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anstyle::Style;
use defib_core::{Name, State};
use defib_daemon::wire::{Action, ActionOptions, AgentLine, AgentStatus, Mode, UpRequest};

use super::Context;
use super::status::lines;
use super::view::LiveView;
use super::why::Why;
use crate::client::Client;
use crate::failure::{Code, Failure};
use crate::interrupt::{self, Interrupted};
use crate::output;

/// Show what defib does, with six scripted agents; needs no files and no keys
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It takes about half a minute, in a folder of its own that is removed afterwards. Ctrl-C ends it \
early.

Example:
  defib demo")]
pub(crate) struct Demo {}

const CONFIG: &str = r#"
[project]
name = "demo"

[defaults]
shell = true
stop_timeout = "2s"

[agent.healthy]
command = "while :; do echo working; sleep 1; done"

[agent.flaky]
command = "echo up for a while; sleep 3; echo 'TypeError: cannot read the API' >&2; exit 1"
backoff = { base = "500ms" }

[agent.crashloop]
command = "echo 'config is wrong, dying at once' >&2; exit 1"

[agent.slow-to-stop]
command = "trap '' TERM; echo you will have to kill me; while :; do sleep 1; done"

[agent.hung]
command = "echo thinking; sleep 10000"
heartbeat = { ttl = "6s" }

[agent.forker]
command = "setsid sh -c 'trap \"\" TERM; sleep 10000' & echo left something behind; sleep 5; exit 1"
backoff = { base = "500ms" }
"#;

impl Demo {
    #[expect(clippy::unused_self, reason = "every command is run this way")]
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let folder = std::env::temp_dir().join(format!("defib-demo-{}", std::process::id()));
        // One that is there already is somebody else's.
        std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
            Failure::new(Code::Failed, format!("{}: {error}", folder.display()))
                .hint("TMPDIR names the folder that temporary files go to")
        })?;
        let context = Context { home: Some(folder.clone()) };
        let interrupted = interrupt::watch();
        let outcome = tour(&context, &folder, &interrupted);
        // Whatever happened, nothing is left behind.
        if let Ok(client) = context.client()
            && client.is_there()?
        {
            client.close()?;
        }
        let _ = std::fs::remove_dir_all(&folder);
        outcome
    }
}

fn tour(context: &Context, folder: &Path, interrupted: &Interrupted) -> Result<(), Failure> {
    let outcome = defib_config::parse_in(folder, CONFIG);
    let config =
        outcome.config.ok_or_else(|| Failure::new(Code::Failed, "the demo's config is wrong"))?;
    let environment = defib_daemon::environment_for(&config, std::env::vars());
    let request = UpRequest {
        path: folder.join("defib.toml"),
        config,
        mode: Mode::Continuous,
        environment,
        options: defib_config::Options::default(),
        reload: false,
    };
    say(
        "Six agents come up: one is healthy, one crashes now and then, one crashes at once, one ignores\n\
         TERM, one hangs, and one leaves processes behind when it dies.",
    )?;
    let client = context.client()?;
    let names = client.bring_up(&request)?;
    let mut view = LiveView::new(std::io::stdout().is_terminal());
    let crashloop = |lines: &[AgentLine]| {
        lines
            .iter()
            .any(|line| line.name.as_str() == "crashloop" && line.state == State::CrashedOut)
    };
    if !watch(context, &mut view, &names, interrupted, Duration::from_secs(15), crashloop)? {
        return Ok(());
    }
    say(
        "The crash loop was stopped at its fifth death in a minute. `defib why crashloop` says why:",
    )?;
    Why::about("crashloop").run(context)?;
    say("Meanwhile the others are restarted, and what hangs is noticed:")?;
    view.begin_anew();
    let recovered = |lines: &[AgentLine]| {
        let again =
            |name: &str| lines.iter().any(|line| line.name.as_str() == name && line.restarts > 0);
        ["flaky", "hung", "forker"].iter().all(|name| again(name))
    };
    if !watch(context, &mut view, &names, interrupted, Duration::from_secs(25), recovered)? {
        return Ok(());
    }
    say("Somebody has mended crashloop, or thinks so. `defib revive crashloop` puts it back:")?;
    act(&client, "crashloop", Action::Revive)?;
    view.begin_anew();
    if !watch(context, &mut view, &names, interrupted, Duration::from_secs(6), crashloop)? {
        return Ok(());
    }
    say(
        "Not mended. slow-to-stop does not heed TERM: `defib stop slow-to-stop` takes the two seconds that\n\
         it has, and then kills it with all that it started:",
    )?;
    act(&client, "slow-to-stop", Action::Stop)?;
    view.begin_anew();
    let stopped = |lines: &[AgentLine]| {
        lines
            .iter()
            .any(|line| line.name.as_str() == "slow-to-stop" && line.state == State::Stopped)
    };
    if !watch(context, &mut view, &names, interrupted, Duration::from_secs(6), stopped)? {
        return Ok(());
    }
    say("That is defib: `defib up` in a folder with a defib.toml is all it takes.")
}

fn act(client: &Client, agent: &str, action: Action) -> Result<(), Failure> {
    let path = format!("/api/v1/agents/{agent}/{}", action.word());
    client.post::<Vec<AgentStatus>>(&path, &ActionOptions::default()).map(drop)
}

/// Shows the agents until something is the case or time is up. Says whether to go on.
fn watch(
    context: &Context,
    view: &mut LiveView,
    names: &[Name],
    interrupted: &Interrupted,
    most: Duration,
    until: impl Fn(&[AgentLine]) -> bool,
) -> Result<bool, Failure> {
    let deadline = Instant::now() + most;
    loop {
        let all = lines(context)?;
        let ours: Vec<AgentLine> =
            all.into_iter().filter(|line| names.contains(&line.name)).collect();
        let done = until(&ours) || Instant::now() > deadline;
        view.show("demo", &ours, done)?;
        if done {
            return Ok(true);
        }
        if interrupted.wait(Duration::from_millis(500)) || !output::is_read() {
            return Ok(false);
        }
    }
}

fn say(text: &str) -> Result<(), Failure> {
    let bold = Style::new().bold();
    output::print(&format!("\n{bold}{text}{bold:#}\n\n"))
}
