//! Processes that use the same memory, each on a node of its own.

use numapilot_flows::ObjectKind;
use numapilot_insight::PatternKind;
use numapilot_machine::Machine;
use numapilot_trace::ids::{ObjectId, ProcessIndex};

use super::program::{Made, PAGE, Program, Size, Touch};

/// Processes, and nodes of the machine.
const PROCESSES: u64 = 4;
const BYTES: u64 = 256 * PAGE;

/// What the processes read of a table that the first one filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// All of it.
    Whole,
    /// A part each.
    Parts,
    /// All of a copy of its own, which is on another node.
    Copies,
}

/// `kind`: shared memory that each process maps, or a mapping that the processes have inherited.
pub fn readers(size: Size, kind: ObjectKind, reading: Reading) -> Program {
    let mut made = Made::new(Machine::load("opteron-8385").expect("a built-in model"), 4, size);
    made.put_into_processes(PROCESSES as u32);
    for thread in &mut made.tables.threads {
        thread.process = ProcessIndex(thread.index.0 % PROCESSES as u32);
    }
    let private = made.private();
    let site = made.site("table");
    made.tables.sites[site.0 as usize].kind = kind;
    let mappings = if kind == ObjectKind::Shared { PROCESSES as u32 } else { 1 };
    let tables: Vec<ObjectId> = (0..mappings).map(|process| made.object(site, BYTES, PAGE, process)).collect();
    made.run(0.2, &private, &mut |random, thread, time| {
        let process = u64::from(thread) % PROCESSES;
        let filling = time < 0.05;
        if filling && process != 0 {
            let (object, home) = (private[thread as usize], process as u16);
            return Touch { object, offset: random.remainder(64 * PAGE), is_write: false, home, from: None };
        }
        let part = BYTES / PROCESSES;
        let is_part = reading == Reading::Parts && !filling;
        let offset = if is_part { process * part + random.remainder(part) } else { random.remainder(BYTES) };
        let is_copy = reading == Reading::Copies && !filling;
        let home = if is_copy { ((process + 1) % PROCESSES) as u16 } else { 0 };
        Touch { object: tables[process as usize % tables.len()], offset, is_write: filling, home, from: None }
    });
    let truth = match reading {
        Reading::Whole => PatternKind::ConcurrentReadMostly,
        Reading::Parts => PatternKind::SerialFirstTouch,
        Reading::Copies => PatternKind::RemoteAfterAllocation,
    };
    made.finish(&[truth])
}
