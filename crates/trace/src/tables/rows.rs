//! The tables. One list of fields defines each table's struct of columns, its row struct and its schema.

use std::ops::Range;
use std::sync::Arc;

use super::element::{ColumnInput, ColumnOutput, Element, ReadFault, Values};
use super::schema::{Column, Encoding};

/// A table: its columns as vectors of equal length.
pub trait Table: Default + Send + Sync {
    /// Name of the table, and of its file without `.parquet`.
    const NAME: &'static str;
    /// Its columns, in the order of the file.
    const COLUMNS: &'static [Column];
    /// Number of rows.
    fn len(&self) -> usize;
    /// Whether the table has no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes rows of one column.
    ///
    /// # Errors
    /// An error of the parquet crate.
    fn write_column(&self, column: usize, rows: Range<usize>, out: &mut ColumnOutput) -> parquet::errors::Result<()>;
    /// Appends all values of one column of one row group.
    ///
    /// # Errors
    /// A value is out of the range of the column's type, or an error of the parquet crate.
    fn read_column(&mut self, column: usize, input: &mut ColumnInput<'_>) -> Result<(), ReadFault>;
    /// Appends nulls for a column that an older file lacks; false if the column is not nullable.
    fn fill_column(&mut self, column: usize, rows: usize) -> bool;
    /// Whether all columns have the same length.
    fn is_even(&self) -> bool;
    /// Rows of one column as slices of memory; `None` past the last column.
    fn values(&self, column: usize, rows: Range<usize>) -> Option<Values<'_>>;
}

macro_rules! table {
    ($(#[$doc:meta])* $columns:ident, $row:ident, $name:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty, $unit:literal, $encoding:ident;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $columns {
            $($(#[$field_doc])* pub $field: Vec<$type>,)*
        }

        #[doc = concat!("A row of [`", stringify!($columns), "`].")]
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $row {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $columns {
            /// Appends a row.
            pub fn push(&mut self, row: $row) {
                $(self.$field.push(row.$field);)*
            }

            /// A copy of one row; panics past the end.
            #[must_use]
            pub fn row(&self, index: usize) -> $row {
                $row { $($field: self.$field[index].clone(),)* }
            }

            /// Copies of all rows, in order.
            pub fn rows(&self) -> impl Iterator<Item = $row> + '_ {
                (0..Table::len(self)).map(|index| self.row(index))
            }

            /// Reserves memory for `rows` more rows.
            pub fn reserve(&mut self, rows: usize) {
                $(self.$field.reserve(rows);)*
            }

            /// Removes the first `rows` rows.
            pub fn drop_front(&mut self, rows: usize) {
                $(self.$field.drain(..rows.min(self.$field.len()));)*
            }

            /// Moves all rows of `other` to the end.
            pub fn append(&mut self, other: &mut Self) {
                $(self.$field.append(&mut other.$field);)*
            }
        }

        impl Table for $columns {
            const NAME: &'static str = $name;
            const COLUMNS: &'static [Column] = &[$(Column {
                name: stringify!($field),
                unit: $unit,
                kind: <$type as Element>::TYPE,
                nullable: <$type as Element>::NULLABLE,
                encoding: Encoding::$encoding,
            }),*];

            fn len(&self) -> usize {
                let lengths = [$(self.$field.len()),*];
                lengths[0]
            }

            fn write_column(
                &self,
                column: usize,
                rows: Range<usize>,
                out: &mut ColumnOutput,
            ) -> parquet::errors::Result<()> {
                let mut index = 0;
                $(
                    if column == index {
                        return <$type as Element>::write(&self.$field[rows], out);
                    }
                    index += 1;
                )*
                debug_assert!(index <= column);
                Ok(())
            }

            fn read_column(&mut self, column: usize, input: &mut ColumnInput<'_>) -> Result<(), ReadFault> {
                let mut index = 0;
                $(
                    if column == index {
                        return <$type as Element>::read(input, &mut self.$field);
                    }
                    index += 1;
                )*
                debug_assert!(index <= column);
                Ok(())
            }

            fn fill_column(&mut self, column: usize, rows: usize) -> bool {
                let mut index = 0;
                $(
                    if column == index {
                        let Some(unknown) = <$type as Element>::unknown() else { return false };
                        self.$field.resize(self.$field.len() + rows, unknown);
                        return true;
                    }
                    index += 1;
                )*
                debug_assert!(index <= column);
                false
            }

            fn values(&self, column: usize, rows: Range<usize>) -> Option<Values<'_>> {
                let mut index = 0;
                $(
                    if column == index {
                        return Some(<$type as Element>::values(self.$field.get(rows)?));
                    }
                    index += 1;
                )*
                debug_assert!(index <= column);
                None
            }

            fn is_even(&self) -> bool {
                let lengths = [$(self.$field.len()),*];
                lengths.iter().all(|length| *length == lengths[0])
            }
        }
    };
}

