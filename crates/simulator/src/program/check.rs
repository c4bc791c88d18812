//! Checks a program before it runs: every index is in range, every number is finite, shares sum to 1, regions do not overlap.

use numapilot_placement::PageSize;

use super::{Action, Program, SMALL_PER_LARGE, Step};
use crate::error::SimulatorError;

/// Shares of a mix may miss 1 by this much.
const SHARE_TOLERANCE: f64 = 1e-6;

impl Program {
    /// Checks everything that the engine relies on.
    ///
    /// # Errors
    /// If something does not hold, with its place.
    pub fn check(&self) -> Result<(), SimulatorError> {
        let result = self.check_memory().and_then(|()| self.check_mixes()).and_then(|()| self.check_threads());
        result.map_err(|why| SimulatorError::Program { program: self.name.clone(), why })
    }

    fn check_memory(&self) -> Result<(), String> {
        let mut ranges = Vec::new();
        for region in &self.regions {
            let end = region.first_page.0.checked_add(region.pages).filter(|&end| end <= 1 << 36);
            let Some(end) = end.filter(|_| region.pages > 0) else {
                return Err(format!("region `{}` is empty or extends beyond the address space", region.name));
            };
            let aligned = region.first_page.in_large() == 0 && region.pages % SMALL_PER_LARGE == 0;
            if region.page_size == PageSize::Large && !aligned {
                return Err(format!(
                    "region `{}` has large pages, but its size is not a whole number of them",
                    region.name
                ));
            }
            if region.process as usize >= self.processes.len() {
                return Err(format!("region `{}` is in process {}, which does not exist", region.name, region.process));
            }
            ranges.push((region.process, region.first_page.0, end, &region.name));
        }
        ranges.sort_unstable();
        match ranges.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2) {
            Some(pair) => Err(format!("regions `{}` and `{}` overlap", pair[0].3, pair[1].3)),
            None => Ok(()),
        }
    }

    fn check_mixes(&self) -> Result<(), String> {
        for (index, slice) in self.slices.iter().enumerate() {
            let region = self.regions.get(slice.region as usize).ok_or(format!("slice {index} has no region"))?;
            let fits = slice.pages > 0 && slice.first.checked_add(slice.pages).is_some_and(|end| end <= region.pages);
            if !fits || slice.label as usize >= self.labels.len() {
                return Err(format!("slice {index} lies outside region `{}` or has no label", region.name));
            }
        }
        for (index, mix) in self.mixes.iter().enumerate() {
            let good = |part: &super::MixPart| {
                (part.slice as usize) < self.slices.len() && part.reads >= 0.0 && part.writes >= 0.0
            };
            let sum: f64 = mix.parts.iter().map(|part| part.reads + part.writes).sum();
            let sums_to_one = mix.parts.is_empty() || (sum - 1.0).abs() <= SHARE_TOLERANCE;
            if !mix.parts.iter().all(good) || !sums_to_one {
                return Err(format!("mix {index} has an invalid part, or its shares sum to {sum} instead of 1"));
            }
        }
        let good = |b: &super::Behaviour| {
            (b.mix as usize) < self.mixes.len() && b.outstanding.is_finite() && b.outstanding > 0.0
        };
        match self.behaviours.iter().position(|behaviour| !good(behaviour)) {
            Some(index) => Err(format!("behaviour {index} has no mix, or no outstanding accesses")),
            None => Ok(()),
        }
    }

    fn check_threads(&self) -> Result<(), String> {
        if self.threads.is_empty() {
            return Err("it has no threads".into());
        }
        let inside = |touch: &super::FirstTouch| {
            let region = self.regions.get(touch.region as usize);
            let end = touch.first.checked_add(touch.pages);
            region.is_some_and(|region| end.is_some_and(|end| end <= region.pages))
                && (touch.thread as usize) < self.threads.len()
        };
        let fits = |homes: &super::OrderedHomes| {
            let region = self.regions.get(homes.region as usize);
            region.is_some_and(|region| homes.first + homes.homes.len() as u64 <= region.pages)
        };
        if let Some(homes) = self.ordered_homes.iter().find(|homes| !fits(homes)) {
            return Err(format!("home nodes are given for pages that region {} does not have", homes.region));
        }
        if let Some(touch) = self.first_touches.iter().find(|touch| !inside(touch)) {
            return Err(format!("first touch {touch:?} lies outside its region, or names no thread"));
        }
        if self.repeat > 0 && !(self.body_ns.is_finite() && self.body_ns >= 0.0) {
            return Err(format!("its repeated part lasts {} ns instead of more than 0", self.body_ns));
        }
        for thread in &self.threads {
            if thread.process as usize >= self.processes.len() {
                return Err(format!("thread `{}` is in process {}, which does not exist", thread.name, thread.process));
            }
            for step in thread.prologue.iter().chain(&thread.body).chain(&thread.epilogue) {
                self.check_step(step).map_err(|why| format!("thread `{}`: {why}", thread.name))?;
            }
        }
        self.check_events()
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        let amount = |x: f64| x.is_finite() && x >= 0.0;
        let good = match step.action {
            Action::Work(work) => {
                let mix = self.behaviours.get(work.behaviour as usize).map(|b| &self.mixes[b.mix as usize]);
                let has_pages = mix.is_some_and(|mix| work.accesses == 0.0 || !mix.parts.is_empty());
                has_pages && amount(work.own_ns) && amount(work.accesses) && amount(work.instructions)
            }
            Action::Touch { slice, .. } => (slice as usize) < self.slices.len(),
            Action::Arrive { event } | Action::Await { event } => (event as usize) < self.events.len(),
            Action::Follow => true,
            Action::Sleep { ns } => amount(ns),
        };
        let ordered = step.from_ns.is_finite() && step.to_ns >= step.from_ns;
        if good && ordered { Ok(()) } else { Err(format!("step {step:?} is malformed")) }
    }

    /// Arrivals must be as many as are needed, all within one part of the timelines: else a repetition would wait for ever.
    fn check_events(&self) -> Result<(), String> {
        let mut arrivals = vec![[0u32; 3]; self.events.len()];
        for thread in &self.threads {
            for (part, steps) in [&thread.prologue, &thread.body, &thread.epilogue].into_iter().enumerate() {
                for step in steps {
                    if let Action::Arrive { event } = step.action {
                        arrivals[event as usize][part] += 1;
                    }
                }
            }
        }
        for (index, (event, parts)) in self.events.iter().zip(&arrivals).enumerate() {
            let parts_used = parts.iter().filter(|&&count| count > 0).count();
            if parts_used > 1 || (parts_used == 1 && parts.iter().sum::<u32>() != event.needed) {
                return Err(format!("event {index} needs {} arrivals, but its timelines have {parts:?}", event.needed));
            }
        }
        Ok(())
    }
}
