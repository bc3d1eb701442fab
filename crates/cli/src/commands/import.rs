//! `defib import`: a file of another system as a `defib.toml`.

use std::path::{Path, PathBuf};

use defib_config::{Diagnostic, Format, Options, Report, Severity};
use defib_core::screen::one_line;

use crate::failure::{Code, Failure};
use crate::output;

/// Print the defib.toml that says what a file of another system says
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What has no equal is a comment with its line, and a warning on standard error. Nothing is started.

Examples:
  defib import Procfile > defib.toml
  defib import /etc/supervisor/supervisord.conf
  defib import ecosystem.json
  defib import docker-compose.yml
  defib import weave.toml
  defib import Aidefile --runner 'claude -p tidy'
  defib import --aivex . > defib.toml")]
pub(crate) struct Import {
    /// The file: a Procfile, a supervisord.conf, a PM2 ecosystem as JSON, a compose file, an Aidefile,
    /// a weave.toml, a YAML of agents, a spawn request
    #[arg(value_name = "FILE", required_unless_present = "aivex")]
    file: Option<PathBuf>,
    /// What the file is, where its name leaves a doubt
    #[arg(long, value_name = "FORMAT", value_parser = Format::ALL.map(Format::word))]
    format: Option<String>,
    /// What an Aidefile runs: a command, with its arguments
    #[arg(long, value_name = "CMD")]
    runner: Option<String>,
    /// A folder of modules with a runner script
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "format", "runner"])]
    aivex: Option<PathBuf>,
}

impl Import {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(folder) = &self.aivex {
            let toml = defib_config::foreign::aivex::import(folder);
            return output::print(&toml.map_err(|error| unreadable(folder, &error))?);
        }
        // One of the two is there: the parser of arguments has seen to that.
        let path = self.file.as_deref().unwrap_or(Path::new("defib.toml"));
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        let options = Options {
            format: self.format.as_deref().and_then(Format::from_word),
            runner: self.runner.clone(),
            ..Options::default()
        };
        let imported = defib_config::import(path, &text, &options);
        let origin = path.display().to_string();
        let report = Report::new(&origin, &text, &imported.diagnostics);
        let Some(toml) = &imported.toml else {
            anstream::eprint!("{}", report.render(true));
            return Err(Failure::told(Code::Config));
        };
        say_warnings(&origin, &report, &imported.diagnostics);
        output::print(toml)
    }
}

/// What has no equal, a line each: there may be many, and each is in the output as well.
fn say_warnings(origin: &str, report: &Report<'_>, diagnostics: &[Diagnostic]) {
    for found in diagnostics.iter().filter(|found| found.severity == Severity::Warning) {
        let line = report.position(found.span).line;
        anstream::eprintln!("warning: {origin}:{line}: {}", one_line(&found.message));
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::Failed, format!("cannot read {}: {error}", path.display()))
        .hint("see that the path is right")
}