table! {
    /// `accesses`: one row per sample, in order of time, with the object, location and home that the join determined.
    AccessColumns, AccessRow, "accesses" {
        /// Program time of the access.
        time_ns: u64, "ns since the start of the recording", Delta;
        /// Order in which events really happened on the recording machine.
        order: u64, "ticks since the start of the recording", Delta;
        /// Thread that made the access.
        thread: u32, "threads.thread", Dictionary;
        /// Virtual address accessed.
        address: u64, "address", Split;
        /// Object that was live there then.
        object: Option<u32>, "objects.object", Dictionary;
        /// CPU that executed the access.
        cpu: Option<u32>, "CPU number", Dictionary;
        /// Node of that CPU.
        node: Option<u16>, "node number", Dictionary;
        /// Home node of the page at that moment.
        home: Option<u16>, "node number", Dictionary;
        /// Store or read-modify-write.
        is_write: bool, "", Plain;
        /// Atomic operation.
        is_atomic: bool, "", Plain;
        /// Part of a ranged operation (memcpy, a kernel's copy into a buffer).
        is_range: bool, "", Plain;
        /// Level that served it: 0 unknown, 1 L1, 2 L2, 3 L3, 4 memory, 5 another cache.
        level: u8, "level", Dictionary;
        /// Latency; null where the engine does not measure it.
        latency_cycles: Option<u32>, "cycles", Dictionary;
        /// Address of the instruction.
        ip: u64, "address", Dictionary;
        /// Location of the instruction: its binary, functions and lines.
        location: u32, "frames.location; 0 unknown", Dictionary;
        /// Call stack of the access.
        stack: u32, "stacks.stack; 0 unknown", Dictionary;
        /// Number of memory accesses that this row represents.
        weight: u32, "accesses", Dictionary;
    }
}

table! {
    /// `objects`: one row per object instance: an address range, live from its birth up to, not including, its death.
    ObjectColumns, ObjectRow, "objects" {
        /// Number of the object: its row, from 0.
        object: u32, "", Delta;
        /// `static`, `heap`, `anonymous`, `allocator`, `file`, `section`, `stack`, `shared`, `unknown`, `pool`.
        kind: Arc<str>, "", Dictionary;
        /// Name of the object: of its variable, symbol, file or section.
        name: Arc<str>, "", Dictionary;
        /// Number of its site: objects that the same place in the source allocates or declares share it.
        site: u32, "", Dictionary;
        /// Function that allocates it; empty where unknown.
        site_function: Arc<str>, "", Dictionary;
        /// Source file that allocates or declares it; empty where unknown.
        site_file: Arc<str>, "", Dictionary;
        /// Line in that file; 0 where unknown.
        site_line: u32, "line", Dictionary;
        /// Binary that holds the allocating code, the symbol or the section.
        module: Arc<str>, "path", Dictionary;
        /// First address.
        address: u64, "address", Split;
        /// Size of the object.
        bytes: u64, "bytes", Dictionary;
        /// Process in which it was born.
        process: u32, "processes.process", Dictionary;
        /// Thread that allocated it; for a stack, the thread that runs on it.
        thread: Option<u32>, "threads.thread", Dictionary;
        /// CPU on which that thread ran then.
        cpu: Option<u32>, "CPU number", Dictionary;
        /// Node of that CPU.
        node: Option<u16>, "node number", Dictionary;
        /// Program time of birth; 0 for what existed before the recording.
        birth_ns: u64, "ns since the start of the recording", Delta;
        /// Program time of death; null: it lived to the end of the recording.
        death_ns: Option<u64>, "ns since the start of the recording", Delta;
        /// Order stamp of birth.
        birth_order: u64, "ticks since the start of the recording", Delta;
        /// Order stamp of death.
        death_order: Option<u64>, "ticks since the start of the recording", Delta;
        /// Call stack of the allocation.
        stack: u32, "stacks.stack; 0 unknown", Dictionary;
        /// `malloc`, `calloc`, `realloc`, `aligned`, `new`, `new_array`, `numa`, `brk`, `shm`; `sampled`: a sample of a heap of which not all blocks are
        /// recorded (since 1.3), `moved`: a later place of one; null for objects that are not blocks.
        alloc_kind: Option<Arc<str>>, "", Dictionary;
        /// Thread that freed or unmapped it (since 1.3); null: it lived to the end, or its end was not recorded as such.
        death_thread: Option<u32>, "threads.thread", Dictionary;
        /// Of `sampled` and `moved` blocks: bytes that a thread allocates from one sample to the next, on average (since 1.3); 0: each block is a sample.
        sample_interval_bytes: Option<u32>, "bytes", Dictionary;
    }
}

