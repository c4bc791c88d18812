//! What processes map: binaries, and memory that is shared or their own.

use std::sync::Arc;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_perf::{FileIdentity, Mapping};
use numapilot_trace::chunk::ChunkError;
use numapilot_trace::ids::{ModuleId, StackId};
use numapilot_trace::mapping::is_shared_memory;
use numapilot_trace::record::Event;
use numapilot_trace::wire::layout::{self, ADDRESS_END};

use super::Tasks;
use crate::binaries::{LoadedBinary, Placed};
use crate::extents::Changes;
use crate::files::MappedFile;
use crate::output::Output;
use crate::shared::{MappedPage, Owner, Segment, Sighting, is_disk_file};

/// Bits of a mapping's protection and flags, as mmap(2) has them.
const PROT_WRITE: u32 = 2;
const MAP_SHARED: u32 = 1;
/// Process id in perf's list of the kernel's own mappings.
const KERNEL: Pid = Pid(u32::MAX);

/// Follows the path of a file that is another one than that at its path here. (The kernel adds ` (deleted)` to those that were there.)
const NOT_HERE: &str = " (not the file here)";

/// How a mapping relates to the binaries around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Not part of a binary.
    None,
    /// A binary whose sections are known covers it.
    Known,
    /// Initialised data of a binary whose file is not available.
    Data,
    /// Zeroed data (bss) of a binary whose file is not available.
    Zeroed,
}

impl Tasks {
    /// A mapping of a process: a binary's, or memory. Returns where memory of its own that was there before is gone: process image, first address, address
    /// after the last.
    pub(crate) fn map(
        &mut self,
        out: &mut Output,
        mapping: &Mapping<'_>,
        sighting: Sighting,
        time: u64,
    ) -> Result<Vec<(usize, u64, u64)>, ChunkError> {
        // `[vsyscall]` is a page of the kernel's, in its half of the addresses, that perf lists with each process.
        let is_held = mapping.addr < ADDRESS_END && mapping.len <= ADDRESS_END - mapping.addr;
        if mapping.pid == KERNEL || mapping.len == 0 || !is_held {
            return Ok(Vec::new());
        }
        let image = self.image(mapping.pid, time);
        let is_new = sighting.is_new(time);
        let changes = Arc::make_mut(&mut self.images[image].extents).map(mapping, is_new);
        for &(start, end) in &changes.gone {
            self.tell(out, image, time, Event::Unmap { address: VirtAddr(start), bytes: end - start })?;
        }
        for &stretch in &changes.renewed {
            self.tell(out, image, time, map_event(stretch, layout::MAP_RENEWED, 0, ""))?;
        }
        self.map_part(out, image, mapping, (sighting, &changes), time)?;
        let replaced = changes.gone.iter().chain(&changes.renewed);
        Ok(replaced.map(|&(start, end)| (image, start, end)).collect())
    }

    fn map_part(
        &mut self,
        out: &mut Output,
        image: usize,
        mapping: &Mapping<'_>,
        (sighting, changes): (Sighting, &Changes),
        time: u64,
    ) -> Result<(), ChunkError> {
        let path = String::from_utf8_lossy(mapping.path).into_owned();
        let is_file = is_disk_file(mapping.path);
        let is_anonymous = path.starts_with("//anon") || path.is_empty();
        // Records that are too old to have flags are of memory that hardly anyone maps privately.
        let is_shared_memory = is_shared_memory(mapping.path);
        let is_shared = mapping.flags.map_or(is_shared_memory, |flags| flags & MAP_SHARED != 0);
        let segment = (is_shared_memory && is_shared)
            .then(|| self.shared.segment(&path, mapping, sighting.inode(), sighting.is_new(time)));
        self.note_pages(image, mapping, segment.as_ref().map(|(_, segment)| *segment));
        let part = self.part(image, mapping, &path, is_anonymous);
        if part == Part::Known {
            return Ok(());
        }
        // Other memory where a binary was: mapped there again, the binary is told again.
        let is_replaced = |binary: &LoadedBinary| {
            let is_here = binary.zeroed.is_some() && binary.path != path;
            is_here && changes.made.iter().any(|&(start, end)| binary.overlaps(start, end))
        };
        self.images[image].modules.retain(|binary| !is_replaced(binary));
        let is_binary = is_file && mapping.is_executable;
        if is_binary {
            let is_absent = self.map_binary(out, image, mapping, (path.clone(), sighting.inode()), time)?;
            // Without the file nothing says what lies in it: its mappings are the objects.
            if !is_absent {
                return Ok(());
            }
        }
        let path = match part {
            Part::Data => format!("{path} [data]"),
            Part::Zeroed => self.images[image].data_end.take().map_or(path, |(_, binary)| format!("{binary} [bss]")),
            _ if is_anonymous => sighting.anonymous_name(mapping),
            Part::Known | Part::None => segment.map_or(path, |(name, _)| name),
        };
        let flags = [
            (is_anonymous, layout::MAP_ANONYMOUS),
            (is_shared, layout::MAP_SHARED),
            (mapping.is_executable, layout::MAP_EXEC),
            (is_shared_memory, layout::MAP_SHM),
            (sighting != Sighting::Made, layout::MAP_INITIAL),
        ];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        for &(start, end) in &changes.made {
            let file_offset = mapping.file_offset.wrapping_add(start - mapping.addr);
            self.tell(out, image, time, map_event((start, end), flags, file_offset, &path))?;
        }
        Ok(())
    }

