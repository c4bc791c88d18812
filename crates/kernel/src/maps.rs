//! `/proc/PID/maps`, `smaps` and `numa_maps`: the mappings of a process, how much of each is in memory, and on which nodes. Each parser walks
//! the bytes once and uses buffers of the caller.

use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::path::Path;

use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_host::read_patiently;
use numapilot_machine::NodeId;

use crate::error::KernelError;
use crate::task::stand_in;

/// A mapping, as a line of `maps` says. Borrows the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapLine<'a> {
    /// First address.
    pub start: VirtAddr,
    /// First address after the mapping.
    pub end: VirtAddr,
    /// `rwxp`, or with `-` and `s`.
    pub permissions: [u8; 4],
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Device number, major and minor.
    pub device: (u32, u32),
    /// Inode number; 0 for anonymous memory.
    pub inode: u64,
    /// Path, `[heap]`, `[stack]`, ...; empty for anonymous memory. ` (deleted)` is part of it.
    pub path: &'a [u8],
}

impl MapLine<'_> {
    /// Length of the mapping.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether an address is within the mapping.
    #[must_use]
    pub fn contains(&self, address: VirtAddr) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether the mapping is executable.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.permissions[2] == b'x'
    }

    /// Whether the mapping is shared: other processes see writes to it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.permissions[3] == b's'
    }

    /// `PROT_READ | PROT_WRITE | PROT_EXEC`, as far as they are set.
    #[must_use]
    pub fn protection(&self) -> u32 {
        let bits = [(b'r', 1), (b'w', 2), (b'x', 4)];
        bits.iter().zip(self.permissions).filter(|((letter, _), is)| letter == is).map(|((_, bit), _)| bit).sum()
    }
}

/// Reads a file about the memory of process `pid` into `buffer`, which is emptied before; that of another thread where the first one has ended.
///
/// # Errors
/// The process has ended, or the caller may not inspect it, or the kernel has no such file, or a thread of it has its address space locked
/// ([`read_patiently`]).
pub fn read(pid: Pid, name: &str, buffer: &mut Vec<u8>) -> Result<(), KernelError> {
    read_under(Path::new("/"), pid, name, buffer)
}

/// [`read`] under another root.
///
/// # Errors
/// As [`read`].
pub fn read_under(root: &Path, pid: Pid, name: &str, buffer: &mut Vec<u8>) -> Result<(), KernelError> {
    let mut read = |path: &Path| read_patiently(path, u64::MAX, buffer);
    let mut path = root.join(format!("proc/{pid}/{name}"));
    let mut result = read(&path);
    // The kernel's own threads have no memory either.
    if matches!(result, Ok(0) | Err(_))
        && let Some(tid) = stand_in(root, pid)
    {
        path = root.join(format!("proc/{pid}/task/{tid}/{name}"));
        result = read(&path);
    } else if matches!(&result, Err(error) if error.kind() == io::ErrorKind::NotFound)
        && root.join(format!("proc/{pid}/stat")).exists()
    {
        // A process that has ended has no other file either.
        return Err(KernelError::NoFile { pid, name: name.to_owned() });
    }
    result.map(drop).map_err(|source| KernelError::of_file(path, pid, source))
}

/// Clears the record of which file pages a process has accessed (3 to `/proc/PID/clear_refs`), so that [`MapUse::referenced_kib`] counts from now on.
/// Pages stay; the next use of each costs a walk of the page table.
///
/// # Errors
/// The process has ended, or is another user's.
pub fn clear_referenced(pid: Pid) -> Result<(), KernelError> {
    let path = Path::new("/proc").join(format!("{pid}/clear_refs"));
    if numapilot_host::is_locked(pid) {
        return Err(KernelError::of_file(path, pid, numapilot_host::locked_error()));
    }
    let done = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"3"));
    done.map_err(|source| KernelError::of_file(path, pid, source))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}

fn hex(digits: &[u8]) -> Option<u64> {
    number(digits, 16)
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// Mappings of the text of `maps` (or the headers in that of `smaps`). Lines of another form are passed over.
pub fn maps(text: &[u8]) -> impl Iterator<Item = MapLine<'_>> {
    lines(text).filter_map(map_line)
}

