//! The filter of system calls: calls that no confined run may make, and calls that its profile does not
//! permit.
//!
//! A refused call fails with EPERM. `clone3` and `openat2` fail with ENOSYS: their arguments are behind a
//! pointer, where a filter cannot look, and callers then fall back to `clone` and `openat`. A call of another
//! architecture ends the process.
//!
//! A filter sees numbers only. It cannot know which process a process id names, so calls that change a
//! process are permitted for the caller itself (0) and refused for every other number. It cannot read a path
//! either, so calls that change a file's attributes are permitted for all paths or for none; the mounts of
//! [`super::shield`] then decide which paths.
//!
//! The filter is one short program, because the kernel compiles it again for each run.

use std::collections::{BTreeMap, HashMap};

use libc::c_long;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::checked;
use crate::errno::last_errno;

/// What a filter depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each permits one thing of its own")]
pub(super) struct Filter {
    /// The whole network.
    pub(super) net: bool,
    /// UDP.
    pub(super) udp: bool,
    /// New processes.
    pub(super) subprocess: bool,
    /// Mode, owner, extended attributes and flags of files.
    pub(super) attributes: bool,
    /// Times of files.
    pub(super) times: bool,
    /// System V IPC and POSIX message queues, which all processes of a user share.
    pub(super) ipc: bool,
    /// Files in memory that can be executed.
    pub(super) memory_programs: bool,
}

/// The filters that were made, by what they depend on.
#[derive(Default)]
pub(super) struct Filters(HashMap<Filter, Program>);

impl Filters {
    /// The program of a filter.
    pub(super) fn of(&mut self, filter: Filter) -> Result<Program, Errno> {
        if let Some(known) = self.0.get(&filter) {
            return Ok(known.clone());
        }
        let program = program(filter).map_err(|_| Errno::INVAL)?;
        self.0.insert(filter, program.clone());
        Ok(program)
    }
}

/// A program as the kernel wants it. Shared, because every run of a sort has the same.
#[derive(Clone)]
pub(super) struct Program(std::rc::Rc<[libc::sock_filter]>);

impl Program {
    /// Loads it into this process. Makes one system call.
    pub(super) fn load(&self) -> Result<(), Errno> {
        let len = u16::try_from(self.0.len()).map_err(|_| Errno::INVAL)?;
        let program = libc::sock_fprog { len, filter: self.0.as_ptr().cast_mut() };
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the program and its steps outlive the call, which copies them and writes nothing.
        match unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program) } {
            0 => Ok(()),
            -1 => Err(last_errno()),
            other => checked(other),
        }
    }
}

/// Whether filters can be made for this machine.
pub(super) fn is_known() -> bool {
    TargetArch::try_from(std::env::consts::ARCH).is_ok()
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;
type Made<T> = Result<T, seccompiler::BackendError>;

fn program(filter: Filter) -> Made<Program> {
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let rules = refused(filter)?;
    let refused: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, machine)?.try_into()?;
    let step = |step: &seccompiler::sock_filter| libc::sock_filter {
        code: step.code,
        jt: step.jt,
        jf: step.jf,
        k: step.k,
    };
    // Jumps are counted from where they stand, so that one program can stand before another.
    Ok(Program(absent().into_iter().chain(refused.iter().map(step)).collect()))
}

/// Calls that fail with ENOSYS: `clone3`, `openat2`, and on x86-64 every call by its x32 number.
fn absent() -> Vec<libc::sock_filter> {
    const X32: u32 = 0x4000_0000;
    let step = |code: u32, jt, jf, k| {
        let code = u16::try_from(code).unwrap_or_default();
        libc::sock_filter { code, jt, jf, k }
    };
    let when = |test: u32, k| step(libc::BPF_JMP | test | libc::BPF_K, 0, 1, k);
    let none = step(
        libc::BPF_RET | libc::BPF_K,
        0,
        0,
        libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned(),
    );
    // The number of the call is at the beginning of what a program sees.
    let number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
    let mut steps = vec![number];
    for call in [libc::SYS_clone3, libc::SYS_openat2] {
        steps.extend([when(libc::BPF_JEQ, u32::try_from(call).unwrap_or_default()), none]);
    }
    if cfg!(target_arch = "x86_64") {
        steps.extend([when(libc::BPF_JGE, X32), none]);
    }
    steps
}

/// Calls that are refused whatever the profile says. Each is a way to other processes, to the kernel
/// itself, or around what else confines a run.
const NEVER: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // What is mounted where, and files without a path.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_setns,
    // The kernel and the machine.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    // Keys of the kernel's, which are shared by all of one user.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // It makes system calls that no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Calls that change a file's attributes by its path or its descriptor. Landlock does not control them.
const ATTRIBUTES: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
];

