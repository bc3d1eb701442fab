//! The calls that a process survives.

use std::ffi::CStr;

use libc::{AT_FDCWD, O_CLOEXEC, O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY};

use crate::{Said, World, call, say};

const HERE: i64 = AT_FDCWD as i64;

pub(crate) fn all(world: &World) {
    files(world);
    metadata(world);
    attributes(world);
    set_ids(world);
    signals(world);
    processes(world);
    sockets();
    network(world);
    namespaces(world);
    ipc();
    memory(world);
    kernel();
    making();
}

fn p(text: &CStr) -> i64 {
    text.as_ptr() as i64
}

/// Opens and closes.
fn opened(path: &CStr, flags: i32, mode: i64) -> Said {
    let said = unsafe { libc::open(path.as_ptr(), flags | O_CLOEXEC, mode as libc::c_uint) };
    if said < 0 {
        return Said::Error(crate::errno());
    }
    unsafe { libc::close(said) };
    Said::Fine
}

fn files(world: &World) {
    let [file, folder, new] =
        ["outside/file", "outside/folder", "outside/new"].map(|name| world.text(name));
    let tell = |name: &str, said: Said| say(&format!("file/{name}"), "-", &said);
    tell("read-outside", opened(&file, O_RDONLY, 0));
    tell("list-outside", opened(&folder, O_RDONLY | libc::O_DIRECTORY, 0));
    tell("write-outside", opened(&file, O_WRONLY, 0));
    tell("truncate-outside", call(libc::SYS_truncate, [p(&file), 0, 0, 0, 0, 0]));
    tell("open-truncate-outside", opened(&file, O_RDONLY | O_TRUNC, 0));
    tell("create-outside", opened(&new, O_WRONLY | O_CREAT, 0o600));
    tell("tmpfile-outside", opened(&folder, O_WRONLY | libc::O_TMPFILE, 0o600));
    tell(
        "mkdir-outside",
        call(libc::SYS_mkdirat, [HERE, p(&world.text("outside/made")), 0o700, 0, 0, 0]),
    );
    tell(
        "symlink-outside",
        call(libc::SYS_symlinkat, [p(c"x"), HERE, p(&world.text("outside/soft")), 0, 0, 0]),
    );
    tell(
        "link-outside",
        call(libc::SYS_linkat, [HERE, p(&file), HERE, p(&world.text("outside/hard")), 0, 0]),
    );
    tell(
        "link-into-state",
        call(libc::SYS_linkat, [HERE, p(&file), HERE, p(&world.in_state("hard")), 0, 0]),
    );
    tell(
        "fifo-outside",
        call(
            libc::SYS_mknodat,
            [HERE, p(&world.text("outside/fifo")), i64::from(libc::S_IFIFO | 0o600), 0, 0, 0],
        ),
    );
    let moved = world.text("outside/moved");
    tell(
        "rename-outside",
        call(libc::SYS_renameat2, [HERE, p(&world.text("outside/spare")), HERE, p(&moved), 0, 0]),
    );
    tell(
        "unlink-outside",
        call(libc::SYS_unlinkat, [HERE, p(&world.text("outside/spare2")), 0, 0, 0, 0]),
    );
    tell(
        "rmdir-outside",
        call(
            libc::SYS_unlinkat,
            [HERE, p(&world.text("outside/empty")), i64::from(libc::AT_REMOVEDIR), 0, 0, 0],
        ),
    );
    tell("read-readable", opened(&world.text("readable/file"), O_RDONLY, 0));
    tell("create-writable", opened(&world.text("writable/new"), O_WRONLY | O_CREAT, 0o600));
    tell("create-state", opened(&world.in_state("new"), O_WRONLY | O_CREAT, 0o600));
    let home = std::ffi::CString::new(world.home.as_str()).expect("no NUL");
    tell("list-home", opened(&home, O_RDONLY | libc::O_DIRECTORY, 0));
    let stray = std::ffi::CString::new(format!("{}/stray", world.home)).expect("no NUL");
    tell("create-in-home", opened(&stray, O_WRONLY | O_CREAT, 0o600));
    let how = [i64::from(O_RDONLY), 0, 0];
    tell(
        "openat2",
        call(libc::SYS_openat2, [HERE, p(c"/dev/null"), how.as_ptr() as i64, 24, 0, 0]),
    );
    let mut handle = [0_u32; 40];
    handle[0] = 128;
    let mut mount = 0_i32;
    let place = handle.as_mut_ptr() as i64;
    tell(
        "name-to-handle",
        call(libc::SYS_name_to_handle_at, [HERE, p(&file), place, &raw mut mount as i64, 0, 0]),
    );
    tell("open-by-handle", call(libc::SYS_open_by_handle_at, [HERE, place, 0, 0, 0, 0]));
    tell("fanotify", call(libc::SYS_fanotify_init, [0x200, 0, 0, 0, 0, 0]));
    tell(
        "device-writable",
        call(
            libc::SYS_mknodat,
            [HERE, p(&world.text("writable/char")), i64::from(libc::S_IFCHR | 0o600), 0x103, 0, 0],
        ),
    );
    tell(
        "block-device-writable",
        call(
            libc::SYS_mknodat,
            [HERE, p(&world.text("writable/block")), i64::from(libc::S_IFBLK | 0o600), 0x800, 0, 0],
        ),
    );
    tell("tiocsti", call(libc::SYS_ioctl, [0, libc::TIOCSTI as i64, p(c"x"), 0, 0, 0]));
}

