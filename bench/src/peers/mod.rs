//! The supervisors that are compared: the floor, defib, and the peers that are installed.
//!
//! Each is set up to restart at once and without end, as far as it can be told to; none is given a
//! shell between itself and the child.

mod circus;
mod defib;
mod floor;
mod horust;
mod pitchfork;
mod pm2;
mod s6;
mod scan;
mod supervisord;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::job::{Job, Launch};

pub(crate) use defib::Defib;

/// Something that keeps children running.
pub(crate) trait Supervisor {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// The program without which there is nothing to compare with.
    fn program(&self) -> &Path;

    /// Writes what it needs into the job's folder, and says how it is started.
    fn prepare(&self, job: &Job) -> io::Result<Launch>;

    /// Whether it writes a child's output to files and rotates them.
    fn captures(&self) -> bool {
        false
    }

    /// The most children that it is asked to start at once.
    fn most(&self) -> usize {
        usize::MAX
    }
}

/// What the floor is called.
pub(crate) const FLOOR: &str = "floor";
/// What we are called.
pub(crate) const DEFIB: &str = "defib";

/// All that could be compared. `installed` is the folder that the peers were installed in.
pub(crate) fn all(defib: &Path, installed: &Path) -> Vec<Box<dyn Supervisor>> {
    let apt = installed.join("apt");
    vec![
        Box::new(floor::Floor::new()),
        Box::new(Defib::new(defib)),
        Box::new(scan::Scan::runit(&apt)),
        Box::new(s6::S6::new(&apt)),
        Box::new(scan::Scan::daemontools(&apt)),
        Box::new(supervisord::Supervisord::new(installed)),
        Box::new(circus::Circus::new(installed)),
        Box::new(pm2::Pm2::new(installed)),
        Box::new(horust::Horust::new(installed)),
        Box::new(pitchfork::Pitchfork::new(installed)),
    ]
}

/// A file in the job's folder.
fn write(job: &Job, name: &str, text: &str) -> io::Result<PathBuf> {
    let path = job.folder.join(name);
    std::fs::write(&path, text)?;
    Ok(path)
}

/// A program that may be run.
fn script(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

/// A command from packages that were unpacked here: they find one another and their libraries.
fn unpacked(root: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}/usr/bin:{path}", root.display()));
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries = ["usr/lib", "lib"].map(|lib| root.join(lib).join(&machine));
    command.env("LD_LIBRARY_PATH", libraries.map(|path| path.display().to_string()).join(":"));
    command
}
