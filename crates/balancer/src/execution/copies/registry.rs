//! Which process maps which copy of a file, and which copies there should be. Pure. A file is identified by its parts (as mappings show them). Policies know a
//! part's pages by the addresses of one mapping, its owner's, whichever process uses them: so a policy sees one page with users on several nodes.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_machine::NodeIndex;
use numapilot_placement::ReadOnlyRange;

use super::files::Found;
use super::files::Part;

/// Number of evenly spaced pages of a part that are sampled.
pub const SAMPLED: u64 = 64;
/// Share of the sampled pages for which a policy must order copies before the whole file is copied: 1 over this.
const WANTED_SHARE: usize = 4;

/// A mapping: process id, and first address.
pub type Place = (Pid, VirtAddr);

/// State of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    path: PathBuf,
    /// Nodes that are to have copies.
    copies: BTreeSet<NodeIndex>,
    /// Pages, as policies know them, for which a policy ordered copies.
    wanted: BTreeSet<PageNumber>,
    /// Whether a process answered that this file cannot be copied; its uses are ignored from then on.
    is_refused: bool,
}

/// Files, their mappings and their copies.
#[derive(Clone, Debug, Default)]
pub struct CopyRegistry {
    shown: BTreeMap<Place, Found>,
    owners: BTreeMap<Part, Place>,
    files: BTreeMap<u64, File>,
}

/// The answer to an order to copy a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDecision {
    /// Enough of its pages are ordered, or it has copies: the file may be copied.
    Enough,
    /// Too few of its pages are ordered so far.
    TooFew,
    /// The page is not of a file that may be copied.
    Unknown,
}

impl CopyRegistry {
    /// Updates the mappings of a process.
    pub fn saw(&mut self, pid: Pid, found: Vec<Found>) {
        let old: Vec<Place> = self.places_of(pid).collect();
        let fresh: BTreeSet<VirtAddr> = found.iter().map(|one| one.start).collect();
        for place in old.into_iter().filter(|place| !fresh.contains(&place.1)) {
            self.shown.remove(&place);
        }
        for one in found {
            if let Some(path) = &one.path {
                let file = self.files.entry(one.part.inode).or_default();
                if file.path != *path {
                    // Inode numbers are reused.
                    *file = File { path: path.clone(), ..File::default() };
                }
            }
            self.shown.insert((pid, one.start), one);
        }
        self.find_owners();
    }

    /// Keeps the processes for which `is_there` is true, and drops the mappings of all others.
    pub fn keep(&mut self, is_there: impl Fn(Pid) -> bool) {
        let before = self.shown.len();
        self.shown.retain(|place, _| is_there(place.0));
        if self.shown.len() != before {
            self.find_owners();
        }
    }

    fn find_owners(&mut self) {
        let shown = &self.shown;
        self.owners.retain(|part, place| shown.get(place).is_some_and(|one| one.part == *part));
        for (place, one) in shown {
            self.owners.entry(one.part).or_insert(*place);
        }
        let inodes: BTreeSet<u64> = self.owners.keys().map(|part| part.inode).collect();
        self.files.retain(|inode, _| inodes.contains(inode));
    }

