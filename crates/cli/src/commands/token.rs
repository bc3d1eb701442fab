//! `defib token`.

use clap::{Subcommand, ValueEnum};
use defib_daemon::wire::{NewToken, Role, TokenStatus};
use serde_json::json;

use super::{Context, segment};
use crate::failure::{Code, Failure};
use crate::output;
use crate::table::{Cell, table};

/// Make, list and revoke tokens for the HTTP API
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A token goes into the header `Authorization: Bearer`. It is shown when it is made and never again.

Examples:
  defib token new --name grafana
  defib token new --name ci --role operate
  defib token list
  defib token revoke grafana")]
pub(crate) struct Token {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a token, and print it this once
    New {
        /// What to call it; by default its role and a number
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// What it may do
        #[arg(long, value_enum, default_value = "view")]
        role: RoleWord,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// List tokens, without what they are
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Take a token away, and log out the browsers that it logged in
    Revoke {
        /// Which
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleWord {
    /// Look at everything but the audit and other tokens
    View,
    /// Also start, stop, restart, revive, signal and fund; use terminals
    Operate,
    /// Everything
    Admin,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Role {
        match word {
            RoleWord::View => Role::View,
            RoleWord::Operate => Role::Operate,
            RoleWord::Admin => Role::Admin,
        }
    }
}

impl Token {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match &self.what {
            What::New { name, role, json } => {
                if let Some(Err(error)) = name.as_deref().map(defib_core::Name::parse) {
                    return Err(Failure::new(Code::Usage, format!("no name for a token: {error}"))
                        .hint("letters, digits, `-`, `_` and `.`, at most 64"));
                }
                let body = json!({ "name": name, "role": Role::from(*role) });
                let made: NewToken = client.post("/api/v1/tokens", &body)?;
                if *json {
                    return output::json(&made);
                }
                anstream::eprintln!(
                    "{} may {}; this is shown once:",
                    made.name,
                    match made.role {
                        Role::View => "look",
                        Role::Operate => "look and operate",
                        Role::Admin => "do everything",
                    }
                );
                output::print(&format!("{}\n", made.token))
            }
            What::List { json } => {
                let all: Vec<TokenStatus> = client.get("/api/v1/tokens")?;
                if *json {
                    return output::json(&all);
                }
                if all.is_empty() {
                    return output::print("there are no tokens; `defib token new` makes one\n");
                }
                let row = |one: TokenStatus| {
                    let TokenStatus { name, role, created_at, created_by } = one;
                    [name, role.to_string(), created_at, created_by].map(Cell::new).to_vec()
                };
                let rows: Vec<Vec<Cell>> = all.into_iter().map(row).collect();
                output::print(&table(&["NAME", "ROLE", "MADE", "BY"], &rows))
            }
            What::Revoke { name } => {
                let () = client.delete(&format!("/api/v1/tokens/{}", segment(name)?))?;
                output::print(&format!("{name} is revoked\n"))
            }
        }
    }
}
