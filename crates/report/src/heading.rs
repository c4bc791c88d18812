//! The heading of a report: program, machine, engine, losses and notes. It does not come from the recorded accesses.

use std::path::Path;

use numapilot_flows::{Instrumentation, Losses, Module, NamelessProgram, OwnAllocator, Trace};
use numapilot_machine::Machine;
use numapilot_text::units;
use numapilot_trace::engine::{Engine, RecordedBy};
use numapilot_trace::meta::{Meta, Origin};
use numapilot_trace::unrecorded::UnrecordedProgram;
use serde::Serialize;
use serde_json::Value;

use crate::unrecorded::unrecorded;

/// The program, the machine, how the run was recorded, and which records were lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Heading {
    /// The trace's path, as the user gave it.
    pub trace: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Name of the machine.
    pub machine: String,
    /// Number of nodes of the machine.
    pub node_count: usize,
    /// Whether the machine was simulated.
    pub is_simulated: bool,
    /// Whether the machine was measured, simulated or only named: a machine that was not simulated need not be the one that the program ran on.
    pub origin: Origin,
    /// The engine that recorded.
    pub engine: RecordedBy,
    /// How threads and pages were placed, in words ("threads spread, pages by first touch"). Empty where nothing was placed.
    pub placement: String,
    /// Program time in nanoseconds.
    pub program_time_ns: u64,
    /// Real time of the recording in nanoseconds.
    pub wall_time_ns: u64,
    /// Number of processes seen.
    pub process_count: usize,
    /// Number of threads seen.
    pub thread_count: usize,
    /// Number of object instances seen.
    pub object_count: usize,
    /// Remarks: why no better engine was taken, what a script's interpreter is, how the program ended.
    pub notes: Vec<String>,
    /// Of an imported recording: the events that have samples, what each sampled and what it counts.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub sampled_events: Value,
    /// Whether the recorder was killed, so that what came later is missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Counts of lost and incomplete records.
    pub losses: Losses,
    /// Share of instrumented code of each binary, one clause each; empty where it is unknown or does not matter.
    pub instrumented: Vec<String>,
    /// Binaries with code addresses that have no function name, the reason and the remedy: one clause each.
    pub unresolved: Vec<String>,
    /// The program that did most of the work, where nothing of it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unrecorded_program: Option<UnrecordedProgram>,
    /// Binaries with an allocator of their own, whose blocks are missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_allocators: Vec<OwnAllocator>,
}

