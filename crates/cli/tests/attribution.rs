//! Attribution is exact. A generated program allocates at many sites in every way, hands objects between threads, reallocates and frees them so that
//! addresses are used again and again, forks in the middle, and logs by itself what it did and when. Every memory access is
//! recorded (`--period 1`), on a machine with tiny caches so that nearly every one reaches memory; each must have been attributed to the very
//! instance that the program's log says was used.
//!
//! `NUMAPILOT_TEST_FULL=1` makes it a million allocations (minutes; best with `cargo test --release`).

use std::collections::HashMap;
use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common::*;
use numapilot_trace::tables::AccessColumns;
use numapilot_trace::tables::ObjectColumns;
use numapilot_trace::tables::ObjectRow;
use numapilot_trace::tables::ThreadColumns;
use numapilot_trace::tables::TraceReader;

/// Ways of allocating: kind as the trace calls it, how it is freed, and the call.
const WAYS: [(&str, &str, &str); 10] = [
    ("malloc", "BY_FREE", "malloc(bytes)"),
    ("calloc", "BY_FREE", "calloc(1, bytes)"),
    ("new", "BY_DELETE", "::operator new(bytes)"),
    ("new_array", "BY_DELETE_ARRAY", "new unsigned char[bytes]"),
    ("aligned", "BY_FREE", "aligned_alloc(64, bytes)"),
    ("new", "BY_DELETE_ALIGNED", "::operator new(bytes, std::align_val_t(64))"),
    ("aligned", "BY_FREE", "memalign(256, bytes)"),
    ("realloc", "BY_FREE", "realloc(no_block, bytes)"),
    ("new", "BY_DELETE", "::operator new(bytes, std::nothrow)"),
    ("aligned", "BY_FREE", "by_posix_memalign(bytes)"),
];
/// Copies of each way, each on its own line; odd ones by way of a macro.
const COPIES: usize = 4;
const RESITES: usize = 4;

/// The generated part: one function per site, the tables of sites, and `main`.
fn generated() -> String {
    let mut source = String::from(
        "#include \"truth.hpp\"\n\
         #define MAKE_HERE(call) do { before = truth_now(); address = (call); after = truth_now(); } while (0)\n\
         static void *volatile no_block; /* compilers make malloc of realloc(NULL) */\n\
         static inline __attribute__((always_inline)) void *by_posix_memalign(size_t bytes) {\n\
         void *p = nullptr;\n\
         return posix_memalign(&p, 128, bytes) == 0 ? p : nullptr;\n}\n",
    );
    let mut sites = String::new();
    let mut emit = |source: &mut String, how: &str, kind: &str, call: &str, index: usize| {
        let _ = writeln!(source, "static __attribute__((noinline)) Made make_{index}(std::size_t bytes) {{");
        let _ = writeln!(source, "    void *address;\n    std::uint64_t before, after;");
        // The call's own line is the site. posix_memalign's is too, because its helper is named like an allocator.
        let line = source.lines().count() + if index % 2 == 1 { 1 } else { 2 };
        if index % 2 == 1 {
            let _ = writeln!(source, "    MAKE_HERE({call});");
        } else {
            let _ = writeln!(source, "    before = truth_now();\n    address = {call};\n    after = truth_now();");
        }
        let _ = writeln!(source, "    return {{address, before, after}};\n}}");
        let _ = writeln!(sites, "    {{make_{index}, {line}, \"{kind}\", {how}}},");
    };
    let mut index = 0;
    for _ in 0..COPIES {
        for (kind, how, call) in WAYS {
            emit(&mut source, how, kind, call, index);
            index += 1;
        }
    }
    // The last two, which are chosen less often.
    for _ in 0..2 {
        let call = "mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)";
        emit(&mut source, "BY_MUNMAP", "mmap", call, index);
        index += 1;
    }
    let mut resites = String::new();
    for resite in 0..RESITES {
        let _ =
            writeln!(source, "static __attribute__((noinline)) Made remake_{resite}(void *old, std::size_t bytes) {{");
        let _ =
            writeln!(source, "    const std::uint64_t before = truth_now();\n    void *address = realloc(old, bytes);");
        let line = source.lines().count();
        let _ = writeln!(
            source,
            "    const std::uint64_t after = truth_now();\n    return {{address, before, after}};\n}}"
        );
        let _ = writeln!(resites, "    {{remake_{resite}, {line}}},");
    }
    let _ = write!(
        source,
        "const Site sites[] = {{\n{sites}}};\nconst std::size_t site_count = sizeof sites / sizeof *sites;\n\
         const Resite resites[] = {{\n{resites}}};\nconst std::size_t resite_count = sizeof resites / sizeof *resites;\n\
         int main(int, char **argv) {{\n    return truth::main_program(argv[1], strtoull(argv[2], nullptr, 10), strtoull(argv[3], nullptr, 10));\n}}\n"
    );
    source
}

