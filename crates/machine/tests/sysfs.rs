//! Reads the trees of `testdata/sysfs` (see `make-trees` there), and trees damaged in every way that a file system allows.

use std::fs;
use std::path::{Path, PathBuf};

use numapilot_machine::{Bind, CacheKind, CpuId, Machine, MemoryTier, NodeId, NodeIndex, NodeKind, SocketId};
use proptest::prelude::*;

fn tree(name: &str) -> Machine {
    Machine::from_sysfs(copy(name).path()).unwrap_or_else(|e| panic!("{e}"))
}

fn cpus(ids: impl IntoIterator<Item = u32>) -> Vec<CpuId> {
    ids.into_iter().map(CpuId).collect()
}

#[test]
fn two_sockets_with_hardware_threads() {
    let machine = tree("two-sockets-smt");
    assert_eq!(machine.nodes().len(), 2);
    assert_eq!(machine.nodes()[0].cpus, cpus([0, 1, 2, 3, 8, 9, 10, 11]));
    assert_eq!(machine.nodes()[1].socket, Some(SocketId(1)));
    assert_eq!(machine.nodes()[0].memory_bytes, 98_566_144 * 1024);
    assert_eq!(machine.nodes()[0].free_bytes, Some(98_566_144 * 3 / 4 * 1024));
    assert_eq!(machine.cpu(CpuId(9)).unwrap().siblings, cpus([1, 9]));
    assert_eq!(machine.cpu(CpuId(9)).unwrap().smt_rank(), 1);
    assert_eq!(machine.online_core_count(), 8);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), Some(21));
    assert_eq!(machine.idle_latency_ns(NodeId(0), NodeId(0)), None, "no HMAT: unknown, not guessed");
    // The name's nominal clock, not the 1200 MHz at which CPU 0 idled.
    assert_eq!(machine.clock_mhz(), Some(3400.0));
    assert_eq!(machine.l3_caches().len(), 2);
    assert_eq!(machine.l3_index(CpuId(12)), Some(1));
    let l2 = machine.data_cache(CpuId(8), 2).unwrap();
    assert_eq!((l2.size_bytes, l2.ways, l2.line_bytes), (1 << 20, Some(16), Some(64)));
    assert_eq!(machine.caches().iter().filter(|c| c.kind == CacheKind::Instruction).count(), 8);
    assert_eq!(machine.thread_layout(Bind::Spread, None), cpus([0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]));
    assert_eq!(machine.thread_layout(Bind::Pack, None), cpus([0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]));
    let only = cpus([9, 8, 1, 99]);
    assert_eq!(
        machine.thread_layout(Bind::Spread, Some(&only)),
        cpus([1, 8, 9]),
        "9 shares its core with 1, and 99 does not exist"
    );
}

#[test]
fn four_nodes() {
    let machine = tree("four-nodes");
    assert_eq!(machine.nodes().len(), 4);
    assert_eq!(machine.node_of_cpu(CpuId(13)), Some(NodeId(3)));
    assert_eq!(machine.node_of_cpu(CpuId(16)), None);
    assert_eq!(machine.l3_caches().len(), 4);
    assert!(machine.links().is_empty() && machine.routes(NodeId(0), NodeId(3)).is_empty());
    assert_eq!(machine.broadcasts_probes(), None);
    assert_eq!(machine.thread_layout(Bind::Spread, None)[..5], cpus([0, 4, 8, 12, 1]));
}

#[test]
fn several_nodes_per_socket() {
    let nps4 = tree("nps4");
    assert_eq!((nps4.nodes().len(), nps4.sockets().len()), (8, 2));
    assert_eq!(nps4.distance(NodeId(0), NodeId(3)), Some(12));
    assert_eq!(nps4.distance(NodeId(0), NodeId(4)), Some(32));
    let snc2 = tree("snc2");
    assert_eq!((snc2.nodes().len(), snc2.sockets().len(), snc2.l3_caches().len()), (4, 2, 2));
    assert_eq!(snc2.l3_index(CpuId(0)), snc2.l3_index(CpuId(2)), "an L3 spans the nodes of its socket");
    assert_eq!(snc2.clock_mhz(), Some(2000.0));
}

