//! `numapilot-query`, which `numapilot query` starts: arguments, signals, files; the rest is in the library.
//!
//! Exit codes: 0 success; 1 failure; 2 wrong usage; 130 interrupted (nothing half-written is left).

mod args;

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Read, Write, stderr, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use clap::Parser;
use datafusion::execution::DiskManager;
use futures::StreamExt;
use numapilot_host::{Root, cgroups, meminfo, workers};
use numapilot_query::error::{MORE_THREADS, QueryError};
use numapilot_query::output::{self, Format, WriteError};
use numapilot_query::session::{Limits, Parameters, Query};
use numapilot_query::source::{Recording, Source};
use numapilot_query::{elsewhere, ready, views};
use numapilot_text::destination::{Destination, open_stream};
use numapilot_trace::meta::Evidence;
use tokio::signal::unix::{SignalKind, signal};

use args::Arguments;

/// The temporary file that is being written: the signal handler removes it when the program ends early.
static HALF_WRITTEN: Mutex<Option<PathBuf>> = Mutex::new(None);
/// The engine's temporary files, which the signal handler removes, too: they may be as large as what the query reads.
static SPILLED: OnceLock<Weak<DiskManager>> = OnceLock::new();

/// Deeply nested queries need a large stack while they are planned, especially in debug builds.
const STACK_BYTES: usize = 64 << 20;
/// Threads that the engine needs beside its workers: without one that reads files it waits for ever.
const READING_THREADS: usize = 1;

fn main() -> ExitCode {
    restore_sigpipe();
    let arguments = Arguments::parse();
    if let Err(error) = end_when_interrupted() {
        return failed(&format!("cannot wait for signals on a thread: {error}; {MORE_THREADS}"));
    }
    let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run(&arguments));
    let done = worker.map(std::thread::JoinHandle::join);
    match done {
        Ok(Ok(Ok(code))) => code,
        Ok(Ok(Err(error))) => failed(&error.to_string()),
        Ok(Err(_)) => failed("internal error in the query engine (see above); please report it with the query"),
        Err(error) => failed(&format!("cannot start a thread: {error}; {MORE_THREADS}")),
    }
}

fn failed(why: &str) -> ExitCode {
    tell(why);
    ExitCode::FAILURE
}

/// A message on standard error.
fn tell(what: &str) {
    let _ = writeln!(stderr(), "numapilot: {}", output::plain(what));
}

