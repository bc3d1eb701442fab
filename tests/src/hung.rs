//! A file system that does not answer: a FUSE mount whose server takes requests and never replies.
//!
//! A process that touches the mount is stuck in the kernel (state D): no signal reaches it, SIGKILL
//! included, until the file system is released.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

/// A mounted file system that hangs. Dropping it releases it.
#[derive(Debug)]
pub struct Hung {
    point: PathBuf,
    mounted: bool,
}

impl Hung {
    /// Mounts one over a folder. `None`, with the reason on standard error, if this machine cannot.
    pub fn over(point: &Path) -> Option<Hung> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = match device {
            Ok(device) => device,
            Err(error) => {
                eprintln!("not run: no file system can be made to hang: /dev/fuse: {error}");
                return None;
            }
        };
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::empty();
        if let Err(error) = rustix::mount::mount("hung", point, "fuse", flags, options.as_c_str()) {
            eprintln!("not run: no file system can be made to hang: mount: {error}");
            return None;
        }
        // Ends when the connection is aborted.
        std::thread::spawn(move || serve(device));
        Some(Hung { point: point.to_owned(), mounted: true })
    }

    /// Lets everything go on that hangs in it, with an error, and takes it away.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.mounted) {
            let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
            rustix::mount::unmount(&self.point, flags).unwrap();
        }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.release();
    }
}

/// Answers the handshake and nothing else: a request that was taken cannot be interrupted any more.
fn serve(mut device: File) {
    const INIT: u32 = 26;
    let mut request = vec![0; 1 << 20];
    while let Ok(40..) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        if word(4) == INIT {
            // As the kernel lays them out: struct fuse_out_header, then struct fuse_init_out.
            let mut answer = Vec::new();
            answer.extend(80_u32.to_ne_bytes());
            answer.extend(0_i32.to_ne_bytes());
            answer.extend(&request[8..16]);
            answer.extend([7_u32, 31, 0, 0].map(u32::to_ne_bytes).concat());
            answer.extend([0_u16, 0].map(u16::to_ne_bytes).concat());
            answer.extend(4096_u32.to_ne_bytes());
            answer.extend(1_u32.to_ne_bytes());
            answer.resize(80, 0);
            let _ = device.write_all(&answer);
        }
    }
}
