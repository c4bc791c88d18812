//! Puts a program together without duplicates: equal slices, mixes and behaviours are kept once, so that the engine solves them once.

use std::collections::BTreeMap;

use super::{Behaviour, Event, Mix, MixPart, Origin, Program, Region, Slice, Thread};

/// A mix by its content: slice, bits of reads, bits of writes.
type MixKey = Vec<(u32, u64, u64)>;

/// Gathers the parts of a [`Program`].
#[derive(Debug)]
pub struct Builder {
    program: Program,
    slices: BTreeMap<Slice, u32>,
    mixes: BTreeMap<MixKey, u32>,
    behaviours: BTreeMap<(u32, u64), u32>,
    labels: BTreeMap<String, u32>,
}

impl Builder {
    /// Makes a builder of a program without threads and regions.
    #[must_use]
    pub fn new(name: &str, origin: Origin) -> Builder {
        let program = Program {
            name: name.to_owned(),
            origin,
            processes: Vec::new(),
            regions: Vec::new(),
            labels: Vec::new(),
            slices: Vec::new(),
            mixes: Vec::new(),
            behaviours: Vec::new(),
            threads: Vec::new(),
            events: Vec::new(),
            first_touches: Vec::new(),
            ordered_homes: Vec::new(),
            repeat: 0,
            body_ns: 0.0,
            counts_instructions: false,
        };
        let (slices, mixes) = (BTreeMap::new(), BTreeMap::new());
        Builder { program, slices, mixes, behaviours: BTreeMap::new(), labels: BTreeMap::new() }
    }

    /// Adds a process; its index.
    pub fn process(&mut self, name: &str) -> u32 {
        self.program.processes.push(name.to_owned());
        self.program.processes.len() as u32 - 1
    }

    /// Adds a region; its index.
    pub fn region(&mut self, region: Region) -> u32 {
        self.program.regions.push(region);
        self.program.regions.len() as u32 - 1
    }

    /// The label of this name.
    pub fn label(&mut self, name: &str) -> u32 {
        if let Some(&label) = self.labels.get(name) {
            return label;
        }
        self.program.labels.push(name.to_owned());
        let label = self.program.labels.len() as u32 - 1;
        self.labels.insert(name.to_owned(), label);
        label
    }

    /// The slice like this one.
    pub fn slice(&mut self, slice: Slice) -> u32 {
        let next = self.program.slices.len() as u32;
        let index = *self.slices.entry(slice).or_insert(next);
        if index == next {
            self.program.slices.push(slice);
        }
        index
    }

    /// The mix with these parts; shares are scaled to sum to 1, parts of the same slice are joined. No weight at all gives the empty mix.
    pub fn mix(&mut self, parts: &[MixPart]) -> u32 {
        let mut joined: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for part in parts {
            let sums = joined.entry(part.slice).or_default();
            *sums = (sums.0 + part.reads, sums.1 + part.writes);
        }
        let total: f64 = joined.values().map(|sums| sums.0 + sums.1).sum();
        joined.retain(|_, sums| sums.0 + sums.1 > 0.0);
        let parts: Vec<MixPart> = joined
            .iter()
            .map(|(&slice, sums)| MixPart { slice, reads: sums.0 / total, writes: sums.1 / total })
            .collect();
        let key: MixKey = parts.iter().map(|p| (p.slice, p.reads.to_bits(), p.writes.to_bits())).collect();
        let next = self.program.mixes.len() as u32;
        let index = *self.mixes.entry(key).or_insert(next);
        if index == next {
            self.program.mixes.push(Mix { parts });
        }
        index
    }

    /// The behaviour with this mix and overlap.
    pub fn behaviour(&mut self, mix: u32, outstanding: f64) -> u32 {
        let next = self.program.behaviours.len() as u32;
        let index = *self.behaviours.entry((mix, outstanding.to_bits())).or_insert(next);
        if index == next {
            self.program.behaviours.push(Behaviour { mix, outstanding });
        }
        index
    }

    /// Adds an event that needs this many arrivals; its index.
    pub fn event(&mut self, needed: u32) -> u32 {
        self.program.events.push(Event { needed });
        self.program.events.len() as u32 - 1
    }

    /// Adds a thread; its index.
    pub fn thread(&mut self, thread: Thread) -> u32 {
        self.program.threads.push(thread);
        self.program.threads.len() as u32 - 1
    }

    /// The program so far, for the caller to complete.
    pub fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Checks the program and returns it.
    ///
    /// # Errors
    /// The errors of [`Program::check`].
    pub fn finish(self) -> Result<Program, crate::SimulatorError> {
        self.program.check()?;
        Ok(self.program)
    }
}
