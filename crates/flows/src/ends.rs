//! When threads end, and which of these ends the run waits for.
//!
//! The end of a process cuts its other threads off wherever they are: most often in a wait that is not recorded, because it never ended. Such a thread has no
//! recorded end. Neither did it work until the run's end, nor does the run last as long as it does.

use numapilot_trace::ids::{ThreadIndex, TimeNs};

use crate::trace::Trace;

/// The ends of a recording's threads, by thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ends {
    /// Whether the run lasts until the thread ends. Not so for threads that were cut off: a shorter run would cut them off earlier.
    pub lasting: Vec<bool>,
    /// Program time of its end, ns. For a thread that was cut off, the last moment at which it is known to have done anything, where the recording shows waits.
    pub until_ns: Vec<u64>,
}

impl Ends {
    /// The ends that a recording tells, and those of the threads that were cut off.
    #[must_use]
    pub fn of(trace: &Trace) -> Ends {
        let (threads, run_end) = (trace.threads(), trace.end().0);
        let latest = threads.iter().filter_map(|thread| thread.end).map(|end| end.0).max();
        // A program ends with the thread that ends it. Where that is not among the recorded ends, the recording was cut off, not its threads.
        let is_whole = latest.is_some_and(|latest| latest >= run_end - run_end / 100);
        let lasting: Vec<bool> = threads.iter().map(|thread| !is_whole || thread.end.is_some()).collect();
        let mut until_ns: Vec<u64> = threads.iter().map(|thread| thread.end.map_or(run_end, |end| end.0)).collect();
        let shows_waits = !trace.counters().is_empty() || !trace.waits().is_empty();
        if shows_waits && lasting.contains(&false) {
            let seen = last_seen(trace);
            let cut_off = until_ns.iter_mut().zip(&seen).zip(&lasting).filter(|(_, is_lasting)| !**is_lasting);
            cut_off.for_each(|((until, seen), _)| *until = (*until).min(*seen));
        }
        Ends { lasting, until_ns }
    }
}

/// By thread: the last moment at which it did anything that was recorded. Where accesses are recorded, a thread at work is soon seen again.
fn last_seen(trace: &Trace) -> Vec<u64> {
    let mut all: Vec<u64> = trace.threads().iter().map(|thread| thread.start.0).collect();
    let mut see = |thread: ThreadIndex, at: TimeNs| {
        if let Some(seen) = all.get_mut(thread.0 as usize) {
            *seen = (*seen).max(at.0);
        }
    };
    for thread in trace.threads() {
        if let Some(parent) = thread.parent {
            see(parent, thread.start);
        }
        if thread.end.is_none()
            && let Some(access) = trace.tef(thread.index).last()
        {
            see(thread.index, access.time);
        }
    }
    for reading in trace.counters() {
        see(reading.thread, reading.time);
    }
    for wait in trace.waits() {
        see(wait.thread, wait.ended);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessRef, CountersAt, Tables, Thread, Wait};

    /// Main, and two threads without a recorded end: the first makes the second at 70, and nothing more is seen of either.
    fn trace(main_end: Option<u64>) -> Trace {
        let thread = |index: u32, parent: Option<u32>, start: u64, end: Option<u64>| Thread {
            index: ThreadIndex(index),
            parent: parent.map(ThreadIndex),
            start: TimeNs(start),
            end: end.map(TimeNs),
            ..Thread::default()
        };
        let mut tables = Tables { end: TimeNs(100), ..Tables::default() };
        tables.threads = vec![thread(0, None, 0, main_end), thread(1, Some(0), 10, None), thread(2, Some(1), 70, None)];
        let (began, ended) = (TimeNs(20), TimeNs(40));
        tables.waits.push(Wait { thread: ThreadIndex(1), kind: "cond".into(), began, ended, ..Wait::default() });
        tables.counters.push(CountersAt { time: TimeNs(50), thread: ThreadIndex(1), ..CountersAt::default() });
        tables.accesses.push(&AccessRef { time: TimeNs(60), thread: ThreadIndex(1), ..AccessRef::at(0x1000) });
        Trace::from_tables(tables)
    }

    fn ends(main_end: Option<u64>) -> Ends {
        Ends::of(&trace(main_end))
    }

    #[test]
    fn a_thread_that_was_cut_off_ends_where_it_was_seen_last() {
        assert_eq!(ends(Some(100)), Ends { lasting: vec![true, false, false], until_ns: vec![100, 70, 70] });
    }

    #[test]
    fn a_recording_that_was_cut_off_tells_no_ends() {
        let open = Ends { lasting: vec![true; 3], until_ns: vec![100; 3] };
        assert_eq!(ends(None), open);
        // The others' recorded ends, if any, are not the program's.
        assert_eq!(ends(Some(30)), Ends { until_ns: vec![30, 100, 100], ..open });
    }

    /// Make sure that who replays the recording sees the same ends: threads that were cut off lived, and worked, until the run's end.
    #[test]
    fn lives_in_dependences_end_there_too() {
        for main_end in [Some(100), None, Some(30)] {
            let found = trace(main_end).dependences();
            let lives: Vec<u64> = found.lives.iter().map(|life| life.end_ns as u64).collect();
            assert_eq!(lives, ends(main_end).until_ns, "main's end: {main_end:?}");
        }
        let found = trace(Some(100)).dependences();
        // The wait from 20 to 40, and the thread that it makes at 70.
        let pieces = found.orders[1].pieces(found.lives[1]);
        let worked: f64 =
            pieces.iter().filter(|piece| piece.deed.is_none()).map(|piece| piece.to_ns - piece.from_ns).sum();
        assert_eq!(worked, 40.0, "{pieces:?}");
    }
}