fn map_line(line: &[u8]) -> Option<MapLine<'_>> {
    // Five fields with single blanks, then blanks, then the path, which may hold blanks itself.
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (field, after) = rest.split_at(end);
        rest = after.strip_prefix(b" ").unwrap_or(after);
        field
    };
    let (range, permissions, offset, device, inode) = (field(), field(), field(), field(), field());
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let colon = device.iter().position(|&byte| byte == b':')?;
    let narrow = |value: u64| u32::try_from(value).ok();
    Some(MapLine {
        start: VirtAddr(hex(&range[..dash])?),
        end: VirtAddr(hex(&range[dash + 1..])?),
        permissions: permissions.try_into().ok()?,
        offset: hex(offset)?,
        device: (narrow(hex(&device[..colon])?)?, narrow(hex(&device[colon + 1..])?)?),
        inode: number(inode, 10)?,
        path: rest.trim_ascii_start(),
    })
}

/// Memory of a mapping according to `smaps`, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapUse {
    /// First address.
    pub start: VirtAddr,
    /// Resident memory (`Rss`).
    pub resident_kib: u64,
    /// Resident memory, each page divided by the number of processes that map it (`Pss`); 0 where the kernel does not say.
    pub proportional_kib: u64,
    /// Resident memory in transparent huge pages (`AnonHugePages`).
    pub huge_kib: u64,
    /// Memory in pages of the hugetlb pool (`Shared_Hugetlb`, `Private_Hugetlb`), which is not part of `Rss`.
    pub hugetlb_kib: u64,
    /// Swapped-out memory (`Swap`).
    pub swapped_kib: u64,
    /// Resident memory that this process has accessed since [`clear_referenced`], or since the page was mapped (`Referenced`).
    pub referenced_kib: u64,
    /// Page size of the mapping (`KernelPageSize`).
    pub page_kib: u64,
}

/// Mappings in the text of `smaps`, each with its memory.
pub fn uses(text: &[u8]) -> impl Iterator<Item = (MapLine<'_>, MapUse)> {
    let mut rest = lines(text).peekable();
    std::iter::from_fn(move || {
        let line = rest.by_ref().find_map(map_line)?;
        let mut found = MapUse { start: line.start, ..MapUse::default() };
        // Lines about a mapping begin with a capital letter, the next mapping with a digit.
        while let Some(next) = rest.next_if(|next| next[0].is_ascii_uppercase()) {
            let Some(colon) = next.iter().position(|&byte| byte == b':') else { continue };
            let value = next[colon + 1..].trim_ascii().strip_suffix(b" kB").and_then(|digits| number(digits, 10));
            match (&next[..colon], value) {
                (b"Rss", Some(value)) => found.resident_kib = value,
                (b"Pss", Some(value)) => found.proportional_kib = value,
                (b"AnonHugePages", Some(value)) => found.huge_kib = value,
                (b"Shared_Hugetlb" | b"Private_Hugetlb", Some(value)) => found.hugetlb_kib += value,
                (b"Swap", Some(value)) => found.swapped_kib = value,
                (b"Referenced", Some(value)) => found.referenced_kib = value,
                (b"KernelPageSize", Some(value)) => found.page_kib = value,
                _ => {}
            }
        }
        Some((line, found))
    })
}

/// A mapping of `numa_maps`: pages by node. Borrows the text; pages go to a buffer of the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaLine<'a> {
    /// First address.
    pub start: VirtAddr,
    /// Policy, as the kernel writes it: `default`, `bind:0-1`, `interleave:0,2`, ...
    pub policy: &'a [u8],
    /// File behind it, with the kernel's escapes; empty: none.
    pub file: &'a [u8],
    /// Anonymous pages, of `page_kib` each.
    pub anonymous_pages: u64,
    /// Page size in KiB (`kernelpagesize_kB`).
    pub page_kib: u64,
    /// How often the page is mapped that is mapped most often (`mapmax`, which the kernel leaves out where that is once); 0: it says nothing.
    pub most_mappings: u64,
    /// Whether it is a hugetlb mapping.
    pub is_huge: bool,
    /// Whether it is the heap of `brk`.
    pub is_heap: bool,
    /// Whether it is the main thread's stack.
    pub is_stack: bool,
}

/// Length of the policy that a text begins with. Two of them have names of two words (`policy_modes` in `mm/mempolicy.c`).
fn policy_length(text: &[u8]) -> usize {
    let of_two_words = [&b"prefer (many)"[..], b"weighted interleave"].into_iter().find(|name| text.starts_with(name));
    let from = of_two_words.map_or(0, <[u8]>::len);
    text[from..].iter().position(|&byte| byte == b' ').map_or(text.len(), |at| from + at)
}

