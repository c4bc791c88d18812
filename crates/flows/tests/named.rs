//! End to end with a real binary: raw records in, objects with names, lines and kinds out.

use std::path::Path;
use std::process::Command;

use crate::common;
use numapilot_flows::{Filter, ObjectKind, Trace, finalise};
use numapilot_host::VirtAddr;
use numapilot_symbols::{ElfSymbolizer, Symbolizer};
use numapilot_trace::chunk::WriterOptions;
use numapilot_trace::ids::{ModuleId, StackId};
use numapilot_trace::record::{Access, AllocKind, BlockSample, Event, PoolEvent};
use object::{Object, ObjectSymbol};

const SOURCE: &str = r"
#include <stdlib.h>
static volatile int table[5000];
static inline __attribute__((always_inline)) float *take(int n) {
    float *block = malloc(n * sizeof(float));
    return block;
}
__attribute__((noinline)) float *prepare(int n) {
    table[n] = n;
    return take(n);
}
int main(int argc, char **argv) { return prepare(argc) != 0; }
";
const BIAS: u64 = 0x5555_5555_0000;

struct Built {
    path: String,
    build_id: Vec<u8>,
}

fn build(folder: &Path) -> Built {
    let (source, binary) = (folder.join("kernel.c"), folder.join("kernel"));
    std::fs::write(&source, SOURCE).unwrap();
    let status = Command::new("gcc").args(["-O1", "-g", "-Wl,--build-id"]).arg(&source).arg("-o").arg(&binary).status();
    assert!(status.expect("gcc runs").success());
    let data = std::fs::read(&binary).unwrap();
    let build_id = object::File::parse(&*data).unwrap().build_id().unwrap().unwrap().to_vec();
    Built { path: binary.to_str().unwrap().to_owned(), build_id }
}

fn symbol(path: &str, name: &str) -> (u64, u64) {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let found = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
    (found.address(), found.size())
}

/// Return address of a call on the line that holds `text`, inside `function`.
fn return_address(built: &Built, function: &str, text: &str) -> u64 {
    let line = line_of(text);
    let (start, bytes) = symbol(&built.path, function);
    let offsets: Vec<u64> = (start..start + bytes).collect();
    let resolved = ElfSymbolizer::new().resolve(&built.path, &[], &offsets);
    let on_line = |frames: &Vec<numapilot_symbols::ResolvedFrame>| frames[0].line == line;
    let at = resolved.iter().position(|frames| frames.as_ref().is_ok_and(on_line)).expect("the line has code");
    BIAS + offsets[at] + 1
}

fn line_of(text: &str) -> u32 {
    SOURCE.lines().position(|line| line.contains(text)).unwrap() as u32 + 1
}

fn access(address: u64, ip: u64) -> Event {
    Event::Access(Access {
        address: VirtAddr(address),
        ip: VirtAddr(ip),
        stack: StackId(1),
        weight: 10,
        ..Access::default()
    })
}

#[test]
fn objects_of_every_kind_have_their_names_and_lines() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(folder.path());
    let dir = folder.path().join("kernel.numatrace");
    let mut program = common::Program::new(&dir, 1, WriterOptions::default());
    let main = program.process(None);
    let (bias, build_id) = (BIAS, built.build_id.clone());
    let (id, path) = (ModuleId(1), built.path.clone());
    program.emit(main, Event::Module { id, address: VirtAddr(BIAS), bytes: 0x10_0000, bias, path, build_id });
    let frames = vec![
        VirtAddr(return_address(&built, "prepare", "malloc(n")),
        VirtAddr(return_address(&built, "main", "return prepare")),
    ];
    program.emit(main, Event::Stack { id: StackId(1), frames, truncated: false, failed: false });
    let block = VirtAddr(0x1234_5670);
    program.emit(main, Event::Alloc { address: block, bytes: 800, kind: AllocKind::Malloc, stack: StackId(1) });
    let (address, bytes, path) = (VirtAddr(0x6000_0000), 0x10000, "/data/points.bin".to_owned());
    program.emit(main, Event::Map { address, bytes, flags: 0, file_offset: 0, path, stack: StackId(0) });
    let (table, _) = symbol(&built.path, "table");
    let ip = return_address(&built, "prepare", "table[n] = n");
    for address in
        [block.0 + 100, BIAS + table + 19_999, 0x6000_0100, 0x7f00_0000_1000, BIAS + symbol(&built.path, "main").0, 7]
    {
        program.emit(main, access(address, ip));
    }
    program.finish();
    finalise(&dir).expect("the recording can be joined");
    let trace = Trace::open(&dir).expect("the tables can be opened");
    let seen: Vec<_> = trace
        .accesses()
        .map(|access| {
            let site = access.object.and_then(|object| trace.site_of(object)).cloned().unwrap_or_default();
            (trace.kind_of(access.object), site.name.to_string(), site.place(), site.function.to_string())
        })
        .collect();
    let row =
        |kind, name: &str, place: &str, function: &str| (kind, name.to_owned(), place.to_owned(), function.to_owned());
    let line = format!("kernel.c:{}", line_of("malloc(n"));
    assert_eq!(
        seen,
        [
            row(ObjectKind::Heap, "block", &line, "take"),
            row(ObjectKind::Static, "table", &format!("kernel.c:{}", line_of("int table")), ""),
            row(ObjectKind::File, "/data/points.bin", "", ""),
            row(ObjectKind::Stack, "stack of the main thread", "", ""),
            row(ObjectKind::Section, ".text", "kernel", ""),
            row(ObjectKind::Unknown, "", "", ""),
        ]
    );
    let access = trace.accesses().next().unwrap();
    let frame = &trace.location(access.location).frames[0];
    assert_eq!((&*frame.function, frame.line), ("prepare", line_of("table[n] = n")));
    let stack: Vec<&str> =
        trace.stack(access.stack).iter().flat_map(|&at| &trace.location(at).frames).map(|f| &*f.function).collect();
    assert_eq!(stack, ["take", "prepare", "main"]);
    let heap = Filter { kind: Some(ObjectKind::Heap), ..Filter::default() };
    assert_eq!(trace.filtered(&heap).count(), 1);
    assert_eq!(trace.losses().accesses_without_object, 1);
}