fn metadata(world: &World) {
    let file = world.text("outside/file");
    let mut room = [0_u64; 64];
    let place = room.as_mut_ptr() as i64;
    let tell = |name: &str, said: Said| say(&format!("metadata/{name}"), "metadata", &said);
    tell("stat", call(libc::SYS_newfstatat, [HERE, p(&file), place, 0, 0, 0]));
    tell("statx", call(libc::SYS_statx, [HERE, p(&file), 0, 0xfff, place, 0]));
    tell("access", call(libc::SYS_faccessat, [HERE, p(&file), 0, 0, 0, 0]));
    tell(
        "readlink",
        call(libc::SYS_readlinkat, [HERE, p(&world.text("outside/link")), place, 64, 0, 0]),
    );
    tell("open-path", opened(&file, libc::O_PATH, 0));
    tell("getxattr", call(libc::SYS_getxattr, [p(&file), p(c"user.none"), place, 64, 0, 0]));
    let watch = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
    tell(
        "inotify",
        call(
            libc::SYS_inotify_add_watch,
            [i64::from(watch), p(&file), i64::from(libc::IN_ATTRIB), 0, 0, 0],
        ),
    );
}

/// On a file of its own user that no token names, on defib's home, and on a file that it may write.
fn attributes(world: &World) {
    let file = world.text("outside/file");
    let gap = "attributes";
    let tell = |name: &str, said: Said| say(&format!("attributes/{name}"), gap, &said);
    let (user, group) = unsafe { (i64::from(libc::geteuid()), i64::from(libc::getegid())) };
    tell("fchmodat", call(libc::SYS_fchmodat, [HERE, p(&file), 0o644, 0, 0, 0]));
    tell("fchmodat2", call(452, [HERE, p(&file), 0o644, 0, 0, 0]));
    tell("fchownat", call(libc::SYS_fchownat, [HERE, p(&file), user, group, 0, 0]));
    tell("setxattr", call(libc::SYS_setxattr, [p(&file), p(c"user.survey"), p(c"x"), 1, 0, 0]));
    tell("lsetxattr", call(libc::SYS_lsetxattr, [p(&file), p(c"user.survey"), p(c"x"), 1, 0, 0]));
    tell("removexattr", call(libc::SYS_removexattr, [p(&file), p(c"user.none"), 0, 0, 0, 0]));
    tell("lremovexattr", call(libc::SYS_lremovexattr, [p(&file), p(c"user.none"), 0, 0, 0, 0]));
    let value = [c"x".as_ptr() as u64, 1];
    tell(
        "setxattrat",
        call(463, [HERE, p(&file), 0, p(c"user.survey"), value.as_ptr() as i64, 16]),
    );
    tell("removexattrat", call(466, [HERE, p(&file), 0, p(c"user.none"), 0, 0]));
    let flags = [0_u64; 3];
    tell("file-setattr", call(469, [HERE, p(&file), flags.as_ptr() as i64, 24, 0, 0]));
    tell("utimensat", call(libc::SYS_utimensat, [HERE, p(&file), 0, 0, 0, 0]));
    #[cfg(target_arch = "x86_64")]
    {
        tell("chmod", call(libc::SYS_chmod, [p(&file), 0o644, 0, 0, 0, 0]));
        tell("chown", call(libc::SYS_chown, [p(&file), user, group, 0, 0, 0]));
        tell("lchown", call(libc::SYS_lchown, [p(&file), user, group, 0, 0, 0]));
        tell("utime", call(libc::SYS_utime, [p(&file), 0, 0, 0, 0, 0]));
        tell("utimes", call(libc::SYS_utimes, [p(&file), 0, 0, 0, 0, 0]));
        tell("futimesat", call(libc::SYS_futimesat, [HERE, p(&file), 0, 0, 0, 0]));
    }
    // A file that every sandbox may read, and that belongs to root.
    let held = unsafe { libc::open(c"/etc/passwd".as_ptr(), O_RDONLY | O_CLOEXEC) };
    let held = i64::from(held);
    let times = [0_i64, 0x3fff_fffe, 0, 0x3fff_fffe];
    tell("fchmod-read-only", call(libc::SYS_fchmod, [held, 0o644, 0, 0, 0, 0]));
    tell("fchown-read-only", call(libc::SYS_fchown, [held, user, group, 0, 0, 0]));
    tell(
        "fremovexattr-read-only",
        call(libc::SYS_fremovexattr, [held, p(c"user.none"), 0, 0, 0, 0]),
    );
    // UTIME_OMIT twice changes nothing and is not checked by the kernel, so this is the filter's answer.
    let own = unsafe { libc::open(world.in_state("new").as_ptr(), O_RDONLY | O_CLOEXEC) };
    say(
        "attributes/times-of-state-file",
        "-",
        &call(libc::SYS_utimensat, [i64::from(own), 0, times.as_ptr() as i64, 0, 0, 0]),
    );
    say(
        "attributes/touch-state-file",
        "-",
        &call(libc::SYS_utimensat, [i64::from(own), 0, 0, 0, 0, 0]),
    );
    say(
        "attributes/chmod-state-file",
        "-",
        &call(libc::SYS_fchmod, [i64::from(own), 0o600, 0, 0, 0, 0]),
    );
    let mut inode_flags = 0_i32;
    let place = &raw mut inode_flags as i64;
    let _ = call(libc::SYS_ioctl, [held, 0x8008_6601, place, 0, 0, 0]);
    tell("ioctl-setflags-read-only", call(libc::SYS_ioctl, [held, 0x4008_6602, place, 0, 0, 0]));
    let mut more_flags = [0_u32; 7];
    let place = more_flags.as_mut_ptr() as i64;
    let _ = call(libc::SYS_ioctl, [held, 0x801c_581f, place, 0, 0, 0]);
    tell("ioctl-fssetxattr-read-only", call(libc::SYS_ioctl, [held, 0x401c_5820, place, 0, 0, 0]));
    let home = std::ffi::CString::new(world.home.as_str()).expect("no NUL");
    tell("chmod-home", call(libc::SYS_fchmodat, [HERE, p(&home), 0o700, 0, 0, 0]));
    tell("chown-home", call(libc::SYS_fchownat, [HERE, p(&home), user, group, 0, 0]));
    tell("utimens-home", call(libc::SYS_utimensat, [HERE, p(&home), 0, 0, 0, 0]));
    tell("setxattr-home", call(libc::SYS_removexattr, [p(&home), p(c"user.none"), 0, 0, 0, 0]));
    let writable = world.text("writable/file");
    say(
        "attributes/chmod-writable",
        "-",
        &call(libc::SYS_fchmodat, [HERE, p(&writable), 0o644, 0, 0, 0]),
    );
    say(
        "attributes/utimens-writable",
        "-",
        &call(libc::SYS_utimensat, [HERE, p(&writable), 0, 0, 0, 0]),
    );
}