    fn places_of(&self, pid: Pid) -> impl Iterator<Item = Place> + '_ {
        self.shown.range(all_of(pid)).map(|(place, _)| *place)
    }

    /// The mappings of a process that provide evidence.
    pub fn mappings_of(&self, pid: Pid) -> impl Iterator<Item = &Found> {
        let all = self.shown.range(all_of(pid)).map(|(_, one)| one);
        all.filter(|one| self.files.get(&one.part.inode).is_some_and(|file| !file.is_refused))
    }

    /// Maps a page of a process to the page that policies know: the owner's process id and page. `None`: it is not of such a
    /// mapping.
    #[must_use]
    pub fn page(&self, pid: Pid, page: PageNumber) -> Option<(Pid, PageNumber)> {
        let address = page.address();
        let (place, one) = self.shown.range(..=(pid, VirtAddr(address))).next_back()?;
        if place.0 != pid || address >= one.start.0 + one.part.bytes || self.files.get(&one.part.inode)?.is_refused {
            return None;
        }
        let owner = self.owners.get(&one.part)?;
        Some((owner.0, PageNumber::of(owner.1.0 + (address - one.start.0))))
    }

    /// Inode of the file of a page that policies know.
    #[must_use]
    pub fn file_of(&self, pid: Pid, page: PageNumber) -> Option<u64> {
        let address = page.address();
        let (place, one) = self.shown.range(..=(pid, VirtAddr(address))).next_back()?;
        (place.0 == pid && address < one.start.0 + one.part.bytes).then_some(one.part.inode)
    }

    /// Registers that a policy ordered a page copied.
    pub fn want(&mut self, pid: Pid, page: PageNumber) -> CopyDecision {
        let Some(inode) = self.file_of(pid, page) else { return CopyDecision::Unknown };
        let pages: u64 = self.owners.keys().filter(|part| part.inode == inode).map(sampled_pages).sum();
        let Some(file) = self.files.get_mut(&inode).filter(|file| !file.is_refused) else {
            return CopyDecision::Unknown;
        };
        file.wanted.insert(page);
        if file.copies.is_empty() && file.wanted.len() * WANTED_SHARE < pages as usize {
            return CopyDecision::TooFew;
        }
        CopyDecision::Enough
    }

    /// Nodes that have copies of a file.
    #[must_use]
    pub fn copies(&self, inode: u64) -> BTreeSet<NodeIndex> {
        self.files.get(&inode).map(|file| file.copies.clone()).unwrap_or_default()
    }

    /// Sets the copies of a file; without any, the orders for its pages are dropped.
    pub fn set_copies(&mut self, inode: u64, copies: BTreeSet<NodeIndex>) {
        if let Some(file) = self.files.get_mut(&inode) {
            if copies.is_empty() {
                file.wanted.clear();
            }
            file.copies = copies;
        }
    }

    /// Marks a file that cannot be copied.
    pub fn refuse(&mut self, inode: u64) {
        self.set_copies(inode, BTreeSet::new());
        if let Some(file) = self.files.get_mut(&inode) {
            file.is_refused = true;
        }
    }

    /// Bytes that one more copy of a file's parts takes.
    #[must_use]
    pub fn bytes(&self, inode: u64) -> u64 {
        self.owners.keys().filter(|part| part.inode == inode).map(|part| part.bytes).sum()
    }

    /// Path of a file.
    #[must_use]
    pub fn path(&self, inode: u64) -> Option<&PathBuf> {
        self.files.get(&inode).map(|file| &file.path)
    }

    /// Inode of the file at a path.
    #[must_use]
    pub fn by_path(&self, path: &std::path::Path) -> Option<u64> {
        self.files.iter().find(|(_, file)| file.path == path).map(|(inode, _)| *inode)
    }

    /// The wanted state: (process, node, file) for each process that maps a file with copies and runs on a node that has one.
    #[must_use]
    pub fn wanted(&self, node_of: impl Fn(Pid) -> Option<NodeIndex>) -> BTreeSet<(Pid, NodeIndex, u64)> {
        let mut all = BTreeSet::new();
        for ((pid, _), one) in &self.shown {
            let copies = self.files.get(&one.part.inode).map(|file| &file.copies);
            if let (Some(copies), Some(node)) = (copies, node_of(*pid))
                && copies.contains(&node)
            {
                all.insert((*pid, node, one.part.inode));
            }
        }
        all
    }

    /// The ranges of these pages as policies know them. `number_of`: the number that policies use for a process.
    pub fn ranges(&self, number_of: impl Fn(Pid) -> Option<u32>) -> impl Iterator<Item = ReadOnlyRange> {
        self.owners.iter().filter_map(move |(part, (pid, start))| {
            let file = self.files.get(&part.inode).filter(|file| !file.is_refused)?;
            let copies = file.copies.iter().copied().collect();
            let pages = part.bytes / PageNumber::BYTES;
            Some(ReadOnlyRange { process: number_of(*pid)?, first: start.page(), pages, copies })
        })
    }

    /// Pages of a file, as policies know them, for which copies were ordered: used to report to policies that the copies are gone.
    #[must_use]
    pub fn wanted_pages(&self, inode: u64) -> Vec<(Pid, PageNumber)> {
        let Some(file) = self.files.get(&inode) else { return Vec::new() };
        let owner = self.owners.iter().find(|(part, _)| part.inode == inode).map(|(_, place)| place.0);
        owner.map_or_else(Vec::new, |pid| file.wanted.iter().map(|page| (pid, *page)).collect())
    }
}

