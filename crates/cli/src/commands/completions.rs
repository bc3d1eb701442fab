//! `defib completions` and `defib man`: what shells and readers of manuals want.

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::Arguments;
use crate::failure::{Code, Failure};
use crate::output;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defib completions bash > ~/.local/share/bash-completion/completions/defib
  defib completions fish > ~/.config/fish/completions/defib.fish")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "defib", &mut text);
        output::raw(&text).map(drop)
    }
}

/// Print the manual page, or that of a command
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defib man | man -l -
  defib man import > defib-import.1")]
pub(crate) struct Man {
    /// The command; else all of defib
    command: Option<String>,
}

impl Man {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let all = Arguments::command();
        let page: Command = match &self.command {
            None => all,
            Some(name) => {
                let Some(found) = all.find_subcommand(name) else {
                    return Err(Failure::new(Code::Usage, format!("there is no command `{name}`"))
                        .hint("`defib --help` lists them"));
                };
                found
                    .clone()
                    .display_name(format!("defib-{name}"))
                    .bin_name(format!("defib {name}"))
            }
        };
        let mut text = Vec::new();
        let made = clap_mangen::Man::new(page).render(&mut text);
        made.map_err(|error| Failure::new(Code::Failed, error))?;
        output::raw(&text).map(drop)
    }
}
