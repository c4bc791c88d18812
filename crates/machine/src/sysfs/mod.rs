//! Reads a machine from `/sys/devices/system/{node,cpu}` and `/proc/{cpuinfo,meminfo}` under a root prefix. Any file may be missing (containers, old
//! kernels, offline CPUs): then the fact is unknown. A file that is there and holds nonsense is an error that names it.

mod caches;
mod cpus;
mod files;
mod nodes;
mod tree;

use std::path::Path;

use crate::error::MachineError;
use crate::hardware::{CoreFigures, MachineSource, Routing, TrafficFigures};
use crate::machine::Machine;
use crate::parts::MachineParts;
pub use files::KernelFile;
use tree::{Tree, figure};

/// Reads the system under `root`.
pub fn read(root: &Path) -> Result<Machine, MachineError> {
    let mut tree = Tree::new(root);
    let mut cpus = cpus::read(&mut tree)?;
    let mut nodes = nodes::read(&mut tree, &mut cpus)?;
    let caches = caches::read(&mut tree, &cpus)?;
    let (cpu_model, clock) = cpus::name_and_clock(&mut tree)?;
    let (distances, idle_latency_ns, mut figures) = nodes::pairs(&mut tree, &mut nodes)?;
    if let Some((mhz, source)) = &clock {
        figures.insert(0, figure("clock_mhz", *mhz, "MHz", source));
    }
    let parts = MachineParts {
        name: "live".to_owned(),
        source: MachineSource::Live { root: root.to_owned() },
        cpu_model,
        description: None,
        clock_mhz: clock.map(|(mhz, _)| mhz),
        coherence: None,
        traffic: TrafficFigures::default(),
        core: CoreFigures::default(),
        nodes,
        cpus,
        caches,
        routers: Vec::new(),
        links: Vec::new(),
        routing: Routing::default(),
        routes: Vec::new(),
        distances,
        idle_latency_ns,
        figures,
        unknowns: Vec::new(),
        notes: tree.notes,
    };
    let folder = root.join("sys/devices/system").display().to_string();
    Machine::try_from(parts).map_err(|problem| problem.in_file(&folder, None))
}