/// Every mapping that a process may have.
fn all_of(pid: Pid) -> RangeInclusive<Place> {
    (pid, VirtAddr(0))..=(pid, VirtAddr(u64::MAX))
}

/// Number of sampled pages of a part.
#[must_use]
pub fn sampled_pages(part: &Part) -> u64 {
    (part.bytes / PageNumber::BYTES).clamp(1, SAMPLED)
}

#[cfg(test)]
mod tests {
    use numapilot_machine::NodeSet;

    use super::*;

    const PART: Part = Part { inode: 42, offset: 0, bytes: 64 << 12 };

    fn found(start: u64, copy_of: Option<u16>) -> Found {
        let path = copy_of.is_none().then(|| PathBuf::from("/data"));
        Found { start: VirtAddr(start), part: PART, path, copy_of, referenced_bytes: 0 }
    }

    fn two_processes() -> CopyRegistry {
        let mut registry = CopyRegistry::default();
        registry.saw(Pid(7), vec![found(0x10000, None)]);
        registry.saw(Pid(8), vec![found(0x90000, None)]);
        registry
    }

    #[test]
    fn all_processes_pages_of_a_file_are_the_owners() {
        let mut registry = two_processes();
        assert_eq!(registry.page(Pid(8), PageNumber(0x92)), Some((Pid(7), PageNumber(0x12))));
        assert_eq!(registry.page(Pid(8), PageNumber(0x90 + 64)), None, "behind its end");
        assert_eq!(registry.page(Pid(8), PageNumber(0x8f)), None);
        registry.keep(|pid| pid != Pid(7));
        assert_eq!(registry.page(Pid(8), PageNumber(0x92)), Some((Pid(8), PageNumber(0x92))), "the owner has ended");
        registry.keep(|_| false);
        assert_eq!(registry.path(42), None);
    }

    #[test]
    fn a_file_is_copied_once_a_quarter_of_its_pages_is_wanted() {
        let mut registry = two_processes();
        for page in PageNumber(0x10).run(15) {
            assert_eq!(registry.want(Pid(7), page), CopyDecision::TooFew);
        }
        assert_eq!(registry.want(Pid(7), PageNumber(0x10)), CopyDecision::TooFew, "the same once more");
        assert_eq!(registry.want(Pid(7), PageNumber(0x1f)), CopyDecision::Enough);
        registry.set_copies(42, BTreeSet::from([0, 1].map(NodeIndex)));
        assert_eq!(registry.want(Pid(7), PageNumber(0x500)), CopyDecision::Unknown);
        let node_of = |pid: Pid| Some(NodeIndex(pid.0 as usize - 7));
        assert_eq!(registry.wanted(node_of), BTreeSet::from([(Pid(7), NodeIndex(0), 42), (Pid(8), NodeIndex(1), 42)]));
        assert_eq!(registry.wanted(|_| Some(NodeIndex(2))), BTreeSet::new(), "nobody runs where a copy is");
        let range = ReadOnlyRange { process: 7, first: PageNumber(0x10), pages: 64, copies: NodeSet(0b11) };
        assert_eq!(
            registry.ranges(|pid| Some(pid.0)).collect::<Vec<_>>(),
            [range],
            "all its pages have copies, not only those that were ordered"
        );
        registry.saw(Pid(8), vec![found(0x90000, Some(1))]);
        assert_eq!(registry.wanted(node_of).len(), 2, "who shows its copy goes on to");
        assert_eq!(registry.wanted_pages(42).len(), 16);
        registry.set_copies(42, BTreeSet::new());
        assert_eq!((registry.wanted(node_of).len(), registry.wanted_pages(42).len()), (0, 0));
    }

    #[test]
    fn what_cannot_be_copied_is_no_evidence_any_more() {
        let mut registry = two_processes();
        registry.refuse(42);
        assert_eq!((registry.page(Pid(8), PageNumber(0x92)), registry.mappings_of(Pid(8)).count()), (None, 0));
        assert_eq!(registry.want(Pid(7), PageNumber(0x10)), CopyDecision::Unknown);
        let other = Found { path: Some(PathBuf::from("/other")), ..found(0x10000, None) };
        registry.saw(Pid(7), vec![other]);
        assert_eq!(registry.mappings_of(Pid(7)).count(), 1, "the number came again for another file");
    }
}
