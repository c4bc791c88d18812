//! Memory of several processes side by side: a row for each, and their total, in which memory that they share counts once.

use std::collections::BTreeMap;

use numapilot_machine::NodeId;
use numapilot_text::style::{Look, clean};
use numapilot_text::table::{Align, Table};
use numapilot_text::units;

use super::HugeFile;
use super::MemoryMap;
use super::text::BY_NODE;
use super::text::COLUMNS_MAX;
use super::text::largest;

/// Bytes by node of all the processes together. Of a page that several processes map, each has its share (`Pss` in smaps), so what only these processes
/// map counts once, and what others map too in part. Huge pages of a shared file have no `Pss`: they count as in the process that has most of them.
#[must_use]
pub fn total_by_node(maps: &[MemoryMap]) -> BTreeMap<NodeId, u64> {
    let mut sums: BTreeMap<NodeId, f64> = BTreeMap::new();
    for area in maps.iter().flat_map(|map| &map.areas).filter(|area| area.huge_file.is_none()) {
        for (node, pages) in &area.pages {
            *sums.entry(*node).or_default() += pages.saturating_mul(area.page_bytes) as f64 * area.own_share();
        }
    }
    for ((_, node), [most, _, _]) in shared_huge(maps) {
        *sums.entry(node).or_default() += most;
    }
    sums.into_iter().map(|(node, bytes)| (node, bytes.round() as u64)).collect()
}

/// Bytes of shared huge pages by file and node: in the process that has most of them there, in all processes, and in those from whose threads they are far.
fn shared_huge(maps: &[MemoryMap]) -> BTreeMap<(HugeFile, NodeId), [f64; 3]> {
    let mut found: BTreeMap<(HugeFile, NodeId), [f64; 3]> = BTreeMap::new();
    for map in maps {
        for area in &map.areas {
            let Some(file) = area.huge_file else { continue };
            for (node, pages) in &area.pages {
                let bytes = pages.saturating_mul(area.page_bytes) as f64;
                let [most, all, far] = found.entry((file, *node)).or_default();
                *most = f64::max(*most, bytes);
                *all += bytes;
                *far += if map.is_far(*node) { bytes } else { 0.0 };
            }
        }
    }
    found
}

/// Bytes of all the processes together that are far from the threads of those that map them.
fn total_far(maps: &[MemoryMap]) -> u64 {
    let far = |map: &MemoryMap| -> f64 {
        let own = map.areas.iter().filter(|area| area.huge_file.is_none());
        own.map(|area| area.far_bytes(&map.far_nodes) as f64 * area.own_share()).sum()
    };
    let huge = shared_huge(maps);
    let huge = huge.values().filter(|[_, all, _]| *all > 0.0).map(|[most, all, far]| most * far / all);
    (maps.iter().map(far).sum::<f64>() + huge.sum::<f64>()).round() as u64
}

