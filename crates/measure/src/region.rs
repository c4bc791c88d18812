//! Memory for a measurement: mapped, bound to its nodes, touched, and *verified* to be there (`move_pages`) before anything is timed.

use std::io;

use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::memory::PageQuery;
use numapilot_kernel::task::Pid;
use numapilot_machine::{CpuId, NodeId};

use crate::error::MeasureError;
use crate::options::Pages;
use crate::pin::pin;
use crate::proof::Proof;
use crate::results::Target;
use crate::threads::spawn;

/// Words of a node mask: the kernel's largest (CONFIG_NODES_SHIFT 10).
const MASK_WORDS: usize = 1024 / 64;
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_BIND: libc::c_int = 2;
/// Page faults are half of the cost of a measurement with a gigabyte; a few threads are enough to hide that.
const FILLERS_MAX: usize = 16;
/// Whole large pages may take this much more memory than was planned, or an eighth more.
const ROUNDED_MOST: usize = 32 << 20;

/// A request for a region of memory.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Bytes; rounded up to whole pages of the kind.
    pub bytes: usize,
    /// Nodes on which the memory should be.
    pub target: &'a Target,
    /// Kind of pages.
    pub pages: Pages,
    /// Size of a large page.
    pub large_page_bytes: usize,
    /// Whether the machine has but one node with memory, so that binding can be done without.
    pub single_node: bool,
    /// CPUs that touch the memory first; any where empty.
    pub fillers: &'a [CpuId],
    /// Purpose of the memory in words, for messages.
    pub purpose: &'a str,
}

/// Memory of this process at known nodes; given back when dropped.
#[derive(Debug)]
pub struct Region {
    base: *mut u8,
    mapped: *mut libc::c_void,
    mapped_bytes: usize,
    bytes: usize,
    /// Evidence of the memory's placement.
    pub proof: Proof,
    /// Share of it in large pages, where the kernel shows it.
    pub large_share: Option<f64>,
}

// SAFETY: the memory belongs to this value alone; who shares it goes through the borrow that its methods give.
unsafe impl Send for Region {}
// SAFETY: as above; shared references give only the address and length.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nobody else's.
        unsafe { libc::munmap(self.mapped, self.mapped_bytes) };
    }
}

impl Region {
    /// Maps, binds, touches and proves.
    ///
    /// # Errors
    /// No memory, no right to bind it, or it is not where it should be.
    pub fn new(wanted: &Wanted<'_>) -> Result<Region, MeasureError> {
        let wanted = &Wanted { pages: pages_for(wanted), ..*wanted };
        let page = if wanted.pages == Pages::Base { base_page() } else { wanted.large_page_bytes };
        let bytes = wanted.bytes.div_ceil(page) * page;
        let mut region = Region::map(wanted, bytes, page)?;
        let is_spread = wanted.target.node().is_none();
        if !is_spread {
            region.bind(wanted)?;
        }
        region.fill(wanted, page)?;
        // Pages that are there stay where they are. Memory without a policy of its own is moved by the kernel's NUMA balancing, to whoever measures: it would
        // be local before long.
        if is_spread {
            region.bind(wanted)?;
        }
        region.proof = region.prove(wanted, page)?;
        region.large_share = region.large_share();
        Ok(region)
    }