#[test]
fn a_node_with_memory_only_and_what_the_firmware_tells() {
    let machine = tree("cxl");
    let far = machine.node(NodeId(2)).unwrap();
    assert_eq!((far.kind(), far.socket, far.has_memory()), (NodeKind::MemoryOnly, None, true));
    assert_eq!(machine.idle_latency_ns(NodeId(0), NodeId(2)), Some(210.0));
    assert_eq!(machine.idle_latency_ns(NodeId(1), NodeId(2)), None, "HMAT tells the best initiator only");
    assert_eq!(machine.idle_latency_cycles(NodeId(0), NodeId(0)), Some(224.0));
    assert_eq!(far.memory_bandwidth_bytes_per_s, Some(60_000.0 * 1048576.0));
    assert_eq!(machine.nodes_nearest_first(NodeId(1)), [NodeId(1), NodeId(0), NodeId(2)]);
    assert!(machine.figures().iter().any(|f| f.source.contains("HMAT")));
    // Local latencies that firmware tells may be above what 100 ns and a distance of 21 give.
    let guess = |to: u16| machine.idle_latency_or_guess_ns(NodeId(1), NodeId(to)).round();
    assert_eq!([guess(0), guess(1), guess(2)], [235.0, 112.0, 269.0], "112 ns times 2.1, 1 and 2.4");
}

#[test]
fn offline_cpus_keep_their_node_but_get_no_threads() {
    let machine = tree("offline-cpus");
    assert_eq!((machine.cpus().len(), machine.online_cpu_count()), (8, 6));
    let three = machine.cpu(CpuId(3)).unwrap();
    assert_eq!((three.online, three.node, three.core), (false, Some(NodeId(0)), None));
    assert_eq!(machine.nodes()[0].cpus, cpus([0, 1, 2, 3]));
    assert_eq!(machine.thread_layout(Bind::Spread, None), cpus([0, 4, 2, 6, 1, 7]));
    assert!(machine.thread_layout(Bind::Pack, Some(&cpus([3, 5]))).is_empty());
    assert_eq!(machine.online_core_count(), 4);
    let runs =
        |machine: &Machine| -> Vec<bool> { machine.nodes().iter().map(|node| machine.has_online_cpus(node)).collect() };
    assert_eq!(runs(&machine), [true, true]);
    let folder = copy("offline-cpus");
    fs::write(folder.path().join("sys/devices/system/cpu/online"), "0-2").unwrap();
    fs::write(folder.path().join("sys/devices/system/node/node1/cpulist"), "").unwrap();
    let machine = Machine::from_sysfs(folder.path()).unwrap();
    assert!(machine.nodes()[1].has_cpus(), "though none of them is online");
    assert_eq!(runs(&machine), [true, false]);
    let spread = |machine: &Machine| -> Vec<NodeId> { machine.cpu_nodes().map(|node| node.id).collect() };
    assert_eq!(spread(&machine), [NodeId(0)]);
    assert_eq!(spread(&tree("memory-less")), [NodeId(0), NodeId(1), NodeId(2)], "the second has no memory");
    let whole: Vec<NodeId> = tree("memory-less").cpu_and_memory_nodes().map(|node| node.id).collect();
    assert_eq!(whole, [NodeId(0), NodeId(2)]);
}

/// Where all memory is on nodes without CPUs (CXL or HBM alone), it was slow memory, and the fix of that was to put it where there is none.
#[test]
fn memory_is_slow_beside_that_of_nodes_with_cpus_alone() {
    let folder = copy("cxl");
    for node in [0, 1] {
        let file = folder.path().join(format!("sys/devices/system/node/node{node}/meminfo"));
        fs::write(file, format!("Node {node} MemTotal: 0 kB\nNode {node} MemFree: 0 kB\n")).unwrap();
    }
    let machine = Machine::from_sysfs(folder.path()).unwrap();
    assert!(machine.cpu_and_memory_nodes().next().is_none() && machine.memory_without_cpus().count() == 1);
    assert!(machine.nodes().iter().all(|node| !machine.is_slow_memory(node)));
    assert!(MemoryTier::ALL.into_iter().all(|tier| machine.nodes_of_tier(tier).is_empty()));
}