fn set_ids(world: &World) {
    let tell = |name: &str, said: Said| say(&format!("set-id/{name}"), "-", &said);
    let file = world.text("writable/file");
    let new = |name: &str| world.text(&format!("writable/{name}"));
    for (word, bits) in [("setuid", 0o4755), ("setgid", 0o2755)] {
        tell(
            &format!("fchmodat-{word}"),
            call(libc::SYS_fchmodat, [HERE, p(&file), bits, 0, 0, 0]),
        );
        tell(&format!("fchmodat2-{word}"), call(452, [HERE, p(&file), bits, 0, 0, 0]));
        #[cfg(target_arch = "x86_64")]
        tell(&format!("chmod-{word}"), call(libc::SYS_chmod, [p(&file), bits, 0, 0, 0, 0]));
        let own = unsafe { libc::open(world.in_state("new").as_ptr(), O_RDONLY | O_CLOEXEC) };
        tell(&format!("fchmod-{word}"), call(libc::SYS_fchmod, [i64::from(own), bits, 0, 0, 0, 0]));
        tell(&format!("openat-{word}"), opened(&new(word), O_WRONLY | O_CREAT, bits));
        tell(&format!("tmpfile-{word}"), opened(&new("."), O_WRONLY | libc::O_TMPFILE, bits));
        tell(
            &format!("mknod-{word}"),
            call(
                libc::SYS_mknodat,
                [HERE, p(&new(&format!("node-{word}"))), i64::from(libc::S_IFREG) | bits, 0, 0, 0],
            ),
        );
        tell(
            &format!("mkdir-{word}"),
            call(libc::SYS_mkdirat, [HERE, p(&new(&format!("made-{word}"))), bits, 0, 0, 0]),
        );
        #[cfg(target_arch = "x86_64")]
        tell(
            &format!("creat-{word}"),
            call(libc::SYS_creat, [p(&new(&format!("creat-{word}"))), bits, 0, 0, 0, 0]),
        );
    }
}

