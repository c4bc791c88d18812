//! Tables: round trips of every table, damage, versions, and bytes per row on realistic data.
#![allow(clippy::print_stdout)] // Figures, shown with --nocapture.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::realistic::{accesses as realistic_accesses, objects as realistic_objects};
use numapilot_trace::engine::Engine;
use numapilot_trace::meta::{META_FILE, Meta, MetaError};
use numapilot_trace::tables::*;
use serde_json::json;

fn text(value: &str) -> Arc<str> {
    value.into()
}

fn column_sizes(path: &Path) -> Vec<(String, i64)> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let metadata = reader.metadata();
    let mut sizes: Vec<(String, i64)> = Vec::new();
    for group in metadata.row_groups() {
        for (index, column) in group.columns().iter().enumerate() {
            if sizes.len() <= index {
                sizes.push((column.column_path().string(), 0));
            }
            sizes[index].1 += column.compressed_size();
        }
    }
    sizes
}

fn bytes_per_row<T: Table>(columns: &T) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.parquet");
    let mut writer = TableWriter::<T>::create(&path).unwrap();
    writer.append(columns).unwrap();
    let info = writer.finish(Durability::Written).unwrap();
    let rows = columns.len() as f64;
    for (name, bytes) in column_sizes(&path) {
        println!("  {:<16} {:6.2} bytes/row", name, bytes as f64 / rows);
    }
    println!("{}: {:.2} bytes/row", T::NAME, info.bytes as f64 / rows);
    info.bytes as f64 / rows
}

#[test]
fn a_sample_costs_at_most_16_bytes() {
    assert!(bytes_per_row(&realistic_accesses(400_000)) <= 16.0);
}

#[test]
fn a_lifecycle_event_costs_at_most_24_bytes() {
    // A row is two events: birth and death.
    assert!(bytes_per_row(&realistic_objects(200_000)) / 2.0 <= 24.0);
}

fn meta() -> Meta {
    Meta {
        tool_version: "0.1.0".into(),
        engine: Engine::Instrument.into(),
        simulated: true,
        machine_name: "opteron-8385".into(),
        machine: json!({"nodes": [0, 1, 2, 3]}),
        command: vec!["./a.out".into()],
        ..Meta::default()
    }
}

fn write_trace(folder: &Path) -> (AccessColumns, ObjectColumns) {
    let accesses = realistic_accesses(5000);
    let mut objects = realistic_objects(700);
    objects.death_ns[3] = None;
    objects.death_order[3] = None;
    objects.thread[4] = None;
    let mut writer = TraceWriter::create(FolderLock::take(folder), Durability::Written).unwrap();
    let mut table = writer.open::<AccessColumns>().unwrap();
    table.append(&accesses).unwrap();
    writer.close(table).unwrap();
    writer.write(&objects).unwrap();
    writer.finish(meta()).unwrap();
    (accesses, objects)
}

#[test]
fn what_was_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("a.numatrace");
    let (accesses, objects) = write_trace(&trace);
    let reader = TraceReader::open(&trace).unwrap();
    assert_eq!(reader.read::<AccessColumns>().unwrap(), accesses);
    let read: ObjectColumns = reader.read().unwrap();
    assert_eq!(read, objects);
    assert_eq!(read.rows().count(), 700);
    assert_eq!(reader.read::<SyncColumns>().unwrap(), SyncColumns::default());
    assert_eq!(reader.meta().tables.len(), all_tables().len());
    assert_eq!(reader.meta().machine, meta().machine);
    let left: Vec<_> = std::fs::read_dir(&trace).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{left:?}");
}

macro_rules! every_column_survives {
    ($($test:ident: $table:ty;)*) => {$(
        #[test]
        fn $test() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("table.parquet");
            let mut writer = TableWriter::<$table>::create(&path).unwrap();
            writer.append(&<$table>::default()).unwrap();
            writer.finish(Durability::Written).unwrap();
            let reader = TableReader::<$table>::open(&path).unwrap();
            assert_eq!(reader.rows(), 0);
            assert_eq!(reader.read_all().unwrap(), <$table>::default());
        }
    )*};
}

every_column_survives! {
    empty_processes: ProcessColumns;
    empty_modules: ModuleColumns;
    empty_frames: FrameColumns;
    empty_losses: LossColumns;
}

