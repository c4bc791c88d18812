//! Handles: numbers that C holds instead of pointers.
//!
//! A handle encodes a slot, the slot's generation and the kind of thing, so that a closed or invalid handle is detected. Slots count their users; a value
//! that is closed while it is in use is freed by its last user. There are no locks: every slot works in a forked child, except that a value which
//! another thread was using at the fork is never freed there.

use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Fields of a slot's state: generation (32 bits), open, being filled or emptied, number of users (30 bits; being open counts as one).
const GENERATION_SHIFT: u32 = 32;
const OPEN: u64 = 1 << 31;
const TAKEN: u64 = 1 << 30;
const USERS: u64 = TAKEN - 1;

struct Slot<T> {
    state: AtomicU64,
    value: AtomicPtr<T>,
}

/// All handles of one kind.
pub(crate) struct Table<T: 'static, const SLOTS: usize> {
    /// Lowest byte of every handle: distinguishes handles of traces from those of flows.
    kind: u8,
    hint: AtomicUsize,
    slots: [Slot<T>; SLOTS],
}

/// Why a handle is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHandle {
    /// It is of another kind, or was never returned.
    Unknown,
    /// It is already closed.
    Closed,
}

/// A use of an open value, which is not freed while this exists.
pub(crate) struct Held<T: 'static> {
    slot: &'static Slot<T>,
}

impl<T: Sync + Send, const SLOTS: usize> Table<T, SLOTS> {
    pub const fn new(kind: u8) -> Self {
        let slots = [const { Slot { state: AtomicU64::new(0), value: AtomicPtr::new(ptr::null_mut()) } }; SLOTS];
        Table { kind, hint: AtomicUsize::new(0), slots }
    }

    /// Opens a handle to `value`; returns `value` if every slot is in use.
    pub fn open(&'static self, value: T) -> Result<u64, T> {
        let start = self.hint.load(Ordering::Relaxed);
        for step in 0..SLOTS {
            let index = (start + step) % SLOTS;
            let slot = &self.slots[index];
            let state = slot.state.load(Ordering::Relaxed);
            let is_free = state & (OPEN | TAKEN | USERS) == 0;
            if !is_free
                || slot.state.compare_exchange(state, state | TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            // Never 0, so that a zeroed handle is invalid.
            let generation = ((state >> GENERATION_SHIFT) as u32).wrapping_add(1).max(1);
            slot.value.store(Box::into_raw(Box::new(value)), Ordering::Relaxed);
            slot.state.store(u64::from(generation) << GENERATION_SHIFT | OPEN | 1, Ordering::Release);
            self.hint.store(index + 1, Ordering::Relaxed);
            return Ok(u64::from(generation) << 32 | (index as u64) << 8 | u64::from(self.kind));
        }
        Err(value)
    }

    /// The value of the handle.
    pub fn get(&'static self, handle: u64) -> Result<Held<T>, BadHandle> {
        let (slot, generation) = self.slot(handle)?;
        let mut state = slot.state.load(Ordering::Relaxed);
        loop {
            self.check(state, generation)?;
            match slot.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Held { slot }),
                Err(now) => state = now,
            }
        }
    }

    /// Closes the handle. Its value is freed when the last user is done.
    pub fn close(&'static self, handle: u64) -> Result<(), BadHandle> {
        let (slot, generation) = self.slot(handle)?;
        let mut state = slot.state.load(Ordering::Relaxed);
        loop {
            self.check(state, generation)?;
            match slot.state.compare_exchange_weak(state, state & !OPEN, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        slot.release();
        Ok(())
    }

    fn slot(&'static self, handle: u64) -> Result<(&'static Slot<T>, u32), BadHandle> {
        let index = (handle >> 8 & 0xff_ffff) as usize;
        if handle as u8 != self.kind || handle >> 32 == 0 {
            return Err(BadHandle::Unknown);
        }
        Ok((self.slots.get(index).ok_or(BadHandle::Unknown)?, (handle >> 32) as u32))
    }

    fn check(&self, state: u64, generation: u32) -> Result<(), BadHandle> {
        let now = (state >> GENERATION_SHIFT) as u32;
        match (now == generation, state & OPEN != 0) {
            (true, true) => Ok(()),
            _ if generation > now => Err(BadHandle::Unknown),
            _ => Err(BadHandle::Closed),
        }
    }
}

impl<T> Slot<T> {
    fn release(&self) {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            // The last user of something closed takes the slot, so that nobody fills it before it is empty.
            let is_last = state & (OPEN | USERS) == 1;
            let next = if is_last { (state & !USERS) | TAKEN } else { state - 1 };
            match self.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if is_last => break,
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        let value = self.value.swap(ptr::null_mut(), Ordering::Relaxed);
        if !value.is_null() {
            // SAFETY: made by `Box::into_raw` in `open`, and taken out by the one that took the slot.
            drop(unsafe { Box::from_raw(value) });
        }
        self.state.fetch_and(!TAKEN, Ordering::Release);
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the slot's count of users includes this one, so the value is there until `drop`.
        unsafe { &*self.slot.value.load(Ordering::Relaxed) }
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.slot.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn closed_foreign_and_made_up_handles_are_known_as_such() {
        static TABLE: Table<u32, 4> = Table::new(1);
        static OTHER: Table<u32, 4> = Table::new(2);
        let first = TABLE.open(7).expect("room");
        assert_eq!(TABLE.get(first).map(|held| *held), Ok(7));
        assert_eq!(OTHER.get(first).err(), Some(BadHandle::Unknown));
        let held = TABLE.get(first).expect("open");
        TABLE.close(first).expect("open");
        assert_eq!(*held, 7, "who holds it keeps it");
        drop(held);
        assert_eq!(TABLE.get(first).err(), Some(BadHandle::Closed));
        assert_eq!(TABLE.close(first), Err(BadHandle::Closed));
        let again: Vec<u64> = (0..4).map(|value| TABLE.open(value).expect("room")).collect();
        assert_eq!(TABLE.open(9), Err(9), "four slots");
        assert!(again.iter().all(|handle| *handle != first));
        for made_up in [0, 1, u64::MAX, first ^ 1 << 40, 0xdead_beef] {
            assert!(TABLE.get(made_up).is_err() || again.contains(&made_up), "{made_up:#x}");
        }
    }

    #[test]
    fn users_and_closers_in_parallel_see_the_value_or_an_error_and_it_is_freed_once() {
        static TABLE: Table<Arc<u64>, 8> = Table::new(3);
        for round in 0..2000u64 {
            let value = Arc::new(round);
            let handle = TABLE.open(value.clone()).unwrap_or_else(|_| panic!("no room in round {round}"));
            thread::scope(|scope| {
                for closes in [false, true, true] {
                    scope.spawn(move || {
                        for _ in 0..20 {
                            match TABLE.get(handle) {
                                Ok(held) => assert_eq!(**held, round),
                                Err(error) => assert_eq!(error, BadHandle::Closed),
                            }
                        }
                        closes.then(|| TABLE.close(handle))
                    });
                }
            });
            assert_eq!(Arc::strong_count(&value), 1, "round {round}: freed exactly once");
        }
    }
}