fn signals(world: &World) {
    let (pid, signal) = (world.pid, i64::from(libc::SIGCONT));
    let tell = |name: &str, said: Said| say(&format!("signal/{name}"), "signals", &said);
    tell("kill", call(libc::SYS_kill, [pid, signal, 0, 0, 0, 0]));
    tell("kill-group", call(libc::SYS_kill, [-pid, signal, 0, 0, 0, 0]));
    tell("tkill", call(libc::SYS_tkill, [pid, signal, 0, 0, 0, 0]));
    tell("tgkill", call(libc::SYS_tgkill, [pid, pid, signal, 0, 0, 0]));
    let mut info = [0_i32; 32];
    (info[0], info[2]) = (libc::SIGCONT, -1);
    tell("sigqueue", call(libc::SYS_rt_sigqueueinfo, [pid, signal, info.as_ptr() as i64, 0, 0, 0]));
    let held = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let said = if held < 0 {
        Said::Error(crate::errno())
    } else {
        call(libc::SYS_pidfd_send_signal, [held, signal, 0, 0, 0, 0])
    };
    tell("pidfd", said);
}

fn processes(world: &World) {
    let pid = world.pid;
    let tell = |name: &str, said: Said| say(&format!("process/{name}"), "-", &said);
    let seen = |name: &str, said: Said| say(&format!("process/{name}"), "processes", &said);
    let mut limits = [0_u64; 2];
    let place = limits.as_mut_ptr() as i64;
    let files = i64::from(libc::RLIMIT_NOFILE);
    seen("prlimit-read", call(libc::SYS_prlimit64, [pid, files, 0, place, 0, 0]));
    tell("prlimit", call(libc::SYS_prlimit64, [pid, files, place, 0, 0, 0]));
    let _ = call(libc::SYS_prlimit64, [0, files, 0, place, 0, 0]);
    tell("prlimit-self", call(libc::SYS_prlimit64, [0, files, place, 0, 0, 0]));
    let mut mask = [0_u64; 128];
    let place = mask.as_mut_ptr() as i64;
    seen("affinity-read", call(libc::SYS_sched_getaffinity, [pid, 1024, place, 0, 0, 0]));
    tell("affinity", call(libc::SYS_sched_setaffinity, [pid, 1024, place, 0, 0, 0]));
    let _ = call(libc::SYS_sched_getaffinity, [0, 1024, place, 0, 0, 0]);
    tell("affinity-self", call(libc::SYS_sched_setaffinity, [0, 1024, place, 0, 0, 0]));
    let zero = [0_u64; 8];
    let zeros = zero.as_ptr() as i64;
    tell("scheduler", call(libc::SYS_sched_setscheduler, [pid, 0, zeros, 0, 0, 0]));
    tell("scheduler-self", call(libc::SYS_sched_setscheduler, [0, 0, zeros, 0, 0, 0]));
    tell("schedparam", call(libc::SYS_sched_setparam, [pid, zeros, 0, 0, 0, 0]));
    let mut attributes = [0_u64; 7];
    attributes[0] = 56;
    tell("schedattr", call(libc::SYS_sched_setattr, [pid, attributes.as_ptr() as i64, 0, 0, 0, 0]));
    seen("priority-read", call(libc::SYS_getpriority, [0, pid, 0, 0, 0, 0]));
    tell("priority", call(libc::SYS_setpriority, [0, pid, 0, 0, 0, 0]));
    tell("priority-self", call(libc::SYS_setpriority, [0, 0, 0, 0, 0, 0]));
    tell("priority-group", call(libc::SYS_setpriority, [1, pid, 0, 0, 0, 0]));
    tell("priority-user", call(libc::SYS_setpriority, [2, 0, 0, 0, 0, 0]));
    let normal = (2 << 13) | 4;
    tell("ioprio", call(libc::SYS_ioprio_set, [1, pid, normal, 0, 0, 0]));
    tell("ioprio-self", call(libc::SYS_ioprio_set, [1, 0, normal, 0, 0, 0]));
    tell("ioprio-group", call(libc::SYS_ioprio_set, [2, pid, normal, 0, 0, 0]));
    tell("ioprio-user", call(libc::SYS_ioprio_set, [3, 0, normal, 0, 0, 0]));
    tell("move-pages", call(libc::SYS_move_pages, [pid, 0, 0, 0, 0, 0]));
    tell("migrate-pages", call(libc::SYS_migrate_pages, [pid, 0, 0, 0, 0, 0]));
    let held = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    tell("madvise", call(libc::SYS_process_madvise, [held, 0, 0, 20, 0, 0]));
    tell("mrelease", call(libc::SYS_process_mrelease, [held, 0, 0, 0, 0, 0]));
    tell("getfd", call(libc::SYS_pidfd_getfd, [held, 0, 0, 0, 0, 0]));
    tell("kcmp", call(libc::SYS_kcmp, [pid, pid, 0, 0, 0, 0]));
    tell("ptrace", call(libc::SYS_ptrace, [0x4206, pid, 0, 0, 0, 0]));
    tell("vm-read", call(libc::SYS_process_vm_readv, [pid, zeros, 1, zeros, 1, 0]));
    tell("vm-write", call(libc::SYS_process_vm_writev, [pid, zeros, 1, zeros, 1, 0]));
    let mut robust = [0_u64; 2];
    let place = robust.as_mut_ptr() as i64;
    tell("robust-list", call(libc::SYS_get_robust_list, [pid, place, place + 8, 0, 0, 0]));
    tell("setpgid", call(libc::SYS_setpgid, [pid, 0, 0, 0, 0, 0]));
    let of = |name: &str| std::ffi::CString::new(format!("/proc/{pid}/{name}")).expect("no NUL");
    seen("proc-cmdline", opened(&of("cmdline"), O_RDONLY, 0));
    tell("proc-environ", opened(&of("environ"), O_RDONLY, 0));
    tell("proc-mem", opened(&of("mem"), libc::O_RDWR, 0));
    tell("proc-maps", opened(&of("maps"), O_RDONLY, 0));
    tell("proc-oom-score", opened(&of("oom_score_adj"), O_WRONLY, 0));
    tell("proc-root", opened(&of("root/etc"), O_RDONLY, 0));
}

