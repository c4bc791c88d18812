//! Processes on machines of testdata/sysfs: to the page, whatever the machine looks like.

use numapilot_host::Pid;
use numapilot_machine::NodeId;
use numapilot_text::style::Look;

use super::*;
use crate::fixture::Tree;

const NUMA_MAPS: &str = "\
5600aa000000 default file=/usr/bin/app mapped=3 N0=1 N1=2 kernelpagesize_kB=4
5600aa003000 default file=/usr/bin/app anon=1 dirty=1 N1=1 kernelpagesize_kB=4
5600bb000000 default heap anon=6 dirty=6 N0=5 N1=1 kernelpagesize_kB=4
7f0000000000 bind:1 anon=1024 dirty=1024 N1=1024 kernelpagesize_kB=4
7f0040000000 interleave:0-1 file=/anon_hugepage\\040(deleted) huge anon=4 dirty=4 N0=2 N1=2 kernelpagesize_kB=2048
7f0050000000 default anon=3 dirty=3 N0=3 kernelpagesize_kB=4
7f0050010000 default anon=2 dirty=2 N0=2 kernelpagesize_kB=4
7ffc00000000 default stack anon=4 dirty=4 N0=4 kernelpagesize_kB=4
7ffc00100000 default
";

const SMAPS: &str = "\
5600aa000000-5600aa003000 r-xp 00000000 fe:01 77                 /usr/bin/app
Rss:                  12 kB
5600aa003000-5600aa004000 rw-p 00003000 fe:01 77                 /usr/bin/app
Rss:                   4 kB
5600bb000000-5600bb021000 rw-p 00000000 00:00 0                  [heap]
Rss:                  24 kB
Swap:                  8 kB
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
Rss:                4096 kB
AnonHugePages:      2048 kB
7f0040000000-7f0040800000 rw-p 00000000 00:0f 9                  /anon_hugepage (deleted)
Rss:                   0 kB
7f0050000000-7f0050003000 rw-p 00000000 00:00 0
Rss:                  12 kB
7f0050010000-7f0050012000 rw-p 00000000 00:00 0
Rss:                   8 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                  [stack]
Rss:                  16 kB
7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0                  [vdso]
Rss:                   4 kB
";

fn tree() -> Tree {
    let tree = Tree::symmetric(2, 4, 1 << 20);
    tree.process(40, "app", &[(40, 0, 900), (41, 5, 20), (42, 1, 80)]);
    tree.put("proc/40/numa_maps", NUMA_MAPS);
    tree.put("proc/40/smaps", SMAPS);
    tree
}

fn read(tree: &Tree) -> MemoryMap {
    Reader::default().read(&tree.root(), &tree.machine(), Pid(40)).unwrap()
}

#[test]
fn every_page_of_numa_maps_is_counted_once_and_what_is_far_is_told() {
    let map = read(&tree());
    // 17 small pages and 2 huge ones on node 0, 1,028 and 2 on node 1.
    let huge = 2 * (2 << 20);
    assert_eq!(map.bytes_by_node(), [15 * 4096 + huge, 1028 * 4096 + huge]);
    assert_eq!(map.nodes, [NodeId(0), NodeId(1)]);
    // 98 % of the time on node 0: the two percent on node 1 do not make its memory near.
    assert_eq!(map.far_nodes, [NodeId(1)]);
    assert_eq!(map.far_bytes(), map.bytes_by_node()[1]);
    assert_eq!(map.threads, 3);
    for apart in [true, false] {
        let objects = map.objects(Key::Size, apart);
        assert_eq!(objects.iter().map(Object::bytes).sum::<u64>(), map.bytes_by_node().iter().sum::<u64>());
        assert_eq!(objects.iter().map(|object| object.areas).sum::<usize>(), 9);
    }
}

#[test]
fn mappings_of_one_thing_are_one_object_and_keys_order_them() {
    let map = read(&tree());
    let titles = |key| -> Vec<String> { map.objects(key, false).iter().map(Object::title).collect() };
    assert_eq!(
        titles(Key::Size),
        ["/anon_hugepage (deleted)", "0x7f0000000000", "[heap]", "2 mappings", "/usr/bin/app", "[stack]", "[vdso]"]
    );
    assert_eq!(titles(Key::Far)[..3], ["/anon_hugepage (deleted)", "0x7f0000000000", "/usr/bin/app"]);
    assert_eq!(titles(Key::Address)[0], "/usr/bin/app");
    assert_eq!(titles(Key::Name)[0], "/anon_hugepage (deleted)");
    let objects = map.objects(Key::Size, false);
    assert_eq!(
        (objects[1].kind, objects[1].policy.as_str(), objects[1].huge_bytes),
        (Kind::Anonymous, "bind:1", 2 << 20)
    );
    assert_eq!((objects[0].kind, objects[0].pages_by_node[&NodeId(1)]), (Kind::Hugetlb, 2));
    assert_eq!(objects[2].swapped_bytes, 8192);
}