/// Older calls that change a file's times.
#[cfg(target_arch = "x86_64")]
const TIMES: &[c_long] = &[libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const TIMES: &[c_long] = &[];

/// Requests of `ioctl` that change a file's attributes and that a descriptor for reading is enough for:
/// `FS_IOC_SETFLAGS`, its 32-bit form, `FS_IOC_FSSETXATTR`, `FS_IOC_SETVERSION`, `FS_IOC_ENABLE_VERITY` and
/// `FS_IOC_SET_ENCRYPTION_POLICY`.
const ATTRIBUTE_REQUESTS: [u64; 6] =
    [0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4008_7602, 0x4080_6685, 0x800c_6613];

/// System V IPC and POSIX message queues. A number or a name is all that a process of the same user needs.
const IPC: &[c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls that change the process that an argument names, with the place of that argument.
const OF_A_PROCESS: &[(c_long, u8)] = &[
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_move_pages, 0),
    (libc::SYS_migrate_pages, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
];

/// Calls whose argument at this place is the mode of a file.
const MODES: &[(c_long, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
];

// These numbers are the same on every machine; the C library's constants do not have all of them yet.
const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const OPEN_TREE_ATTR: c_long = 467;
const FILE_SETATTR: c_long = 469;

fn refused(filter: Filter) -> Made<Rules> {
    let mut rules: Rules = NEVER.iter().map(|number| (*number, Vec::new())).collect();
    let has_bits = |argument, bits: u64| condition(argument, SeccompCmpOp::MaskedEq(bits), bits);
    let namespace = bits(libc::CLONE_NEWUSER);
    rules.insert(libc::SYS_unshare, vec![all([has_bits(0, namespace)?])?]);
    let mut clone = vec![all([has_bits(0, namespace)?])?];
    if !filter.subprocess {
        let thread = bits(libc::CLONE_THREAD);
        clone.push(all([condition(0, SeccompCmpOp::MaskedEq(thread), 0)?])?);
        #[cfg(target_arch = "x86_64")]
        rules.extend([(libc::SYS_fork, Vec::new()), (libc::SYS_vfork, Vec::new())]);
    }
    rules.insert(libc::SYS_clone, clone);
    // TIOCSTI and TIOCLINUX type into a terminal.
    let mut requests = vec![libc::TIOCSTI, libc::TIOCLINUX];
    if !filter.attributes {
        requests.extend(ATTRIBUTE_REQUESTS);
    }
    let is_request = |request| all([condition(1, SeccompCmpOp::Eq, request)?]);
    rules.insert(libc::SYS_ioctl, requests.into_iter().map(is_request).collect::<Made<_>>()?);
    // A lease makes every other process that opens the file wait. The last number is F_SETDELEG.
    let leases = [1024, 1040].map(|command| all([condition(1, SeccompCmpOp::Eq, command)?]));
    rules.insert(libc::SYS_fcntl, leases.into_iter().collect::<Made<_>>()?);
    rules.insert(libc::SYS_socket, sockets(filter)?);
    if !filter.net {
        // MSG_FASTOPEN connects, and Landlock does not control that.
        let fast_open = bits(libc::MSG_FASTOPEN);
        for (number, flags) in
            [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)]
        {
            rules.insert(number, vec![all([has_bits(flags, fast_open)?])?]);
        }
    }
    of_processes(&mut rules)?;
    modes(&mut rules)?;
    if !filter.attributes {
        rules.extend(ATTRIBUTES.iter().map(|number| (*number, Vec::new())));
    }
    if !filter.times {
        rules.extend(TIMES.iter().map(|number| (*number, Vec::new())));
        // `touch` sets the times of the file that it has open to now: no path, no times. That is how an agent
        // beats, and it stays permitted.
        let given = |argument| whole(argument, SeccompCmpOp::Ne, 0);
        rules.insert(libc::SYS_utimensat, vec![all([given(1)?])?, all([given(2)?])?]);
    }
    if !filter.ipc {
        rules.extend(IPC.iter().map(|number| (*number, Vec::new())));
    }
    if !filter.memory_programs {
        let sealed = u64::from(libc::MFD_NOEXEC_SEAL);
        let rule = all([condition(1, SeccompCmpOp::MaskedEq(sealed), 0)?])?;
        rules.insert(libc::SYS_memfd_create, vec![rule]);
    }
    Ok(rules)
}

/// Limits, priorities and memory of other processes.
fn of_processes(rules: &mut Rules) -> Made<()> {
    let other = |argument| condition(argument, SeccompCmpOp::Ne, 0);
    for (number, argument) in OF_A_PROCESS {
        rules.insert(*number, vec![all([other(*argument)?])?]);
    }
    // PRIO_PROCESS is 0 and IOPRIO_WHO_PROCESS is 1: neither a group of processes nor all of a user.
    let of_many = [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)];
    for (number, process) in of_many {
        let rule = all([condition(0, SeccompCmpOp::Ne, process)?])?;
        rules.entry(number).or_default().push(rule);
    }
    // Without new limits it only reads the old ones.
    let limits = all([other(0)?, whole(2, SeccompCmpOp::Ne, 0)?])?;
    rules.insert(libc::SYS_prlimit64, vec![limits]);
    Ok(())
}

/// Set-user-id and set-group-id bits, and devices.
fn modes(rules: &mut Rules) -> Made<()> {
    let set_ids = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
    for (number, argument) in MODES {
        for bit in set_ids {
            let rule = all([condition(*argument, SeccompCmpOp::MaskedEq(bit), bit)?])?;
            rules.entry(*number).or_default().push(rule);
        }
    }
    // The mode of an open counts only if the open can make a file.
    let opens = [
        (libc::SYS_openat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1),
    ];
    let temporary = bits(libc::O_TMPFILE & !libc::O_DIRECTORY);
    for (number, flags) in opens {
        for bit in set_ids {
            for makes in [bits(libc::O_CREAT), temporary] {
                let makes = condition(flags, SeccompCmpOp::MaskedEq(makes), makes)?;
                let mode = condition(flags + 1, SeccompCmpOp::MaskedEq(bit), bit)?;
                rules.entry(number).or_default().push(all([makes, mode])?);
            }
        }
    }
    let kinds = [
        (libc::SYS_mknodat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
    ];
    for (number, argument) in kinds {
        for kind in [libc::S_IFCHR, libc::S_IFBLK].map(u64::from) {
            let of_kind = SeccompCmpOp::MaskedEq(u64::from(libc::S_IFMT));
            rules.entry(number).or_default().push(all([condition(argument, of_kind, kind)?])?);
        }
    }
    Ok(())
}

/// The sockets that are refused. Landlock looks at TCP and at nothing else, so what is neither TCP nor
/// permitted UDP has to be refused here: also streams that are not TCP, such as those of MPTCP.
fn sockets(filter: Filter) -> Made<Vec<SeccompRule>> {
    // Arguments of the call, by their place.
    const FAMILY: u8 = 0;
    const TYPE: u8 = 1;
    const PROTOCOL: u8 = 2;
    // A type, without the flags that may be in the same number.
    const KIND: u64 = 0xf;
    const EVERY_BIT: u64 = 0xffff_ffff;
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let other = families.map(|family| condition(FAMILY, SeccompCmpOp::Ne, bits(family)));
    let mut refused = vec![SeccompRule::new(other.into_iter().collect::<Made<_>>()?)?];
    // Of the kernel's own sockets, only the one by which addresses and routes are asked for.
    let routes = [
        condition(FAMILY, SeccompCmpOp::Eq, bits(libc::AF_NETLINK))?,
        condition(PROTOCOL, SeccompCmpOp::Ne, bits(libc::NETLINK_ROUTE))?,
    ];
    refused.push(all(routes)?);
    if filter.net {
        return Ok(refused);
    }
    // Both families of the network have the same number, but for one bit.
    let [four, six] = [libc::AF_INET, libc::AF_INET6].map(bits);
    let of_network = || condition(FAMILY, SeccompCmpOp::MaskedEq(EVERY_BIT & !(four ^ six)), four);
    let of_kind = |kind| condition(TYPE, SeccompCmpOp::MaskedEq(KIND), bits(kind));
    let not_protocol = |protocol| condition(PROTOCOL, SeccompCmpOp::Ne, bits(protocol));
    for (kind, protocol) in
        [(libc::SOCK_STREAM, libc::IPPROTO_TCP), (libc::SOCK_DGRAM, libc::IPPROTO_UDP)]
    {
        refused.push(if kind == libc::SOCK_STREAM || filter.udp {
            let others = [not_protocol(0)?, not_protocol(protocol)?];
            let [any, named] = others;
            all([of_network()?, of_kind(kind)?, any, named])?
        } else {
            all([of_network()?, of_kind(kind)?])?
        });
    }
    // Every other type that a kernel knows or may come to know: 0, 3, and all from 4 on.
    refused.push(all([of_network()?, of_kind(0)?])?);
    refused.push(all([of_network()?, of_kind(libc::SOCK_RAW)?])?);
    for bit in [4, 8] {
        refused.push(all([of_network()?, condition(TYPE, SeccompCmpOp::MaskedEq(bit), bit)?])?);
    }
    Ok(refused)
}

/// Compares the lower 32 bits of an argument: all that the kernel reads of a number or of flags.
fn condition(argument: u8, operation: SeccompCmpOp, value: u64) -> Made<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
}

/// Compares all 64 bits of an argument: for pointers.
fn whole(argument: u8, operation: SeccompCmpOp, value: u64) -> Made<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operation, value)
}

fn all<const N: usize>(conditions: [SeccompCondition; N]) -> Made<SeccompRule> {
    SeccompRule::new(conditions.into())
}

fn bits(number: i32) -> u64 {
    u64::from(number.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_can_be_made_and_is_short_enough_for_the_kernel() {
        for flags in 0..128_u32 {
            let [net, udp, subprocess, attributes, times, ipc, memory_programs] =
                [0, 1, 2, 3, 4, 5, 6].map(|bit| flags & (1 << bit) != 0);
            let filter = Filter { net, udp, subprocess, attributes, times, ipc, memory_programs };
            let program = Filters::default().of(filter).unwrap();
            // The kernel takes 4096 steps.
            assert!(program.0.len() < 1200, "{}", program.0.len());
        }
    }
}
