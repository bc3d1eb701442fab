//! What a process got open from whoever started it.

/// Closes every descriptor but the three standard ones. To be called before anything is opened.
pub fn close_inherited() {
    // SAFETY: closing a number is memory-safe; nothing in this process owns one of them yet, because
    // it is the first thing that the process does, and those that its caller left open belong to
    // nobody here. If the kernel does not know the call, they stay open, which harms only the caller.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32);
    }
}