table! {
    /// `threads`: one row per thread, with its exact totals.
    ThreadColumns, ThreadRow, "threads" {
        /// Number of the thread, in order of creation from 0.
        thread: u32, "", Delta;
        /// Process of the thread.
        process: u32, "processes.process", Dictionary;
        /// The kernel's process id.
        pid: u32, "", Dictionary;
        /// The kernel's thread id.
        tid: u32, "", Delta;
        /// Name of the thread; empty where none was set.
        name: Arc<str>, "", Dictionary;
        /// Start function of the thread.
        start_function: Arc<str>, "", Dictionary;
        /// Address of that function.
        start_routine: u64, "address", Dictionary;
        /// Thread that created it.
        parent: Option<u32>, "threads.thread", Dictionary;
        /// CPU on which it started.
        cpu: Option<u32>, "CPU number", Dictionary;
        /// Node of that CPU.
        node: Option<u16>, "node number", Dictionary;
        /// Program time of its start; where that was lost, of its first record.
        start_ns: u64, "ns since the start of the recording", Delta;
        /// Program time of its end; null: not seen.
        end_ns: Option<u64>, "ns since the start of the recording", Delta;
        /// Order stamp of its start.
        start_order: u64, "ticks since the start of the recording", Delta;
        /// Order stamp of its end.
        end_order: Option<u64>, "ticks since the start of the recording", Delta;
        /// Its stack, as an object.
        stack_object: Option<u32>, "objects.object", Dictionary;
        /// Call stack of its creation.
        created_at: u32, "stacks.stack; 0 unknown", Dictionary;
        /// Instrumented accesses; null where the engine does not count.
        accesses: Option<u64>, "accesses", Delta;
        /// Of these, accesses that missed the private caches and the shared cache.
        memory_accesses: Option<u64>, "accesses", Delta;
        /// Of `memory_accesses`, stores.
        memory_writes: Option<u64>, "accesses", Delta;
        /// Of `memory_accesses`, those that another cache served.
        cache_transfers: Option<u64>, "accesses", Delta;
        /// Program time spent waiting for other threads.
        wait_cycles: Option<u64>, "cycles", Delta;
    }
}

table! {
    /// `processes`: one row per process image.
    ProcessColumns, ProcessRow, "processes" {
        /// Number of the process image, from 0.
        process: u32, "", Delta;
        /// The kernel's process id.
        pid: u32, "", Dictionary;
        /// The kernel's process id of its parent.
        parent_pid: u32, "", Dictionary;
        /// Process that forked it, or that it replaced by exec.
        parent: Option<u32>, "processes.process", Dictionary;
        /// Whether it replaced its parent by exec.
        by_exec: bool, "", Plain;
        /// Path of the executable.
        exe: Arc<str>, "path", Dictionary;
        /// Arguments as a JSON array of strings.
        arguments: Arc<str>, "JSON", Plain;
        /// Program time of its start.
        start_ns: u64, "ns since the start of the recording", Delta;
        /// Program time of its end; null: not seen.
        end_ns: Option<u64>, "ns since the start of the recording", Delta;
        /// Exit status; null: not known, or it ended by exec.
        exit_code: Option<u32>, "", Dictionary;
    }
}

