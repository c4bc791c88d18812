//! A place in a flow: where a walk over accesses stands, to go on from later.

use numapilot_trace::ids::{ObjectId, ThreadIndex};

use crate::access::AccessRef;
use crate::filter::Filter;
use crate::trace::Trace;

/// Rows of a thread's or an object's flow that are asked of memory at once: they lie far apart, and many misses at a time take little longer than one.
const AHEAD: usize = 32;

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
        // Two loops: without conditions a row is handed on as it is read, and never put together in memory.
        match &self.filter {
            None => self.next = self.path.walk(self.next, trace, take),
            Some(filter) => {
                let visit = |access| !filter.admits(trace, &access) || take(access);
                self.next = self.path.walk(self.next, trace, visit);
            }
        }
    }
}

impl Path {
    /// Visits accesses from the `from`th on, until `visit` says false; which one is next. By index, not by skipping: what was walked before must cost
    /// nothing.
    #[inline]
    fn walk(self, from: usize, trace: &Trace, mut visit: impl FnMut(AccessRef) -> bool) -> usize {
        let rows = match self {
            Path::All => {
                let length = trace.accesses().len();
                let stopped = (from..length).find(|&row| !visit(trace.row(row)));
                return stopped.map_or(length.max(from), |row| row + 1);
            }
            Path::Thread(thread) => trace.rows_of_thread(thread),
            Path::Object(object) => trace.rows_of_object(object),
        };
        let mut next = from;
        for rows in rows.get(from..).unwrap_or_default().chunks(AHEAD) {
            trace.fetch(rows);
            for &row in rows {
                next += 1;
                if !visit(trace.row(row as usize)) {
                    return next;
                }
            }
        }
        next
    }
}