    /// Whether a mapping is part of a binary. Executable mappings may be as large as the whole binary (linked with `-z noseparate-code`, the first segment has
    /// its code), and binaries are unmapped unseen, so that an address within one says little.
    fn part(&mut self, image: usize, mapping: &Mapping<'_>, path: &str, is_anonymous: bool) -> Part {
        let image = &mut self.images[image];
        let end = mapping.addr.saturating_add(mapping.len);
        if let Some(module) = image.modules.iter().rfind(|module| module.holds(mapping.addr))
            && module.zeroed.is_some()
        {
            let is_its = module.path == path && module.is_part(mapping);
            return if is_its || is_anonymous && module.is_zeroed(mapping.addr, end) {
                Part::Known
            } else {
                Part::None
            };
        }
        if is_anonymous {
            let follows = image.data_end.as_ref().is_some_and(|(data_end, _)| *data_end == mapping.addr);
            return if follows { Part::Zeroed } else { Part::None };
        }
        let is_written = mapping.protection.is_some_and(|bits| bits & PROT_WRITE != 0)
            && mapping.flags.is_some_and(|flags| flags & MAP_SHARED == 0);
        let is_of_absent =
            image.modules.iter().rfind(|module| module.path == path).is_some_and(|module| module.zeroed.is_none());
        if is_of_absent && is_written {
            image.data_end = Some((end, path.to_owned()));
            return Part::Data;
        }
        // Another file's mapping: the loader is done with the binary before. (Its own read-only parts come in between.)
        if image.data_end.as_ref().is_some_and(|(_, binary)| binary != path) {
            image.data_end = None;
        }
        Part::None
    }

    /// Tells of a binary of which `mapping` is an executable part, unless that was told. True: its file is not here.
    fn map_binary(
        &mut self,
        out: &mut Output,
        image: usize,
        mapping: &Mapping<'_>,
        (path, inode): (String, u64),
        time: u64,
    ) -> Result<bool, ChunkError> {
        // One whose file is here and that lies so has been recognised before.
        let bias = mapping.addr.wrapping_sub(mapping.file_offset);
        let is_told = |module: &LoadedBinary| {
            let is_absent = module.zeroed.is_none() && module.placed.bias == bias;
            is_absent && module.path == path && module.holds(mapping.addr)
        };
        if self.images[image].modules.iter().any(is_told) {
            return Ok(true);
        }
        let (shown, build_id) = self.identify(mapping, &path, inode);
        let placed = self.binaries.place(&shown, &build_id, mapping.addr, mapping.len, mapping.file_offset);
        if self.images[image].exe.is_empty() {
            self.images[image].exe.clone_from(&path);
        }
        let binary = self.binaries.loaded(path, (&shown, &build_id), placed);
        let is_absent = binary.zeroed.is_none();
        // The kernel does not record that binaries are unmapped: what overlaps is not there any more.
        let modules = &mut self.images[image].modules;
        modules.retain(|old| !old.overlaps(placed.start, placed.start.saturating_add(placed.bytes)));
        modules.push(binary);
        let event = module_event(out.new_module(), placed, shown, build_id);
        self.tell(out, image, time, event)?;
        Ok(is_absent)
    }

    /// Takes in build ids of files that are told behind the files' mappings: `perf inject` writes a file's before the first sample in it. Binaries that were
    /// told without one are told again: otherwise their functions would be looked up in whatever file is at the path here.
    pub(crate) fn know_build_ids(
        &mut self,
        out: &mut Output,
        found: &[(Vec<u8>, String)],
        time: u64,
    ) -> Result<(), ChunkError> {
        for (build_id, path) in found {
            self.known.build_ids.insert(path.clone(), build_id.clone());
            for image in 0..self.images.len() {
                let modules = self.images[image].modules.iter_mut();
                let without = modules.filter(|binary| binary.path == *path && binary.build_id.is_empty());
                let again: Vec<Placed> = without
                    .map(|binary| {
                        binary.build_id.clone_from(build_id);
                        binary.placed
                    })
                    .collect();
                for placed in again {
                    let event = module_event(out.new_module(), placed, path.clone(), build_id.clone());
                    self.tell(out, image, time, event)?;
                }
            }
        }
        Ok(())
    }

    /// Path and build id of a binary, as they are told. A file that is known not to be the one at its path here has another name, so that its addresses are not
    /// looked up in that one.
    fn identify(&mut self, mapping: &Mapping<'_>, path: &str, inode: u64) -> (String, Vec<u8>) {
        let inode = match mapping.identity {
            FileIdentity::BuildId(id) => return (path.to_owned(), id.to_vec()),
            FileIdentity::Inode { inode, .. } => inode,
            FileIdentity::Unknown => inode,
        };
        let Some(files) = &mut self.files else {
            return (path.to_owned(), self.known.build_ids.get(path).cloned().unwrap_or_default());
        };
        match files.look(mapping, path, inode) {
            MappedFile::Built(build_id) => (path.to_owned(), build_id),
            MappedFile::Here => (path.to_owned(), self.binaries.build_id(path)),
            MappedFile::Other => (format!("{path}{NOT_HERE}"), Vec::new()),
        }
    }