table! {
    /// `modules`: one row per loaded binary.
    ModuleColumns, ModuleRow, "modules" {
        /// Number of the loaded binary, from 1.
        module: u32, "", Delta;
        /// Process that loaded it.
        process: u32, "processes.process", Dictionary;
        /// Path of the binary.
        path: Arc<str>, "path", Dictionary;
        /// Lowest address at which it is mapped.
        address: u64, "address", Plain;
        /// Size of the mapped range.
        bytes: u64, "bytes", Plain;
        /// Address in the process minus address in the file.
        bias: u64, "address", Plain;
        /// GNU build id, hexadecimal; empty where there is none.
        build_id: Arc<str>, "", Plain;
        /// Program time when it was loaded.
        load_ns: u64, "ns since the start of the recording", Delta;
        /// Program time when it was unloaded; null: never.
        unload_ns: Option<u64>, "ns since the start of the recording", Delta;
    }
}

table! {
    /// `stacks`: one row per stack and depth.
    StackColumns, StackRow, "stacks" {
        /// Number of the call stack, from 1.
        stack: u32, "", Delta;
        /// Depth of the frame; 0 is the innermost.
        depth: u16, "", Dictionary;
        /// Return address of the frame; of a function that a Python interpreter ran (module `[python]`) or a Java method (module `[java]`), a place
        /// in it (since 1.3).
        ip: u64, "address", Dictionary;
        /// Location of that address.
        location: u32, "frames.location; 0 unknown", Dictionary;
        /// Whether the stack is incomplete here: it was too deep, or unwinding failed.
        is_cut: bool, "", Plain;
    }
}

table! {
    /// `frames`: one row per location and inlined function in it.
    FrameColumns, FrameRow, "frames" {
        /// Number of the location, from 1.
        location: u32, "", Delta;
        /// Depth of inlining; 0 is the innermost inlined function.
        depth: u16, "", Dictionary;
        /// Binary; empty where unknown.
        module: Arc<str>, "path", Dictionary;
        /// Address in the binary's file.
        offset: u64, "address", Plain;
        /// Function, demangled; empty where unknown.
        function: Arc<str>, "", Dictionary;
        /// Source file; empty where unknown.
        file: Arc<str>, "path", Dictionary;
        /// Line; 0 where unknown.
        line: u32, "line", Dictionary;
        /// Column; 0 where unknown.
        column: u32, "column", Dictionary;
        /// Whether the function was inlined into the one at the next depth.
        is_inlined: bool, "", Plain;
    }
}

table! {
    /// `placements`: one row per run of pages that got a home node or changed it.
    PlacementColumns, PlacementRow, "placements" {
        /// Program time of the placement.
        time_ns: u64, "ns since the start of the recording", Delta;
        /// Order stamp of the placement.
        order: u64, "ticks since the start of the recording", Delta;
        /// Thread that touched the pages first, set their policy, or moved them.
        thread: u32, "threads.thread", Dictionary;
        /// First address of the first page.
        address: u64, "address", Delta;
        /// Number of pages.
        pages: u32, "pages of 4096 bytes", Dictionary;
        /// Home node of the pages from now on.
        node: u16, "node number", Dictionary;
        /// `first_touch`, `policy`, `moved`, `found` (placed before the recording).
        cause: Arc<str>, "", Dictionary;
        /// Object that was live there then.
        object: Option<u32>, "objects.object", Dictionary;
    }
}

table! {
    /// `counters`: exact totals of one thread since its start, read at one moment.
    CounterColumns, CounterRow, "counters" {
        /// Program time of the reading.
        time_ns: u64, "ns since the start of the recording", Delta;
        /// Thread whose totals these are.
        thread: u32, "threads.thread", Dictionary;
        /// Node on which it ran up to this moment.
        node: Option<u16>, "node number", Dictionary;
        /// Instrumented accesses.
        accesses: u64, "accesses", Delta;
        /// Accesses that missed the first-stage filter.
        l2_lookups: u64, "accesses", Delta;
        /// Accesses that missed the private caches.
        l3_lookups: u64, "accesses", Delta;
        /// Accesses that missed the shared cache.
        memory_accesses: u64, "accesses", Delta;
        /// Of these, served by another cache.
        cache_transfers: u64, "accesses", Delta;
        /// Of `memory_accesses`, stores.
        memory_writes: u64, "accesses", Delta;
        /// Program time spent waiting for other threads.
        wait_cycles: u64, "cycles", Delta;
        /// Program time charged for `memory_accesses`: idle latencies over the accesses that are outstanding at a time (since 1.1).
        memory_cycles: Option<u64>, "cycles", Delta;
        /// Of `memory_accesses`, those that continued a stream that the hardware prefetches (since 1.1).
        memory_streamed: Option<u64>, "accesses", Delta;
        /// Of `memory_accesses`, an estimate of those that continued no stream and gave another access its address (since 1.2).
        memory_dependent: Option<u64>, "accesses", Delta;
    }
}

