//! On real kernels with four nodes: that each copy is on its node is told by the kernel (`move_pages`, `numa_maps`), before a write and after.

use std::fs;
use std::process::Command;

use numapilot_lab::Kernel;
use numapilot_lab::Lab;
use numapilot_lab::Outcome;
use numapilot_lab::Topology;
use numapilot_replica::mappings::LIBRARY;

use crate::common::LIBRARY as LIBRARY_SOURCES;
use crate::common::compile;
use crate::common::scratch;

const KERNELS: [Kernel; 2] = [Kernel::V6_12, Kernel::V6_1];

fn in_lab(kernel: Kernel, command: &mut Command) -> Outcome {
    // The guest's working folder is shared: the build's scratch folder.
    command.current_dir(scratch());
    let outcome = Lab::new(Topology::symmetric(4)).kernel(kernel).run(command).expect("the lab").expect_success();
    eprintln!("{}\n{}", outcome.how, outcome.stdout);
    outcome
}

/// The number after `name` in a line.
fn number_after<'a>(line: &'a str, name: &str) -> &'a str {
    line.split_whitespace().skip_while(|word| *word != name).nth(1).unwrap_or("")
}

#[test]
fn each_copy_of_a_replica_is_on_its_node_and_a_write_makes_new_ones() {
    if !numapilot_lab::wanted("replica, API") {
        return;
    }
    let program = compile("place", &[&["tests/c/place.c"], LIBRARY_SOURCES].concat(), &["-O2"]);
    for kernel in KERNELS {
        let said = in_lab(kernel, &mut Command::new(&program)).stdout;
        for version in ["1", "2"] {
            for node in ["0", "1", "2", "3"] {
                let line = said
                    .lines()
                    .find(|line| number_after(line, "copy") == version && number_after(line, "node") == node);
                let line = line.unwrap_or_else(|| panic!("no copy {version} of node {node}: {said}"));
                assert_eq!(number_after(line, "on_node"), number_after(line, "pages"), "{line}");
                // numa_maps agrees, and names no other node.
                assert!(line.contains(&format!(" N{node}=1000 ")) && line.matches(" N").count() == 1, "{line}");
            }
        }
        assert!(said.ends_with("nodes 4 copies after collapse 1 wrong 0\n"), "{said}");
    }
}

const SCRIPT: &str = r#"
mkdir -m 700 /dev/shm/copies /dev/shm/guarded
head -c 1500000 /dev/urandom > /dev/shm/data
truncate -s 1M /dev/shm/shared
for node in 0 1 2 3; do
    echo "alone $node"; numactl --cpunodebind=$node ./mapped-lab /dev/shm/data
    echo "replaced $node"
    NUMAPILOT_REPLICATE_FOLDER=/dev/shm/copies NUMAPILOT_REPLICATE_PATTERN='*' LD_PRELOAD=$PWD/remap.so numactl --cpunodebind=$node ./mapped-lab /dev/shm/data
done
cat /dev/shm/copies/log
NUMAPILOT_REPLICATE_FOLDER=/dev/shm/guarded NUMAPILOT_REPLICATE_SHARED=/dev/shm/shared LD_PRELOAD=$PWD/remap.so ./guarded-lab /dev/shm/shared 4 write pin
"#;

#[test]
fn replaced_mappings_are_on_each_processs_node_and_a_write_collapses_them() {
    if !numapilot_lab::wanted("replica, mappings") {
        return;
    }
    compile("mapped-lab", &["tests/c/mapped.c"], &["-O2"]);
    compile("guarded-lab", &["tests/c/guarded.c"], &["-O2"]);
    fs::write(scratch().join("remap.so"), LIBRARY).expect("library");
    for kernel in KERNELS {
        let said = in_lab(kernel, Command::new("sh").args(["-c", SCRIPT])).stdout;
        let results: Vec<&str> = said.lines().filter(|line| line.starts_with("sum ")).collect();
        assert_eq!(results.len(), 8, "{said}");
        assert!(results.iter().all(|line| *line == results[0]), "results differ: {said}");
        assert_eq!(said.matches("after write 1 0, sealed refuses").count(), 8, "{said}");
        let places: Vec<&str> = said.lines().filter(|line| line.starts_with("node ")).collect();
        for line in &places {
            let node = number_after(line, "node");
            assert!(line.contains(&format!(".node{node} ")), "{line}");
            assert_eq!(number_after(line, "on_node"), number_after(line, "of"), "{line}");
        }
        // Whatever was on the node already is left; of four nodes at most one holds a file whole.
        for file in ["libc.so.6", "/dev/shm/data"] {
            let replaced = said.lines().filter(|line| line.contains("\treplaced\t") && line.ends_with(file)).count();
            assert!(replaced >= 3, "{file} was replaced {replaced} times: {said}");
        }
        for process in 0..4 {
            let find = |when: &str| {
                said.lines().find(|line| line.starts_with(&format!("place {process} {when} "))).expect("a place")
            };
            assert!(find("before").contains(&format!(" N{process}=256 ")), "{said}");
            assert!(find("after").contains("file=/dev/shm/shared "), "{said}");
        }
        assert!(said.ends_with("guarded ok read 0\n"), "{said}");
    }
}

const ORDERS_SCRIPT: &str = r#"
mkdir -m 700 /dev/shm/ordered
head -c 4096 /dev/zero > /dev/shm/ordered/bell
numactl --membind=0 head -c 1048576 /dev/urandom > /dev/shm/read
NUMAPILOT_REPLICATE_FOLDER=/dev/shm/ordered NUMAPILOT_REPLICATE_BY_ORDER=1 LD_PRELOAD=$PWD/ordered.so ./ordered-lab /dev/shm/ordered /dev/shm/read
echo status $?
cat /dev/shm/ordered/log
"#;

#[test]
fn processes_show_the_copies_that_are_ordered_and_then_their_own_file_again() {
    if !numapilot_lab::wanted("replica, orders") {
        return;
    }
    compile("ordered-lab", &["tests/c/ordered.c"], &["-O2"]);
    fs::write(scratch().join("ordered.so"), LIBRARY).expect("library");
    for kernel in KERNELS {
        let said = in_lab(kernel, Command::new("sh").args(["-c", ORDERS_SCRIPT])).stdout;
        assert!(said.contains("status 0\n"), "{said}");
        // Where a worker's 256 pages are, and what it read.
        let told = |when: &str, worker: &str| {
            let line = said.lines().find(|line| line.starts_with(&format!("{when} worker {worker} ")));
            let line = line.unwrap_or_else(|| panic!("no {when} of {worker}: {said}"));
            let words: Vec<&str> = line.split(' ').collect();
            (words[4..8].iter().map(|word| word.parse().expect("pages")).collect::<Vec<u32>>(), words[9].to_owned())
        };
        let (at_first, sum) = told("before", "0");
        assert!(said.lines().filter(|line| line.contains(" sum ")).all(|line| line.ends_with(&sum)), "{said}");
        for (when, worker, node) in [("both", "0", 2), ("both", "1", 3), ("one", "0", 1)] {
            assert_eq!(told(when, worker).0[node], 256, "{when} {worker}: {said}");
        }
        for (when, worker) in [("one", "1"), ("none", "0"), ("none", "1")] {
            assert_eq!(told(when, worker).0, at_first, "{when} {worker}: its own file again: {said}");
        }
        assert_eq!(said.matches("\tgiven-back\t").count(), 2, "{said}");
    }
}