#[test]
fn a_site_has_the_size_that_was_live_at_one_moment_and_all_that_was_allocated() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("sizes.numatrace");
    let mut program = common::Program::new(&dir, 1, WriterOptions::default());
    let main = program.process(None);
    let block = |number: u64| VirtAddr(0x1000 + number * 0x100);
    let alloc =
        |number| Event::Alloc { address: block(number), bytes: 100, kind: AllocKind::Malloc, stack: StackId(0) };
    let free = |number| Event::Free { address: block(number) };
    for event in [alloc(0), alloc(1), free(0), alloc(2), alloc(3), free(1), free(2), free(3), alloc(0), alloc(1)] {
        program.emit(main, event);
    }
    // Only one block is ever seen accessed: its size is not the site's.
    program.emit(main, access(block(0).0, BIAS));
    program.finish();
    finalise(&dir).expect("the recording can be joined");
    let trace = Trace::open(&dir).expect("the tables can be opened");
    let heap = trace.objects().iter().find(|object| trace.kind_of(Some(object.id)) == ObjectKind::Heap).unwrap();
    let size = trace.site_size(heap.site);
    assert_eq!((size.peak_live_bytes, size.peak_live_instances), (300, 3));
    assert_eq!((size.total_allocated_bytes, size.allocated_instances), (600, 6));
}

#[test]
fn a_rebuilt_binary_leaves_addresses_unresolved() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(folder.path());
    let dir = folder.path().join("rebuilt.numatrace");
    let mut program = common::Program::new(&dir, 1, WriterOptions::default());
    let main = program.process(None);
    let (id, path, build_id) = (ModuleId(1), built.path.clone(), vec![1, 2, 3]);
    program.emit(main, Event::Module { id, address: VirtAddr(BIAS), bytes: 0x10_0000, bias: BIAS, path, build_id });
    program.emit(main, access(BIAS + symbol(&built.path, "table").0, BIAS + 0x1201));
    program.finish();
    let summary = finalise(&dir).expect("the recording can be joined");
    assert_eq!(summary.losses.unresolved_locations, 1);
    let trace = Trace::open(&dir).expect("the tables can be opened");
    let access = trace.accesses().next().unwrap();
    assert_eq!(&*trace.location(access.location).frames[0].function, "kernel+0x1200");
    assert_eq!(access.object, None);
}

#[test]
fn a_sampled_block_says_how_it_was_drawn_and_whether_it_was_moved() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("sampled.numatrace");
    let mut program = common::Program::new(&dir, 1, WriterOptions::default());
    let main = program.process(None);
    let made = |address, sample| Event::PoolAlloc {
        address: VirtAddr(address),
        bytes: 80,
        pool: 1,
        stack: StackId(0),
        thread: None,
        sample,
    };
    let sample = |is_moved| Some(BlockSample { interval_bytes: 65_536, is_moved });
    program.emit(main, Event::Pool { pool: 1, what: PoolEvent::Created("double[]".to_owned()) });
    for event in [
        made(0x1000, sample(false)),
        Event::PoolFree { address: VirtAddr(0x1000), pool: 1 },
        made(0x2000, sample(true)),
        made(0x3000, None),
    ] {
        program.emit(main, event);
    }
    program.finish();
    finalise(&dir).expect("the recording can be joined");
    let trace = Trace::open(&dir).expect("the tables can be opened");
    let pooled = trace.objects().iter().filter(|object| trace.kind_of(Some(object.id)) == ObjectKind::Pool);
    let found: Vec<_> = pooled.map(|object| (object.address.0, object.sample, object.alloc_kind)).collect();
    assert_eq!(found, [(0x1000, sample(false), None), (0x2000, sample(true), None), (0x3000, None, None)]);
}

/// Make sure that a thread keeps the whole name that its runtime told, and takes a new one.
#[test]
fn the_kernels_cut_name_does_not_replace_the_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("threads.numatrace");
    let mut program = common::Program::new(&dir, 1, WriterOptions::default());
    program.process(None);
    let (kept, renamed) = (program.thread(0), program.thread(0));
    let whole = "DispatcherWorkerThread21";
    for (thread, names) in
        [(kept, [whole, "DispatcherWorke", "Dispatc..read21"]), (renamed, [whole, "DispatcherWorke", "idle"])]
    {
        for name in names {
            program.emit(thread, Event::ThreadName { name: name.to_owned() });
        }
    }
    program.finish();
    finalise(&dir).expect("the recording can be joined");
    let trace = Trace::open(&dir).expect("the tables can be opened");
    let named = |name: &str| trace.threads().iter().filter(|thread| &*thread.name == name).count();
    assert_eq!((named(whole), named("idle"), named("DispatcherWorke")), (1, 1, 0));
}
