//! Calls that replace or end the process. Each has a process of its own.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use crate::{Said, World, call, errno, say};

pub(crate) fn end(name: &str, world: &World) {
    let marker = CString::new(name).expect("no NUL");
    match name {
        "exec/granted" => run(name, "-", c"/usr/bin/true", &[c"true"]),
        "exec/state-file" => {
            let copy = copied(world);
            run(name, "-", &copy, &[c"survey", c"say", &marker, c"-"]);
        }
        "exec/loader" => {
            let copy = copied(world);
            run(name, "loader", loader(), &[loader(), &copy, c"say", &marker, c"loader"]);
        }
        "exec/memfd-path" => {
            if let Some(memory) = in_memory(name) {
                let path = CString::new(format!("/proc/self/fd/{}", memory.as_raw_fd()));
                let path = path.expect("no NUL");
                run(name, "memfd", &path, &[c"survey", c"say", &marker, c"memfd"]);
            }
        }
        "exec/memfd-fd" => {
            if let Some(memory) = in_memory(name) {
                let arguments = [
                    c"survey".as_ptr(),
                    c"say".as_ptr(),
                    marker.as_ptr(),
                    c"memfd".as_ptr(),
                    std::ptr::null(),
                ];
                let none = [std::ptr::null::<libc::c_char>()];
                let said = call(
                    libc::SYS_execveat,
                    [
                        i64::from(memory.as_raw_fd()),
                        c"".as_ptr() as i64,
                        arguments.as_ptr() as i64,
                        none.as_ptr() as i64,
                        i64::from(libc::AT_EMPTY_PATH),
                        0,
                    ],
                );
                say(name, "memfd", &said);
            }
        }
        // A filter ends the process. If it does not, the kernel has answered.
        "kernel/i386" => say(name, "-", &i386()),
        other => panic!("no such call: {other}"),
    }
}

fn run(name: &str, gap: &str, program: &CStr, arguments: &[&CStr]) {
    let mut pointers: Vec<*const libc::c_char> =
        arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let none = [std::ptr::null()];
    if program == c"/usr/bin/true" {
        // It says nothing itself, so that is said before; a line after it takes that back.
        println!("{name} {gap} open");
    }
    unsafe { libc::execve(program.as_ptr(), pointers.as_ptr(), none.as_ptr()) };
    say(name, gap, &Said::Error(errno()));
}

fn loader() -> &'static CStr {
    if cfg!(target_arch = "x86_64") {
        c"/lib64/ld-linux-x86-64.so.2"
    } else {
        c"/lib/ld-linux-aarch64.so.1"
    }
}

/// A copy of this program in the agent's state folder.
fn copied(world: &World) -> CString {
    let path = world.in_state("copy");
    let text = path.to_str().expect("a path");
    let bytes = std::fs::read("/proc/self/exe").expect("this program");
    let mut file = {
        use std::os::unix::fs::OpenOptionsExt as _;
        let _ = std::fs::remove_file(text);
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(text)
            .expect("a copy")
    };
    file.write_all(&bytes).expect("a copy");
    path
}

fn in_memory(name: &str) -> Option<File> {
    use std::os::fd::FromRawFd as _;
    let memory = unsafe { libc::memfd_create(c"survey".as_ptr(), libc::MFD_EXEC) };
    if memory < 0 {
        say(name, "memfd", &Said::Error(errno()));
        return None;
    }
    let mut file = unsafe { File::from_raw_fd(memory) };
    file.write_all(&std::fs::read("/proc/self/exe").expect("this program")).expect("memory");
    // A file that is open for writing cannot be executed by its path.
    let again = File::open(format!("/proc/self/fd/{memory}"));
    Some(again.unwrap_or(file))
}

#[cfg(target_arch = "x86_64")]
fn i386() -> Said {
    // getpid of the 32-bit interface.
    let mut result: i64 = 20;
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    if result < 0 { Said::Error(-(result as i32)) } else { Said::Fine }
}

#[cfg(not(target_arch = "x86_64"))]
fn i386() -> Said {
    Said::Error(libc::ENOSYS)
}