#[test]
fn extreme_values_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.parquet");
    let mut threads = ThreadColumns::default();
    threads.push(ThreadRow::default());
    threads.push(ThreadRow {
        thread: u32::MAX,
        tid: u32::MAX,
        name: text("näme \u{1F600}"),
        start_routine: u64::MAX,
        parent: Some(u32::MAX),
        node: Some(u16::MAX),
        start_ns: u64::MAX,
        end_ns: Some(0),
        accesses: Some(u64::MAX),
        ..ThreadRow::default()
    });
    let mut writer = TableWriter::create(&path).unwrap();
    writer.append(&threads).unwrap();
    writer.append(&threads).unwrap();
    writer.finish(Durability::Written).unwrap();
    let mut reader = TableReader::<ThreadColumns>::open(&path).unwrap();
    assert_eq!(reader.rows(), 4);
    assert_eq!(reader.next_group().unwrap().unwrap(), threads);
    assert_eq!(reader.read_all().unwrap(), threads);
}

#[test]
fn unfinished_traces_are_refused_and_cleaned_up() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    let mut writer = TraceWriter::create(FolderLock::take(folder.path()), Durability::Written).unwrap();
    writer.write(&MarkColumns::default()).unwrap();
    let twice = writer.write(&MarkColumns::default()).unwrap_err();
    assert!(matches!(twice, TableError::WrittenTwice("marks")));
    drop(writer);
    assert!(!folder.path().join(format!("marks.parquet.{}.tmp", std::process::id())).exists());
    let message = TraceReader::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("no meta.json"), "{message}");
}

#[test]
fn uneven_columns_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut marks = MarkColumns::default();
    marks.time_ns.push(1);
    let mut writer = TableWriter::create(&folder.path().join("x.parquet")).unwrap();
    assert!(matches!(writer.append(&marks), Err(TableError::Encode { .. })));
}

#[test]
fn damage_anywhere_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    let path = folder.path().join("accesses.parquet");
    let bytes = std::fs::read(&path).unwrap();
    let reader = TraceReader::open(folder.path()).unwrap();
    for at in (0..bytes.len()).step_by(997) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        std::fs::write(&path, &changed).unwrap();
        let message = reader.read::<AccessColumns>().unwrap_err().to_string();
        assert!(message.contains("accesses.parquet") && message.contains("to rebuild the tables"), "{message}");
    }
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let message = reader.read::<AccessColumns>().unwrap_err().to_string();
    assert!(message.contains("bytes instead of"), "{message}");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(reader.read::<AccessColumns>(), Err(TableError::Damaged { .. })));
}

/// It was "External" or "fail to get inner writer", and a damaged trace to those who opened it in C or Python.
#[test]
fn a_full_disk_is_told_as_what_it_is() {
    let full = Path::new("/dev/full");
    let large = TableWriter::<AccessColumns>::create(full).unwrap().append(&realistic_accesses(5000)).unwrap_err();
    // So little is written when the file is completed.
    let small = TableWriter::<MarkColumns>::create(full).unwrap().finish(Durability::Written).unwrap_err();
    for error in [large, small] {
        let message = error.to_string();
        assert!(matches!(error, TableError::Io { .. }), "{message}");
        assert!(message.contains("cannot write to /dev/full: No space left"), "{message}");
    }
}

/// The last step, which a full disk may stop, too, left `meta.json.PID.tmp` in the trace for good.
#[test]
fn metadata_that_cannot_be_put_in_place_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".tmp")).collect()
    };
    // Of a writer that was killed: no process has this number.
    std::fs::write(folder.path().join("meta.json.4194305.tmp"), "{").unwrap();
    let writer = TraceWriter::create(FolderLock::take(folder.path()), Durability::Written).unwrap();
    assert_eq!(names(), [""; 0]);
    // No file takes the place of a folder.
    std::fs::create_dir(folder.path().join(META_FILE)).unwrap();
    let message = writer.finish(Meta::default()).unwrap_err().to_string();
    assert!(message.contains("cannot rename") && message.contains("meta.json"), "{message}");
    assert_eq!(names(), [""; 0]);
}

/// `record` removes raw/ by default, and without it a trace that has lost its meta.json is none any more.
#[test]
fn nobody_is_told_to_delete_what_cannot_be_made_again() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    let reader = TraceReader::open(folder.path()).unwrap();
    let path = folder.path().join("accesses.parquet");
    std::fs::write(&path, "changed").unwrap();
    let message = reader.read::<AccessColumns>().unwrap_err().to_string();
    assert!(message.contains("If the trace has a raw/ folder, delete meta.json"), "{message}");
    // Nothing is known to be wrong with a file that the system does not open: here a link to itself.
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let error = reader.read::<AccessColumns>().unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, TableError::Io { .. }) && message.contains("cannot read"), "{message}");
    assert!(message.contains("accesses.parquet") && !message.contains("delete"), "{message}");
}

