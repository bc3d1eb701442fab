//! What a run used, as the system said when it was waited for.
//!
//! It goes with the death, in the same event: a run whose end nobody saw has none.

use serde::{Deserialize, Serialize};

/// What a run used, as far as it is known: its first process, and the children that this waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode.
    pub cpu_user_ms: Option<u64>,
    /// CPU time in the kernel.
    pub cpu_system_ms: Option<u64>,
    /// The most memory that one of its processes had at once.
    pub memory_peak_bytes: Option<u64>,
}

impl Usage {
    /// CPU time in user mode and in the kernel.
    pub fn cpu_ms(&self) -> Option<u64> {
        Some(self.cpu_user_ms?.saturating_add(self.cpu_system_ms?))
    }

    /// What is known of it, for the body of an event.
    pub(crate) fn known(self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("cpu_user_ms", self.cpu_user_ms),
            ("cpu_system_ms", self.cpu_system_ms),
            ("memory_peak_bytes", self.memory_peak_bytes),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}