table! {
    /// `counters_by_home`: `counters.memory_accesses` by home node of the page; rows with 0 are left out.
    HomeCounterColumns, HomeCounterRow, "counters_by_home" {
        /// Program time of the reading.
        time_ns: u64, "ns since the start of the recording", Delta;
        /// Thread whose totals these are.
        thread: u32, "threads.thread", Dictionary;
        /// Node on which it ran up to this moment.
        node: Option<u16>, "node number", Dictionary;
        /// Home node of the accessed pages.
        home: u16, "node number", Dictionary;
        /// Memory accesses to that home since the thread's start.
        memory_accesses: u64, "accesses", Delta;
    }
}

table! {
    /// `syncs`: one row per wait for another thread, a lock, a sleep.
    SyncColumns, SyncRow, "syncs" {
        /// Program time at which the wait began.
        began_ns: u64, "ns since the start of the recording", Delta;
        /// Program time at which it ended.
        ended_ns: u64, "ns since the start of the recording", Delta;
        /// Order stamp of its end.
        order: u64, "ticks since the start of the recording", Delta;
        /// Thread that waited.
        thread: u32, "threads.thread", Dictionary;
        /// `create`, `join`, `mutex`, `rwlock`, `cond`, `barrier`, `sem`, `once`, `team_start`, `team_end`, ...: see wire.h.
        kind: Arc<str>, "", Dictionary;
        /// Address of the lock or barrier; for `create` and `join` the other thread's number.
        object: u64, "address or threads.thread", Dictionary;
    }
}

table! {
    /// `losses`: what could not be recorded.
    LossColumns, LossRow, "losses" {
        /// Program time at which the loss was noticed.
        time_ns: u64, "ns since the start of the recording", Delta;
        /// Thread that lost records; null where it is not known.
        thread: Option<u32>, "threads.thread", Dictionary;
        /// `ring_full`, `no_slot`, `stopped`, `after_end`, `reentrant`, `stack_table`, `chunk_damaged`, `chunk_torn`, `chunk_missing`, `no_stamps`.
        cause: Arc<str>, "", Dictionary;
        /// Records lost; bytes for damaged and torn chunks.
        count: u64, "records or bytes", Delta;
    }
}

table! {
    /// `marks`: marks that the program set, each with a text.
    MarkColumns, MarkRow, "marks" {
        /// Program time of the mark.
        time_ns: u64, "ns since the start of the recording", Delta;
        /// Order stamp of the mark.
        order: u64, "ticks since the start of the recording", Delta;
        /// Thread that set the mark.
        thread: u32, "threads.thread", Dictionary;
        /// Text of the mark.
        text: Arc<str>, "", Dictionary;
    }
}

/// Names of all tables and their columns, in the order of the documentation.
#[must_use]
pub fn all_tables() -> Vec<(&'static str, &'static [Column])> {
    vec![
        (AccessColumns::NAME, AccessColumns::COLUMNS),
        (ObjectColumns::NAME, ObjectColumns::COLUMNS),
        (ThreadColumns::NAME, ThreadColumns::COLUMNS),
        (ProcessColumns::NAME, ProcessColumns::COLUMNS),
        (ModuleColumns::NAME, ModuleColumns::COLUMNS),
        (StackColumns::NAME, StackColumns::COLUMNS),
        (FrameColumns::NAME, FrameColumns::COLUMNS),
        (PlacementColumns::NAME, PlacementColumns::COLUMNS),
        (CounterColumns::NAME, CounterColumns::COLUMNS),
        (HomeCounterColumns::NAME, HomeCounterColumns::COLUMNS),
        (SyncColumns::NAME, SyncColumns::COLUMNS),
        (LossColumns::NAME, LossColumns::COLUMNS),
        (MarkColumns::NAME, MarkColumns::COLUMNS),
    ]
}
