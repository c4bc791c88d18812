//! The entry point: a program, a machine, options, and then a run per policy.

use numapilot_machine::Machine;
use numapilot_placement::Policy;

use crate::engine::{Engine, Progress};
use crate::error::SimulatorError;
use crate::memory::{IdleMemory, Memory, QueueingMemory};
use crate::options::{MemoryModel, Options};
use crate::program::Program;
use crate::report::Report;

/// A program on a machine, ready to be run under any number of policies.
#[derive(Clone, Debug)]
pub struct Simulation<'a> {
    program: &'a Program,
    machine: &'a Machine,
    options: Options,
}

impl<'a> Simulation<'a> {
    /// Checks that they fit together.
    ///
    /// # Errors
    /// If the program or an option is malformed, or the program's memory exceeds the machine's.
    pub fn new(program: &'a Program, machine: &'a Machine, options: Options) -> Result<Simulation<'a>, SimulatorError> {
        options.check()?;
        program.check()?;
        let (needed, there) = (program.bytes(), machine.memory_bytes());
        if needed > there {
            let why = format!(
                "program `{}` maps {needed} bytes, but the machine has {there}; shrink the program or choose a machine with more memory",
                program.name
            );
            return Err(SimulatorError::Machine { machine: machine.name().to_owned(), why });
        }
        Ok(Simulation { program, machine, options })
    }

    /// Runs the program under a policy. `progress` is called after every epoch; when it returns false, the run stops with an error.
    ///
    /// # Errors
    /// If the machine cannot answer (no links known, no path), memory runs out, or the program locks itself up.
    pub fn run(
        &self,
        policy: &mut dyn Policy,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Report, SimulatorError> {
        match self.options.memory {
            MemoryModel::Queueing => self.run_on(&mut QueueingMemory::new(self.machine)?, policy, progress),
            MemoryModel::Idle => self.run_on(&mut IdleMemory::new(self.machine), policy, progress),
        }
    }

    /// [`Simulation::run`] on a memory system of the caller's.
    ///
    /// # Errors
    /// The errors of [`Simulation::run`].
    pub fn run_on(
        &self,
        memory: &mut dyn Memory,
        policy: &mut dyn Policy,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Report, SimulatorError> {
        Engine::new(self.program, self.machine, &self.options, memory, policy)?.run(policy, progress)
    }
}