#[test]
fn one_node_and_sparse_nodes() {
    assert_eq!(tree("one-node").nodes().len(), 1);
    let sparse = tree("sparse-nodes");
    let ids: Vec<u16> = sparse.nodes().iter().map(|n| n.id.0).collect();
    assert_eq!(ids, [0, 8, 255]);
    assert_eq!(sparse.node_index(NodeId(255)), Some(NodeIndex(2)));
    assert_eq!(sparse.distance(NodeId(8), NodeId(255)), Some(80));
    assert_eq!(sparse.distance(NodeId(1), NodeId(8)), None);
    assert_eq!(sparse.data_cache(CpuId(8), 1).unwrap().line_bytes, Some(128));
}

#[test]
fn the_running_system_can_be_read() {
    let machine = Machine::load("live").unwrap();
    assert!(machine.online_cpu_count() > 0 && machine.memory_bytes() > 0);
}

#[test]
fn a_machine_survives_json() {
    for name in ["cxl", "offline-cpus"] {
        let machine = tree(name);
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
        let broken = text.replacen("\"distances\":[[", "\"distances\":[[7,", 1);
        assert!(
            serde_json::from_str::<Machine>(&broken).unwrap_err().to_string().contains("matrix"),
            "checked again when read"
        );
    }
}

/// A tree that a test may damage.
/// A machine of `nodes` nodes with `cpus` CPUs each.
fn large(nodes: u32, cpus: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: String| {
        let path = folder.path().join("sys/devices/system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text + "\n").unwrap();
    };
    put("cpu/present", format!("0-{}", nodes * cpus - 1));
    put("node/online", format!("0-{}", nodes - 1));
    for node in 0..nodes {
        put(&format!("node/node{node}/cpulist"), format!("{}-{}", node * cpus, (node + 1) * cpus - 1));
        put(&format!("node/node{node}/meminfo"), format!("Node {node} MemTotal: 1048576 kB"));
    }
    folder
}

#[test]
fn the_largest_machines_are_read_and_larger_ones_are_called_large() {
    let machine = Machine::from_sysfs(large(16, 120).path()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((machine.cpus().len(), machine.online_cpu_count()), (1920, 1920));
    assert_eq!(machine.node_of_cpu(CpuId(1919)), Some(NodeId(15)));
    // As a trace keeps it.
    let kept: Machine = serde_json::from_str(&serde_json::to_string(&machine).unwrap()).unwrap();
    assert_eq!(kept.cpus().len(), 1920);
    for (nodes, cpus, what) in [(64, 129, "it names 8256 CPUs"), (65, 1, "it names 65 nodes")] {
        let error = Machine::from_sysfs(large(nodes, cpus).path()).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("this version describes machines with up to"), "{error}");
    }
}

fn copy(name: &str) -> tempfile::TempDir {
    numapilot_host::testing::tree(name)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() { all.extend(files(&entry)) } else { all.push(entry) }
    }
    all.sort();
    all
}

