//! What a class of death means and what a person has to do about it, in one place: whoever tells of a
//! death, told live or rehearsed, on a page or in a terminal, uses the same words.

use defib_core::Class;
use defib_host::protocol::Stage;

/// What a class means, for somebody who has just woken up.
pub const fn meaning(class: Class) -> &'static str {
    match class {
        Class::Done => "it finished",
        Class::Voluntary => "it asked to be shut down",
        Class::Stopped => "somebody stopped it",
        Class::Group => "its group was restarted",
        Class::Error => "it failed, and nothing says that it was anybody's fault but its own",
        Class::Timeout => "it no longer showed that it lives, or ran for too long",
        Class::Oom => "it was out of memory",
        Class::Interrupted => "its connection broke in the middle of something",
        Class::Context => "its context was full; it begins a fresh session",
        Class::Lost => "nobody saw how it ended",
        Class::Network => "there was no way to the network",
        Class::Overload => "the service was overloaded",
        Class::Throttle => "it was told to slow down",
        Class::Quota => "its usage limit was reached; that is no crash",
        Class::Disk => "the disk was full",
        Class::Budget => "it spent more than it may",
        Class::Broke => "it has nothing left to spend",
        Class::Config => "its command, an option or a file is wrong",
        Class::Auth => "it is not logged in, or its key is not valid",
        Class::Billing => "there is no credit on its account",
    }
}

/// What a person has to do about it.
pub const fn remedy(class: Class) -> &'static str {
    match class {
        Class::Auth => "Log in, or set its key where `defib up` is run.",
        Class::Billing => "Put credit on its account.",
        Class::Broke => "Give it something to spend: `defib fund NAME 10 usd`.",
        Class::Budget => "Raise its budget, or look at what it spends: `defib ledger NAME`.",
        Class::Config => "Look at its command, its options and its files: `defib logs NAME`.",
        Class::Timeout => "Look at `defib logs NAME` for what it hung on, or give it more time.",
        Class::Oom => "Give it more memory, in `limits_os` or on the machine, or less to do.",
        Class::Context => "Give it less to read; each restart began a fresh session.",
        Class::Disk => "Free some space.",
        Class::Done
        | Class::Voluntary
        | Class::Stopped
        | Class::Group
        | Class::Error
        | Class::Interrupted
        | Class::Lost
        | Class::Network
        | Class::Overload
        | Class::Throttle
        | Class::Quota => "Look at `defib logs NAME` and put it right.",
    }
}

/// What was being done when a spawn failed, for people.
pub(crate) const fn stage_word(stage: Stage) -> &'static str {
    match stage {
        Stage::Descriptors => "no pipe or terminal for it",
        Stage::Process => "no process for it",
        Stage::Folder => "its folder",
        Stage::User => "its user",
        Stage::Program => "its program",
        Stage::Sandbox => "its sandbox",
    }
}
