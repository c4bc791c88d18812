//! Memory that one process has mapped at several addresses at a time: Java's ZGC did so with its heap up to Java 23, other runtimes do it with generated code,
//! and programs with rings. The kernel counts a page in each mapping that has it, and so do the figures, which a note says.

use std::collections::BTreeMap;

use numapilot_kernel::maps;
use numapilot_kernel::maps::MapLine;

/// Names that the note lists at most.
const NAMED_MAX: usize = 3;

/// The note on a process with this `smaps`; `None`: it has mapped no memory twice.
pub fn note(smaps: &[u8]) -> Option<String> {
    let mut files: BTreeMap<((u32, u32), u64), Vec<MapLine<'_>>> = BTreeMap::new();
    for (line, used) in maps::uses(smaps) {
        if line.is_shared() && line.inode != 0 && used.resident_kib + used.hugetlb_kib > 0 {
            files.entry((line.device, line.inode)).or_default().push(line);
        }
    }
    let names: Vec<String> = files.into_values().filter_map(mapped_again).collect();
    let more = names.len().saturating_sub(NAMED_MAX);
    let others = if more > 0 { format!(" and {more} more") } else { String::new() };
    let listed = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "The process has mapped the same memory at several addresses ({listed}{others}): each page of it counts once for each of them, so that the \
             figures are too high."
        )
    })
}

/// The name of a file of which two of these mappings show the same part.
fn mapped_again(mut mappings: Vec<MapLine<'_>>) -> Option<String> {
    mappings.sort_by_key(|line| line.offset);
    let is_over = |pair: &&[MapLine<'_>]| pair[1].offset < pair[0].offset.saturating_add(pair[0].bytes());
    let path = mappings.windows(2).find(is_over)?[0].path;
    Some(String::from_utf8_lossy(path).trim_end_matches(" (deleted)").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The heap of a Java program was three times as large as it is.
    #[test]
    fn memory_at_several_addresses_is_told() {
        let heap = |at: &str, offset: &str, kib: u32| {
            format!("{at} rw-s {offset} 00:01 77 /memfd:java_heap (deleted)\nRss: {kib} kB\n")
        };
        let first = heap("40000000000-40010000000", "00000000", 2048);
        let told = note((first.clone() + &heap("80000000000-80010000000", "08000000", 2048)).as_bytes());
        assert!(told.is_some_and(|note| note.contains("(/memfd:java_heap)") && note.ends_with("too high.")));
        let other = "90000000000-90010000000 rw-s 00000000 00:01 78 /memfd:other (deleted)\nRss: 8 kB\n";
        // Nothing of it is in memory there, or another part of it, or it is another file.
        let cases = [
            heap("80000000000-80010000000", "00000000", 0),
            heap("80000000000-80010000000", "10000000", 2048),
            other.to_owned(),
        ];
        for rest in cases {
            assert_eq!(note((first.clone() + &rest).as_bytes()), None, "{rest}");
        }
        let private = first.replace("rw-s", "rw-p").repeat(2);
        assert_eq!(note(private.as_bytes()), None, "each has pages of its own");
    }

    #[test]
    fn a_note_does_not_list_everything() {
        let twice = |inode: u32| format!("1000-3000 rw-s 0 00:01 {inode} /dev/shm/{inode}\nRss: 4 kB\n").repeat(2);
        let told = note((1..=5).map(twice).collect::<String>().as_bytes());
        assert!(told.is_some_and(|note| note.contains("(/dev/shm/1, /dev/shm/2, /dev/shm/3 and 2 more)")));
    }
}
