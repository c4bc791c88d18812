//! Arm SPE's AUX areas: counts of the pieces that AUX records describe, and how to decode each core's data sources.

use std::fs;
use std::path::Path;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_perf::abi::aux_flag;
use numapilot_perf::spe::SourceTable;

/// Counts of pieces of AUX areas, and of what is missing from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuxCounts {
    /// Pieces that were read.
    pub pieces: u64,
    /// Pieces after which records are missing, because the area was full.
    pub truncated: u64,
    /// Pieces with a gap or a truncated record.
    pub partial: u64,
    /// Pieces with collisions: an operation was selected before the previous sample was complete, and was dropped.
    pub collisions: u64,
    /// Bytes that were overwritten before they could be read, or whose records found no room.
    pub missing_bytes: u64,
    /// Accesses that were read after newer ones had been written: they have the times of those.
    pub late: u64,
    /// Times that SPE had stopped because an area was full, and was turned on again once that was read.
    pub restarts: u64,
    /// Nanoseconds for which it had, over all CPUs.
    pub off_ns: u64,
}

/// Whose trace a piece of an AUX area mostly is, by its record's process and thread id: where events are opened for tasks, the kernel ends a piece before a
/// task runs that has other events, but not between two that inherited the same (`perf_event_context_sched_out`), of which it names the last. In a trace of a
/// whole CPU the record says nothing.
#[must_use]
pub fn owner_of(of_cpu: bool, pid_tid: Option<(Pid, Tid)>) -> Option<(Pid, Tid)> {
    // 0 and -1: an idle CPU's, or a task of another namespace, or one that is gone.
    let is_known = |&(pid, tid): &(Pid, Tid)| [pid.0, tid.0].iter().all(|id| !matches!(*id, 0 | u32::MAX));
    pid_tid.filter(is_known).filter(|_| !of_cpu)
}

impl AuxCounts {
    /// Takes a piece into account: the flags of its AUX record, its length there, and how much of it could be read.
    pub fn piece(&mut self, flags: u64, told: u64, read: usize) {
        let has = |flag: u64| u64::from(flags & flag != 0);
        self.pieces += 1;
        self.truncated += has(aux_flag::TRUNCATED);
        self.partial += has(aux_flag::PARTIAL);
        self.collisions += has(aux_flag::COLLISION);
        self.missing_bytes += told.saturating_sub(read as u64);
    }

    /// SPE had stopped for so long, and was turned on again.
    pub fn restarted(&mut self, off_ns: u64) {
        self.restarts += 1;
        self.off_ns = self.off_ns.saturating_add(off_ns);
    }

    /// Notes for the user on missing records.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let AuxCounts { pieces, truncated, partial, collisions, missing_bytes, late, restarts, off_ns } = *self;
        let mut notes = Vec::new();
        if truncated + partial > 0 || missing_bytes > 0 {
            notes.push(format!(
                "SPE records are missing: of {pieces} pieces of its buffers {truncated} were followed by a gap because the buffer was full, {partial} were \
                 truncated, and {missing_bytes} bytes were overwritten or lost with their records; sample less with `--period`"
            ));
        }
        if restarts > 0 {
            notes.push(format!(
                "SPE recorded nothing for {:.1} ms of all CPUs' time, because its buffers had been full {restarts} times and were not read yet; sample less \
                 with `--period`",
                off_ns as f64 / 1e6
            ));
        }
        if collisions > 0 {
            notes.push(format!(
                "{collisions} of {pieces} pieces of SPE's buffers have collisions: an operation was selected before the previous sample was complete, and \
                 was dropped; sample less with `--period`"
            ));
        }
        if late > 0 {
            notes.push(format!(
                "{late} SPE records were read after newer records had been written; their times are too late by up to a buffer's age"
            ));
        }
        notes
    }
}

/// How the data sources of each of these CPUs are to be read, by its type register under `root`.
#[must_use]
pub fn source_tables(root: &Path, cpus: impl IntoIterator<Item = CpuId>) -> Vec<(u64, SourceTable)> {
    let midr = |cpu: CpuId| {
        let path = root.join(format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1"));
        let text = fs::read_to_string(path).ok()?;
        u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    let known = cpus.into_iter().filter_map(|cpu| Some((u64::from(cpu.0), SourceTable::of_midr(midr(cpu)?))));
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_counted_and_told() {
        let mut counts = AuxCounts::default();
        counts.piece(0, 64, 64);
        assert_eq!((counts.pieces, counts.notes().len()), (1, 0));
        counts.piece(aux_flag::TRUNCATED | aux_flag::PARTIAL, 128, 28);
        counts.piece(aux_flag::COLLISION, 64, 64);
        let want = AuxCounts {
            pieces: 3,
            truncated: 1,
            partial: 1,
            collisions: 1,
            missing_bytes: 100,
            ..AuxCounts::default()
        };
        assert_eq!(counts, want);
        let notes = counts.notes();
        assert_eq!(notes.len(), 2);
        assert!(notes[0].contains("100 bytes") && notes[1].contains("collisions"), "{notes:?}");
        counts.restarted(1_500_000);
        counts.restarted(1_000_000);
        assert!(counts.notes()[1].contains("nothing for 2.5 ms"), "{:?}", counts.notes());
    }

    #[test]
    fn a_piece_is_its_tasks_where_events_are_tasks() {
        let task = Some((Pid(7), Tid(8)));
        assert_eq!(owner_of(false, task), task);
        assert_eq!(owner_of(true, task), None);
        for nobody in [Some((Pid(0), Tid(0))), Some((Pid(u32::MAX), Tid(u32::MAX))), None] {
            assert_eq!(owner_of(false, nobody), None);
        }
    }

    #[test]
    fn cores_are_told_by_their_type_register() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/devices/system/cpu/cpu3/regs/identification");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("midr_el1"), "0x00000000413fd0c1\n").unwrap();
        assert_eq!(source_tables(root.path(), [0, 3].map(CpuId)), [(3, SourceTable::of_midr(0x413f_d0c1))]);
    }
}