impl Heading {
    /// Of a trace that was opened from `path`, on `machine`.
    #[must_use]
    pub fn of(path: &Path, trace: &Trace, machine: Option<&Machine>) -> Heading {
        let meta = trace.meta();
        let word = |key: &str| meta.config.get(key).and_then(Value::as_str);
        let placement = match (word("bind"), word("placement"), meta.simulated) {
            (Some(bind), Some(placement), true) => format!("threads: {bind}, pages: {placement}"),
            _ => String::new(),
        };
        let mut notes: Vec<String> = Vec::new();
        let told = meta.more.get("notes").and_then(Value::as_array);
        notes.extend(told.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        notes.extend(changed_sources(meta));
        let own = OwnAllocator::read(&meta.more);
        notes.extend(own_allocators(&own));
        notes.extend(NamelessProgram::read(&meta.more).map(|program| nameless(&program, trace.holds_faults())));
        Heading {
            trace: path.display().to_string(),
            command: meta.command.clone(),
            machine: meta.machine_name.clone(),
            node_count: machine.map_or(trace.nodes().len(), |machine| machine.nodes().len()),
            is_simulated: meta.simulated,
            origin: meta.origin(),
            engine: meta.engine.clone(),
            placement,
            program_time_ns: meta.duration_ns,
            wall_time_ns: meta.host_duration_ns,
            process_count: trace.processes().len(),
            thread_count: trace.threads().len(),
            object_count: trace.objects().len(),
            notes,
            sampled_events: meta.more.get("sampled_events").cloned().unwrap_or_default(),
            // The metadata keep it for whoever opens the trace after the one that made its tables.
            interrupted: meta.interrupted || trace.was_rebuilt(),
            losses: trace.losses().clone(),
            instrumented: trace.instrumentation().map(|found| instrumented(&found)).unwrap_or_default(),
            unresolved: unresolved(meta),
            unrecorded_program: UnrecordedProgram::read(&meta.more),
            own_allocators: own,
        }
    }

    /// What is missing of the program itself, in whole sentences that come before what was recorded; empty if nothing is. Engine `track` has nothing but
    /// blocks, so that without those of the program's own allocator, what is left may look like all of its memory.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let own = self.own_allocators.first().filter(|_| self.engine == Engine::Track).map(|own| {
            format!(
                "The program has an allocator of its own ({} in {}): blocks that do not come from the C library's are missing here. `--engine emulate` records \
                 them, and `--engine fault` shows the memory that they lie in.",
                own.function,
                own.name()
            )
        });
        self.unrecorded_program.iter().map(unrecorded).chain(own).collect()
    }

    /// Name of the program without its folder; `program` where it is unknown.
    #[must_use]
    pub fn program(&self) -> &str {
        self.command.first().map_or("program", |command| command.rsplit('/').next().unwrap_or(command))
    }

    /// The program's name and its arguments.
    #[must_use]
    pub fn command_line(&self) -> String {
        let arguments = self.command.iter().skip(1).map(String::as_str);
        std::iter::once(self.program()).chain(arguments).collect::<Vec<_>>().join(" ")
    }

    /// The source of the figures in one line: machine, whether it was simulated, engine, program time.
    #[must_use]
    pub fn provenance(&self) -> String {
        let machine = if self.machine.is_empty() { "unknown machine" } else { &self.machine };
        let kind = self.origin.words();
        let time = numapilot_text::units::time_ns(self.program_time_ns);
        format!("{machine} ({kind}) · engine {} · {time} of program time", self.engine)
    }

    /// What limits the figures, one sentence each; empty when nothing was lost.
    #[must_use]
    pub fn limits(&self) -> Vec<String> {
        let places = match self.unresolved.join("; ") {
            places if places.is_empty() => places,
            places => format!(": {places}"),
        };
        let counted = LOSSES.iter().map(|(count, one, many)| (count(&self.losses), *one, *many));
        let sentence = |(count, one, many): (u64, &str, &str)| {
            let places = if many == NAMELESS { &*places } else { "" };
            format!("{count} {}{places}", if count == 1 { one } else { many })
        };
        let interrupted = self.interrupted.then(|| INTERRUPTED.to_owned());
        interrupted.into_iter().chain(counted.filter(|(count, ..)| *count > 0).map(sentence)).collect()
    }
}

const INTERRUPTED: &str = "the recorder was killed, so the trace holds only what it had written by then";
const NAMELESS: &str = "code addresses have no function name";

/// How to count a loss, and its sentence for one and for several.
type LossInWords = (fn(&Losses) -> u64, &'static str, &'static str);

