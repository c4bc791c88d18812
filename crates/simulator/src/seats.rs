//! Which CPU each thread starts on.

use numapilot_machine::{Bind, Machine, NodeIndex};

use crate::error::SimulatorError;
use crate::options::Layout;
use crate::program::Program;

/// The CPU of each thread, as an index, and its node.
pub(crate) fn seats(
    program: &Program,
    machine: &Machine,
    layout: Layout,
) -> Result<Vec<(usize, NodeIndex)>, SimulatorError> {
    let bind = if let Layout::Ordered(bind) = layout { bind } else { Bind::Spread };
    let order = machine.thread_layout(bind, None);
    let fail = |why: &str| SimulatorError::Machine { machine: machine.name().to_owned(), why: why.into() };
    if order.is_empty() {
        return Err(fail("it has no online CPU to run threads on; choose another machine"));
    }
    let seat = |(thread, data): (usize, &crate::program::Thread)| {
        let recorded = data.cpu.filter(|&id| layout == Layout::Recorded && order.contains(&id));
        let id = recorded.unwrap_or(order[thread % order.len()]);
        let cpu = machine.cpus().iter().position(|cpu| cpu.id == id)?;
        Some((cpu, machine.node_index(machine.node_of_cpu(id)?)?))
    };
    let seats: Option<Vec<_>> = program.threads.iter().enumerate().map(seat).collect();
    seats.ok_or_else(|| fail("its description does not say which nodes its CPUs belong to"))
}
