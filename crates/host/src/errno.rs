//! Why the last system call failed that the C library made for us.

use rustix::io::Errno;

pub(crate) fn last_errno() -> Errno {
    // SAFETY: the C library's errno of this thread is always readable. A child that is being made shares
    // it with the keeper, which sleeps.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
