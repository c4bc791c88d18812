//! Writes the accesses of a recording in row groups, in order of time: on a thread of its own, or, where the system refuses one, on the join's.

use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};

use numapilot_trace::tables::schema::ROWS_PER_GROUP;
use numapilot_trace::tables::{AccessColumns, Table, TableError, TableWriter};

use crate::error::FlowError;
use crate::rows::TimeSorter;

/// The table of accesses, the number of its rows, and the sum of their weights.
pub(crate) type Written = (TableWriter<AccessColumns>, u64, u64);

/// The table of accesses while it is written. Threads' clocks differ by little at any moment, so it is enough to hold one row group back. A later straggler
/// is out of order in the file; readers sort.
pub(crate) struct Encoder {
    table: TableWriter<AccessColumns>,
    sorter: TimeSorter,
    samples: u64,
    weight: u64,
    /// Why nothing more can be written.
    failed: Option<TableError>,
}

/// Where the join's batches of accesses go.
pub(crate) enum Output<'a> {
    /// They go to the encoder's thread, which gives empty ones back.
    Thread(SyncSender<AccessColumns>, Receiver<AccessColumns>),
    /// They go to the encoder itself, as there is no such thread.
    Here(&'a Mutex<Encoder>),
}

/// The encoder; its thread holds it as long as it runs.
pub(crate) fn locked(encoder: &Mutex<Encoder>) -> MutexGuard<'_, Encoder> {
    encoder.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Encoder {
    /// Writes to this table.
    pub(crate) fn new(table: TableWriter<AccessColumns>) -> Encoder {
        Encoder { table, sorter: TimeSorter::default(), samples: 0, weight: 0, failed: None }
    }

    /// Takes all batches that come, and gives them back empty.
    pub(crate) fn take_all(&mut self, receiver: &Receiver<AccessColumns>, empties: &Sender<AccessColumns>) {
        for mut batch in receiver {
            if !self.take(&mut batch) {
                return;
            }
            // The other thread fills it again, or has ended.
            let _ = empties.send(batch);
        }
        self.flush();
    }

    /// Takes the rows of a batch, which is empty afterwards and keeps its memory; false if the file cannot be written, which [`Encoder::finish`] explains.
    pub(crate) fn take(&mut self, batch: &mut AccessColumns) -> bool {
        self.samples += batch.len() as u64;
        self.weight += batch.weight.iter().map(|&weight| u64::from(weight)).sum::<u64>();
        self.sorter.take(batch);
        self.sorter.len() < 2 * ROWS_PER_GROUP || self.write_group()
    }

    /// The table with all rows.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn finish(mut self) -> Result<Written, FlowError> {
        self.flush();
        match self.failed {
            Some(error) => Err(error.into()),
            None => Ok((self.table, self.samples, self.weight)),
        }
    }

    fn flush(&mut self) {
        while self.failed.is_none() && self.sorter.len() > 0 {
            self.write_group();
        }
    }

    fn write_group(&mut self) -> bool {
        let table = &mut self.table;
        let written = self.sorter.first(ROWS_PER_GROUP, |columns, rows| table.append_rows(columns, rows));
        self.failed = written.err();
        self.failed.is_none()
    }
}