#[test]
fn damaged_files_opened_by_themselves_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    let bytes = std::fs::read(folder.path().join("objects.parquet")).unwrap();
    let path = folder.path().join("changed.parquet");
    std::panic::set_hook(Box::new(|_| {}));
    for at in (0..bytes.len()).step_by(37) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        std::fs::write(&path, &changed).unwrap();
        if let Ok(reader) = TableReader::<ObjectColumns>::open(&path) {
            let _ = reader.read_all();
        }
        std::fs::write(&path, &bytes[..at]).unwrap();
        assert!(TableReader::<ObjectColumns>::open(&path).is_err(), "cut at {at}");
    }
    let _ = std::panic::take_hook();
    let foreign = TableReader::<AccessColumns>::open(&folder.path().join("objects.parquet")).err().unwrap();
    assert!(foreign.to_string().contains("column `time_ns` is missing"), "{foreign}");
    std::fs::write(&path, b"PK\x03\x04 no parquet at all").unwrap();
    assert!(matches!(TableReader::<AccessColumns>::open(&path), Err(TableError::Damaged { .. })));
}

#[test]
fn meta_tolerates_unknown_fields_and_refuses_newer_formats() {
    let path = Path::new("x.numatrace/meta.json");
    let minimal = br#"{"format":{"major":1},"tool_version":"0.9","engine":"pmu","simulated":false,"future":[1]}"#;
    let meta = Meta::parse(minimal, path).unwrap();
    assert_eq!(meta.more["future"], json!([1]));
    let newer = br#"{"format":{"major":7},"tool_version":"4.2"}"#;
    let error = Meta::parse(newer, path).unwrap_err();
    assert!(matches!(error, MetaError::Version { found: 7, .. }));
    assert!(error.to_string().contains("numapilot 4.2 or newer"), "{error}");
    for bad in [&b"{}"[..], b"[]", b"", b"{\"format\":{\"major\":1}}", b"{\"format\":", &[0xff; 20]] {
        let message = Meta::parse(bad, path).unwrap_err().to_string();
        assert!(message.contains("x.numatrace/meta.json"), "{message}");
    }
}

/// `testdata/traces/golden-v1.numatrace` was written by this test with NUMAPILOT_WRITE_GOLDEN=1 and never changes: every later version reads it.
#[test]
fn the_golden_tables_are_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/golden-v1.numatrace");
    let mut marks = MarkColumns::default();
    marks.push(MarkRow { time_ns: 5, order: 6, thread: 1, text: text("phase 1") });
    let accesses = realistic_accesses(300);
    let objects = realistic_objects(40);
    if std::env::var_os("NUMAPILOT_WRITE_GOLDEN").is_some() {
        let mut writer = TraceWriter::create(FolderLock::take(&golden), Durability::Written).unwrap();
        writer.write(&accesses).unwrap();
        writer.write(&objects).unwrap();
        writer.write(&marks).unwrap();
        writer.finish(meta()).unwrap();
    }
    assert!(golden.join(META_FILE).exists());
    let reader = TraceReader::open(&golden).unwrap();
    assert_eq!(reader.meta().command, meta().command);
    assert_eq!(reader.read::<AccessColumns>().unwrap(), accesses);
    // It is of 1.0, which did not know who freed an object, and had two columns of counters less.
    let older = ObjectColumns { death_thread: vec![None; objects.len()], ..objects };
    assert_eq!(reader.read::<ObjectColumns>().unwrap(), older);
    assert_eq!(reader.read::<MarkColumns>().unwrap(), marks);
    assert_eq!(reader.read::<CounterColumns>().unwrap(), CounterColumns::default());
}

#[test]
fn a_column_that_an_older_file_lacks_reads_as_nulls_if_it_may_be_null() {
    let column = |name| CounterColumns::COLUMNS.iter().position(|column| column.name == name).unwrap();
    let mut counters = CounterColumns::default();
    assert!(counters.fill_column(column("memory_cycles"), 3) && !counters.fill_column(column("wait_cycles"), 3));
    assert_eq!((counters.memory_cycles, counters.wait_cycles), (vec![None; 3], Vec::new()));
}

/// docs/trace-format.md must name every table and every column in its table's section, with its unit.
#[test]
fn every_column_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/trace-format.md");
    let text = std::fs::read_to_string(path).unwrap();
    for (table, columns) in all_tables() {
        let section =
            text.split(&format!("### {table}.parquet\n")).nth(1).unwrap_or_else(|| panic!("no section {table}"));
        let section = section.split("\n#").next().unwrap();
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows.len(), columns.len(), "{table}");
        for (row, column) in rows.iter().zip(columns) {
            let null = if column.nullable { " or null" } else { "" };
            let kind = format!("{:?}", column.kind).to_lowercase();
            let expected = format!("| `{}` | {kind}{null} | {} |", column.name, column.unit);
            assert!(row.starts_with(&expected), "{row}\nmust begin with\n{expected}");
        }
    }
}
