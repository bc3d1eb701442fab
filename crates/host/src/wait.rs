//! Waiting for children: who has ended, and how.
//!
//! Who has ended is asked without waiting for it: until it is waited for, its number is its own, and
//! what it left behind can be attributed to it. Nothing here blocks.

use rustix::process::Pid;

use crate::protocol::How;

/// What the system says of a child that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waited {
    pub(crate) how: How,
    pub(crate) user_ms: u64,
    pub(crate) system_ms: u64,
    pub(crate) peak_bytes: u64,
}

/// A child that has ended and has not been waited for.
pub(crate) fn next_ended() -> Option<Pid> {
    // SAFETY: all-zero is a valid record, it outlives the call, and its process id is set (to zero
    // if no child has ended) whenever the call succeeds.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, &raw mut info, options) != 0 {
            return None;
        }
        info.si_pid()
    };
    Pid::from_raw(pid)
}

/// Waits for a child that has ended; `None` if it has not.
pub(crate) fn wait_for(pid: Pid) -> Option<Waited> {
    // SAFETY: all-zero is a valid record, and both outlive the call, which fills them.
    let (status, usage) = unsafe {
        let (mut status, mut usage): (i32, libc::rusage) = (0, std::mem::zeroed());
        let flags = libc::WNOHANG;
        if libc::wait4(pid.as_raw_pid(), &raw mut status, flags, &raw mut usage) <= 0 {
            return None;
        }
        (status, usage)
    };
    let how = if libc::WIFEXITED(status) {
        How::Exited(libc::WEXITSTATUS(status))
    } else {
        How::Signaled(libc::WTERMSIG(status))
    };
    Some(Waited {
        how,
        user_ms: milliseconds(usage.ru_utime),
        system_ms: milliseconds(usage.ru_stime),
        peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
    })
}

fn milliseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec * 1000 + time.tv_usec / 1000).unwrap_or(0)
}
