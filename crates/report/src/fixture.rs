//! Opened synthetic traces, for this crate's tests.

use std::path::Path;

use numapilot_fixtures::{Kind, Size, write};
use numapilot_flows::{AccessRef, Filter, Object, ObjectKind, Site, SiteId, Tables, Thread, Trace};
use numapilot_insight::Analysis;
use numapilot_machine::{Machine, NodeId};
use numapilot_trace::ids::{ObjectId, ThreadIndex, TimeNs};

use crate::Heading;
use crate::export::Export;

/// A trace with what a report knows of it.
pub struct Opened {
    pub trace: Trace,
    pub machine: Option<Machine>,
    pub heading: Heading,
}

/// The trace of this kind, cut down to this size.
pub fn open(kind: Kind, accesses: u64, objects: u32, threads: u32) -> Opened {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("made.numatrace");
    let size = kind.size();
    let size = Size {
        accesses: accesses.min(size.accesses),
        objects: objects.min(size.objects),
        threads: threads.min(size.threads),
        ..size
    };
    write(kind, &size, &dir).expect("the trace is written");
    opened(&dir)
}

/// A small trace whose accesses are page faults.
pub fn of_faults() -> Opened {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("made.numatrace");
    let size = Size { accesses: 500, objects: 20, threads: 4, ..Kind::Latency.size() };
    write(Kind::Latency, &size, &dir).expect("the trace is written");
    let file = dir.join("meta.json");
    let text = std::fs::read_to_string(&file).expect("the metadata are there");
    let mut meta: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    meta["engine"] = "fault".into();
    std::fs::write(&file, meta.to_string()).expect("the metadata are written");
    let opened = opened(&dir);
    assert!(opened.trace.holds_faults());
    opened
}

fn opened(dir: &Path) -> Opened {
    let trace = Trace::open(dir).expect("the trace opens");
    let meta = trace.meta();
    let heading = Heading {
        command: meta.command.clone(),
        machine: meta.machine_name.clone(),
        is_simulated: meta.simulated,
        origin: meta.origin(),
        engine: meta.engine.clone(),
        program_time_ns: meta.duration_ns,
        losses: trace.losses().clone(),
        ..Heading::default()
    };
    let machine = serde_json::from_value(meta.machine.clone()).ok();
    Opened { trace, machine, heading }
}

/// Forty accesses to each of two objects, half of them from node 1. The home of `known` is node 0 throughout, that of `unknown` in a tenth of its accesses
/// only.
pub fn of_unknown_homes() -> Opened {
    let mut tables = Tables { end: TimeNs(1000), ..Tables::default() };
    for (id, name) in ["known", "unknown"].into_iter().enumerate() {
        let (id, site) = (ObjectId(id as u32), SiteId(id as u32));
        tables.sites.push(Site { kind: ObjectKind::Heap, name: name.into(), ..Site::default() });
        tables.objects.push(Object { id, site, bytes: 4096, ..Object::default() });
        tables.threads.push(Thread { index: ThreadIndex(id.0), ..Thread::default() });
    }
    for at in 0..80u16 {
        let (object, from) = (u32::from(at % 2), at / 2 % 2);
        tables.accesses.push(&AccessRef {
            time: TimeNs(u64::from(at)),
            thread: ThreadIndex(u32::from(from)),
            object: Some(ObjectId(object)),
            node: Some(NodeId(from)),
            home: (object == 0 || at / 2 % 10 == 0).then_some(NodeId(0)),
            weight: 1,
            cluster: 1.0,
            ..AccessRef::at(0x1000)
        });
    }
    Opened {
        trace: Trace::from_tables(tables),
        machine: Machine::load("opteron-8385").ok(),
        heading: Heading::default(),
    }
}

/// A system of `with_cpus` nodes with a CPU and 1 GiB, then `bare` nodes with neither, numbered with gaps; distances differ
/// by direction. `sockets`: whether each CPU has a socket of its own.
pub fn system(with_cpus: usize, bare: usize, sockets: bool) -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: String, text: String| {
        let path = folder.path().join("sys/devices/system").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    };
    let count = with_cpus + bare;
    let ids: Vec<String> = (0..count).map(|node| (node * 2).to_string()).collect();
    write("node/online".to_owned(), ids.join(","));
    write("cpu/present".to_owned(), format!("0-{}", with_cpus - 1));
    for (node, id) in ids.iter().enumerate() {
        let distance = |to: usize| if node == to { 10 } else { 11 + (node * 3 + to) % 200 };
        let row: Vec<String> = (0..count).map(|to| distance(to).to_string()).collect();
        write(format!("node/node{id}/distance"), row.join(" "));
        if node < with_cpus {
            write(format!("node/node{id}/cpulist"), node.to_string());
            write(format!("node/node{id}/meminfo"), format!("Node {id} MemTotal: 1048576 kB"));
        }
        if sockets && node < with_cpus {
            write(format!("cpu/cpu{node}/topology/physical_package_id"), node.to_string());
        }
    }
    Machine::from_sysfs(folder.path()).unwrap()
}

impl Opened {
    /// Looks at it through a filter.
    pub fn with<R>(&self, filter: Filter, look: impl FnOnce(&Export<'_>) -> R) -> R {
        let nodes: Vec<NodeId> =
            self.machine.iter().flat_map(|machine| machine.nodes().iter().map(|node| node.id)).collect();
        let analysis = Analysis::new(&self.trace, &nodes, &nodes, filter);
        look(&Export { heading: &self.heading, analysis: &analysis, machine: self.machine.as_ref(), scope: "" })
    }
}
