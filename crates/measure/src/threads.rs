//! Threads of measurements. Where one cannot start, or ends early, no other may wait for it for ever: it would spin on its CPU until somebody kills it.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::MeasureError;

/// Starts a thread.
///
/// # Errors
/// The system has none left. (`Scope::spawn` panics then, and waits for the threads that it has started.)
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, MeasureError> {
    Builder::new().spawn_scoped(scope, work).map_err(|error| MeasureError::Thread { error })
}

/// Does something when dropped: at the end of a thread, however it ends.
pub struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
