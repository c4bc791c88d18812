//! A position in a flow, from which a walk over accesses continues.

use numapilot_trace::ids::{ObjectId, ThreadIndex};

use crate::access::AccessRef;
use crate::filter::Filter;
use crate::trace::Trace;

/// Rows of a thread's or an object's flow that are prefetched together: they are far apart, and overlapped misses take little longer than one.
const AHEAD: usize = 32;

/// A walk over the accesses that pass a filter, in order of program time. If the filter names an object or a thread, it reads only that flow. It does not
/// refer to a trace: pass the same one each time.
#[derive(Clone, Debug)]
pub struct Cursor {
    path: Path,
    /// Conditions that the path does not already meet.
    filter: Option<Filter>,
    next: usize,
}

/// Which rows to walk: the shortest flow that has every access that passes the filter.
#[derive(Clone, Copy, Debug)]
enum Path {
    All,
    Thread(ThreadIndex),
    Object(ObjectId),
}

impl Cursor {
    /// A cursor at the beginning.
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

    /// Passes accesses to `take`, until it returns false or there are no more.
    pub fn walk(&mut self, trace: &Trace, mut take: impl FnMut(AccessRef) -> bool) {
        // Two loops: without conditions a row is passed on as it is read, without a copy in memory.
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
    /// Visits accesses from number `from` on, until `visit` returns false, and returns the number of the next one. It indexes instead of skipping, so that
    /// accesses before `from` cost nothing.
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