#[test]
fn text_csv_and_json_say_the_same() {
    let map = read(&tree());
    let objects = map.objects(Key::Size, false);
    insta::assert_snapshot!("text", text(&map, &objects, TextOptions::default(), Look::default()));
    insta::assert_snapshot!(
        "pages",
        text(&map, &objects, TextOptions { top: 2, pages: true }, Look { width: 80, colour: false })
    );
    insta::assert_snapshot!("csv", csv_heading().to_owned() + &csv(&map, &objects, 1.5));
    // Any user chooses the name of a process.
    let formula = MemoryMap { name: "=1+1,x".to_owned(), ..map.clone() };
    assert!(csv(&formula, &objects, 1.5).lines().all(|line| line.starts_with("1.500,40,\"'=1+1,x\",")));
    insta::assert_snapshot!("json", serde_json::to_string_pretty(&json(&map, &objects)).unwrap());
}

#[test]
fn without_smaps_pages_are_still_told_and_without_numa_maps_the_reason_is() {
    let tree = tree();
    tree.remove("proc/40/smaps");
    let map = read(&tree);
    assert_eq!(map.objects(Key::Size, false)[0].kind, Kind::Hugetlb);
    assert_eq!(map.objects(Key::Size, false)[0].name, "/anon_hugepage (deleted)");
    assert!(map.notes.len() == 1 && map.notes[0].contains("process 40 has no smaps"), "{:?}", map.notes);
    // They were 0, which is a size.
    let object = &json(&map, &map.objects(Key::Size, false))["objects"][0];
    let unknown = ["mapped_bytes", "huge_bytes", "swapped_bytes"];
    assert!(unknown.iter().all(|name| object[name].is_null()) && object["bytes"].is_u64(), "{object}");
    assert!(csv(&map, &map.objects(Key::Size, false), 0.0).contains(",0x7f0040000000,1,,0,2,"));
    tree.remove("proc/40/numa_maps");
    let answer = Reader::default().read(&tree.root(), &tree.machine(), Pid(40));
    assert!(matches!(answer, Err(WatchError::NoNumaMaps { pid: Pid(40) })), "{answer:?}");
    let answer = Reader::default().read(&tree.root(), &tree.machine(), Pid(39));
    assert!(matches!(answer, Err(WatchError::Kernel(KernelError::Gone { pid: Pid(39) }))), "{answer:?}");
}

/// A process whose only thread runs on `cpu`, with `pages` by node.
fn simple(tree: &Tree, cpu: u32, pages: &str) -> MemoryMap {
    tree.process(40, "app", &[(40, cpu, 10)]);
    tree.put("proc/40/numa_maps", &format!("7f0000000000 default anon=9 {pages} kernelpagesize_kB=4"));
    read(tree)
}

#[test]
fn machines_that_break_assumptions_are_told_right() {
    // Sparse node numbers, one of them without CPUs, another without memory.
    let sparse = Tree::of("sparse-nodes");
    let nodes: Vec<(u16, bool, bool)> =
        sparse.machine().nodes().iter().map(|node| (node.id.0, node.has_cpus(), node.has_memory())).collect();
    let (first, last) = (nodes[0], nodes[nodes.len() - 1]);
    assert!(last.0 as usize >= nodes.len(), "{nodes:?}");
    let cpu = sparse.machine().nodes()[0].cpus[0].0;
    let map = simple(&sparse, cpu, &format!("N{}=7 N{}=2", last.0, first.0));
    assert_eq!(map.nodes, [NodeId(first.0), NodeId(last.0)]);
    assert_eq!(map.bytes_by_node(), [2 * 4096, 7 * 4096]);
    assert!(map.is_far(NodeId(last.0)) && !map.is_far(NodeId(first.0)));
    // Memory without CPUs is far from every thread.
    let cxl = Tree::of("cxl");
    let only = cxl.machine().nodes().iter().find(|node| !node.has_cpus()).unwrap().id;
    let map = simple(&cxl, 0, &format!("N{only}=5"));
    assert_eq!((map.far_bytes(), map.far_nodes.contains(&only)), (5 * 4096, true));
    // A thread last seen on a CPU that has gone offline since still has a node.
    let offline = Tree::of("offline-cpus");
    let machine = offline.machine();
    let gone = machine.cpus().iter().find(|cpu| !cpu.online && cpu.node.is_some()).expect("an offline CPU").id;
    let map = simple(&offline, gone.0, "N0=5");
    assert_eq!(map.runs_on, [(machine.node_of_cpu(gone).unwrap(), 1.0)]);
}

#[test]
fn a_machine_of_1024_cpus_and_64_nodes_is_one_like_any_other() {
    let tree = Tree::symmetric(64, 16, 1 << 20);
    let pages: Vec<String> = (0..64).map(|node| format!("N{node}={}", node + 1)).collect();
    let map = simple(&tree, 1023, &pages.join(" "));
    assert_eq!(map.runs_on, [(NodeId(63), 1.0)]);
    assert_eq!(map.bytes_by_node().iter().sum::<u64>(), 4096 * (64 * 65 / 2));
    assert_eq!(map.far_nodes.len(), 63);
    let shown = text(&map, &map.objects(Key::Size, false), TextOptions::default(), Look::default());
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
}