/// A socket of each family that the kernel has names for.
fn sockets() {
    let families = [
        ("unix", 1),
        ("inet", 2),
        ("ax25", 3),
        ("ipx", 4),
        ("appletalk", 5),
        ("netrom", 6),
        ("x25", 9),
        ("inet6", 10),
        ("rose", 11),
        ("key", 15),
        ("netlink", 16),
        ("packet", 17),
        ("rds", 21),
        ("irda", 23),
        ("pppox", 24),
        ("llc", 26),
        ("ib", 27),
        ("mpls", 28),
        ("can", 29),
        ("tipc", 30),
        ("bluetooth", 31),
        ("iucv", 32),
        ("rxrpc", 33),
        ("isdn", 34),
        ("phonet", 35),
        ("ieee802154", 36),
        ("caif", 37),
        ("alg", 38),
        ("nfc", 39),
        ("vsock", 40),
        ("kcm", 41),
        ("qipcrtr", 42),
        ("smc", 43),
        ("xdp", 44),
        ("mctp", 45),
    ];
    let made = |family: i64, kind: i64, protocol: i64| {
        call(libc::SYS_socket, [family, kind, protocol, 0, 0, 0])
    };
    for (name, family) in families {
        let kind = match name {
            "packet" | "netlink" | "xdp" | "key" => 3,
            "alg" => 5,
            _ => 1,
        };
        say(&format!("socket/{name}"), "-", &made(family, kind, 0));
    }
    for (name, family) in [("inet", 2), ("inet6", 10)] {
        say(&format!("socket/{name}-udp"), "udp", &made(family, 2, 0));
        say(&format!("socket/{name}-udplite"), "-", &made(family, 2, 136));
        say(
            &format!("socket/{name}-ping"),
            "-",
            &made(family, 2, if family == 2 { 1 } else { 58 }),
        );
        say(&format!("socket/{name}-raw"), "-", &made(family, 3, 1));
        say(&format!("socket/{name}-mptcp"), "-", &made(family, 1, 262));
        say(&format!("socket/{name}-sctp"), "-", &made(family, 5, 132));
        say(&format!("socket/{name}-dccp"), "-", &made(family, 6, 33));
    }
    for (name, protocol) in [("uevent", 15), ("audit", 9), ("netfilter", 12), ("generic", 16)] {
        say(&format!("socket/netlink-{name}"), "-", &made(16, 3, protocol));
    }
}