/// Calls `visit` for each mapping in the text of `numa_maps`, with its pages by node, ascending. Huge pages of transparent kind are counted as the
/// small pages that they are made of.
pub fn numa_maps<'a>(text: &'a [u8], mut visit: impl FnMut(NumaLine<'a>, &[(NodeId, u64)])) {
    let mut pages = Vec::new();
    for line in lines(text) {
        let Some(blank) = line.iter().position(|&byte| byte == b' ') else { continue };
        let Some(start) = hex(&line[..blank]).map(VirtAddr) else { continue };
        let rest = line[blank..].trim_ascii_start();
        let (policy, rest) = rest.split_at(policy_length(rest));
        if policy.is_empty() {
            continue;
        }
        let words = rest.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let mut found = NumaLine { start, policy, ..NumaLine::default() };
        pages.clear();
        for word in words {
            let Some(equals) = word.iter().position(|&byte| byte == b'=') else {
                found.is_huge |= word == b"huge";
                found.is_heap |= word == b"heap";
                found.is_stack |= word == b"stack";
                continue;
            };
            let (name, value) = (&word[..equals], &word[equals + 1..]);
            match (name, number(value, 10)) {
                (b"file", _) => found.file = value,
                (b"anon", Some(count)) => found.anonymous_pages = count,
                (b"kernelpagesize_kB", Some(size)) => found.page_kib = size,
                (b"mapmax", Some(count)) => found.most_mappings = count,
                ([b'N', node @ ..], Some(count)) => {
                    if let Some(node) = number(node, 10).and_then(|node| u16::try_from(node).ok()) {
                        pages.push((NodeId(node), count));
                    }
                }
                _ => {}
            }
        }
        pages.sort_unstable();
        visit(found, &pages);
    }
}

#[cfg(test)]
mod tests {
    //! Lines as kernels write them, and any bytes.

    use proptest::prelude::*;

    use super::*;

    const SMAPS: &[u8] = b"\
55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
KernelPageSize:        4 kB
Rss:                  24 kB
Pss:                  12 kB
AnonHugePages:         0 kB
Swap:                  8 kB
VmFlags: rd wr mr mw me ac sd
7f1c00000000-7f1c00400000 rw-s 00001000 fd:01 42 /tmp/a file with blanks (deleted)
Rss:                4096 kB
Referenced:         1024 kB
AnonHugePages:      2048 kB
";

    #[test]
    fn maps_and_smaps_are_read() {
        let found: Vec<_> = uses(SMAPS).collect();
        assert_eq!(found.len(), 2);
        let (heap, heap_use) = found[0];
        let (start, end) = (VirtAddr(0x55d0_c0a0_0000), VirtAddr(0x55d0_c0a2_1000));
        assert_eq!((heap.start, heap.end, heap.bytes(), heap.path), (start, end, 0x2_1000, &b"[heap]"[..]));
        assert!(heap.contains(start) && heap.contains(VirtAddr(end.0 - 1)) && !heap.contains(end));
        assert_eq!((heap.protection(), heap.is_executable(), heap.is_shared()), (3, false, false));
        let want = MapUse {
            start: heap.start,
            resident_kib: 24,
            proportional_kib: 12,
            swapped_kib: 8,
            page_kib: 4,
            ..MapUse::default()
        };
        assert_eq!(heap_use, want);
        let (file, file_use) = found[1];
        assert_eq!(file.path, b"/tmp/a file with blanks (deleted)");
        assert_eq!((file.offset, file.device, file.inode, file.is_shared()), (4096, (0xfd, 1), 42, true));
        assert_eq!((file_use.resident_kib, file_use.huge_kib, file_use.referenced_kib), (4096, 2048, 1024));
        assert_eq!(maps(SMAPS).count(), 2);
    }

    #[test]
    fn numa_maps_are_read() {
        let text = b"7f20 interleave:0-1 anon=5 dirty=5 N1=3 N0=2 kernelpagesize_kB=4\n\
            7f30 default heap anon=2 dirty=2 N0=2 kernelpagesize_kB=4\n\
            7f40 default file=/usr/lib/libc.so.6 mapped=12 N0=12 kernelpagesize_kB=4\n\
            7f60 bind:1 file=/anon_hugepage\\040(deleted) huge anon=1 dirty=1 N1=1 kernelpagesize_kB=2048\nnonsense\n";
        let mut found = Vec::new();
        numa_maps(text, |line, pages| found.push((line, pages.to_vec())));
        assert_eq!(found.len(), 4);
        assert!(found[1].0.is_heap && !found[1].0.is_stack);
        found.remove(1);
        assert_eq!(found[0].1, [(NodeId(0), 2), (NodeId(1), 3)]);
        assert_eq!((found[0].0.policy, found[0].0.anonymous_pages), (&b"interleave:0-1"[..], 5));
        assert_eq!((found[1].0.file, found[1].0.anonymous_pages), (&b"/usr/lib/libc.so.6"[..], 0));
        assert!(found[2].0.is_huge && found[2].0.page_kib == 2048);
    }

