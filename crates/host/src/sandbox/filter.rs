//! System calls that no confined run may make, and those that its profile does not permit.
//!
//! What is refused gets an error and lives on, as with any other refusal: EPERM. Of `clone3` it is said
//! that there is no such call: its flags are behind a pointer, where no filter can look, and every C
//! library then falls back to `clone`. A call of another architecture ends the process.
//!
//! It is one program, and a short one: the kernel translates it for every run anew.

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
pub(super) struct Filter {
    /// Whether the network is open, all of it.
    pub(super) net: bool,
    /// Whether UDP is.
    pub(super) udp: bool,
    /// Whether processes may be made.
    pub(super) subprocess: bool,
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

/// Calls that are said not to exist: `clone3`, and on the machine that has them the numbers of the x32
/// interface, which are a second set for the same calls.
fn absent() -> Vec<libc::sock_filter> {
    const X32: u32 = 0x4000_0000;
    let step = |code: u32, jt, jf, k| {
        let code = u16::try_from(code).unwrap_or_default();
        libc::sock_filter { code, jt, jf, k }
    };
    let when = |test: u32, k| step(libc::BPF_JMP | test | libc::BPF_K, 0, 1, k);
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or_default();
    let none = step(
        libc::BPF_RET | libc::BPF_K,
        0,
        0,
        libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned(),
    );
    // The number is the first thing that a program sees.
    let number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
    let mut steps = vec![number, when(libc::BPF_JEQ, clone3), none];
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
    libc::SYS_open_by_handle_at,
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

/// The same number on every machine; the C library's constants do not have it yet.
const OPEN_TREE_ATTR: c_long = 467;

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
    // Typing for somebody at a terminal.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX];
    let typing = typing.map(|request| all([condition(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<Made<_>>()?);
    rules.insert(libc::SYS_socket, sockets(filter)?);
    if !filter.net {
        // It connects by the way, where Landlock does not look.
        let fast_open = bits(libc::MSG_FASTOPEN);
        for (number, flags) in
            [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)]
        {
            rules.insert(number, vec![all([has_bits(flags, fast_open)?])?]);
        }
    }
    Ok(rules)
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

fn condition(argument: u8, operation: SeccompCmpOp, value: u64) -> Made<SeccompCondition> {
    // All of the arguments that are looked at are of 32 bits, or have their flags in those.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
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
        let flags = [false, true];
        for (net, udp, subprocess) in flags
            .into_iter()
            .flat_map(|net| flags.into_iter().map(move |udp| (net, udp)))
            .flat_map(|(net, udp)| flags.into_iter().map(move |subprocess| (net, udp, subprocess)))
        {
            let program = Filters::default().of(Filter { net, udp, subprocess }).unwrap();
            assert!(program.0.len() < 600, "{}", program.0.len());
        }
    }
}
