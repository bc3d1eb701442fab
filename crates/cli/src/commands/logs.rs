//! `defib logs`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use defib_core::screen::{Colours, Screen};
use defib_core::{Name, RunId};
use defib_daemon::logs::{Frame, Frames, Place};
use defib_daemon::wire::{AgentStatus, LogRequest};

use super::history::gone;
use super::status::warn_of_troubles;
use super::{ConfigFile, Context, segment};
use crate::client::{Client, Ended};
use crate::failure::{Code, Failure};
use crate::output;

/// Print what agents wrote
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What several agents wrote comes with their names in front: each agent's part as a whole, and with -f
from then on line by line as it is written. With --run, -f ends when the next run begins.

On a terminal, the agents' control sequences are removed: titles, clipboard, cursor movement, modes.
Colours stay. A carriage return begins a new line, so that no text is hidden. --raw passes everything.
A file or a pipe gets exactly the bytes that the agents wrote; `less -R` shows their colours only.

Examples:
  defib logs reviewer
  defib logs -f -n 20 reviewer writer
  defib logs -f
  defib logs --run 3 reviewer
  defib logs reviewer | less -R")]
pub(crate) struct Logs {
    /// Agents or groups; none means all agents of the project in this folder
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Go on as they write
    #[arg(short, long)]
    follow: bool,
    /// The last so many lines of each
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    lines: usize,
    /// Pass control sequences to the terminal
    #[arg(long)]
    raw: bool,
    /// Of this run only
    #[arg(long, value_name = "N")]
    run: Option<u64>,
}

impl Logs {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let agents = self.agents(&client)?;
        warn_of_troubles(context);
        let mut paper = Paper::new(&agents, self.follow, self.raw);
        let mut request = LogRequest {
            agents: agents.into_iter().map(|name| (name, None)).collect(),
            lines: self.lines,
            run: self.run.map(RunId),
            follow: self.follow,
        };
        let mut was_there = false;
        loop {
            // A frame that was cut off with its daemon comes again as a whole.
            let mut frames = Frames::default();
            let mut ends: BTreeMap<Name, Place> = BTreeMap::new();
            let streamed = client.post_stream("/api/v1/logs", &request, |bytes| {
                was_there = true;
                frames.push(bytes);
                let nonsense = |_| Failure::new(Code::Failed, "the daemon's answer makes no sense");
                while let Some(frame) = frames.take().map_err(nonsense)? {
                    let (agent, end) = (frame.agent.clone(), frame.end);
                    if !paper.take(frame)? {
                        return Ok(false);
                    }
                    ends.insert(agent, end);
                }
                Ok(true)
            });
            match streamed {
                Ok(Ended::Complete) => return paper.end_lines(),
                Ok(Ended::Enough) => return Ok(()),
                Ok(Ended::Lost) => {}
                Err(failure) if failure.is_lost() => {}
                // It ended after it was seen to be there.
                Err(failure) if was_there && failure.is(Code::NoDaemon) => {}
                Err(failure) => return Err(failure),
            }
            for (name, after) in &mut request.agents {
                *after = ends.remove(name).or(*after);
            }
            if !client.has_successor() {
                paper.end_lines()?;
                client.say_ended();
                return Ok(());
            }
        }
    }

    /// The agents that are meant, in the order in which they were named.
    fn agents(&self, client: &Client) -> Result<Vec<Name>, Failure> {
        if self.names.is_empty() {
            return project_agents(client);
        }
        let mut agents: Vec<Name> = Vec::new();
        for name in &self.names {
            let found =
                client.get::<Vec<AgentStatus>>(&format!("/api/v1/agents/{}", segment(name)?));
            let found = match found {
                Ok(found) => found.into_iter().map(|agent| agent.name).collect(),
                Err(failure) => vec![gone(client, name, failure)?],
            };
            for agent in found {
                if !agents.contains(&agent) {
                    agents.push(agent);
                }
            }
        }
        if agents.is_empty() {
            return Err(Failure::new(Code::NoAgent, "the group has no members")
                .hint("`defib status` lists the agents"));
        }
        Ok(agents)
    }
}

