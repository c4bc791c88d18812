//! CPUs: which exist, which are online, sockets, cores and hardware threads; the processor's name and clock.

use std::collections::BTreeMap;

use numapilot_host::cpuinfo;

use super::tree::{Tree, shortened};
use crate::MAX_CPUS;
use crate::error::MachineError;
use crate::hardware::Cpu;
use crate::ids::{CoreId, CpuId, SocketId};

const CPU: &str = "sys/devices/system/cpu";

/// The processor's name, and its clock in MHz with the file that says so.
type NameAndClock = (Option<String>, Option<(f64, String)>);

/// All present CPUs, ascending; their nodes are filled in later.
pub fn read(tree: &mut Tree) -> Result<Vec<Cpu>, MachineError> {
    let present = match tree.list(&format!("{CPU}/present"))? {
        Some(list) => list,
        None => tree.numbered(CPU, "cpu"),
    };
    if present.is_empty() {
        return Err(tree.malformed(&format!("{CPU}/present"), "it names no CPU"));
    }
    if present.len() > MAX_CPUS {
        return Err(tree.too_large(&format!("{CPU}/present"), format!("it names {} CPUs", present.len()), MAX_CPUS));
    }
    let online = tree.list(&format!("{CPU}/online"))?.unwrap_or_else(|| present.clone());
    let mut cpus = Vec::with_capacity(present.len());
    // Kernel core numbers are unique only within a package, or a die of it: the first hardware thread names a core better.
    let mut cores: BTreeMap<CpuId, CoreId> = BTreeMap::new();
    for &id in &present {
        let topology = format!("{CPU}/cpu{id}/topology");
        let on = online.binary_search(&id).is_ok();
        let socket = package(tree, &format!("{topology}/physical_package_id"))?;
        let siblings = match tree.list(&format!("{topology}/thread_siblings_list"))? {
            Some(list) => Some(list),
            None => tree.list(&format!("{topology}/core_cpus_list"))?,
        };
        let known = siblings.is_some();
        let mut siblings: Vec<CpuId> = siblings.unwrap_or_default().into_iter().map(CpuId).collect();
        siblings.retain(|s| present.binary_search(&s.0).is_ok());
        if !siblings.contains(&CpuId(id)) {
            siblings.push(CpuId(id));
            siblings.sort_unstable();
        }
        let next = CoreId(cores.len() as u32);
        let core = known.then(|| *cores.entry(siblings[0]).or_insert(next));
        cpus.push(Cpu { id: CpuId(id), node: None, socket, core, online: on, siblings });
    }
    if !cpus.iter().any(|c| c.online) {
        return Err(tree.malformed(&format!("{CPU}/online"), "no CPU is online"));
    }
    Ok(cpus)
}

/// A package's number; the kernel writes -1 where it does not know.
fn package(tree: &mut Tree, file: &str) -> Result<Option<SocketId>, MachineError> {
    match tree.text(file)? {
        None => Ok(None),
        Some(text) if text == "-1" || text == "65535" => Ok(None),
        Some(text) => match text.parse() {
            Ok(number) => Ok(Some(SocketId(number))),
            Err(_) => Err(tree.malformed(file, format!("{:?} is not the number of a package", shortened(&text)))),
        },
    }
}

/// The processor's name; its clock in MHz with the file that says so: the base frequency where the driver shows it, else the one in the
/// name (`@ 2.30GHz`), else the one at which CPU 0 ran when it was read.
pub fn name_and_clock(tree: &mut Tree) -> Result<NameAndClock, MachineError> {
    let cpuinfo = tree.text("proc/cpuinfo")?.unwrap_or_default();
    let field = |names: &[&str]| cpuinfo::field(&cpuinfo, names);
    // x86 and RISC-V; POWER; older Arm kernels; s390.
    let name = field(&["model name"])
        .or_else(|| field(&["cpu", "Processor", "Hardware", "uarch"]))
        .map(|n| n.chars().take(200).collect());
    let sensible = |mhz: f64| mhz.is_finite() && (10.0..=20_000.0).contains(&mhz);
    let base = format!("{CPU}/cpu0/cpufreq/base_frequency");
    if let Some(khz) = tree.number(&base)? {
        let mhz = khz as f64 / 1000.0;
        return Ok((name, sensible(mhz).then(|| (mhz, format!("/{base}")))));
    }
    let in_name = name.as_ref().and_then(|n: &String| {
        let stated = n.rsplit_once('@')?.1.trim();
        Some(stated.strip_suffix("GHz")?.trim().parse::<f64>().ok()? * 1000.0)
    });
    let running = || field(&["cpu MHz", "clock"])?.trim_end_matches("MHz").trim().parse::<f64>().ok();
    let clock = in_name.or_else(running).filter(|&mhz| sensible(mhz));
    Ok((name, clock.map(|mhz| (mhz, "/proc/cpuinfo".to_owned()))))
}
