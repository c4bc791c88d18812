//! The main thread's stack, which grows on demand, is one object of its greatest size. Data in a deep frame belongs to it, for any thread and process that
//! uses it.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use numapilot_flows::ObjectKind;
use numapilot_flows::Trace;
use numapilot_trace::tables::AccessColumns;
use numapilot_trace::tables::TraceReader;

/// What all programs begin with: `use` walks through memory in a thread or here, and `deep` has it at the bottom of many frames.
const COMMON: &str = r#"
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#define BYTES (1200ul << 10)
static volatile long total;
static void __attribute__((noinline)) use(volatile char *memory, size_t bytes) {
    for (int round = 0; round < 8; round++)
        for (size_t i = 0; i < bytes; i += 64) memory[i]++;
}
static void *use_it(void *memory) { use(memory, BYTES); return NULL; }
static void in_a_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, argument);
    pthread_join(thread, NULL);
}
static int __attribute__((noinline)) deep(int levels) {
    volatile char frame[16 << 10];
    use(frame, sizeof frame);
    return levels > 0 ? deep(levels - 1) + frame[64] : 0;
}
"#;

struct Recorded {
    folder: tempfile::TempDir,
    report: serde_json::Value,
}

impl Recorded {
    /// Records the program; `limit`: of its stack, as `ulimit -s` takes it.
    fn of(name: &str, source: &str, limit: &str) -> Recorded {
        let folder = scratch();
        let program = build(folder.path(), name, "cc", &format!("{COMMON}{source}"), &[]);
        let trace = folder.path().join("trace.numatrace");
        let mut record = numapilot(&["record", "--quiet", "--machine", "opteron-8385", "--period", "10", "-o"]);
        record.arg(&trace).arg("--").arg(&program);
        let mut limited = Command::new("sh");
        limited.arg("-c").arg(format!("ulimit -s {limit} && exec \"$@\"")).arg("sh");
        limited.arg(record.get_program()).args(record.get_args());
        finish(&mut limited).succeeded();
        let report = report_json(&trace, &[]);
        Recorded { folder, report }
    }

    fn trace(&self) -> Box<Path> {
        self.folder.path().join("trace.numatrace").into()
    }

    /// Samples by kind and name of their objects; none: `("", "")`.
    fn samples(&self) -> HashMap<(String, String), u64> {
        let trace = Trace::open(&self.trace()).expect("the trace opens");
        let reader = TraceReader::open(&self.trace()).expect("the trace opens");
        let mut found = HashMap::new();
        let mut table = reader.table::<AccessColumns>().expect("accesses");
        while let Some(group) = table.next_group().expect("a row group") {
            for row in group.rows() {
                let site = row.object.and_then(|object| {
                    let object = &trace.objects()[object as usize];
                    trace.sites().get(object.site.0 as usize)
                });
                let name = site.map(|site| (site.kind.word().to_owned(), site.name.to_string()));
                *found.entry(name.unwrap_or_default()).or_insert(0) += 1;
            }
        }
        found
    }

    /// At least 99 % of the samples have an object, and at least `least` of them are of this kind and name.
    fn expect(&self, kind: ObjectKind, name: &str, least: f64) {
        let samples = self.samples();
        let all: u64 = samples.values().sum();
        let share = |samples: Option<&u64>| samples.copied().unwrap_or(0) as f64 / all as f64;
        assert!(all > 500, "{samples:?}");
        assert!(share(samples.get(&(String::new(), String::new()))) < 0.01, "{samples:?}");
        assert!(share(samples.get(&(kind.word().to_owned(), name.to_owned()))) >= least, "{samples:?}");
        let lost = &self.report["recording"]["losses"];
        assert_eq!(lost["inconsistent_records"], 0, "{lost}");
    }

    /// Sizes of the objects of this name.
    fn sizes(&self, name: &str) -> Vec<u64> {
        let trace = Trace::open(&self.trace()).expect("the trace opens");
        let of = |object: &&numapilot_flows::Object| {
            trace.sites().get(object.site.0 as usize).is_some_and(|site| &*site.name == name)
        };
        trace.objects().iter().filter(of).map(|object| object.bytes).collect()
    }
}

const MAIN: &str = "stack of the main thread";

#[test]
fn a_large_frame_and_a_deep_recursion_are_of_the_main_threads_stack() {
    let recorded = Recorded::of(
        "deep",
        "int main(void) { volatile char *memory = alloca(BYTES); use(memory, BYTES); return deep(100) != 0 && total; }",
        "8192",
    );
    recorded.expect(ObjectKind::Stack, MAIN, 0.98);
}

#[test]
fn another_thread_uses_a_frame_that_its_owner_was_not_seen_in() {
    let recorded = Recorded::of(
        "lent",
        "int main(void) { char memory[BYTES]; in_a_thread(use_it, memory); return memory[0] != 8; }",
        "8192",
    );
    recorded.expect(ObjectKind::Stack, MAIN, 0.95);
}

#[test]
fn forked_children_have_their_stacks_and_their_parents() {
    // One is forked by the main thread, one by another, whose own stack is the child's then; both use the large frame of main.
    let recorded = Recorded::of(
        "forked",
        "
static void *fork_here(void *memory) {
    pid_t child = fork();
    if (child == 0) { use(memory, BYTES); exit(deep(10) != 0 && total); }
    waitpid(child, NULL, 0);
    return NULL;
}
int main(void) {
    char memory[BYTES];
    fork_here(memory);
    in_a_thread(fork_here, memory);
    return 0;
}",
        "8192",
    );
    recorded.expect(ObjectKind::Stack, MAIN, 0.9);
}

#[test]
fn a_stack_without_a_limit_or_with_one_that_was_raised_is_as_large_as_it_grew() {
    const BYTES: u64 = 160 << 20;
    let beyond = "
int main(void) {
    struct rlimit limit = {0};
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_STACK, &limit) != 0) return 3;
    volatile char *memory = alloca(BEYOND);
    for (size_t i = BEYOND; i > 0; i -= 4096) memory[i - 1] = 1; /* from above, as frames grow */
    use(memory, 1 << 20);
    return 0;
}";
    let source = |bytes: u64| format!("#define BEYOND ({bytes}ul)\n{beyond}");
    let unlimited = Recorded::of("unlimited", &source(BYTES), "unlimited");
    unlimited.expect(ObjectKind::Stack, MAIN, 0.95);
    let sizes = unlimited.sizes(MAIN);
    assert!(sizes.iter().all(|&size| (BYTES..BYTES + (8 << 20)).contains(&size)), "{sizes:?}");
    let raised = Recorded::of("raised", &source(32 << 20), "-S 8192");
    raised.expect(ObjectKind::Stack, MAIN, 0.95);
    let sizes = raised.sizes(MAIN);
    assert!(sizes.iter().all(|&size| ((32 << 20)..(40 << 20)).contains(&size)), "{sizes:?}");
}

#[test]
fn memory_that_is_mapped_into_the_room_of_the_stack_is_its_own() {
    let recorded = Recorded::of(
        "inside",
        "
int main(void) {
    char here;
    void *at = (void *)(((uintptr_t)&here & ~4095ul) - (4ul << 20));
    void *memory = mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != at) return 3;
    use(memory, BYTES);
    return 0;
}",
        "8192",
    );
    recorded.expect(ObjectKind::Anonymous, "memory", 0.95);
}
