//! Nodes, CPUs and caches of a model file: expands groups of equal items into single ones.

use std::collections::BTreeMap;

use toml::Spanned;

use super::file::{RawFigure, RawNodes, SharedBy};
use super::{GB, GIB, Reader};
use crate::check;
use crate::cpulist::parse_cpu_list;
use crate::error::{MachineError, Problem};
use crate::hardware::{Cache, Cpu, Node};
use crate::ids::{CoreId, CpuId, NodeId, SocketId};
use crate::{MAX_MODEL_CPUS, MAX_NODES};

/// What one `[[nodes]]` table says of each of its nodes, in the machine's units.
struct NodeFigures {
    memory_bytes: u64,
    memory_bandwidth_bytes_per_s: Option<f64>,
    cpus_read_bytes_per_s: Option<f64>,
    cpus_write_bytes_per_s: Option<f64>,
}

impl Reader<'_> {
    /// All nodes and CPUs, ascending.
    pub(super) fn nodes(&mut self) -> Result<(Vec<Node>, Vec<Cpu>), MachineError> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut cpus: Vec<Cpu> = Vec::new();
        let raw = self.raw;
        for (index, spanned) in raw.nodes.iter().enumerate() {
            let given = spanned.get_ref();
            let place = format!("nodes[{index}]");
            self.lengths(given, &place).map_err(|p| self.error(p, Some(spanned.span())))?;
            let described = given.cpus.as_ref().map_or_else(|| "no CPUs".to_owned(), |lists| lists.join("; "));
            self.fact(&format!("{place}.cpus"), described, &given.source, given.estimate, spanned.span())?;
            let figures = self.node_figures(given, &place)?;
            for (position, &id) in given.ids.iter().enumerate() {
                let socket = given.sockets.as_ref().and_then(|s| s.get(position)).copied().map(SocketId);
                let list = given.cpus.as_ref().and_then(|lists| lists.get(position));
                let ids = match list {
                    Some(list) => parse_cpu_list(list).map_err(|e| {
                        let problem = Problem::new(
                            format!("{place}.cpus[{position}]"),
                            e.to_string(),
                            "see docs/machine-model.md",
                        );
                        self.error(problem, Some(spanned.span()))
                    })?,
                    None => Vec::new(),
                };
                if cpus.len() + ids.len() > MAX_MODEL_CPUS || nodes.len() == MAX_NODES {
                    let what = format!("more than {MAX_NODES} nodes or {MAX_MODEL_CPUS} CPUs");
                    let problem =
                        Problem::new(place, what, "leave some out: this is the most that a machine model can hold");
                    return Err(self.error(problem, Some(spanned.span())));
                }
                let threads = given.threads_per_core.unwrap_or(1) as usize;
                if threads == 0 || ids.len() % threads != 0 {
                    let what = format!("{} CPUs at {threads} threads per core", ids.len());
                    let problem = Problem::new(
                        format!("{place}.threads_per_core"),
                        what,
                        "give each core the same number of CPUs",
                    );
                    return Err(self.error(problem, Some(spanned.span())));
                }
                let first_core = cpus.iter().filter_map(|c| c.core).max().map_or(0, |c| c.0 + 1);
                cores(&ids, threads, first_core, NodeId(id), socket, &mut cpus);
                nodes.push(Node {
                    id: NodeId(id),
                    socket,
                    cpus: ids.into_iter().map(CpuId).collect(),
                    memory_bytes: figures.memory_bytes,
                    free_bytes: None,
                    memory_bandwidth_bytes_per_s: figures.memory_bandwidth_bytes_per_s,
                    cpus_read_bytes_per_s: figures.cpus_read_bytes_per_s,
                    cpus_write_bytes_per_s: figures.cpus_write_bytes_per_s,
                    memory_kind: given.memory_kind.clone(),
                });
            }
        }
        nodes.sort_by_key(|n| n.id);
        cpus.sort_by_key(|c| c.id);
        Ok((nodes, cpus))
    }

    /// The figures of one table, which all of its nodes share.
    fn node_figures(&mut self, given: &RawNodes, place: &str) -> Result<NodeFigures, MachineError> {
        let gib = (0.001, check::MEMORY_BYTES_MAX as f64 / GIB);
        let gb_per_s = (check::BANDWIDTH_MIN / GB, check::BANDWIDTH_MAX / GB);
        let mut optional = |name: &str, unit: &str, figure: &Option<Spanned<RawFigure>>, (min, max): (f64, f64)| {
            figure.as_ref().map(|f| self.figure(&format!("{place}.{name}"), unit, f, min, max)).transpose()
        };
        let memory = optional("memory_gib", "GiB", &given.memory_gib, gib)?;
        let mut bandwidth = |name: &str, figure: &Option<Spanned<RawFigure>>| {
            optional(name, "GB/s", figure, gb_per_s).map(|gb| gb.map(|gb| gb * GB))
        };
        Ok(NodeFigures {
            memory_bytes: memory.map_or(0, |gib| (gib * GIB) as u64),
            memory_bandwidth_bytes_per_s: bandwidth("memory_bandwidth_gb_per_s", &given.memory_bandwidth_gb_per_s)?,
            cpus_read_bytes_per_s: bandwidth("cpus_read_gb_per_s", &given.cpus_read_gb_per_s)?,
            cpus_write_bytes_per_s: bandwidth("cpus_write_gb_per_s", &given.cpus_write_gb_per_s)?,
        })
    }

    /// Lists that run beside `ids` must be as long as it.
    fn lengths(&self, given: &RawNodes, place: &str) -> Result<(), Problem> {
        let lists = [("cpus", given.cpus.as_ref().map(Vec::len)), ("sockets", given.sockets.as_ref().map(Vec::len))];
        for (name, length) in lists {
            if length.is_some_and(|length| length != given.ids.len()) {
                let what = format!("{} entries for {} ids", length.unwrap_or(0), given.ids.len());
                return Err(Problem::new(format!("{place}.{name}"), what, "give one entry per node"));
            }
        }
        if given.ids.is_empty() {
            return Err(Problem::new(format!("{place}.ids"), "it names no node", "list the numbers of these nodes"));
        }
        Ok(())
    }

    /// Every cache: groups of CPUs by what shares it.
    pub(super) fn caches(&mut self, nodes: &[Node], cpus: &[Cpu]) -> Result<Vec<Cache>, MachineError> {
        let mut caches = Vec::new();
        let raw = self.raw;
        for (index, spanned) in raw.caches.iter().enumerate() {
            let given = spanned.get_ref();
            let place = format!("caches[{index}]");
            let size_max = check::CACHE_BYTES_MAX as f64 / 1024.0;
            let size_bytes = self.whole(&format!("{place}.size_kib"), "KiB", &given.size_kib, 1.0, size_max)? * 1024;
            let line = given.line_bytes.as_ref();
            let line = line.map(|l| self.whole(&format!("{place}.line_bytes"), "bytes", l, 8.0, 4096.0)).transpose()?;
            let ways = given.ways.as_ref();
            let ways = ways.map(|w| self.whole(&format!("{place}.ways"), "ways", w, 1.0, 65_536.0)).transpose()?;
            let latency_place = format!("{place}.latency_cycles");
            let latency = given.latency_cycles.as_ref();
            let latency = latency
                .map(|l| self.figure(&latency_place, "cycles", l, 0.5, check::CACHE_LATENCY_CYCLES_MAX))
                .transpose()?;
            let groups = sharers(given.shared_by, given.shared_by_cores, nodes, cpus).map_err(|what| {
                let remedy = r#"write shared_by = "core", "node" or "socket", or shared_by_cores = N"#;
                self.error(Problem::new(place, what, remedy), Some(spanned.span()))
            })?;
            caches.extend(groups.into_iter().map(|cpus| Cache {
                level: given.level,
                kind: given.kind,
                size_bytes,
                line_bytes: line.map(|l| l as u32),
                ways: ways.map(|w| w as u32),
                latency_cycles: latency,
                cpus,
            }));
        }
        caches.sort_by(|a, b| (a.level, a.kind, &a.cpus).cmp(&(b.level, b.kind, &b.cpus)));
        Ok(caches)
    }
}

