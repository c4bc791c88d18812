//! `/proc/kpagecount` and `/proc/kpageflags`: how often each page frame is mapped, and what it is (`Documentation/admin-guide/mm/pagemap.rst`). Their numbers
//! are those of [`crate::pagemap::PageEntry::frame`]. Only root may open them; a kernel without `CONFIG_PROC_PAGE_MONITOR` does not have them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use numapilot_host::Root;

/// Flags (`include/uapi/linux/kernel-page-flags.h`) of frames whose count of mappings is not that of one small page: parts of compound pages (15, 16), hugetlb
/// (17), absent frames (20), pages that the kernel has merged (KSM, 21), huge pages (22), the zero page (24).
const NOT_SMALL: u64 = 1 << 15 | 1 << 16 | 1 << 17 | 1 << 20 | 1 << 21 | 1 << 22 | 1 << 24;

/// The counts and flags of all frames, held open.
#[derive(Debug)]
pub struct Frames {
    counts: File,
    flags: File,
}

impl Frames {
    /// Opens both files.
    ///
    /// # Errors
    /// This kernel does not have them, or the caller may not open them.
    pub fn open(root: &Root) -> io::Result<Frames> {
        let open = |name: &str| File::open(root.path().join("proc").join(name));
        Ok(Frames { counts: open("kpagecount")?, flags: open("kpageflags")? })
    }

    /// How often a frame is mapped; `None`: it is no small page of its own, or cannot be read.
    #[must_use]
    pub fn mapped(&self, frame: u64) -> Option<u64> {
        let is_small = word(&self.flags, frame)? & NOT_SMALL == 0;
        word(&self.counts, frame).filter(|_| is_small)
    }
}

fn word(file: &File, frame: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, frame.checked_mul(8)?).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_small_pages_have_a_count() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        fs::create_dir(folder.path().join("proc")).unwrap();
        assert!(Frames::open(&root).is_err(), "a kernel without them");
        let put = |name: &str, words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            fs::write(folder.path().join("proc").join(name), bytes).unwrap();
        };
        // Of a file; then compound head and tail, hugetlb, merged, huge, zero page; the last word of one file alone.
        put("kpageflags", &[1 << 5, 1 << 15, 1 << 16, 1 << 17, 1 << 21, 1 << 22, 1 << 24, 0]);
        put("kpagecount", &[5, 1, 1, 1, 1, 1, 1]);
        let frames = Frames::open(&root).unwrap();
        let counts: Vec<Option<u64>> = (0..9).map(|frame| frames.mapped(frame)).collect();
        assert_eq!(counts, [Some(5), None, None, None, None, None, None, None, None]);
        assert_eq!(frames.mapped(u64::MAX), None);
    }
}
