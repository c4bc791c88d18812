//! File trees for tests: a machine's `/sys` from `testdata/sysfs`, or written here, with processes in `/proc`.

use std::fs;

use numapilot_machine::Machine;
use tempfile::TempDir;

use numapilot_host::Root;

/// A file tree that is removed on drop.
pub struct Tree {
    folder: TempDir,
}

impl Tree {
    /// Makes an empty tree.
    pub fn empty() -> Tree {
        Tree { folder: numapilot_host::testing::in_memory() }
    }

    /// Makes a copy of the machine `name` of `testdata/sysfs`.
    pub fn of(name: &str) -> Tree {
        Tree { folder: numapilot_host::testing::tree(name) }
    }

    /// Makes a machine of `nodes` nodes with `cpus` CPUs and `memory_kib` each, distance 20 between any two, in the kernel's layout.
    pub fn symmetric(nodes: u32, cpus: u32, memory_kib: u64) -> Tree {
        let tree = Tree::empty();
        tree.put("sys/devices/system/node/online", &format!("0-{}", nodes - 1));
        for file in ["present", "online"] {
            tree.put(&format!("sys/devices/system/cpu/{file}"), &format!("0-{}", nodes * cpus - 1));
        }
        for node in 0..nodes {
            let folder = format!("sys/devices/system/node/node{node}");
            tree.put(&format!("{folder}/cpulist"), &format!("{}-{}", node * cpus, (node + 1) * cpus - 1));
            let distance = |to: u32| if to == node { "10" } else { "20" };
            tree.put(&format!("{folder}/distance"), &(0..nodes).map(distance).collect::<Vec<_>>().join(" "));
            let meminfo =
                format!("Node {node} MemTotal: {memory_kib} kB\nNode {node} MemFree: {} kB\n", memory_kib / 2);
            tree.put(&format!("{folder}/meminfo"), &meminfo);
        }
        tree
    }

    /// Writes a file, with a line feed at its end.
    pub fn put(&self, path: &str, text: &str) {
        let file = self.folder.path().join(path);
        fs::create_dir_all(file.parent().expect("a folder")).expect("the folder");
        fs::write(file, format!("{}\n", text.trim_end_matches('\n'))).expect("the file");
    }

    /// Removes a file or folder.
    pub fn remove(&self, path: &str) {
        let path = self.folder.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("it was there");
    }

    /// Adds a process with one thread per entry: (tid, CPU, clock ticks).
    pub fn process(&self, pid: u32, name: &str, threads: &[(u32, u32, u64)]) {
        self.put(&format!("proc/{pid}/comm"), name);
        let all: u64 = threads.iter().map(|(_, _, ticks)| ticks).sum();
        self.put(&format!("proc/{pid}/stat"), &stat(pid, name, threads[0].1, all, threads.len()));
        for (tid, cpu, ticks) in threads {
            self.put(&format!("proc/{pid}/task/{tid}/stat"), &stat(*tid, name, *cpu, *ticks, threads.len()));
        }
    }

    /// Root of the tree.
    pub fn root(&self) -> Root {
        Root::new(self.folder.path())
    }

    /// The machine that the tree describes.
    pub fn machine(&self) -> Machine {
        Machine::from_sysfs(self.folder.path()).expect("a machine")
    }
}

fn stat(id: u32, name: &str, cpu: u32, ticks: u64, threads: usize) -> String {
    format!(
        "{id} ({name}) R 1 {id} {id} 0 -1 4194560 100 0 2 0 {ticks} 0 0 0 20 0 {threads} 0 {} 1000000 512 \
         18446744073709551615 1 1 0 0 0 0 0 0 17 0 0 0 17 {cpu} 0 0 0 0 0 0 0 0 0 0 0 0 0",
        id + 50
    )
}