#[test]
fn nonsense_is_an_error_that_names_the_file() {
    for (file, content) in [
        ("sys/devices/system/node/node0/distance", "10"),
        ("sys/devices/system/node/node0/distance", "10 21 0"),
        ("sys/devices/system/node/node0/cpulist", "0-99"),
        ("sys/devices/system/node/node1/cpulist", "3-7"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: lots kB"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 99999999999999999 kB"),
        ("sys/devices/system/node/online", "0-4294967295"),
        ("sys/devices/system/node/online", "70000"),
        ("sys/devices/system/cpu/present", "0-9000"),
        ("sys/devices/system/cpu/online", ""),
        ("sys/devices/system/cpu/cpu0/cache/index0/size", "big"),
        ("sys/devices/system/cpu/cpu0/cache/index0/level", "77"),
        ("sys/devices/system/cpu/cpu0/cache/index0/type", "Cheese"),
        ("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size", "3"),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "x"),
        ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "1-0"),
        ("sys/devices/system/node/node2/access1/initiators/read_latency", "99999999999"),
        ("sys/devices/system/node/node2/access1/initiators/read_bandwidth", "-1"),
    ] {
        let folder = copy("cxl");
        fs::write(folder.path().join(file), content).unwrap();
        let message = Machine::from_sysfs(folder.path()).expect_err(file).to_string();
        assert!(message.contains(file), "{file} with {content:?}: {message}");
    }
    let folder = copy("cxl");
    let file = folder.path().join("sys/devices/system/node/node0/meminfo");
    fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    let message = Machine::from_sysfs(folder.path()).unwrap_err().to_string();
    assert!(message.contains(&file.display().to_string()) && message.contains("not text"), "{message}");
}

/// The kernel passes on what the firmware states, whatever its unit: no command ran on such a machine, and the kernel was said never to write that.
#[test]
fn what_the_firmware_states_and_cannot_be_is_noted_and_not_used() {
    let folder = copy("cxl");
    let put = |file: &str, text: &str| {
        fs::write(folder.path().join("sys/devices/system/node/node2/access1/initiators").join(file), text).unwrap();
    };
    put("read_latency", "4000000000");
    put("read_bandwidth", "4294967295");
    let machine = Machine::from_sysfs(folder.path()).unwrap();
    assert_eq!(machine.idle_latency_ns(NodeId(0), NodeId(2)), None);
    assert_eq!(machine.node(NodeId(2)).unwrap().memory_bandwidth_bytes_per_s, None);
    assert_eq!(machine.idle_latency_ns(NodeId(0), NodeId(0)), tree("cxl").idle_latency_ns(NodeId(0), NodeId(0)));
    let notes: Vec<&String> = machine.notes().iter().filter(|note| note.contains("cannot be")).collect();
    assert!(notes.len() == 2 && notes[0].contains("read_latency") && notes[1].contains("read_bandwidth"), "{notes:?}");
}

#[test]
fn any_one_file_may_be_missing() {
    let folder = copy("offline-cpus");
    for file in files(folder.path()) {
        let content = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let machine = Machine::from_sysfs(folder.path()).unwrap_or_else(|e| panic!("without {}: {e}", file.display()));
        assert_eq!(machine.nodes().len(), 2, "without {}", file.display());
        fs::write(&file, content).unwrap();
    }
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    let folder = copy("one-node");
    fs::remove_dir_all(folder.path().join("sys/devices/system/node")).unwrap();
    fs::write(folder.path().join("proc/meminfo"), "MemTotal: 1000 kB\nMemFree: 10 kB\n").unwrap();
    let machine = Machine::from_sysfs(folder.path()).unwrap();
    assert_eq!((machine.nodes().len(), machine.nodes()[0].memory_bytes), (1, 1_024_000));
    assert!(machine.notes()[0].contains("no NUMA nodes"));
    let nothing = tempfile::tempdir().unwrap();
    let message = Machine::from_sysfs(nothing.path()).unwrap_err().to_string();
    assert!(message.contains("cpu/present"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_content_makes_it_panic(which in any::<prop::sample::Index>(), content in prop_oneof![
        "[0-9,: \nKMGkBa-]{0,30}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..40),
    ]) {
        thread_local!(static TREE: tempfile::TempDir = copy("cxl"));
        TREE.with(|folder| {
            let all = files(folder.path());
            let file = which.get(&all);
            let whole = fs::read(file).unwrap();
            fs::write(file, content).unwrap();
            let result = Machine::from_sysfs(folder.path());
            fs::write(file, whole).unwrap();
            if let Err(error) = result {
                prop_assert!(error.to_string().contains(&folder.path().display().to_string()), "{}", error);
            }
            Ok(())
        })?;
    }
}