fn network(world: &World) {
    use std::io::Error;
    use std::net::{TcpListener, TcpStream};
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixStream};
    let from = |result: Result<(), Error>| match result {
        Ok(()) => Said::Fine,
        Err(error) => Said::Error(error.raw_os_error().unwrap_or_default()),
    };
    say("network/connect", "-", &from(TcpStream::connect(("127.0.0.1", world.port)).map(drop)));
    say("network/bind", "-", &from(TcpListener::bind(("127.0.0.1", world.free)).map(drop)));
    let unbound = unsafe { libc::socket(2, 1, 0) };
    let said = if unbound < 0 {
        Said::Error(crate::errno())
    } else {
        call(libc::SYS_listen, [i64::from(unbound), 1, 0, 0, 0, 0])
    };
    say("network/listen-unbound", "listen", &said);
    let [high, low] = world.port.to_be_bytes();
    let address: [u8; 16] = [2, 0, high, low, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let fresh = i64::from(unsafe { libc::socket(2, 1, 0) });
    let fast = call(
        libc::SYS_sendto,
        [fresh, p(c"x"), 1, i64::from(libc::MSG_FASTOPEN), address.as_ptr() as i64, 16],
    );
    say("network/fast-open", "-", &fast);
    let path = world.text("outside/socket");
    say(
        "network/unix-path",
        "unix-socket",
        &from(UnixStream::connect(path.to_str().expect("a path")).map(drop)),
    );
    let address = SocketAddr::from_abstract_name(&world.abstract_name).expect("a name");
    say(
        "network/unix-abstract",
        "abstract-socket",
        &from(UnixStream::connect_addr(&address).map(drop)),
    );
}

