//! Pages that the kernel's NUMA balancing has moved: `numa_pages_migrated` of `/proc/vmstat`. It counts pages that hinting faults made the kernel move, of
//! all processes of the machine, and none that a program moved (`move_pages(2)`, `mbind(2)`): `mm/migrate.c`, `migrate_misplaced_folio`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::actuator::page_bytes;

const COUNTER: &str = "numa_pages_migrated";

/// What the kernel has moved since this was made.
#[derive(Clone, Debug)]
pub struct BalancingMoves {
    root: PathBuf,
    before: Option<u64>,
}

impl BalancingMoves {
    /// Counts from now on what the kernel's balancing moves, by the files under `root`.
    #[must_use]
    pub fn from_now(root: &Path) -> BalancingMoves {
        BalancingMoves { root: root.to_owned(), before: pages(root) }
    }

    /// Bytes moved since then; `None`: this kernel does not count them.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        Some(pages(&self.root)?.checked_sub(self.before?)? * page_bytes())
    }
}

fn pages(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/vmstat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(COUNTER)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_since_then_are_counted_and_silence_is_not_none_moved() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("proc")).expect("made");
        let put = |text: &str| fs::write(root.path().join("proc/vmstat"), text).expect("written");
        put("numa_hint_faults 9\nnuma_pages_migrated 100\npgmigrate_success 5000\n");
        let moves = BalancingMoves::from_now(root.path());
        assert_eq!(moves.bytes(), Some(0));
        put("numa_hint_faults 9\nnuma_pages_migrated 8804\npgmigrate_success 9000\n");
        assert!(moves.bytes().is_some_and(|bytes| bytes >= 8704 * 4096 && bytes % 8704 == 0));
        put("pgmigrate_success 9000\n");
        assert_eq!(moves.bytes(), None);
        assert_eq!(BalancingMoves::from_now(root.path()).bytes(), None);
    }
}
