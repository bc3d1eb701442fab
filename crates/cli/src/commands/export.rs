//! `defib export`: what lets systemd, Kubernetes or Nomad run a project.

use std::path::PathBuf;

use clap::Subcommand;

use super::{ConfigFile, Context};
use crate::deploy::kubernetes::Workload;
use crate::deploy::{Setting, grace, kubernetes, nomad, seconds, systemd};
use crate::failure::{Code, Failure};
use crate::output;

/// How long a client of Nomad's lets a task take at most, unless it is told otherwise.
const NOMADS_MOST: u64 = 30;

/// Print a unit, a manifest or a job that runs a project by defib
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each runs the keeper, as a service or as the first process of a container: TERM stops the agents in order, \
and they come back at the next start. It has as long to stop as the longest chain of `stop_timeout`s takes.

Examples:
  defib export systemd -f /srv/night/defib.toml > /etc/systemd/system/night.service
  defib export kubernetes --image registry.example/night:1 | kubectl apply -f -
  defib export nomad > night.json && nomad job run -json night.json")]
pub(crate) struct Export {
    #[command(subcommand)]
    to: To,
}

#[derive(Debug, Subcommand)]
enum To {
    /// A unit for systemd
    Systemd(Systemd),
    /// Manifests: the file, a volume for the home, and a `StatefulSet` of one pod
    Kubernetes(Kubernetes),
    /// A job as JSON
    Nomad(Container),
}

#[derive(Debug, clap::Args)]
struct Systemd {
    #[command(flatten)]
    file: ConfigFile,
    /// The program that the unit runs; else this one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// For a user's own systemd
    #[arg(long)]
    user: bool,
}

#[derive(Debug, clap::Args)]
struct Kubernetes {
    #[command(flatten)]
    container: Container,
    /// Print a Deployment instead of a `StatefulSet`. If a node is cut off, two pods may run for a while
    #[arg(long)]
    deployment: bool,
}

#[derive(Debug, clap::Args)]
struct Container {
    #[command(flatten)]
    file: ConfigFile,
    /// The image, which has `defib` and what the agents run
    #[arg(long, value_name = "IMAGE", default_value = "defib:latest")]
    image: String,
}

impl Export {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        match &self.to {
            To::Systemd(systemd) => systemd.run(context),
            To::Kubernetes(Kubernetes { container, deployment }) => {
                let workload =
                    if *deployment { Workload::Deployment } else { Workload::StatefulSet };
                let (name, text) = container.content()?;
                let config = container.file.config()?;
                let setting = Setting::of(&container.file, &config);
                let file = (name.as_str(), text.as_str());
                let image = &container.image;
                output::print(&kubernetes::manifest(&config, &setting, file, image, workload))
            }
            To::Nomad(container) => {
                let (name, text) = container.content()?;
                let config = container.file.config()?;
                let grace = seconds(grace(&config));
                if grace > NOMADS_MOST {
                    anstream::eprintln!(
                        "note: a stop may take {grace}s; set max_kill_timeout = \"{grace}s\" on the clients, which allow 30s"
                    );
                }
                let setting = Setting::of(&container.file, &config);
                // A job has no comments.
                for name in setting.optional.iter().chain(&setting.patterns) {
                    anstream::eprintln!(
                        "note: the agents may have {name}: add what there is of it to the task's Env"
                    );
                }
                let file = (name.as_str(), text.as_str());
                output::json(&nomad::job(&config, &setting, file, &container.image))
            }
        }
    }
}

impl Systemd {
    fn run(&self, context: &Context) -> Result<(), Failure> {
        let config = self.file.config()?;
        let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(failed)?,
        };
        let home = match (&context.home, self.user) {
            (None, false) => PathBuf::from("/var/lib/defib"),
            (Some(_), _) | (None, true) => context.home()?.path().to_owned(),
        };
        let file = std::path::absolute(self.file.path()).map_err(failed)?;
        let unit = systemd::Unit {
            program: &program,
            home: &home,
            file: Some(&file),
            setting: Some(&Setting::of(&self.file, &config)),
            grace: Some(grace(&config)),
            for_user: self.user,
        };
        output::print(&unit.text())
    }
}

impl Container {
    /// The file's name and text, which travel with it.
    fn content(&self) -> Result<(String, String), Failure> {
        let path = self.file.path();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::new(Code::Failed, format!("cannot read {}: {error}", path.display()))
                .hint("name one file with -f")
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, text))
    }
}