/// `numapilot query ... | head` must end quietly, as other tools do.
fn restore_sigpipe() {
    // SAFETY: called before any thread exists; setting a signal's default disposition has no other precondition.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, QueryError> {
    if arguments.list {
        say(&list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let source = Source::open(arguments.trace.as_deref().unwrap_or(Path::new(".")))?;
    if let Some(first) = source.unfinished.first() {
        let count = source.unfinished.len();
        tell(&format!("skipped unfinished traces (no meta.json): {count}, first {}", first.display()));
    }
    let interrupted: Vec<&Recording> =
        source.recordings.iter().filter(|recording| recording.reader.meta().interrupted).collect();
    if let Some(first) = interrupted.first() {
        let (count, first) = (interrupted.len(), first.folder.display());
        tell(&format!(
            "traces whose recorder was killed, so that the end of the run is missing: {count}, first {first}"
        ));
    }
    let is_other = |recording: &&Recording| recording.reader.meta().evidence() != Evidence::Accesses;
    let of_others: Vec<&Recording> = source.recordings.iter().filter(is_other).collect();
    if let Some(first) = of_others.first() {
        let (count, what, first) = (of_others.len(), first.reader.meta().evidence().name(), first.folder.display());
        tell(&format!(
            "traces without memory accesses, whose rows and shares are of something else: {count}, first {first} ({what})"
        ));
    }
    if let Some(engine) = arguments.views_for {
        say(&elsewhere::text(engine, &source))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (sql, parameters) = question(arguments, &source)?;
    let threads = arguments.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let allowed = workers::startable(threads.saturating_add(READING_THREADS), STACK_BYTES);
    if allowed < 1 + READING_THREADS {
        return Err(QueryError::Threads { needed: 1 + READING_THREADS, allowed });
    }
    let threads = threads.min(allowed - READING_THREADS);
    let limits = Limits { memory_mib: arguments.memory.unwrap_or_else(half_of_memory_mib), threads };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|source| QueryError::Io { action: "start threads for", path: PathBuf::from("the engine"), source })?;
    runtime.block_on(answer(arguments, source, limits, &sql, &parameters))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes SIGINT and SIGTERM end the program at once. A thread of its own waits for them, because the engine may compute for minutes between two points at
/// which it could check for a signal.
fn end_when_interrupted() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        // The lock is held until the exit, so that no temporary file is created or renamed meanwhile.
        let half_written = HALF_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &*half_written {
            let _ = std::fs::remove_file(path);
        }
        if let Some(files) = SPILLED.get().and_then(Weak::upgrade) {
            remove_spilled(&files);
        }
        std::process::exit(130);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(|_| ())
}

/// Removes the engine's temporary files, and their folders. The engine may add some meanwhile, which the next round removes.
fn remove_spilled(files: &DiskManager) {
    for folder in files.temp_dir_paths() {
        let _ = (0..10).find(|_| std::fs::remove_dir_all(&folder).is_ok());
    }
}

/// The SQL and its parameters, from the arguments, a file or standard input.
fn question(arguments: &Arguments, source: &Source) -> Result<(String, Parameters), QueryError> {
    let mut parameters = arguments.set.clone();
    if let Some(name) = &arguments.run {
        let ready = ready::find(name, source.is_fleet)?;
        check_names(&parameters, ready.sql)?;
        for name in ready.parameters() {
            if !parameters.iter().any(|(given, _)| given == name) {
                parameters.push((name.to_owned(), None));
            }
        }
        return Ok((ready.sql.to_owned(), parameters));
    }
    let sql = match &arguments.sql {
        Some(sql) => sql.clone(),
        None => read_query(arguments.file.as_deref().unwrap_or(Path::new("-")))?,
    };
    check_names(&parameters, &sql)?;
    Ok((sql, parameters))
}

/// A parameter that the query does not have would choose nothing: the answer would be about everything.
fn check_names(given: &Parameters, sql: &str) -> Result<(), QueryError> {
    match given.iter().find(|(name, _)| !ready::has_parameter(sql, name)) {
        Some((name, _)) => Err(QueryError::Sql(format!("the query has no parameter ${name}, which --set gives"))),
        None => Ok(()),
    }
}

/// The text of a file, or of standard input (`-`).
fn read_query(path: &Path) -> Result<String, QueryError> {
    let mut sql = String::new();
    let read = match path.as_os_str() == "-" {
        true => stdin().read_to_string(&mut sql),
        false => File::open(path).and_then(|mut file| file.read_to_string(&mut sql)),
    };
    read.map_err(|source| QueryError::Io { action: "read", path: path.to_owned(), source })?;
    Ok(sql)
}

async fn answer(
    arguments: &Arguments,
    source: Source,
    limits: Limits,
    sql: &str,
    parameters: &Parameters,
) -> Result<(), QueryError> {
    let source = Arc::new(source);
    let query = Query::new(Arc::clone(&source), limits).await?;
    let _ = SPILLED.set(Arc::downgrade(&query.temporary_files()));
    if arguments.explain {
        return say(&query.explain(sql, parameters).await?);
    }
    let mut stream = query.run(sql, parameters).await?;
    let format = arguments.format.unwrap_or_else(|| format_of(arguments.output.as_deref()));
    let to_stdout = arguments.output.as_deref().is_none_or(|path| path.as_os_str() == "-");
    let what = arguments
        .output
        .as_ref()
        .filter(|_| !to_stdout)
        .map_or("standard output".to_owned(), |path| path.display().to_string());
    let failed = |why: WriteError| QueryError::Write { what: what.clone(), why: why.to_string() };
    if to_stdout && format == Format::Parquet && stdout().is_terminal() {
        return Err(failed("Parquet is binary, and standard output is a terminal; give -o FILE".into()));
    }
    let destination = arguments.output.as_deref().filter(|_| !to_stdout).map(Destination::of);
    let mut file = match &destination {
        Some(Destination::File(path)) => Some(beside(path).map_err(|error| failed(error.into()))?),
        _ => None,
    };
    {
        let out: Box<dyn Write + Send> = match (&mut file, &arguments.output) {
            (Some(file), _) => Box::new(BufWriter::new(file.as_file_mut())),
            (None, Some(path)) if !to_stdout => {
                Box::new(BufWriter::new(open_stream(path).map_err(|error| failed(error.into()))?))
            }
            _ => Box::new(BufWriter::new(stdout())),
        };
        let mut sink = output::sink(format, &stream.schema(), arguments.rows, out).map_err(failed)?;
        while let Some(batch) = stream.next().await {
            // A file that is another one by now is why the engine cannot read it.
            let batch =
                batch.map_err(|error| source.check_unchanged().err().unwrap_or_else(|| query.error(&error, sql)))?;
            sink.take(&batch).map_err(failed)?;
        }
        source.check_unchanged()?;
        sink.finish().map_err(failed)?;
    }
    if let (Some(file), Some(Destination::File(path))) = (file, &destination) {
        file.as_file().sync_all().map_err(|error| failed(error.into()))?;
        let mut half_written = HALF_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        file.persist(path).map_err(|error| failed(error.error.into()))?;
        *half_written = None;
    }
    Ok(())
}

/// A temporary file in the folder of `path`, with the permissions of the file that is there, or a new file's; it is renamed to `path` when it is complete.
fn beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let rights = std::fs::Permissions::from_mode(0o666);
    let mut half_written = HALF_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = tempfile::Builder::new().prefix(".numapilot-query-").permissions(rights).tempfile_in(folder)?;
    *half_written = Some(file.path().to_owned());
    if let Ok(replaced) = std::fs::metadata(path) {
        file.as_file().set_permissions(replaced.permissions())?;
    }
    Ok(file)
}

fn format_of(output: Option<&Path>) -> Format {
    output.and_then(Path::extension).and_then(|ending| Format::of_ending(ending.to_str()?)).unwrap_or(Format::Table)
}

fn say(text: &str) -> Result<(), QueryError> {
    let written = stdout().lock().write_all(text.as_bytes());
    written.map_err(|error| QueryError::Write { what: "standard output".to_owned(), why: error.to_string() })
}

fn list() -> String {
    let mut text = "Ready-made queries (--run NAME):\n".to_owned();
    for ready in ready::ALL {
        text.push_str(&format!("  {:<16} {}\n", ready.name, ready.about()));
    }
    text.push_str(
        "\nViews, over the tables of docs/trace-format.md (`show tables` and `describe NAME` list their columns):\n",
    );
    for view in views::ALL {
        text.push_str(&format!("  {:<16} {}\n", view.name, view.about()));
    }
    text
}

/// Half of the memory that this process can have, in MiB: the machine's, or less in a container with a limit, where more would end it without a message.
fn half_of_memory_mib() -> u64 {
    const UNKNOWN: u64 = 4 << 30;
    let root = Root::default();
    let known = meminfo::total_bytes(&root).into_iter().chain(cgroups::memory_limit(&root));
    (known.min().unwrap_or(UNKNOWN) / 2 / (1 << 20)).max(1)
}

#[cfg(test)]
mod tests {
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    use super::*;

    #[test]
    fn temporary_files_are_removed_while_the_engine_has_them() {
        let engine = RuntimeEnvBuilder::new().build_arc().unwrap();
        let file = engine.disk_manager.create_tmp_file("a test").unwrap();
        let folders = engine.disk_manager.temp_dir_paths();
        assert!(folders.len() == 1 && folders[0].is_dir());
        remove_spilled(&engine.disk_manager);
        assert!(!folders[0].exists());
        drop(file);
    }
}
