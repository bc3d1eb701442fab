//! The corpus that guided fuzzing keeps: one file per target, `fuzz/corpus/TARGET`.
//!
//! A file holds all inputs of its target, each after its length, packed by postcard: thousands of small files
//! would burden every checkout.

use std::io;
use std::path::{Path, PathBuf};

use crate::Target;

fn file(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// The inputs that are kept for a target; none if there is no file.
pub fn kept(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    match std::fs::read(file(target)) {
        Ok(bytes) => postcard::from_bytes(&bytes).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Writes the seeds and the kept inputs of a target to files in a folder.
pub fn unpack(target: &Target, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (number, input) in target.seeds.iter().chain(&kept(target)?).enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), input)?;
    }
    Ok(())
}

/// Keeps the files of a folder as the corpus of a target.
pub fn pack(target: &Target, folder: &Path) -> io::Result<()> {
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        inputs.push(std::fs::read(entry?.path())?);
    }
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let bytes = postcard::to_allocvec(&inputs).map_err(io::Error::other)?;
    let file = file(target);
    std::fs::create_dir_all(file.parent().unwrap_or(&file))?;
    std::fs::write(file, bytes)
}