    fn map(wanted: &Wanted<'_>, bytes: usize, page: usize) -> Result<Region, MeasureError> {
        let failed = |error| MeasureError::Memory { bytes, purpose: wanted.purpose.to_owned(), error };
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // Huge pages are reserved by the call, which fails where there are too few; without that the first access would.
        flags |= match wanted.pages {
            Pages::Huge => libc::MAP_HUGETLB | ((page.trailing_zeros() as i32) << libc::MAP_HUGE_SHIFT),
            Pages::Base | Pages::Large => libc::MAP_NORESERVE,
        };
        // Room to begin at a multiple of the page.
        let mapped_bytes = if wanted.pages == Pages::Large { bytes + page } else { bytes };
        // SAFETY: a fresh private mapping, owned by the value made below.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            if wanted.pages == Pages::Huge {
                return Err(too_few_huge_pages(bytes, &error));
            }
            return Err(failed(error));
        }
        let base = mapped.cast::<u8>().wrapping_add((mapped as usize).next_multiple_of(page) - mapped as usize);
        let region = Region { base, mapped, mapped_bytes, bytes, proof: Proof::OnlyNode, large_share: None };
        let advice = match wanted.pages {
            Pages::Base => libc::MADV_NOHUGEPAGE,
            Pages::Large => libc::MADV_HUGEPAGE,
            Pages::Huge => return Ok(region),
        };
        // SAFETY: within the mapping; a hint that a kernel without large pages refuses, which changes nothing.
        unsafe { libc::madvise(region.base.cast(), bytes, advice) };
        Ok(region)
    }

    /// Binds the whole mapping to the nodes of its target. Where these are several, pages are touched before that, under a policy of the thread that names one.
    fn bind(&self, wanted: &Wanted<'_>) -> Result<(), MeasureError> {
        let mut mask = [0_u64; MASK_WORDS];
        let mut add = |node: NodeId| mask.iter_mut().zip(mask_of(node)).for_each(|(word, bits)| *word |= bits);
        match wanted.target {
            Target::Node(node) => add(*node),
            Target::Weighted(weights) => weights.iter().for_each(|(node, _)| add(*node)),
        }
        // SAFETY: the range is ours, and the mask has as many bits as the call is told (it counts one more).
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base,
                self.bytes as libc::c_ulong,
                MPOL_BIND,
                mask.as_ptr(),
                (MASK_WORDS * 64 + 1) as libc::c_ulong,
                0_u32,
            )
        };
        if done != 0 && !wanted.single_node {
            return Err(MeasureError::Bind {
                nodes: wanted.target.to_string(),
                call: "mbind",
                error: io::Error::last_os_error(),
            });
        }
        Ok(())
    }

    /// Touches every page, each part by a thread of its own, so that pages are there before the first timing.
    fn fill(&self, wanted: &Wanted<'_>, page: usize) -> Result<(), MeasureError> {
        let threads = wanted.fillers.len().clamp(1, FILLERS_MAX);
        let pages = self.bytes / page;
        let share = pages.div_ceil(threads);
        std::thread::scope(|scope| {
            let work = (0..threads)
                .map(|thread| {
                    let part = (thread * share).min(pages)..((thread + 1) * share).min(pages);
                    let cpu = wanted.fillers.get(thread).copied();
                    spawn(scope, move || {
                        cpu.map_or(Ok(()), pin)?;
                        self.touch(wanted, page, part)
                    })
                })
                .collect::<Result<Vec<_>, _>>()?;
            work.into_iter().try_for_each(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    /// Touches pages of this part. Where the target is weighted, this thread's policy is each node in turn while it touches that node's pages.
    fn touch(&self, wanted: &Wanted<'_>, page: usize, part: std::ops::Range<usize>) -> Result<(), MeasureError> {
        let touch = |index: usize| -> Result<(), MeasureError> {
            if wanted.pages == Pages::Huge && self.populate(index * page, page)? {
                return Ok(());
            }
            // A page of whatever size the kernel gives is touched at each base page of it.
            for at in (0..page).step_by(base_page()) {
                // SAFETY: within the region, and no other thread has this part.
                unsafe { self.base.add(index * page + at).write_volatile(0) };
            }
            Ok(())
        };
        let Target::Weighted(weights) = wanted.target else {
            return part.into_iter().try_for_each(touch);
        };
        for (node, _) in weights {
            let bound = set_policy(MPOL_BIND, Some(*node));
            if !wanted.single_node {
                bound.map_err(|error| MeasureError::Bind {
                    nodes: wanted.target.to_string(),
                    call: "set_mempolicy",
                    error,
                })?;
            }
            let mut of_node = part.clone().filter(|&index| wanted.target.node_of_page(index as u64) == *node);
            of_node.try_for_each(touch)?;
        }
        // The thread ends after this; its policy with it.
        let _ = set_policy(MPOL_DEFAULT, None);
        Ok(())
    }

    /// Lets the kernel take the pages of a part; false where it cannot (before Linux 5.14). Where the nodes have too few huge pages this is an error, and an
    /// access would end the process: what `mmap` reserved is somewhere on the machine.
    fn populate(&self, at: usize, bytes: usize) -> Result<bool, MeasureError> {
        // SAFETY: within the region; the call only makes pages present.
        let done = unsafe { libc::madvise(self.base.add(at).cast(), bytes, libc::MADV_POPULATE_WRITE) };
        match io::Error::last_os_error() {
            _ if done == 0 => Ok(true),
            error if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            error => Err(too_few_huge_pages(self.bytes, &error)),
        }
    }

    /// Asks the kernel for the node of every page.
    fn prove(&self, wanted: &Wanted<'_>, page: usize) -> Result<Proof, MeasureError> {
        let pages = self.bytes / base_page();
        let addresses: Vec<u64> = (0..pages).map(|index| (self.base as usize + index * base_page()) as u64).collect();
        let mut states = Vec::with_capacity(pages);
        if let Err(error) = PageQuery::new().states(Pid::CALLING, &addresses, &mut states) {
            if wanted.single_node {
                return Ok(Proof::OnlyNode);
            }
            return Err(MeasureError::Unproved { wanted: wanted.target.to_string(), why: error.to_string() });
        }
        let mut found = std::collections::BTreeMap::<Place, u64>::new();
        let mut strays = 0;
        for (index, state) in states.iter().enumerate() {
            let right = wanted.target.node_of_page((index * base_page() / page) as u64);
            strays += u64::from(state.node() != Some(right));
            *found.entry(Place(state.node())).or_insert(0) += 1;
        }
        if strays > 0 {
            let words: Vec<String> = found.iter().map(|(place, count)| format!("{count} {place}")).collect();
            return Err(MeasureError::Misplaced {
                strays,
                pages: pages as u64,
                wanted: wanted.target.to_string(),
                found: words.join(", "),
            });
        }
        let bytes = |(place, count): (Place, u64)| Some((place.0?, count * base_page() as u64));
        Ok(Proof::Shown { pages: pages as u64, bytes_by_node: found.into_iter().filter_map(bytes).collect() })
    }

    /// Share of the region in large pages, by /proc/self/smaps.
    fn large_share(&self) -> Option<f64> {
        let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
        large_bytes(&text, self.base as u64, self.bytes as u64).map(|large| (large as f64 / self.bytes as f64).min(1.0))
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of the first byte, aligned to a page.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// The content as floating-point numbers.
    pub fn as_doubles(&mut self) -> &mut [f64] {
        // SAFETY: mapped, aligned, every bit pattern is a number, and borrowed from the one owner.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast(), self.bytes / size_of::<f64>()) }
    }
}

/// The kind of pages that a region gets: small ones where transparent large ones are too large for it. Beside base pages of 64 KiB (Arm) these have 512 MiB: to
/// round up to that may take more memory than there is, and spread memory of one page lies on one node.
fn pages_for(wanted: &Wanted<'_>) -> Pages {
    let (bytes, large) = (wanted.bytes, wanted.large_page_bytes);
    let is_uneven = match wanted.target {
        Target::Node(_) => false,
        Target::Weighted(weights) => {
            bytes < large.saturating_mul(weights.iter().map(|(_, weight)| *weight as usize).sum::<usize>())
        }
    };
    let is_rounded_far = bytes.next_multiple_of(large) - bytes > ROUNDED_MOST.max(bytes / 8);
    if wanted.pages == Pages::Large && (is_uneven || is_rounded_far) { Pages::Base } else { wanted.pages }
}

fn too_few_huge_pages(bytes: usize, error: &io::Error) -> MeasureError {
    MeasureError::Options {
        what: format!("cannot allocate {bytes} bytes of reserved huge pages ({error})"),
        remedy: "reserve some (vm.nr_hugepages, or per node in /sys/devices/system/node/nodeN/hugepages), or use --pages large".into(),
    }
}

/// A node, or none, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(Option<NodeId>);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(node) => write!(f, "on node {node}"),
            None => write!(f, "not in memory"),
        }
    }
}

/// Bytes of the smallest page.
fn base_page() -> usize {
    page_bytes() as usize
}

fn mask_of(node: NodeId) -> [u64; MASK_WORDS] {
    let mut mask = [0; MASK_WORDS];
    if let Some(word) = mask.get_mut(usize::from(node.0) / 64) {
        *word = 1 << (node.0 % 64);
    }
    mask
}

/// Sets the calling thread's policy.
fn set_policy(mode: libc::c_int, node: Option<NodeId>) -> io::Result<()> {
    let mask = node.map(mask_of);
    let (pointer, bits) = mask.as_ref().map_or((std::ptr::null(), 0), |mask| (mask.as_ptr(), MASK_WORDS * 64 + 1));
    // SAFETY: no mask, or one of as many bits as the call is told (it counts one more).
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits as libc::c_ulong) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes in large pages of the mappings that lie within `bytes` from `base`.
fn large_bytes(smaps: &str, base: u64, bytes: u64) -> Option<u64> {
    let mut inside = false;
    let mut large = None;
    for line in smaps.lines() {
        let range = line.split_whitespace().next().and_then(|word| {
            let (from, to) = word.split_once('-')?;
            Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
        });
        if let Some((from, to)) = range {
            inside = from < base + bytes && to > base;
            continue;
        }
        let Some((key, rest)) = line.split_once(':').filter(|_| inside) else { continue };
        if matches!(key, "AnonHugePages" | "Private_Hugetlb") {
            let kib: u64 = rest.trim().trim_end_matches("kB").trim().parse().ok()?;
            *large.get_or_insert(0) += kib * 1024;
        }
    }
    large
}

#[cfg(test)]
mod tests {
    //! Regions of this machine, and captured maps.

    use numapilot_host::VirtAddr;
    use numapilot_kernel::memory::{PolicyMode, policy};

    use super::*;

    fn wanted(target: &Target, bytes: usize, pages: Pages) -> Wanted<'_> {
        Wanted { bytes, target, pages, large_page_bytes: 2 << 20, single_node: true, fillers: &[], purpose: "a test" }
    }

    fn first_node() -> NodeId {
        *crate::Permit::of_this_process().memory_nodes.iter().next().expect("a node")
    }

    #[test]
    fn a_region_is_where_it_was_asked_for_and_writable() {
        for pages in [Pages::Base, Pages::Large] {
            let target = Target::Node(first_node());
            let mut region = Region::new(&wanted(&target, 5_000_000, pages)).expect("memory");
            assert!(region.bytes() >= 5_000_000 && (region.base() as usize).is_multiple_of(4096));
            if let Proof::Shown { pages, bytes_by_node } = &region.proof {
                assert_eq!(*pages, region.bytes() as u64 / 4096);
                assert_eq!(*bytes_by_node, [(first_node(), region.bytes() as u64)]);
            }
            if pages == Pages::Base {
                assert!(region.large_share.is_none_or(|share| share == 0.0), "{:?}", region.large_share);
            }
            region.as_doubles().fill(1.5);
            assert!(region.as_doubles().iter().all(|value| *value == 1.5));
        }
    }

    /// Memory that was spread had no policy: NUMA balancing may move its pages to the node of the CPU that measures, whose figure is that of local memory then.
    #[test]
    fn memory_that_is_spread_has_a_policy_that_numa_balancing_respects() {
        let target = Target::interleaved([first_node()]);
        let region = Region::new(&wanted(&target, 1 << 20, Pages::Base)).expect("memory");
        match policy(Some(VirtAddr(region.base() as u64))) {
            Ok(found) => assert_eq!((found.mode, found.nodes), (PolicyMode::Bind, vec![first_node()])),
            Err(error) => numapilot_not_run::not_run!(BoundMemory, "{error}"),
        }
    }

    /// Interleaved memory of less than a large page of 512 MiB was all on the first node, and a container of 1 GiB was exceeded.
    #[test]
    fn large_pages_that_are_too_large_for_a_region_are_not_used() {
        let (node, both) = (Target::Node(NodeId(0)), Target::interleaved([NodeId(0), NodeId(1)]));
        let pages = |target: &Target, bytes: usize, large_page_bytes: usize, pages: Pages| {
            pages_for(&Wanted { large_page_bytes, ..wanted(target, bytes, pages) })
        };
        let large =
            |target: &Target, mib: usize, page_mib: usize| pages(target, mib << 20, page_mib << 20, Pages::Large);
        assert_eq!([large(&node, 1, 2), large(&both, 4, 2), large(&node, 480, 512)], [Pages::Large; 3]);
        assert_eq!([large(&both, 3, 2), large(&both, 480, 512), large(&node, 100, 512)], [Pages::Base; 3]);
        assert_eq!([large(&node, 600, 512), pages(&node, 4096, 2 << 20, Pages::Base)], [Pages::Base; 2]);
        assert_eq!(pages(&both, 4096, 2 << 20, Pages::Huge), Pages::Huge, "these are reserved, whatever their size");
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let target = Target::Node(NodeId(1000));
        let asked = Wanted { single_node: false, ..wanted(&target, 4096, Pages::Base) };
        assert!(matches!(Region::new(&asked), Err(MeasureError::Bind { .. })));
    }

    #[test]
    fn too_much_memory_is_an_error_and_no_crash() {
        let target = Target::Node(first_node());
        let error = Region::new(&wanted(&target, 1 << 60, Pages::Base)).expect_err("an exabyte").to_string();
        assert!(error.contains("a test") && error.contains("--size"), "{error}");
    }

    /// This process ends here where the pages are taken by accesses.
    #[test]
    fn too_few_huge_pages_are_an_error_and_no_crash() {
        let free: u64 = crate::Permit::of_this_process().huge_free_bytes.values().sum();
        let target = Target::Node(first_node());
        let answer = Region::new(&wanted(&target, free as usize + (4 << 30), Pages::Huge));
        assert!(matches!(answer, Err(MeasureError::Options { .. })), "{answer:?}");
    }

    #[test]
    fn large_pages_are_counted_within_the_range_only() {
        let smaps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0\nSize: 4096 kB\nAnonHugePages:      2048 kB\nPrivate_Hugetlb:       0 kB\n\
                     7f0000400000-7f0000800000 rw-p 00000000 00:00 0\nAnonHugePages:      4096 kB\nVmFlags: rd wr\n";
        assert_eq!(large_bytes(smaps, 0x7f00_0000_0000, 4 << 20), Some(2 << 20));
        assert_eq!(large_bytes(smaps, 0x7f00_0000_0000, 8 << 20), Some(6 << 20));
        assert_eq!(large_bytes("", 0, 1), None);
    }
}
