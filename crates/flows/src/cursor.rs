//! A place in a flow: where a walk over accesses stands, to go on from later.

use numapilot_trace::ids::{ObjectId, ThreadIndex};

use crate::access::AccessRef;
use crate::filter::Filter;
use crate::trace::Trace;

/// A walk over the accesses that a filter lets pass, in order of program time. It walks only one flow where the filter names an object or a thread. It knows
/// no trace: give it the same one each time.
#[derive(Clone, Debug)]
pub struct Cursor {
    path: Path,
    /// What the path leaves to check.
    filter: Option<Filter>,
    next: usize,
}

/// Which rows to walk: the fewest that hold all that the filter lets pass.
#[derive(Clone, Copy, Debug)]
enum Path {
    All,
    Thread(ThreadIndex),
    Object(ObjectId),
}

impl Cursor {
    /// At the beginning.
    #[must_use]
    pub fn new(mut filter: Filter) -> Cursor {
        let path = match (filter.object.take(), filter.thread) {
            (Some(object), _) => Path::Object(object),
            (None, Some(thread)) => {
                filter.thread = None;
                Path::Thread(thread)
            }
            (None, None) => Path::All,
        };
        Cursor { path, filter: (!filter.is_empty()).then_some(filter), next: 0 }
    }

    /// Goes back to the beginning.
    pub fn rewind(&mut self) {
        self.next = 0;
    }

    /// Hands accesses to `take`, until it wants no more (false), or there are none.
    pub fn walk(&mut self, trace: &Trace, mut take: impl FnMut(AccessRef) -> bool) {
        let Cursor { path, filter, next } = self;
        let from = *next;
        let mut visit = |access: AccessRef| {
            *next += 1;
            filter.as_ref().is_some_and(|filter| !filter.admits(trace, &access)) || take(access)
        };
        // By index, not by skipping: what was walked before must cost nothing.
        let rows = match *path {
            Path::All => {
                (from..trace.accesses().len()).all(|row| visit(trace.row(row)));
                return;
            }
            Path::Thread(thread) => trace.rows_of_thread(thread),
            Path::Object(object) => trace.rows_of_object(object),
        };
        rows.iter().skip(from).all(|&row| visit(trace.row(row as usize)));
    }
}