/// The four-node machine with next to no caches: 16 lines of L1, 64 lines of L2, no L3.
fn tiny_machine(folder: &Path) -> PathBuf {
    let text = fs::read_to_string(root().join("models/opteron-8385.toml")).expect("the model");
    let text = text.replace("name = \"opteron-8385\"", "name = \"tiny-caches\"");
    let text = text
        .replace("size_kib = { value = 64,", "size_kib = { value = 1,")
        .replace("size_kib = { value = 512,", "size_kib = { value = 4,");
    let (before, after) = text.split_once("[[caches]]\nlevel = 3").expect("an L3");
    let links = after.find("[[links]]").expect("links");
    let file = folder.join("tiny-caches.toml");
    fs::write(&file, format!("{before}{}", &after[links..])).expect("the model is written");
    file
}

fn built(folder: &Path) -> PathBuf {
    let programs = root().join("crates/cli/tests/programs");
    let object = folder.join("truth_log.o");
    let mut plain = Command::new("cc");
    finish(plain.args(["-O2", "-c", "-o"]).arg(&object).arg(programs.join("truth_log.c"))).succeeded();
    let include = format!("-I{}", programs.display());
    build(folder, "truth", "c++", &generated(), &["-std=c++20", &include, object.to_str().expect("UTF-8 path")])
}

/// The log of a run, as `truth_log.h` writes it: its true allocations, frees and accesses.
#[derive(Clone, Debug)]
struct Entry {
    kind_of_entry: u32,
    line: u32,
    instance: u64,
    address: u64,
    bytes: u64,
    before: u64,
    after: u64,
    kind: String,
}

const ENTRY_BYTES: usize = 64;
const BORN: u32 = 1;
const BURST: u32 = 2;
const DIED: u32 = 3;

fn entry(bytes: &[u8]) -> Entry {
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let half = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let kind = bytes[48..64].split(|byte| *byte == 0).next().unwrap_or_default();
    Entry {
        kind_of_entry: half(0),
        line: half(4),
        instance: word(8),
        address: word(16),
        bytes: word(24),
        before: word(32),
        after: word(40),
        kind: String::from_utf8_lossy(kind).into_owned(),
    }
}

#[derive(Default)]
struct Truth {
    births: HashMap<u64, Entry>,
    /// By instance; a child's frees of what it inherited are not the parent's.
    deaths: HashMap<u64, Entry>,
    /// By the kernel's thread id, in order.
    bursts: HashMap<u32, Vec<Entry>>,
}

/// Logs lie in `folder` and `folder/after`, named pid-tid.
fn truth(folder: &Path) -> Truth {
    let mut truth = Truth::default();
    for folder in [folder.to_path_buf(), folder.join("after")] {
        for file in
            fs::read_dir(folder).expect("logs").map(|file| file.expect("a log").path()).filter(|path| path.is_file())
        {
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            let tid: u32 = name.split_once('-').expect("pid-tid").1.parse().expect("a thread id");
            let bytes = fs::read(&file).expect("a log");
            assert_eq!(bytes.len() % ENTRY_BYTES, 0);
            for entry in bytes.chunks_exact(ENTRY_BYTES).map(entry) {
                match entry.kind_of_entry {
                    BORN => drop(truth.births.insert(entry.instance, entry)),
                    BURST => truth.bursts.entry(tid).or_default().push(entry),
                    DIED => drop(truth.deaths.insert(entry.instance, entry)),
                    other => panic!("{name}: entry of type {other}"),
                }
            }
        }
    }
    for bursts in truth.bursts.values_mut() {
        bursts.sort_by_key(|burst| burst.before);
    }
    truth
}

