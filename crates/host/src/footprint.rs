//! What this process takes of the machine's memory, and how it gives that back.
//!
//! Keeper and daemon live for months beside what they watch. What a burst of work needed (a thousand
//! orders, a large project) must not stay with them, and neither must code that runs only once.

use std::collections::BTreeMap;

/// A piece of memory this large is got from the system by itself, and goes back by itself. Smaller
/// ones share pages with their neighbours, which may stay.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 64 << 10;

/// Makes the allocator thrifty. To be called once, early, in a process that is to live long.
pub fn settle_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: both calls take two numbers and change only how the allocator works from now on.
    unsafe {
        // By itself the bound grows with what is freed, up to 32 MiB, and then what is large lies
        // between what is small.
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        // Threads that each have pages of their own leave each of them half empty. Ours seldom
        // allocate at the same time.
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives back to the system what was allocated and is no longer used, and the code that was. Worth it
/// after something large that does not come again soon.
pub fn release_memory() {
    release_code();
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, and touches only memory that nobody has allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes a map anew that has grown. One that grew in order has half empty nodes, one that is made at
/// once has full ones.
pub fn pack<K: Ord, V>(map: &mut BTreeMap<K, V>) {
    *map = std::mem::take(map).into_iter().collect();
}

/// Lets go of the pages of our own program. What is needed again comes back by itself from the file.
fn release_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(rights), Some(offset)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        // Code and, at the file's beginning, tables and constants: neither is ever written to, not
        // even by the loader. What it has written to, and then locked, looks alike but lies further on.
        let is_as_in_file = rights == "r-xp" || (rights == "r--p" && offset == "00000000");
        if !is_as_in_file || fields.nth(2).map(std::path::Path::new) != Some(&program) {
            continue;
        }
        let bounds = range.split_once('-').and_then(|(begin, end)| {
            Some((usize::from_str_radix(begin, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
        });
        let Some((begin, end)) = bounds else { continue };
        // SAFETY: the kernel has just named this range as a private mapping of our program's file
        // without the right to write, and nobody unmaps it. Its pages are those of the file, so
        // whoever touches one again, this very function included, finds what was there before.
        unsafe {
            libc::madvise(
                begin as *mut libc::c_void,
                end.saturating_sub(begin),
                libc::MADV_DONTNEED,
            );
        }
    }
}
