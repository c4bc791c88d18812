//! Limits the guests of one process to as many as the host has CPUs, so that tests with dozens of threads do not slow each other down.

use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn;

/// Waits until fewer guests run than there are CPUs.
pub(crate) fn take() -> Turn {
    let most = thread::available_parallelism().map_or(1, usize::from);
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = ENDED.wait_while(running, |r| *r >= most).unwrap_or_else(PoisonError::into_inner);
    *running += 1;
    Turn
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}