/// Why this object is not the logged instance, if it is not.
fn mismatch(object: &ObjectRow, process: u32, truth: &Truth, burst: &Entry, start: u64) -> Option<String> {
    let born = &truth.births[&burst.instance];
    let birth = object.birth_order + start;
    let expected_kind = if born.kind == "mmap" { ("anonymous", None) } else { ("heap", Some(born.kind.as_str())) };
    let kind = (&*object.kind, object.alloc_kind.as_deref());
    let file = object.site_file.rsplit('/').next().unwrap_or_default();
    let checks = [
        (object.address == born.address, "address"),
        (object.bytes == born.bytes, "size"),
        (kind == expected_kind, "kind"),
        (birth >= born.before && birth <= born.after, "birth outside the logged call"),
        // A child may outlive what it inherited: the row's death is the one in the process of its birth.
        (
            process != object.process || object.death_order.is_none_or(|death| death + start > burst.after),
            "dead before the access",
        ),
        (file == "truth.cpp" && object.site_line == born.line, "line"),
    ];
    let wrong: Vec<&str> = checks.iter().filter(|(good, _)| !good).map(|(_, what)| *what).collect();
    (!wrong.is_empty()).then(|| format!("{}: logged {born:?}, attributed to {object:?}", wrong.join(", ")))
}

#[derive(Debug, Default)]
struct Verdict {
    verified: u64,
    wrong: u64,
    examples: Vec<String>,
    instances: HashSet<u64>,
}

impl Verdict {
    fn wrong(&mut self, message: String, burst: &Entry) {
        self.wrong += 1;
        // One error for each instance, so that different errors show.
        if self.examples.len() < 12 && self.instances.insert(burst.instance) {
            self.examples.push(message);
        }
    }
}

fn judge(trace: &Path, truth: &Truth) -> Verdict {
    let reader = TraceReader::open(trace).expect("the trace opens");
    let start = reader.meta().clock.start_order;
    let objects: ObjectColumns = reader.read().expect("objects");
    let threads: ThreadColumns = reader.read().expect("threads");
    let mut verdict = Verdict::default();
    let mut table = reader.table::<AccessColumns>().expect("accesses");
    while let Some(group) = table.next_group().expect("a row group") {
        for row in group.rows() {
            let order = row.order + start;
            let Some(bursts) = truth.bursts.get(&threads.tid[row.thread as usize]) else { continue };
            let index = bursts.partition_point(|burst| burst.before <= order);
            let Some(burst) = index.checked_sub(1).map(|index| &bursts[index]).filter(|burst| order <= burst.after)
            else {
                continue;
            };
            verdict.verified += 1;
            if row.address < burst.address || row.address >= burst.address + burst.bytes {
                verdict.wrong(format!("an access to {:#x} in {burst:?}", row.address), burst);
                continue;
            }
            let Some(object) = row.object else {
                verdict.wrong(
                    format!("no object at {:#x}; {burst:?}, {:?}", row.address, truth.births[&burst.instance]),
                    burst,
                );
                continue;
            };
            if let Some(problem) =
                mismatch(&objects.row(object as usize), threads.process[row.thread as usize], truth, burst, start)
            {
                verdict.wrong(format!("{:#x} at {order}: {problem}", row.address), burst);
            }
        }
    }
    verdict
}

fn attribution(threads: u64, allocations: u64, least: u64) {
    let folder = scratch();
    let program = built(folder.path());
    let machine = tiny_machine(folder.path());
    let logs = folder.path().join("logs");
    fs::create_dir(&logs).expect("a folder");
    let trace = folder.path().join("truth.numatrace");
    let rounds = (allocations / threads).to_string();
    let arguments = [logs.to_str().expect("UTF-8 path").to_owned(), threads.to_string(), rounds];
    let options =
        ["--machine", machine.to_str().expect("UTF-8 path"), "--period", "1", "--lines", "1", "--window", "100000"];
    let began = std::time::Instant::now();
    let ran = record(&trace, &options, &program, &arguments).succeeded();
    assert_eq!(ran.stdout, "done\n");
    let recorded = began.elapsed();
    let truth = truth(&logs);
    let verdict = judge(&trace, &truth);
    eprintln!(
        "{threads} threads, {} allocations, {} frees, {} accesses verified, {} wrong; recorded in {recorded:?}, all in {:?}",
        truth.births.len(),
        truth.deaths.len(),
        verdict.verified,
        verdict.wrong,
        began.elapsed()
    );
    // First, since accesses to an object whose birth is lost are those of what contains it.
    let losses = report_json(&trace, &[])["recording"]["losses"].clone();
    assert_eq!(losses["ring_full"], 0, "{losses}");
    assert_eq!(verdict.wrong, 0, "{}", verdict.examples.join("\n"));
    assert!(verdict.verified >= least, "only {} accesses could be verified", verdict.verified);
}

#[test]
fn every_access_goes_to_its_instance() {
    if std::env::var_os("NUMAPILOT_TEST_FULL").is_some() {
        attribution(64, 1_000_000, 5_000_000);
    } else {
        attribution(16, 40_000, 300_000);
    }
}

#[test]
fn with_64_threads_too() {
    attribution(64, 12_800, 50_000);
}