/// Deals a node's CPUs to cores as Linux does: with two threads per core and 2n CPUs, CPU k of the list and CPU k + n are one core.
fn cores(ids: &[u32], threads: usize, first_core: u32, node: NodeId, socket: Option<SocketId>, cpus: &mut Vec<Cpu>) {
    let count = ids.len() / threads;
    for (position, &id) in ids.iter().enumerate() {
        let core = position % count;
        let siblings = (0..threads).map(|t| CpuId(ids[core + t * count])).collect();
        let core = Some(CoreId(first_core + core as u32));
        cpus.push(Cpu { id: CpuId(id), node: Some(node), socket, core, online: true, siblings });
    }
}

/// The groups of CPUs that share one cache each.
fn sharers(
    by: Option<SharedBy>,
    cores: Option<usize>,
    nodes: &[Node],
    cpus: &[Cpu],
) -> Result<Vec<Vec<CpuId>>, String> {
    let group = |key: &dyn Fn(&Cpu) -> Option<u32>| {
        let mut groups: BTreeMap<u32, Vec<CpuId>> = BTreeMap::new();
        for cpu in cpus {
            let key = key(cpu).ok_or_else(|| format!("CPU {} has no socket to share it in", cpu.id))?;
            groups.entry(key).or_default().push(cpu.id);
        }
        Ok(groups.into_values().collect::<Vec<_>>())
    };
    match (by, cores) {
        (Some(SharedBy::Core), None) => group(&|cpu| cpu.core.map(|c| c.0)),
        (Some(SharedBy::Node), None) => group(&|cpu| cpu.node.map(|n| u32::from(n.0))),
        (Some(SharedBy::Socket), None) => group(&|cpu| cpu.socket.map(|s| s.0)),
        (None, Some(0)) => Err("shared by 0 cores".to_owned()),
        (None, Some(cores)) => {
            let mut groups = Vec::new();
            for node in nodes {
                let firsts: Vec<&Cpu> =
                    cpus.iter().filter(|c| c.node == Some(node.id) && c.siblings.first() == Some(&c.id)).collect();
                for chunk in firsts.chunks(cores) {
                    let mut shared: Vec<CpuId> = chunk.iter().flat_map(|c| c.siblings.iter().copied()).collect();
                    shared.sort_unstable();
                    groups.push(shared);
                }
            }
            Ok(groups)
        }
        _ => Err("it does not say which CPUs share it, or says so twice".to_owned()),
    }
}
