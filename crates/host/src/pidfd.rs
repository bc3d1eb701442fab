//! Facts that the kernel gives by a process descriptor, which never means another process.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// The process that made the other end of a connected Unix socket, as it was when it connected.
///
/// # Errors
/// `ESRCH`: it has been waited for. `ENOPROTOOPT`: the kernel is older than 6.5.
pub(crate) fn of_peer(socket: impl AsFd) -> Result<OwnedFd, Errno> {
    let fd = option(socket, libc::SO_PEERPIDFD, -1)?;
    // SAFETY: the kernel has just made the descriptor for this caller, so it belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number and the user of the process at the other end of a connected Unix socket. The number is 0
/// if the process is outside of this PID namespace.
pub(crate) fn credentials(socket: impl AsFd) -> Result<(u32, u32), Errno> {
    let none = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let libc::ucred { pid, uid, .. } = option(socket, libc::SO_PEERCRED, none)?;
    Ok((u32::try_from(pid).unwrap_or(0), uid))
}

/// Reads an option of a socket whose value is plain numbers.
fn option<T: Copy>(socket: impl AsFd, name: libc::c_int, mut value: T) -> Result<T, Errno> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `value`, and both outlive the
    // call. The two types that are used here are made of integers, for which any bytes are valid.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if done == 0 {
        return Ok(value);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

/// The parent of a process, by its number in the caller's PID namespace; 0 if it has none there. `None`: the
/// process has been waited for, or the kernel is older than 6.13. Needs neither `/proc` nor permission.
pub(crate) fn parent(pidfd: impl AsFd) -> Option<u32> {
    // SAFETY: all-zero is a valid record. It has the size that the request number names and outlives the
    // call, which writes nothing else.
    unsafe {
        let mut info: libc::pidfd_info = std::mem::zeroed();
        let done = libc::ioctl(pidfd.as_fd().as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info);
        (done == 0).then_some(info.ppid)
    }
}