/// The processes as a table: title, threads, memory in all, far and by node, and the total.
#[must_use]
pub fn tree_text(maps: &[MemoryMap], look: Look) -> String {
    let mut nodes: Vec<NodeId> = maps.iter().flat_map(|map| map.nodes.iter().copied()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let is_wide = nodes.len() <= COLUMNS_MAX;
    let mut table = Table::new().column("process", Align::Right).flexible("title", 16);
    for title in ["threads", "in memory", "far"] {
        table = table.column(title, Align::Right);
    }
    if is_wide {
        for node in &nodes {
            table = table.column(&format!("node {node}"), Align::Right);
        }
    } else {
        table = table.flexible("by node", BY_NODE);
    }
    let or_dot = |bytes: u64| if bytes == 0 { ".".to_owned() } else { units::bytes(bytes) };
    let by_node = |on: &dyn Fn(&NodeId) -> u64| -> Vec<String> {
        if is_wide {
            nodes.iter().map(|node| or_dot(on(node))).collect()
        } else {
            vec![largest(&nodes, on, units::bytes)]
        }
    };
    for map in maps {
        let on = |node: &NodeId| -> u64 { map.areas.iter().map(|area| area.bytes_on(*node)).sum() };
        let mut cells = vec![map.pid.to_string(), clean(&map.name), map.threads.to_string()];
        cells.extend([or_dot(map.bytes_by_node().iter().sum()), or_dot(map.far_bytes())]);
        cells.extend(by_node(&on));
        table.row(cells);
    }
    let total = total_by_node(maps);
    let threads: usize = maps.iter().map(|map| map.threads).sum();
    let mut cells = vec!["total".to_owned(), format!("{} processes", maps.len()), threads.to_string()];
    cells.extend([or_dot(total.values().sum()), or_dot(total_far(maps))]);
    cells.extend(by_node(&|node: &NodeId| total.get(node).copied().unwrap_or(0)));
    table.row(cells);
    let note = "Rows count shared pages whole. The total counts them once, and only in part if others map them too.";
    format!("{}{}\n", table.render(look, 0), look.faint(note))
}

#[cfg(test)]
mod tests {
    use numapilot_host::Pid;

    use super::*;
    use crate::fixture::Tree;
    use crate::maps::Reader;

    /// The shared buffers of a database: with huge pages, each process's were added up.
    #[test]
    fn shared_huge_pages_count_once_in_the_total() {
        let tree = Tree::symmetric(2, 2, 1 << 20);
        for (pid, pages) in [(40, "N0=3 N1=2"), (41, "N0=1 N1=2"), (42, "N1=2")] {
            tree.process(pid, "postgres", &[(pid, 0, 100)]);
            let policy = "7f0000000000 default file=/anon_hugepage\\040(deleted) huge";
            tree.put(&format!("proc/{pid}/numa_maps"), &format!("{policy} dirty=1 {pages} kernelpagesize_kB=2048"));
            let sizes = "7f0000000000-7f0000a00000 rw-s 00000000 00:0f 9 /anon_hugepage (deleted)\nRss: 0 kB\nPss: 0 kB\nKernelPageSize: 2048 kB";
            tree.put(&format!("proc/{pid}/smaps"), sizes);
        }
        let mut reader = Reader::default();
        let mut read = |pid| reader.read(&tree.root(), &tree.machine(), Pid(pid)).unwrap();
        let mut maps = [read(40), read(41), read(42)];
        assert_eq!(total_by_node(&maps), BTreeMap::from([(NodeId(0), 6 << 20), (NodeId(1), 4 << 20)]));
        assert_eq!((maps[2].far_bytes(), total_far(&maps)), (4 << 20, 4 << 20));
        maps[2].far_nodes.clear();
        maps[1].far_nodes.clear();
        assert_eq!(total_far(&maps), (4 << 20) / 3, "far from one of three that have the same pages");
    }

    /// Of two of a database's hundred processes, a fiftieth of the shared buffers was said to be all, counted once.
    #[test]
    fn the_total_says_that_what_others_map_too_counts_in_part() {
        let map = MemoryMap::default();
        let text = tree_text(&[map.clone(), map], Look { width: 100, colour: false });
        let note = text.lines().last().unwrap();
        assert!(
            note.contains("shared pages whole")
                && note.contains("counts them once")
                && note.contains("in part if others map them too")
                && note.len() <= 100,
            "{note}"
        );
    }

    /// On more than eight nodes (sub-NUMA clusters, HBM) no column said where the memory is.
    #[test]
    fn of_many_nodes_those_with_most_are_named() {
        let tree = Tree::symmetric(16, 1, 1 << 20);
        let pages: String = (0..16).map(|node| format!(" N{node}={}", node + 1)).collect();
        let mut reader = Reader::default();
        let mut read = |pid: u32| {
            tree.process(pid, "app", &[(pid, 0, 100)]);
            tree.put(
                &format!("proc/{pid}/numa_maps"),
                &format!("7f0000000000 default anon=1{pages} kernelpagesize_kB=4"),
            );
            reader.read(&tree.root(), &tree.machine(), Pid(pid)).unwrap()
        };
        let text = tree_text(&[read(40), read(41)], Look { width: 120, colour: false });
        let rows: Vec<&str> = text.lines().collect();
        assert!(
            rows[0].contains("by node") && rows[1].contains("15: 64.0 KiB, 14: 60.0 KiB, 13: 56.0 KiB, 13 more"),
            "{text}"
        );
        assert!(rows[3].contains("15: 128 KiB, 14: 120 KiB, 13: 112 KiB, 13 more"), "{text}");
    }

    #[test]
    fn shared_memory_counts_once_in_the_total() {
        let tree = Tree::symmetric(2, 2, 1 << 20);
        for (pid, name) in [(40, "postgres"), (41, "postgres: checkpointer ")] {
            tree.process(pid, "postgres", &[(pid, 0, 100)]);
            tree.put(&format!("proc/{pid}/cmdline"), name);
            let shared = "7f0000000000 default file=/dev/zero\\040(deleted) anon=0 dirty=100 mapped=100 mapmax=2 N1=100 kernelpagesize_kB=4\n";
            let own = "7f1000000000 default anon=10 N0=10 kernelpagesize_kB=4";
            tree.put(&format!("proc/{pid}/numa_maps"), &format!("{shared}{own}"));
            let sizes = "7f0000000000-7f0000100000 rw-s 00000000 00:01 7 /dev/zero (deleted)\nRss: 400 kB\nPss: 200 kB\nKernelPageSize: 4 kB\n\
                         7f1000000000-7f1000100000 rw-p 00000000 00:00 0 \nRss: 40 kB\nPss: 40 kB\nKernelPageSize: 4 kB";
            tree.put(&format!("proc/{pid}/smaps"), sizes);
        }
        let mut reader = Reader::default();
        let maps: Vec<MemoryMap> =
            [40, 41].map(|pid| reader.read(&tree.root(), &tree.machine(), Pid(pid)).unwrap()).into();
        assert_eq!(maps[1].name, "postgres: checkpointer");
        assert_eq!(total_by_node(&maps), BTreeMap::from([(NodeId(0), 80 << 10), (NodeId(1), 400 << 10)]));
        let text = tree_text(&maps, Look { width: 100, colour: false });
        let rows: Vec<&str> = text.lines().collect();
        assert!(rows[1].contains("40  postgres ") && rows[2].contains("41  postgres: checkpointer"), "{text}");
        assert!(rows[3].contains("total  2 processes") && rows[3].contains("480 KiB"), "{text}");
    }
}
