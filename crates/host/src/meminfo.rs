//! `/proc/meminfo` and `/sys/devices/system/node/nodeN/meminfo`: lines of a name, a colon, a number and `kB`; those of a node begin with `Node N`.

use crate::Root;
use crate::number;

/// Name (without its colon) and bytes of each line that has an amount of memory; lines without `kB` (counts of huge pages) and foreign ones are left out.
pub fn amounts(text: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    text.split(|&byte| byte == b'\n').filter_map(amount)
}

/// Bytes of one name, such as `MemFree`; `None` where no line has it, or has no amount.
#[must_use]
pub fn bytes_of(text: &[u8], name: &str) -> Option<u64> {
    amounts(text).find(|(found, _)| *found == name.as_bytes()).map(|(_, bytes)| bytes)
}

/// Bytes of this machine's memory that its kernel can give away; `None`: it does not tell.
#[must_use]
pub fn total_bytes(root: &Root) -> Option<u64> {
    bytes_of(root.read("proc/meminfo", &mut Vec::new()).ok()?, "MemTotal")
}

fn amount(line: &[u8]) -> Option<(&[u8], u64)> {
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let mut name = words.next()?;
    if name == b"Node" {
        words.next()?;
        name = words.next()?;
    }
    let value = words.next().filter(|word| word.iter().all(u8::is_ascii_digit))?;
    let is_kib = words.next() == Some(b"kB");
    Some((name.strip_suffix(b":")?, number(value)?.checked_mul(1024).filter(|_| is_kib)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_read_of_both_files() {
        let node = b"Node 12 MemTotal:         516032 kB\nNode 12 HugePages_Total:     3\nNode 12 Active(file):      20000 kB\n";
        let found: Vec<_> = amounts(node).collect();
        assert_eq!(found, [(&b"MemTotal"[..], 516_032 << 10), (&b"Active(file)"[..], 20_000 << 10)]);
        let system = b"MemTotal:        1000 kB\nMemFree:          400 kB\nMemAvailable: lots kB\nSwapFree: 18446744073709551615 kB\n";
        assert_eq!((bytes_of(system, "MemFree"), bytes_of(system, "MemAvailable")), (Some(400 << 10), None));
        assert_eq!((bytes_of(system, "SwapFree"), bytes_of(system, "Mem")), (None, None));
    }

    #[test]
    fn the_machines_memory_is_read_under_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert_eq!(total_bytes(&root), None);
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join("proc/meminfo"), "MemTotal:       16000 kB\nMemFree: 3 kB\n").unwrap();
        assert_eq!(total_bytes(&root), Some(16_000 << 10));
        assert!(total_bytes(&Root::default()) > Some(0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_left_out(text in prop::collection::vec(any::<u8>(), 0..300)) {
            amounts(&text).for_each(drop);
        }
    }
}