/// The agents of the project whose file is in this folder.
fn project_agents(client: &Client) -> Result<Vec<Name>, Failure> {
    let file = ConfigFile::here();
    if !file.path().exists() {
        let message = format!("which agent? there is no {} here", file.path().display());
        return Err(Failure::new(Code::Usage, message)
            .hint("name agents; `defib status` lists them, whatever their project"));
    }
    let project = file.config()?.project;
    let all: Vec<AgentStatus> = client.get("/api/v1/agents")?;
    let ours = all.into_iter().filter(|agent| agent.project == project);
    let agents: Vec<Name> = ours.map(|agent| agent.name).collect();
    if agents.is_empty() {
        return Err(Failure::new(Code::NoAgent, format!("project {project} is not up"))
            .hint("`defib up` brings it up"));
    }
    Ok(agents)
}

/// Writes logs to standard output: one agent's as they are, those of several with names in front.
struct Paper {
    columns: BTreeMap<Name, Column>,
    follow: bool,
    last: Option<Name>,
}

/// The output of one agent.
struct Column {
    /// What comes in front of each line.
    front: Vec<u8>,
    /// What has come of a line whose end has not.
    unfinished: Vec<u8>,
    /// Removes control sequences, if they are to be removed.
    screen: Option<Screen>,
}

impl Column {
    fn shown(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        match &mut self.screen {
            Some(screen) => screen.push(&bytes).into_bytes(),
            None => bytes,
        }
    }
}

impl Paper {
    fn new(agents: &[Name], follow: bool, is_raw: bool) -> Paper {
        let colours = [
            AnsiColor::Cyan,
            AnsiColor::Yellow,
            AnsiColor::Green,
            AnsiColor::Magenta,
            AnsiColor::Blue,
        ];
        let is_coloured = anstream::AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
        let is_filtered = std::io::stdout().is_terminal() && !is_raw;
        let kept = if is_coloured { Colours::Keep } else { Colours::Remove };
        let width = agents.iter().map(|name| name.as_str().chars().count()).max().unwrap_or(0);
        let front = |(at, name): (usize, &Name)| {
            let style = match colours[at % colours.len()] {
                colour if is_coloured => Style::new().fg_color(Some(colour.into())),
                _ => Style::new(),
            };
            let text = match agents.len() {
                1 => String::new(),
                _ => format!("{style}{:width$} |{style:#} ", name.as_str()),
            };
            let screen = is_filtered.then(|| Screen::new(kept));
            (name.clone(), Column { front: text.into_bytes(), unfinished: Vec::new(), screen })
        };
        Paper { columns: agents.iter().enumerate().map(front).collect(), follow, last: None }
    }

    /// Writes a piece, as far as its lines have ended. Says whether more is wanted.
    fn take(&mut self, frame: Frame) -> Result<bool, Failure> {
        if self.columns.len() == 1 {
            let column = self.columns.get_mut(&frame.agent);
            return output::raw(&column.map(|it| it.shown(frame.bytes)).unwrap_or_default());
        }
        let is_other = self.last.as_ref().is_some_and(|last| *last != frame.agent);
        // Without following, each agent's part comes as a whole, and is over when the next begins.
        if is_other && !self.follow {
            self.end_lines()?;
        }
        let Some(column) = self.columns.get_mut(&frame.agent) else { return Ok(true) };
        self.last = Some(frame.agent);
        // Before lines are split: also a line that a carriage return began gets a name in front.
        let bytes = column.shown(frame.bytes);
        let Column { front, unfinished, .. } = column;
        let mut text = Vec::with_capacity(bytes.len() * 2);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if line.ends_with(b"\n") {
                text.extend_from_slice(front);
                text.append(unfinished);
                text.extend_from_slice(line);
            } else {
                unfinished.extend_from_slice(line);
            }
        }
        output::raw(&text)
    }

    /// Ends every line that was begun.
    fn end_lines(&mut self) -> Result<(), Failure> {
        for Column { front, unfinished, .. } in self.columns.values_mut() {
            if !unfinished.is_empty() {
                output::raw(&[front, unfinished, b"\n".as_slice()].concat())?;
                unfinished.clear();
            }
        }
        Ok(())
    }
}
