//! Work on several threads where the system gives them, and on fewer, down to the calling one, where it refuses them (`ulimit -u`, a cgroup's limit of
//! processes, a container's). `std::thread::spawn` and `Scope::spawn` panic then.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread::{Builder, Scope, ScopedJoinHandle, scope, sleep};
use std::time::Duration;

/// Starts a thread of the scope; `None` if the system refuses it, and `work` is dropped without having run.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, work).ok()
}

/// Runs `own` on the calling thread and `other` on one of its own meanwhile, or, if the system refuses that, afterwards. A panic of either is the caller's.
pub fn both<A, B: Send>(own: impl FnOnce() -> A, other: impl Fn() -> B + Sync) -> (A, B) {
    both_of(Builder::new(), own, other)
}

/// Runs `work` on as many threads at the same time, of which the calling one is the first, or on fewer where the system refuses more: each takes what there
/// is to do from what they share. What each returned, or its panic; a panic of the calling one is the caller's.
pub fn together<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<std::thread::Result<T>> {
    together_of(Builder::new, threads, work)
}

/// How many threads with stacks of this size the system lets this process have beside those that it has, up to `most`: for engines that fail, or wait for
/// ever, where a thread is refused. They are started and ended again.
#[must_use]
pub fn startable(most: usize, stack_bytes: usize) -> usize {
    let gate = Mutex::new(());
    let shut = gate.lock();
    let started = scope(|scope| {
        let wait = || drop(gate.lock());
        let start = |_| Builder::new().stack_size(stack_bytes).spawn_scoped(scope, wait).ok();
        let started = (0..most).map_while(start).count();
        drop(shut);
        started
    });
    if started < most {
        // The kernel counts a thread for a moment more when it has ended.
        sleep(Duration::from_millis(10));
    }
    started
}

fn both_of<A, B: Send>(builder: Builder, own: impl FnOnce() -> A, other: impl Fn() -> B + Sync) -> (A, B) {
    let other = &other;
    scope(|scope| {
        let thread = builder.spawn_scoped(scope, other);
        let own = own();
        let other = match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => other(),
        };
        (own, other)
    })
}

fn together_of<T: Send>(
    builder: impl Fn() -> Builder,
    threads: usize,
    work: impl Fn() -> T + Sync,
) -> Vec<std::thread::Result<T>> {
    let work = &work;
    scope(|scope| {
        // Where one thread is refused, the next would be too.
        let others: Vec<_> = (1..threads).map_while(|_| builder().spawn_scoped(scope, work).ok()).collect();
        let mut all = vec![Ok(work())];
        all.extend(others.into_iter().map(ScopedJoinHandle::join));
        all
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::ThreadId;

    use super::*;

    /// A thread that no system starts: there is no room for its stack.
    fn refused() -> Builder {
        Builder::new().stack_size(1 << 60)
    }

    fn here() -> ThreadId {
        std::thread::current().id()
    }

    #[test]
    fn a_refused_thread_leaves_its_work_to_the_caller() {
        let (own, other) = both_of(Builder::new(), here, || (here(), 4));
        assert!(own == here() && other.0 != here() && other.1 == 4);
        let (own, other) = both_of(refused(), here, || (here(), 4));
        assert_eq!((own, other), (here(), (here(), 4)));
    }

    #[test]
    fn all_is_done_by_as_many_threads_as_there_are() {
        for (most, given) in [(0, 0), (1, 0), (4, 0), (4, 2), (4, 3)] {
            let (next, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let builder = || match asked.fetch_add(1, Ordering::Relaxed) < given {
                true => Builder::new(),
                false => refused(),
            };
            let work = || {
                let mut taken = Vec::new();
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        at if at < 1000 => taken.push(at),
                        _ => return taken,
                    }
                }
            };
            let done = together_of(builder, most, work);
            assert_eq!(done.len(), given + 1, "of {most} threads");
            let mut all: Vec<usize> = done.into_iter().flat_map(|taken| taken.expect("no panic")).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..1000), "of {most} threads");
        }
    }

    #[test]
    fn threads_are_counted_that_can_be_at_the_same_time() {
        assert_eq!(startable(5, 256 << 10), 5);
        assert_eq!(startable(0, 256 << 10), 0);
        assert_eq!(startable(5, 1 << 60), 0);
    }

    #[test]
    fn a_panic_on_another_thread_is_seen() {
        let seen = std::panic::catch_unwind(|| both(|| (), || -> u32 { panic!("as it should") }));
        assert!(seen.is_err());
        let caller = here();
        let done = together(2, || assert!(here() == caller, "as it should"));
        assert_eq!(done.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    }
}
