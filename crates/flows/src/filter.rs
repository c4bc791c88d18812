//! The filter of accesses: every condition that is set must hold.

use std::ops::Range;

use numapilot_machine::NodeId;
use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex, TimeNs};

use crate::access::AccessRef;
use crate::model::{ObjectKind, SiteId};
use crate::trace::Trace;

/// Conditions on accesses. The default has none, so every access passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Program time of the access, half open.
    pub time: Option<Range<TimeNs>>,
    /// Node of the CPU that made the access.
    pub node: Option<NodeId>,
    /// Home node of the page.
    pub home: Option<NodeId>,
    /// Thread that made the access.
    pub thread: Option<ThreadIndex>,
    /// Process of that thread.
    pub process: Option<ProcessIndex>,
    /// Object instance that is accessed.
    pub object: Option<ObjectId>,
    /// Site of the object.
    pub site: Option<SiteId>,
    /// Kind of object; [`ObjectKind::Unknown`] selects the accesses without an object.
    pub kind: Option<ObjectKind>,
    /// Stores only (`true`) or loads only (`false`).
    pub is_write: Option<bool>,
    /// Remote only (`true`) or local only (`false`); accesses of unknown home pass neither.
    pub is_remote: Option<bool>,
}

impl Filter {
    /// Whether no condition is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// Whether the access meets every condition.
    #[inline]
    #[must_use]
    pub fn admits(&self, trace: &Trace, access: &AccessRef) -> bool {
        self.time.as_ref().is_none_or(|time| time.contains(&access.time))
            && self.node.is_none_or(|node| access.node == Some(node))
            && self.home.is_none_or(|home| access.home == Some(home))
            && self.thread.is_none_or(|thread| access.thread == thread)
            && self.object.is_none_or(|object| access.object == Some(object))
            && self.is_write.is_none_or(|is_write| access.is_write == is_write)
            && self.is_remote.is_none_or(|is_remote| access.is_remote() == Some(is_remote))
            && self.admits_by_table(trace, access)
    }

    #[inline]
    fn admits_by_table(&self, trace: &Trace, access: &AccessRef) -> bool {
        if self.process.is_none() && self.site.is_none() && self.kind.is_none() {
            return true;
        }
        let process = trace.thread(access.thread).map(|thread| thread.process);
        let site = access.object.and_then(|object| trace.object(object)).map(|object| object.site);
        let kind = site.and_then(|site| trace.site(site)).map_or(ObjectKind::Unknown, |site| site.kind);
        self.process.is_none_or(|wanted| process == Some(wanted))
            && self.site.is_none_or(|wanted| site == Some(wanted))
            && self.kind.is_none_or(|wanted| kind == wanted)
    }
}

impl Trace {
    /// The accesses that pass `filter`, in order of program time. Walks only one flow where the filter names a thread or an object.
    pub fn filtered<'a>(&'a self, filter: &'a Filter) -> Box<dyn Iterator<Item = AccessRef> + 'a> {
        if let Some(object) = filter.object {
            return Box::new(self.oef(object).filter(move |access| filter.admits(self, access)));
        }
        if let Some(thread) = filter.thread {
            return Box::new(self.tef(thread).filter(move |access| filter.admits(self, access)));
        }
        if filter.is_empty() {
            return Box::new(self.accesses());
        }
        Box::new(self.accesses().filter(move |access| filter.admits(self, access)))
    }
}