/// Every loss, in the order in which they are told.
const LOSSES: [LossInWords; 17] = [
    (
        |losses| losses.ring_full,
        "record was dropped because a ring stayed full: raise --ring-size",
        "records were dropped because a ring stayed full: raise --ring-size",
    ),
    (
        |losses| losses.no_slot,
        "record was dropped because too many threads ran at the same time: raise --max-threads",
        "records were dropped because too many threads ran at the same time: raise --max-threads",
    ),
    (
        |losses| losses.after_end,
        "record came from a thread that had already ended (a free by the C library), so that block seems to stay allocated",
        "records came from threads that had already ended (frees by the C library), so these blocks seem to stay allocated",
    ),
    (
        |losses| losses.reentrant,
        "record was not written because a signal handler interrupted another handler or the allocator",
        "records were not written because signal handlers interrupted other handlers or the allocator",
    ),
    (
        |losses| losses.no_stamps,
        "record was skipped because the part of the raw trace that says when it was written is missing",
        "records were skipped because the parts of the raw trace that say when they were written are missing",
    ),
    (
        |losses| losses.stopped,
        "record was not written because recording had stopped (disk full, limit reached, or recorder ended)",
        "records were not written because recording had stopped (disk full, limit reached, or recorder ended)",
    ),
    (
        |losses| losses.stack_table,
        "call stack was dropped because the stack table was full",
        "call stacks were dropped because the stack table was full",
    ),
    (
        |losses| losses.damaged_chunks,
        "damaged chunk of the raw trace was skipped",
        "damaged chunks of the raw trace were skipped",
    ),
    (
        |losses| losses.torn_chunks,
        "torn chunk at the end of a file was dropped: the recorder was killed",
        "torn chunks at the end of a file were dropped: the recorder was killed",
    ),
    (
        |losses| losses.failed_unwinds,
        "call stack ends early because unwinding failed",
        "call stacks end early because unwinding failed",
    ),
    (
        |losses| losses.truncated_stacks,
        "call stack was cut at the greatest depth: raise --max-stack",
        "call stacks were cut at the greatest depth: raise --max-stack",
    ),
    (|losses| losses.unresolved_locations, "code address has no function name", NAMELESS),
    (
        |losses| losses.accesses_without_object,
        "sampled access is to memory of no known object",
        "sampled accesses are to memory of no known object",
    ),
    (
        |losses| losses.accesses_without_home,
        "sampled access is to a page with an unknown home node",
        "sampled accesses are to pages with an unknown home node",
    ),
    (
        |losses| losses.unmatched_frees,
        "free is of a block allocated before the recording began",
        "frees are of blocks allocated before the recording began",
    ),
    (
        |losses| losses.inconsistent_records,
        "record contradicted others and was skipped",
        "records contradicted each other and were skipped",
    ),
    (
        |losses| losses.unread,
        "record of perf, or damaged stretch of them, is missing; the notes give the reason",
        "records of perf, or damaged stretches of them, are missing; the notes give the reason",
    ),
];

/// `97 % of pigz (not: try.c, yarn.c)`, `none of libz.so.1`.
fn instrumented(found: &Instrumentation) -> Vec<String> {
    let clause = |module: &Module| {
        let (name, share) = (module.name(), module.share()?);
        let parts: Vec<&str> = module.left_out.iter().take(MODULES_NAMED).map(|part| part.name.as_str()).collect();
        Some(match module.instrumented_bytes {
            0 => format!("none of {name}"),
            bytes if bytes == module.code_bytes => format!("all of {name}"),
            _ => format!("{} of {name} (not: {})", units::part_percent(share), parts.join(", ")),
        })
    };
    let mut clauses: Vec<String> = found.own_modules().filter_map(clause).collect();
    let more = clauses.len().saturating_sub(BINARIES_NAMED);
    clauses.truncate(BINARIES_NAMED);
    if more > 0 {
        clauses.push(format!("{more} more in --json"));
    }
    clauses
}

/// Largest number of binaries whose share of instrumented code is shown; JSON has all of them.
const BINARIES_NAMED: usize = 6;
/// Largest number of binaries that are named one by one; the others are counted.
const MODULES_NAMED: usize = 3;

/// What became of objects whose source may no longer be what was compiled.
fn changed_sources(meta: &Meta) -> Option<String> {
    let files = meta.more.get("changed_sources").and_then(Value::as_array)?;
    let names = files.iter().filter_map(Value::as_str).map(|path| path.rsplit('/').next().unwrap_or(path));
    let mut named: Vec<&str> = names.take(MODULES_NAMED).collect();
    if files.len() > MODULES_NAMED {
        named.push("...");
    }
    let named = named.join(", ");
    let subject = if files.len() == 1 { "1 source file was" } else { &format!("{} source files were", files.len()) };
    Some(format!(
        "{subject} changed after the program was built ({named}): objects allocated there are named after functions, not variables; build and record again"
    ))
}

/// Blocks that are missing where the program uses an allocator that it calls directly.
fn own_allocators(found: &[OwnAllocator]) -> Option<String> {
    let clause = |own: &OwnAllocator| format!("{} in {}", own.function, own.name());
    let mut named: Vec<String> = found.iter().take(MODULES_NAMED).map(clause).collect();
    if found.len() > MODULES_NAMED {
        named.push("...".to_owned());
    }
    (!named.is_empty()).then(|| {
        format!(
            "the program has an allocator of its own ({}), whose calls no library can intercept: its blocks are not recorded as objects unless the \
             program reports them (docs/guides/pools.md); --engine emulate records them",
            named.join(", ")
        )
    })
}