    /// Remembers whose the pages of a mapping are.
    fn note_pages(&mut self, image: usize, mapping: &Mapping<'_>, segment: Option<Segment>) {
        // A private file mapping that is written gets copies, unless the record is too old to tell.
        let is_copied = mapping.flags.is_some_and(|flags| flags & MAP_SHARED == 0)
            && mapping.protection.is_some_and(|protection| protection & PROT_WRITE != 0);
        let owner = match segment {
            Some(segment) => Owner::Shared(segment),
            None if is_disk_file(mapping.path) && !is_copied => Owner::File,
            None => Owner::Process,
        };
        let image = &mut self.images[image];
        let (start, end) = (mapping.addr, mapping.addr.saturating_add(mapping.len));
        Arc::make_mut(&mut image.owners).set(start, end, owner);
        image.last_owner = None;
        let is_trackers = self.known.tracker.as_ref().is_some_and(|path| path.as_bytes() == mapping.path);
        if mapping.is_executable || is_trackers {
            Arc::make_mut(&mut image.tracker_code).set(start, end, is_trackers);
        }
    }

    /// Whether an instruction is the tracker's.
    pub(crate) fn is_trackers(&self, image: usize, ip: u64) -> bool {
        self.known.tracker.is_some() && self.images[image].tracker_code.get(ip).is_some_and(|code| code.value)
    }

    fn owner(&mut self, image: usize, address: u64) -> Option<Owner> {
        let image = &mut self.images[image];
        if let Some(last) = image.last_owner
            && (last.start..last.end).contains(&address)
        {
            return Some(last.value);
        }
        image.last_owner = image.owners.get(address);
        image.last_owner.map(|range| range.value)
    }

    /// What identifies the page at an address: the process and its number, or the shared memory and its number there. And whether the first fault on it is
    /// its first touch, which gives it its home under the default policy.
    pub(crate) fn page(&mut self, image: usize, address: u64) -> (MappedPage, bool) {
        let own = MappedPage::Own(image, PageNumber::of(address));
        match self.owner(image, address) {
            Some(Owner::File) => (own, false),
            Some(Owner::Process) => (own, true),
            Some(Owner::Shared(segment)) => {
                let page = address.wrapping_sub(segment.base) / PageNumber::BYTES;
                (MappedPage::Shared(segment.number, page), segment.is_new)
            }
            None => (own, self.known.knows_all_mappings),
        }
    }
}

fn module_event(id: ModuleId, placed: Placed, path: String, build_id: Vec<u8>) -> Event {
    let Placed { start, bytes, bias, .. } = placed;
    Event::Module { id, address: VirtAddr(start), bytes, bias, path, build_id }
}

fn map_event((start, end): (u64, u64), flags: u32, file_offset: u64, path: &str) -> Event {
    let (address, path) = (VirtAddr(start), path.to_owned());
    Event::Map { address, bytes: end - start, flags, file_offset, path, stack: StackId(0) }
}

#[cfg(test)]
mod tests {
    use numapilot_host::Tid;
    use numapilot_trace::wire::Clock;

    use super::super::TaskSource;
    use super::*;

    #[test]
    fn a_page_is_of_its_newest_mapping_also_right_after_another_look() {
        let mut tasks = Tasks::new(TaskSource::default());
        let mut out = Output::kept(Clock { khz: 1_000_000, origin_cycles: 0 });
        let mut map = |tasks: &mut Tasks, addr: u64, path: &[u8]| {
            let pid = Pid(7);
            let mapping = Mapping { pid, addr, len: 0x4000, flags: Some(MAP_SHARED), path, ..Mapping::default() };
            tasks.map(&mut out, &mapping, Sighting::Made, 5).unwrap();
        };
        let is_own = |tasks: &mut Tasks, address: u64| {
            let task = tasks.task(Pid(7), Tid(7), 5);
            let image = tasks.image_of(task);
            let (page, is_own) = tasks.page(image, address);
            assert_eq!(page, MappedPage::Own(image, PageNumber::of(address)));
            is_own
        };
        map(&mut tasks, 0x10000, b"//anon");
        assert!(is_own(&mut tasks, 0x10000) && is_own(&mut tasks, 0x13fff));
        assert!(!is_own(&mut tasks, 0x14000), "nothing is known there");
        assert!(is_own(&mut tasks, 0x12000));
        map(&mut tasks, 0x12000, b"/srv/data");
        assert!(!is_own(&mut tasks, 0x12000) && !is_own(&mut tasks, 0x15fff));
        assert!(is_own(&mut tasks, 0x11fff));
        map(&mut tasks, 0x10000, b"/srv/data");
        assert!(!is_own(&mut tasks, 0x11fff));
    }
}
