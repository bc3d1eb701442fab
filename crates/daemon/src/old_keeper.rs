//! The texts for people whose keeper is older than the daemon and cannot run their agents' commands.

/// The reason that `status` shows for an agent whose exec probe is not run.
pub(crate) const HELD: &str = "exec probe not run, the keeper is too old";
/// What the operator does about it.
pub(crate) const REPLACE_KEEPER: &str = "`defib down --all && defib up` replaces the keeper";
/// Why an agent with `isolation = "namespaces"` is not started by an old keeper.
pub(crate) const OLD_NAMESPACES: &str =
    "the running keeper is too old to make namespaces, which `isolation = \"namespaces\"` asks for";
/// What an old keeper's sandboxes lack.
pub(crate) const OLD_SANDBOX: &str = "the running keeper is too old: its sandboxes permit changes of other \
     processes' limits and of files' modes";
/// Why an agent with `isolation = "namespaces"` is not started on this machine.
pub const NO_NAMESPACES: &str = "this machine does not permit this user to make user namespaces, which \
     `isolation = \"namespaces\"` asks for; see /proc/sys/user/max_user_namespaces, AppArmor and the \
     container's profile, or use `isolation = \"landlock\"`";
/// Maximum number of agents that a warning names.
const MOST_NAMED: usize = 5;

/// Says whose exec probes are not run, why, and what to do.
pub fn held_warning(agents: &[&str]) -> String {
    let more = match agents.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = agents.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    format!(
        "the exec probe of {named}{more} is not run: the running keeper is too old to run it as its \
         agent. The keeper must be restarted; {REPLACE_KEEPER}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_names_a_few_agents_and_the_remedy() {
        let told = held_warning(&["a", "b"]);
        assert!(told.starts_with("the exec probe of a, b is not run"), "{told}");
        assert!(told.contains("keeper must be restarted"), "{told}");
        assert!(told.contains("`defib down --all && defib up`"), "{told}");
        let told = held_warning(&["a", "b", "c", "d", "e", "f", "g"]);
        assert!(told.contains("of a, b, c, d, e and 2 more is"), "{told}");
    }
}
