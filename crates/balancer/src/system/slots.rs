//! The places of managed processes. With its generation, a place makes the number by which policies and tables know a process, so that both last until it is
//! found that the process has ended.

/// Number of places: they are twelve bits of those numbers.
const SLOTS: u16 = 1 << 12;

/// All places.
#[derive(Debug)]
pub struct Slots {
    /// Number of processes that may be managed at once; fewer in tests.
    pub(crate) limit: u16,
    next: u16,
    /// By place: the generation with which the next process there begins.
    generations: Vec<u8>,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots { limit: SLOTS, next: 0, generations: vec![0; usize::from(SLOTS)] }
    }
}

impl Slots {
    /// A place that is not taken, and the generation of its next process; `None`: all are. Places are used in turn, and generations go on, so that a new
    /// process takes over neither the pages of one that has just ended, nor those of one that had the place when others had all the other ones.
    pub fn free(&mut self, is_taken: impl Fn(u16) -> bool) -> Option<(u16, u8)> {
        let slot = (0..self.limit).map(|step| (self.next + step) % self.limit).find(|slot| !is_taken(*slot))?;
        self.next = (slot + 1) % self.limit;
        let generation = self.generations[usize::from(slot)];
        self.has_had(slot, generation);
        Some((slot, generation))
    }

    /// A process at this place has begun a generation: another program.
    pub fn has_had(&mut self, slot: u16, generation: u8) {
        self.generations[usize::from(slot)] = generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that came to a place had the numbers of the one that was there before, and with them its pages' users, until the next sweep.
    #[test]
    fn who_comes_to_a_place_has_a_generation_of_its_own() {
        let mut slots = Slots { limit: 3, ..Slots::default() };
        assert_eq!(slots.free(|_| false), Some((0, 0)));
        slots.has_had(0, 1);
        let others = |slot: u16| slot == 2;
        assert_eq!(
            [slots.free(others), slots.free(others), slots.free(others)],
            [Some((1, 0)), Some((0, 2)), Some((1, 1))]
        );
        assert_eq!(slots.free(|_| true), None);
        slots.has_had(0, u8::MAX);
        assert_eq!(slots.free(|slot| slot > 0), Some((0, 0)), "modulo 256");
    }
}
