//! What is exported, and what every format asks of it.

use numapilot_flows::{AccessRef, LocationId, SiteId, Trace};
use numapilot_insight::Analysis;
use numapilot_machine::Machine;

use crate::counted::Counted;
use crate::heading::Heading;

/// The recording and the analysis that are exported.
#[derive(Clone, Copy)]
pub struct Export<'a> {
    /// Program, machine and losses of the recording.
    pub heading: &'a Heading,
    /// The part of the trace that is looked at.
    pub analysis: &'a Analysis<'a>,
    /// The machine, where the trace describes it.
    pub machine: Option<&'a Machine>,
    /// What the analysis' filter lets pass, in words; empty where it is everything.
    pub scope: &'a str,
}

impl Export<'_> {
    /// What the rows of the recording are.
    #[must_use]
    pub fn counted(&self) -> Counted {
        Counted::of(self.analysis.trace())
    }
}

/// Why there is nothing to write, or why it could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The table is about one object.
    #[error(
        "the table `{0}` is about one object: name it with --object, by its number (1734, or S3 where the site has one instance)"
    )]
    NeedsObject(&'static str),
    /// The trace holds no heap blocks.
    #[error(
        "no heap block was recorded: the program allocated none, or the engine does not follow allocations (attached and imported recordings do not)"
    )]
    NoHeap,
    /// The trace says nothing of the machine.
    #[error("the trace holds no description of its machine, so it has no links")]
    NoMachine,
}

impl From<serde_json::Error> for ExportError {
    fn from(error: serde_json::Error) -> ExportError {
        ExportError::Io(error.into())
    }
}

impl Export<'_> {
    /// `only 1 s to 2 s, remote accesses`; `None` where it is everything.
    pub(crate) fn part(&self) -> Option<String> {
        (!self.scope.is_empty()).then(|| format!("only {}", self.scope))
    }

    pub(crate) fn trace(&self) -> &Trace {
        self.analysis.trace()
    }

    /// All samples that the filter admits: what hardware recorded of cache hits is among them.
    pub(crate) fn samples(&self) -> Box<dyn Iterator<Item = AccessRef> + '_> {
        self.trace().filtered(self.analysis.filter())
    }

    /// Those that are memory accesses, as the report counts them.
    pub(crate) fn accesses(&self) -> Box<dyn Iterator<Item = AccessRef> + '_> {
        Box::new(self.samples().filter(AccessRef::is_memory_access))
    }

    pub(super) fn site_of(&self, access: &AccessRef) -> Option<SiteId> {
        access.object.and_then(|object| self.trace().object(object)).map(|object| object.site)
    }

    /// `block (streamcluster.cpp:138)`: what an object is called here.
    pub(super) fn site_name(&self, site: Option<SiteId>) -> String {
        let Some(site) = site.and_then(|site| self.trace().site(site)) else { return "(no known object)".to_owned() };
        let place = site.place();
        if place.is_empty() { site.name.to_string() } else { format!("{} ({place})", site.name) }
    }

    /// `3 worker`: number first, because names repeat.
    pub(super) fn thread_name(&self, thread: numapilot_trace::ids::ThreadIndex) -> String {
        let row = self.trace().thread(thread);
        let name = row.map_or("", |row| if row.name.is_empty() { &*row.start_function } else { &*row.name });
        if name.is_empty() { thread.to_string() } else { format!("{thread} {name}") }
    }
}

/// The places of an access' call stack, innermost first: the access' own place, then its callers'. A recorded stack begins with the place
/// of the access itself; where an engine saw another one (it can be an instruction away), the access' own goes in front.
pub(crate) fn places(
    trace: &Trace,
    stack: numapilot_trace::ids::StackId,
    own: LocationId,
) -> impl DoubleEndedIterator<Item = LocationId> + '_ {
    let stack = trace.stack(stack);
    let missing = (stack.first() != Some(&own) && (own.0 != 0 || stack.is_empty())).then_some(own);
    missing.into_iter().chain(stack.iter().copied())
}