fn namespaces(world: &World) {
    let tell = |name: &str, said: Said| say(&format!("namespace/{name}"), "-", &said);
    let kinds = [
        ("user", libc::CLONE_NEWUSER),
        ("mount", libc::CLONE_NEWNS),
        ("pid", libc::CLONE_NEWPID),
        ("net", libc::CLONE_NEWNET),
        ("ipc", libc::CLONE_NEWIPC),
        ("uts", libc::CLONE_NEWUTS),
        ("cgroup", libc::CLONE_NEWCGROUP),
        ("time", 0x80),
    ];
    for (name, flag) in kinds {
        tell(&format!("unshare-{name}"), call(libc::SYS_unshare, [i64::from(flag), 0, 0, 0, 0, 0]));
    }
    tell("setns", call(libc::SYS_setns, [-1, 0, 0, 0, 0, 0]));
    tell("chroot", call(libc::SYS_chroot, [p(c"/"), 0, 0, 0, 0, 0]));
    tell("pivot-root", call(libc::SYS_pivot_root, [p(c"/"), p(c"/"), 0, 0, 0, 0]));
    let writable = world.text("writable");
    tell("mount", call(libc::SYS_mount, [p(c"none"), p(&writable), p(c"tmpfs"), 0, 0, 0]));
    tell(
        "remount",
        call(
            libc::SYS_mount,
            [0, p(c"/"), 0, i64::from(libc::MS_REMOUNT as i32 | libc::MS_BIND as i32), 0, 0],
        ),
    );
    tell("umount", call(libc::SYS_umount2, [p(&writable), 0, 0, 0, 0, 0]));
    tell("move-mount", call(libc::SYS_move_mount, [HERE, p(&writable), HERE, p(&writable), 0, 0]));
    tell("open-tree", call(libc::SYS_open_tree, [HERE, p(c"/"), 1, 0, 0, 0]));
    tell("fsopen", call(libc::SYS_fsopen, [p(c"tmpfs"), 0, 0, 0, 0, 0]));
    tell("fspick", call(libc::SYS_fspick, [HERE, p(c"/"), 0, 0, 0, 0]));
    tell("mount-setattr", call(libc::SYS_mount_setattr, [HERE, p(c"/"), 0, 0, 0, 0]));
}

/// Keys that nothing uses, and numbers that nothing has.
fn ipc() {
    let tell = |name: &str, said: Said| say(&format!("ipc/{name}"), "-", &said);
    tell("shmget", call(libc::SYS_shmget, [0, 0, 0, 0, 0, 0]));
    tell("shmat", call(libc::SYS_shmat, [0x7fff_ffff, 0, 0, 0, 0, 0]));
    tell("shmctl", call(libc::SYS_shmctl, [0x7fff_ffff, 0, 0, 0, 0, 0]));
    tell("semget", call(libc::SYS_semget, [0, 0, 0, 0, 0, 0]));
    tell("semop", call(libc::SYS_semop, [0x7fff_ffff, 0, 1, 0, 0, 0]));
    tell("semctl", call(libc::SYS_semctl, [0x7fff_ffff, 0, 0, 0, 0, 0]));
    tell("msgget", call(libc::SYS_msgget, [0x0dea_dbee, 0, 0, 0, 0, 0]));
    tell("msgsnd", call(libc::SYS_msgsnd, [0x7fff_ffff, 0, 0, 0, 0, 0]));
    tell("msgrcv", call(libc::SYS_msgrcv, [0x7fff_ffff, 0, 0, 0, 0, 0]));
    tell("msgctl", call(libc::SYS_msgctl, [0x7fff_ffff, 0, 0, 0, 0, 0]));
    tell("mq-open", call(libc::SYS_mq_open, [p(c"survey/"), 0, 0, 0, 0, 0]));
    tell("mq-unlink", call(libc::SYS_mq_unlink, [p(c"survey/"), 0, 0, 0, 0, 0]));
    tell("keyctl", call(libc::SYS_keyctl, [0, -3, 0, 0, 0, 0]));
    tell("add-key", call(libc::SYS_add_key, [p(c"user"), p(c"survey"), p(c"x"), 1, -1, 0]));
    tell("request-key", call(libc::SYS_request_key, [p(c"user"), p(c"survey"), 0, 0, 0, 0]));
}

fn memory(world: &World) {
    let tell = |name: &str, gap: &str, said: Said| say(&format!("memory/{name}"), gap, &said);
    tell("memfd", "memfd", call(libc::SYS_memfd_create, [p(c"survey"), 0, 0, 0, 0, 0]));
    tell("memfd-sealed", "-", call(libc::SYS_memfd_create, [p(c"survey"), 8, 0, 0, 0, 0]));
    let executable = i64::from(libc::PROT_READ | libc::PROT_EXEC);
    let private = i64::from(libc::MAP_PRIVATE);
    let anonymous = private | i64::from(libc::MAP_ANONYMOUS);
    tell("map-own-code", "own-code", call(libc::SYS_mmap, [0, 4096, executable, anonymous, -1, 0]));
    let _ = std::fs::write(world.in_state("code").to_str().expect("a path"), [0_u8; 4096]);
    let file = unsafe { libc::open(world.in_state("code").as_ptr(), O_RDONLY | O_CLOEXEC) };
    tell(
        "map-file-code",
        "loader",
        call(libc::SYS_mmap, [0, 4096, executable, private, i64::from(file), 0]),
    );
    tell("userfaultfd", "-", call(libc::SYS_userfaultfd, [0, 0, 0, 0, 0, 0]));
}