/// What may be missing of a program in which no allocator can be found.
fn nameless(program: &NamelessProgram, holds_faults: bool) -> String {
    let samples = if holds_faults { "page faults" } else { "accesses" };
    format!(
        "most {samples} are to memory that code without a name in {} has mapped, and that program has no symbol table: if an allocator is linked into it, its \
         blocks are not recorded as objects; install its debug file, or take a build that was not stripped, and record with --engine emulate, or have the \
         program report its blocks (docs/guides/pools.md)",
        program.name()
    )
}

fn unresolved(meta: &Meta) -> Vec<String> {
    let rows = meta.more.get("unresolved").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let word = |row: &Value, key: &str| row.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let count = |row: &Value| row.get("count").and_then(Value::as_u64).unwrap_or(0);
    let mut rows: Vec<&Value> = rows.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(count(row)));
    let mut clauses: Vec<String> = Vec::new();
    let mut told: Vec<String> = Vec::new();
    for row in rows.iter().take(MODULES_NAMED) {
        let module = word(row, "module");
        let module = module.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("no known binary");
        let mut remedy = word(row, "remedy");
        // What to do is the same for all libraries without symbols, and long.
        if let Some((reason, advice)) =
            remedy.split_once(": ").map(|(reason, advice)| (reason.to_owned(), advice.to_owned()))
        {
            if told.contains(&advice) {
                remedy = format!("{reason}: likewise");
            } else {
                told.push(advice);
            }
        }
        clauses.push(format!("{} in {module} ({}: {remedy})", count(row), word(row, "why")));
    }
    if rows.len() > MODULES_NAMED {
        clauses.push(format!(
            "{} in {} others",
            rows[MODULES_NAMED..].iter().map(|row| count(row)).sum::<u64>(),
            rows.len() - MODULES_NAMED
        ));
    }
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_were_changed_are_named() {
        let mut meta = Meta::default();
        assert_eq!(changed_sources(&meta), None);
        meta.more.insert("changed_sources".to_owned(), serde_json::json!(["/a/grid.c"]));
        assert!(
            changed_sources(&meta)
                .unwrap()
                .starts_with("1 source file was changed after the program was built (grid.c): ")
        );
        meta.more.insert("changed_sources".to_owned(), serde_json::json!(["/a/1.c", "/a/2.c", "/a/3.c", "/a/4.c"]));
        assert!(
            changed_sources(&meta)
                .unwrap()
                .starts_with("4 source files were changed after the program was built (1.c, 2.c, 3.c, ...): ")
        );
    }

    #[test]
    fn allocators_in_the_program_are_named() {
        let own = |path: &str, function: &str| OwnAllocator { path: path.to_owned(), function: function.to_owned() };
        assert_eq!(own_allocators(&[]), None);
        let note = own_allocators(&[own("/usr/bin/redis-server", "je_malloc"), own("/opt/lib.so", "mi_malloc")]);
        let note = note.expect("a note");
        assert!(note.contains("(je_malloc in redis-server, mi_malloc in lib.so)"), "{note}");
    }

    /// The heap of a server that carries jemalloc seemed to be a few blocks of the C library.
    #[test]
    fn blocks_that_only_other_engines_see_are_missing_from_a_heap() {
        let own = OwnAllocator { path: "/usr/bin/server".to_owned(), function: "je_malloc".to_owned() };
        let of = |engine: Engine| {
            let own_allocators = vec![own.clone()];
            Heading { engine: engine.into(), own_allocators, ..Heading::default() }
        };
        let told = of(Engine::Track).missing().join(" ");
        assert!(told.contains("(je_malloc in server)") && told.contains("`--engine emulate` records"), "{told}");
        assert!(of(Engine::Fault).missing().is_empty(), "a note says so, and pages are there");
        assert!(Heading::default().missing().is_empty());
    }

    #[test]
    fn a_program_without_symbols_may_have_an_allocator() {
        let program = NamelessProgram { path: "/opt/app/server".to_owned() };
        let note = nameless(&program, false);
        assert!(
            note.starts_with("most accesses are to memory that code without a name in server has mapped"),
            "{note}"
        );
        assert!(nameless(&program, true).starts_with("most page faults are "), "{note}");
    }

    /// The wrapper adds -g: to advise it says nothing. Which binary lacks names, and why, does.
    #[test]
    fn nameless_addresses_are_told_by_binary_and_reason() {
        let remedy = "no debug file of build id 93ac61 in /usr/lib/debug";
        let why = "no symbol at this address";
        let row = serde_json::json!([{ "module": "/lib/libz.so.1", "why": why, "remedy": remedy, "count": 7 }]);
        let mut meta = Meta::default();
        meta.more.insert("unresolved".to_owned(), row);
        let losses = Losses { unresolved_locations: 7, ..Losses::default() };
        let limits = Heading { losses, unresolved: unresolved(&meta), ..Heading::default() }.limits();
        assert_eq!(limits, [format!("7 code addresses have no function name: 7 in libz.so.1 ({why}: {remedy})")]);
    }

    #[test]
    fn what_to_do_for_nameless_addresses_is_told_once() {
        let row = |module: &str, id: &str, count: u64| {
            let remedy = format!("no debug file of build id {id} in /usr/lib/debug: install its debug symbols");
            serde_json::json!({ "module": module, "why": "no symbol", "remedy": remedy, "count": count })
        };
        let mut meta = Meta::default();
        let rows = serde_json::json!([row("/lib/liba.so", "aa", 3), row("/lib/libb.so", "bb", 2)]);
        meta.more.insert("unresolved".to_owned(), rows);
        assert_eq!(
            unresolved(&meta),
            [
                "3 in liba.so (no symbol: no debug file of build id aa in /usr/lib/debug: install its debug symbols)",
                "2 in libb.so (no symbol: no debug file of build id bb in /usr/lib/debug: likewise)",
            ]
        );
    }

    /// Whoever opened the trace first made its tables, and was told; the others find them there.
    #[test]
    fn a_recording_that_was_cut_short_is_told_as_such_at_every_opening() {
        use numapilot_fixtures::{Kind, Size, write};
        let folder = tempfile::tempdir().expect("a temporary folder");
        let dir = folder.path().join("made.numatrace");
        let size = Size { accesses: 100, objects: 3, threads: 2, ..Kind::Losses.size() };
        write(Kind::Losses, &size, &dir).expect("the trace is written");
        let trace = Trace::open(&dir).expect("the trace opens");
        assert!(!trace.was_rebuilt() && trace.meta().interrupted);
        let heading = Heading::of(&dir, &trace, None);
        assert_eq!(heading.limits()[0], INTERRUPTED);
        assert!(!Heading { interrupted: false, ..heading }.limits().iter().any(|limit| limit == INTERRUPTED));
    }

    #[test]
    fn every_loss_is_told() {
        let mut heading = Heading::default();
        assert!(heading.limits().is_empty());
        // Set every counter there is, by way of the names: a new one that is forgotten above fails here.
        let mut value = serde_json::to_value(&heading.losses).expect("losses");
        let fields = value.as_object_mut().expect("an object");
        let number = fields.len();
        let losses = Losses {
            ring_full: 1,
            no_slot: 1,
            stopped: 1,
            after_end: 1,
            reentrant: 1,
            no_stamps: 1,
            stack_table: 1,
            damaged_chunks: 1,
            torn_chunks: 1,
            failed_unwinds: 1,
            truncated_stacks: 1,
            unresolved_locations: 1,
            accesses_without_object: 1,
            accesses_without_home: 1,
            unmatched_frees: 1,
            inconsistent_records: 1,
            unread: 1,
        };
        heading.losses = losses;
        assert_eq!(heading.limits().len(), number);
        assert!(
            heading.limits().iter().all(|limit| !limit.contains(" are ") && !limit.contains(" were ")),
            "one of each"
        );
    }
}
