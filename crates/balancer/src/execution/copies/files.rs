//! The file mappings that processes only read: which parts, how much of them was used recently, and which copy they show. Read from `/proc/PID/smaps`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_kernel::KernelError;
use numapilot_kernel::maps;
use numapilot_kernel::maps::MapLine;

/// Smaller mappings are not worth a copy: the library's own bound (`BYTES_MIN` in `remap.c`).
const BYTES_MIN: u64 = 64 << 10;
/// The preload library's file; a process that maps it accepts orders.
const LIBRARY: &[u8] = b"/libnumapilot-remap.so";

/// A part of a file, as mappings show it. Only these fields identify a copy, because the kernel shows some file systems under other devices than `stat()` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// Inode of the file.
    pub inode: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A private read-only mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// First address.
    pub start: VirtAddr,
    /// The part of the file that it maps.
    pub part: Part,
    /// Path of the file; `None` if the mapping shows a copy.
    pub path: Option<PathBuf>,
    /// The node (the kernel's number) whose copy the mapping shows.
    pub copy_of: Option<u16>,
    /// Bytes referenced since the last reading.
    pub referenced_bytes: u64,
}

/// Reads the mappings of a process that may show copies; `None`: the process accepts no orders. `folder` is the folder of the copies.
///
/// # Errors
/// The process has ended, or may not be inspected.
pub fn read(pid: Pid, folder: &Path, buffer: &mut Vec<u8>) -> Result<Option<Vec<Found>>, KernelError> {
    maps::read(pid, "smaps", buffer)?;
    Ok(found_in(buffer, folder))
}

fn found_in(smaps: &[u8], folder: &Path) -> Option<Vec<Found>> {
    let (mut found, mut takes_orders) = (Vec::new(), false);
    for (line, used) in maps::uses(smaps) {
        let in_folder = line.path.strip_prefix(folder.as_os_str().as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
        takes_orders |= in_folder.is_some() && line.path.ends_with(LIBRARY);
        if &line.permissions != b"r--p" || line.inode == 0 || line.bytes() < BYTES_MIN {
            continue;
        }
        let referenced_bytes = used.referenced_kib << 10;
        match in_folder {
            Some(name) => {
                let Some((part, node)) = part_of_copy(name) else { continue };
                let (path, copy_of) = (None, Some(node));
                found.push(Found { start: line.start, part, path, copy_of, referenced_bytes });
            }
            None if line.path.starts_with(b"/") && !line.path.ends_with(b" (deleted)") => {
                let (part, path) = (part_of(&line), PathBuf::from(OsStr::from_bytes(line.path)));
                found.push(Found { start: line.start, part, path: Some(path), copy_of: None, referenced_bytes });
            }
            None => {}
        }
    }
    takes_orders.then_some(found)
}

fn part_of(line: &MapLine<'_>) -> Part {
    Part { inode: line.inode, offset: line.offset, bytes: line.bytes() }
}

/// Copies are named after their source: `DEVICE-INODE-CHANGED-SIZE-OFFSET-BYTES.nodeN` (`name_of` in `remap_copy.c`).
fn part_of_copy(name: &[u8]) -> Option<(Part, u16)> {
    let name = std::str::from_utf8(name).ok()?;
    let (name, node) = name.rsplit_once(".node")?;
    let words: Vec<&str> = name.split('-').collect();
    let [_device, inode, _changed, _size, offset, bytes] = words[..] else { return None };
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    Some((Part { inode: hex(inode)?, offset: hex(offset)?, bytes: hex(bytes)? }, node.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &[u8] = b"\
7f0000000000-7f0000100000 r--p 00010000 fd:01 42 /data/prices
Referenced:          512 kB
7f0000200000-7f0000300000 r--p 00000000 00:19 77 /dev/shm/copies/fd01-2a-65f.000000001-200000-10000-100000.node3
Referenced:            4 kB
7f0000400000-7f0000500000 r-xp 00000000 fd:01 43 /lib/code
7f0000600000-7f0000700000 rw-p 00000000 fd:01 42 /data/prices
7f0000800000-7f0000900000 r--s 00000000 fd:01 44 /data/shared
7f0000a00000-7f0000a01000 r--p 00000000 fd:01 45 /data/small
7f0000b00000-7f0000c00000 r--p 00000000 fd:01 46 /data/gone (deleted)
";

    #[test]
    fn only_private_data_that_is_only_read_counts_and_copies_are_known_for_what_they_are_of() {
        let folder = Path::new("/dev/shm/copies");
        assert_eq!(found_in(SMAPS, folder), None, "without the library nobody hears orders");
        let with = [SMAPS, b"7f0000d00000-7f0000d01000 r--p 00000000 00:19 9 /dev/shm/copies/libnumapilot-remap.so\n"]
            .concat();
        let found = found_in(&with, folder).unwrap();
        let part = Part { inode: 42, offset: 0x10000, bytes: 0x10_0000 };
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].part, found[0].copy_of, found[0].referenced_bytes), (part, None, 512 << 10));
        assert_eq!((found[1].part, found[1].copy_of, &found[1].path), (part, Some(3), &None));
        assert_eq!(found_in(&with, Path::new("/dev/shm/others")), None);
    }

    #[test]
    fn other_names_are_no_copies() {
        for name in ["log", "a-b.node1", "1-2-3-4-5-zz.node0", "1-2-3-4-5-6.node", "shared-1-2-3-4-5-6.node1"] {
            assert_eq!(part_of_copy(name.as_bytes()), None, "{name}");
        }
    }
}