fn kernel() {
    let tell = |name: &str, said: Said| say(&format!("kernel/{name}"), "-", &said);
    let zeros = [0_u64; 16];
    let zero = zeros.as_ptr() as i64;
    tell("io-uring-setup", call(libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]));
    tell("io-uring-enter", call(libc::SYS_io_uring_enter, [-1, 0, 0, 0, 0, 0]));
    tell("io-uring-register", call(libc::SYS_io_uring_register, [-1, 0, 0, 0, 0, 0]));
    tell("bpf", call(libc::SYS_bpf, [0, zero, 0, 0, 0, 0]));
    tell("perf", call(libc::SYS_perf_event_open, [zero, 0, -1, -1, 0, 0]));
    tell("kexec-load", call(libc::SYS_kexec_load, [0, 0, 0, 0x7fff_ffff, 0, 0]));
    tell("init-module", call(libc::SYS_init_module, [0, 0, 0, 0, 0, 0]));
    tell("finit-module", call(libc::SYS_finit_module, [-1, 0, 0, 0, 0, 0]));
    tell("delete-module", call(libc::SYS_delete_module, [p(c"survey"), 0, 0, 0, 0, 0]));
    tell("reboot", call(libc::SYS_reboot, [0, 0, 0, 0, 0, 0]));
    tell("swapon", call(libc::SYS_swapon, [p(c"/nowhere"), 0, 0, 0, 0, 0]));
    tell("swapoff", call(libc::SYS_swapoff, [p(c"/nowhere"), 0, 0, 0, 0, 0]));
    tell("acct", call(libc::SYS_acct, [p(c"/nowhere"), 0, 0, 0, 0, 0]));
    tell("quotactl", call(libc::SYS_quotactl, [0, 0, 0, 0, 0, 0]));
    tell("syslog", call(libc::SYS_syslog, [3, zero, 0, 0, 0, 0]));
    tell("settimeofday", call(libc::SYS_settimeofday, [1, 0, 0, 0, 0, 0]));
    tell("clock-settime", call(libc::SYS_clock_settime, [0, 1, 0, 0, 0, 0]));
    tell("sethostname", call(libc::SYS_sethostname, [zero, -1, 0, 0, 0, 0]));
    tell("setuid-other", call(libc::SYS_setuid, [12345, 0, 0, 0, 0, 0]));
    tell("setgid-other", call(libc::SYS_setgid, [12345, 0, 0, 0, 0, 0]));
    tell("setgroups", call(libc::SYS_setgroups, [0, 0, 0, 0, 0, 0]));
    #[cfg(target_arch = "x86_64")]
    {
        tell("iopl", call(libc::SYS_iopl, [3, 0, 0, 0, 0, 0]));
        tell("ioperm", call(libc::SYS_ioperm, [0, 1, 1, 0, 0, 0]));
        // getpid by its x32 number.
        tell("x32", call(0x4000_0000 + libc::SYS_getpid, [0; 6]));
    }
}

fn making() {
    let tell = |name: &str, said: Said| say(&format!("process/{name}"), "-", &said);
    let thread = std::thread::Builder::new().spawn(|| ());
    tell(
        "thread",
        match thread {
            Ok(thread) => {
                let _ = thread.join();
                Said::Fine
            }
            Err(error) => Said::Error(error.raw_os_error().unwrap_or_default()),
        },
    );
    tell("clone3", call(libc::SYS_clone3, [0, 0, 0, 0, 0, 0]));
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid == 0 {
        unsafe { libc::_exit(0) };
    }
    let refused = crate::errno();
    if pid > 0 {
        unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) };
    }
    tell("fork", if pid < 0 { Said::Error(refused) } else { Said::Fine });
    let flags = i64::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid == 0 {
        unsafe { libc::_exit(0) };
    }
    tell("clone-user-namespace", if pid < 0 { Said::Error(crate::errno()) } else { Said::Fine });
}
