//! When threads end, and which of these ends the run waits for.
//!
//! The end of a process cuts its other threads off wherever they are: most often in a wait that is not recorded, because it never ended. Such a thread has no
//! recorded end. Neither did it work until the run's end, nor does the run last as long as it does.

use numapilot_flows::Trace;
use numapilot_trace::ids::{ThreadIndex, TimeNs};

/// The ends of a recording's threads, by thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ends {
    /// Whether the run lasts until the thread ends. Not so for threads that were cut off: a shorter run would cut them off earlier.
    pub lasting: Vec<bool>,
    /// Program time of its end, ns. For a thread that was cut off, the last moment at which it is known to have done anything, where the recording shows waits.
    pub until_ns: Vec<u64>,
}

impl Ends {
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
    use numapilot_flows::{AccessRef, CountersAt, Tables, Thread, Wait};

    use super::*;

    /// Main, and two threads without a recorded end: the first makes the second at 70, and nothing more is seen of either.
    fn ends(main_end: Option<u64>) -> Ends {
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
        Ends::of(&Trace::from_tables(tables))
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
}
