//! Page faults: which of them placed a page, how much memory that was, and which only show a use of what was there.

use numapilot_machine::NodeId;
use numapilot_trace::ids::ProcessIndex;
use numapilot_trace::record::{Access, Record};
use numapilot_trace::wire::layout;

use super::segments::Part;
use super::{Joiner, Layouts};
use crate::model::ObjectKind;

const PAGE_BYTES: u64 = 1 << layout::PAGE_SHIFT;
/// Pages of more than this would be damage: 64 GiB, which no processor has.
const BYTES_MAX: u64 = 1 << 36;

impl<L: Layouts> Joiner<L> {
    /// Home of a page after a fault on it. The first fault since the page was mapped (or since the birth of the block that holds it) placed it, and with it all
    /// of a larger page: on the node that the kernel reported, or else on the first-touch node. A later fault shows a use, and a migration if the page is then
    /// on another node. So does one on a page that was there before although no fault is known to have placed it: a huge page whose size the kernel did not
    /// report, memory that was populated without faults, the zero page of an earlier read.
    ///
    /// In shared memory the faults of all processes count. Where that was made before the recording, a fault may as well map what was in memory already.
    pub(super) fn placed_by_fault(
        &mut self,
        record: &Record,
        access: &Access,
        (process, node): (ProcessIndex, Option<NodeId>),
        object: Option<u32>,
    ) -> Option<NodeId> {
        let page = access.address.0 & !(PAGE_BYTES - 1);
        let kind = object.map(|object| self.kind_of_site(self.out.objects[object as usize].site));
        // The process that read a file first placed the pages of its page cache.
        let is_own = !matches!(kind, Some(ObjectKind::File | ObjectKind::Section));
        let part = self.spaces[process.0 as usize].shared_part(page).filter(|_| is_own);
        let known = self.home_of(process, part, page);
        let is_new = part.is_none_or(|part| self.segments.is_new(part));
        // A page of a variable's initial value belongs to the binary's file until the first write, which gives the process its own.
        let was_there = access.page.was_present == Some(true) && kind != Some(ObjectKind::Static);
        let may_place = is_own && is_new && !was_there;
        let now = access.home.or(known).or(node.filter(|_| may_place))?;
        if known == Some(now) || !is_own {
            return Some(now);
        }
        let cause = match known {
            Some(_) => layout::PLACED_MOVED,
            None if !may_place => layout::PLACED_FOUND,
            None if node.is_none_or(|node| node == now) => layout::PLACED_FIRST_TOUCH,
            None => layout::PLACED_POLICY,
        };
        let extent = self.extent(access, page, |joiner, at| {
            let home = joiner.home_of(process, part, at);
            // A huge page is mapped as a whole or not at all, and moves as a whole.
            if known.is_some() { home == known } else { home.is_none() }
        });
        self.place(record, extent, now, cause as u8, None);
        // The kernel was queried after the fault, which may have made it migrate the page.
        Some(known.unwrap_or(now))
    }

    fn home_of(&self, process: ProcessIndex, part: Option<Part>, page: u64) -> Option<NodeId> {
        match part {
            Some(part) => self.segments.home(part, page),
            None => self.spaces[process.0 as usize].homes.get(page),
        }
    }

    /// First address and number of 4 KiB pages of the page that a fault was on. Where the size is not known, or the other 4 KiB of the page have another
    /// history (`is_alike`), it is a base page: a huge page was made of base pages later on.
    fn extent(&self, access: &Access, page: u64, is_alike: impl Fn(&Self, u64) -> bool) -> (u64, u32) {
        let base = self.conventions.page_bytes;
        let range = |bytes: u64| (page & !(bytes - 1), (bytes / PAGE_BYTES) as u32);
        let (first, pages) =
            range(access.page.bytes().filter(|bytes| (base..=BYTES_MAX).contains(bytes)).unwrap_or(base));
        let alike = u64::from(pages) * PAGE_BYTES == base
            || (0..u64::from(pages)).all(|at| is_alike(self, first + at * PAGE_BYTES));
        if alike { (first, pages) } else { range(base) }
    }
}
