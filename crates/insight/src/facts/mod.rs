//! Facts about the objects of one site that patterns need: which nodes use them in turn or at the same time, when they are written, and on which nodes their
//! pages lie. They come from one walk over the flow of every instance; `docs/patterns.md`, "Evidence", has the definitions.

mod common;
mod dominance;
mod lines;
mod pages;
mod site;
mod walk;

use numapilot_flows::SiteId;

use crate::usage::Usage;

pub(crate) use pages::{PageSizes, PageUse, ProcessPage};
pub(crate) use site::{ByTouch, SiteFacts, Survey};

impl Survey<'_> {
    /// Collects the facts of a group (a site), and adds the finer cells of the group to `usage`, which has no others of it ([`Usage::coarsen`]).
    pub fn site(&self, group: SiteId, usage: &mut Usage) -> SiteFacts {
        walk::walk(self, group, usage)
    }
}