    /// They were `prefer` and `weighted`, without their nodes: mappings on different nodes were one object.
    #[test]
    fn policies_of_two_words_are_read_whole() {
        let text = b"7f20 prefer (many)=static:0-1 anon=1 N0=1 kernelpagesize_kB=4\n\
            7f30 weighted interleave:0,2 heap anon=2 N2=2 kernelpagesize_kB=4\n\
            7f40 weighted interleave:1\n7f50 prefer:1 anon=1 N1=1 kernelpagesize_kB=4\n7f60 \n";
        let mut found = Vec::new();
        numa_maps(text, |line, pages| {
            found.push((String::from_utf8_lossy(line.policy).into_owned(), line.is_heap, pages.len()));
        });
        let expected = [
            ("prefer (many)=static:0-1", false, 1),
            ("weighted interleave:0,2", true, 1),
            ("weighted interleave:1", false, 0),
            ("prefer:1", false, 1),
        ];
        assert_eq!(found, expected.map(|(policy, is_heap, nodes)| (policy.to_owned(), is_heap, nodes)));
    }

    #[test]
    fn this_process_has_a_stack_and_code() {
        let mut buffer = Vec::new();
        read(Pid::own(), "maps", &mut buffer).unwrap();
        assert!(maps(&buffer).any(|line| line.path == b"[stack]"));
        let code = this_process_has_a_stack_and_code as *const () as u64;
        let line = maps(&buffer).find(|line| line.contains(VirtAddr(code))).unwrap();
        assert!(line.is_executable() && line.inode != 0);
        assert!(matches!(read(Pid(u32::MAX), "maps", &mut buffer), Err(KernelError::Gone { .. })));
    }

    /// A pipe without a writer stands for a process whose address space is locked: whoever reads it waits for ever.
    #[test]
    fn a_process_that_does_not_answer_is_an_error_that_says_so() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/7");
        std::fs::create_dir_all(&folder).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(folder.join("numa_maps")).status().unwrap().success());
        let error = read_under(root.path(), Pid(7), "numa_maps", &mut Vec::new()).unwrap_err();
        assert!(error.is_unanswered() && error.to_string().contains("numa_maps: not read"), "{error}");
        assert!(!read_under(root.path(), Pid(8), "numa_maps", &mut Vec::new()).unwrap_err().is_unanswered());
    }

    /// Kernels may be built without NUMA, or without `smaps`: `numapilot move` said that the process had ended.
    #[test]
    fn a_process_that_lacks_a_file_has_not_ended() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/7");
        std::fs::create_dir_all(&folder).unwrap();
        let ask = || read_under(root.path(), Pid(7), "smaps", &mut Vec::new()).unwrap_err();
        assert!(matches!(ask(), KernelError::Gone { pid: Pid(7) }));
        std::fs::write(folder.join("stat"), "7 (x) S 1").unwrap();
        let error = ask();
        assert!(matches!(error, KernelError::NoFile { .. }) && error.to_string().contains("7 has no smaps"), "{error}");
    }

    #[test]
    fn what_is_used_is_told_from_what_is_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
        // SAFETY: a fresh, private, read-only mapping of a file that stays as long as it is in use.
        let memory = unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                1 << 20,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_POPULATE,
                std::os::fd::AsRawFd::as_raw_fd(file.as_file()),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts(at.cast::<u8>(), 1 << 20)
        };
        let (pid, mut text) = (Pid::own(), Vec::new());
        let mut used = || {
            read(pid, "smaps", &mut text).unwrap();
            uses(&text).find(|(line, _)| line.start.0 == memory.as_ptr() as u64).unwrap().1.referenced_kib
        };
        clear_referenced(pid).unwrap();
        let before = used();
        let sum: u64 = memory[..1 << 19].iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
        assert_eq!((std::hint::black_box(sum), before), (128, 0));
        assert_eq!(used(), 512);
    }

    proptest! {
        #[test]
        fn any_bytes_are_passed_over(text in prop::collection::vec(any::<u8>(), 0..400)) {
            maps(&text).for_each(drop);
            uses(&text).for_each(drop);
            numa_maps(&text, |_, _| {});
        }
    }
}
