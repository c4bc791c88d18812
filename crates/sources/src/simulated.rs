//! From a [`Machine`] to the fixed tables by which the runtime simulates it (`struct np_config`).
//!
//! Cache geometry is rounded to what the runtime's filters can be: a power of two of sets, at most 16 ways. Sets and ways
//! are chosen together, so the capacity is met to within one part in 16. The first-stage filter, direct mapped, takes
//! the greatest power of two that fits the L1. The private filter has the capacity of L1 and L2 together (exact where
//! the L2 is exclusive, a few per cent too much where it is inclusive), and its share of an L2 that several cores use.
//!
//! Tables are indexed by node and CPU *numbers* (the kernel's, or the model file's), so that records carry those.

use numapilot_machine::Bind;
use numapilot_machine::Cache;
use numapilot_machine::CoreFigures;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_trace::wire::layout as wire;

use crate::engine::Engine;
use crate::error::SourceError;
use crate::options::Binding;
use crate::options::Placement;
use crate::options::RecordOptions;
use crate::options::Sampling;

const LINE_BYTES: u64 = 1 << wire::LINE_SHIFT;
const MAX_WAYS: u64 = 16;
/// What a core has where neither model nor firmware says.
const DEFAULT_L1_BYTES: u64 = 32 << 10;
const DEFAULT_L2_BYTES: u64 = 512 << 10;
const DEFAULT_L2_CYCLES: f64 = 14.0;
const DEFAULT_L3_CYCLES: f64 = 45.0;
/// Tags of all L3 caches together may take this much of the arena.
const MAX_L3_TAG_BYTES: u64 = 1 << 30;

/// The filled-in configuration, and what was assumed on the way.
#[derive(Debug)]
pub struct Simulated {
    /// Configuration for the arena.
    pub config: Box<wire::Config>,
    /// Assumptions and roundings worth telling.
    pub notes: Vec<String>,
}

/// Sets (a power of two) and ways (at most 16) of a cache of this many lines.
fn sets_and_ways(lines: u64) -> (u32, u32) {
    let mut sets = 1_u64;
    while lines.div_ceil(sets) > MAX_WAYS {
        sets *= 2;
    }
    let ways = ((lines + sets / 2) / sets).clamp(1, MAX_WAYS);
    (u32::try_from(sets).unwrap_or(1 << 31), u32::try_from(ways).unwrap_or(1))
}

fn previous_power_of_two(value: u64) -> u64 {
    if value == 0 { 0 } else { 1 << value.ilog2() }
}

/// Builds the configuration. `host_khz` is the rate of the host's counter, the clock of engine `track`.
///
/// # Errors
/// The machine is too large for the tables, or no CPU is left for threads.
pub fn simulate(options: &RecordOptions<'_>, engine: Engine, host_khz: u32) -> Result<Simulated, SourceError> {
    let machine = options.machine;
    let mut notes = Vec::new();
    let layout = thread_layout(options)?;
    let clock_khz = match (engine, machine.clock_mhz()) {
        (engine, _) if !engine.is_simulated() => host_khz,
        (_, Some(mhz)) => round_u32(mhz * 1000.0),
        (_, None) => {
            notes.push(format!(
                "the clock rate of machine {} is unknown: this host's is used, {host_khz} kHz",
                machine.name()
            ));
            host_khz
        }
    };
    let mut config = empty_config();
    config.mode = if engine.is_simulated() { wire::MODE_INSTRUMENT } else { wire::MODE_TRACK };
    config.bind = match options.bind {
        Binding::Spread => wire::BIND_SPREAD,
        Binding::Pack => wire::BIND_PACK,
        Binding::None => wire::BIND_NONE,
    };
    config.placement = match options.placement {
        Placement::FirstTouch => wire::PLACE_FIRST_TOUCH,
        Placement::Interleave => wire::PLACE_INTERLEAVE,
    };
    config.clock_khz = clock_khz;
    config.seed = options.seed;
    match options.sampling {
        Sampling::Period(period) => config.sample_period = period,
        Sampling::RateHz(rate) => config.sample_rate_hz = rate,
    }
    let window = options.window.as_nanos() * u128::from(clock_khz) / 1_000_000;
    config.window_cycles = u32::try_from(window.max(1)).unwrap_or(u32::MAX);
    // An emulator counts instructions: what they cost is charged by them.
    config.cycles_per_access_q8 = if engine == Engine::Emulate { 0 } else { options.cycles_per_access_q8 };
    config.core_window = round_u32(machine.core().window().value * CoreFigures::ACCESSES_PER_INSTRUCTION).max(1);
    config.core_misses = round_u32(machine.core().misses().value).max(1);
    config.max_stack_depth = options.max_stack_depth;
    config.line_sampling = if engine.is_simulated() { options.line_sampling } else { 1 };
    fill_cpus(&mut config, machine, &layout)?;
    fill_nodes(&mut config, machine, &mut notes)?;
    fill_caches(&mut config, machine, &layout, &mut notes);
    Ok(Simulated { config, notes })
}

fn empty_config() -> Box<wire::Config> {
    let mut config = Box::<wire::Config>::new_uninit();
    // SAFETY: np_config is plain integers and arrays of them, for which all-zero bytes are a value.
    unsafe {
        config.as_mut_ptr().write_bytes(0, 1);
        config.assume_init()
    }
}

fn round_u32(value: f64) -> u32 {
    // A float-to-int cast saturates, and makes NaN zero.
    value.round() as u32
}

fn thread_layout(options: &RecordOptions<'_>) -> Result<Vec<CpuId>, SourceError> {
    let machine = options.machine;
    let bind = if options.bind == Binding::Pack { Bind::Pack } else { Bind::Spread };
    if let Some(cpus) = &options.cpus {
        let all = machine.thread_layout(Bind::Pack, None);
        if let Some(stranger) = cpus.iter().find(|cpu| !all.contains(cpu)) {
            return Err(SourceError::Option {
                option: "--cpus",
                reason: format!("machine {} has no CPU {stranger} that is online", machine.name()),
                remedy: format!("`numapilot topo --machine {}` lists its {} CPUs", machine.name(), all.len()),
            });
        }
    }
    let layout = machine.thread_layout(bind, options.cpus.as_deref());
    if layout.is_empty() {
        return Err(SourceError::Option {
            option: "--cpus",
            reason: "no CPU is left for the program's threads".to_owned(),
            remedy: format!("name CPUs that machine {} has", machine.name()),
        });
    }
    Ok(layout)
}

fn too_large(machine: &Machine, what: &str, found: u32, most: usize) -> SourceError {
    SourceError::Machine {
        machine: machine.name().to_owned(),
        reason: format!("it has {what} number {found}, and the tables in a recorded program end at {}", most - 1),
        remedy: "number them from 0 in the model file, or use a smaller model (`--machine NAME`); running processes are recorded without the tables \
                 (`record --pid`)"
            .to_owned(),
    }
}

fn fill_cpus(config: &mut wire::Config, machine: &Machine, layout: &[CpuId]) -> Result<(), SourceError> {
    config.cpu_node.fill(wire::NONE16);
    for cpu in machine.cpus() {
        let index = usize::try_from(cpu.id.0).unwrap_or(usize::MAX);
        if index >= wire::MAX_CPUS {
            return Err(too_large(machine, "CPU", cpu.id.0, wire::MAX_CPUS));
        }
        config.cpu_node[index] = cpu.node.map_or(wire::NONE16, |node| node.0);
        config.cpu_l3[index] = machine.l3_index(cpu.id).and_then(|l3| u16::try_from(l3).ok()).unwrap_or(0);
    }
    if let Some(lost) = layout.iter().find(|cpu| machine.node_of_cpu(**cpu).is_none()) {
        return Err(SourceError::Machine {
            machine: machine.name().to_owned(),
            reason: format!("the node of CPU {lost} is unknown"),
            remedy: "leave it out with `--cpus`, or give its node in a model file".to_owned(),
        });
    }
    for (place, cpu) in config.cpu_order.iter_mut().zip(layout) {
        *place = u16::try_from(cpu.0).unwrap_or(wire::NONE16);
    }
    config.cpu_count = u32::try_from(layout.len()).unwrap_or(u32::MAX);
    Ok(())
}

fn fill_nodes(config: &mut wire::Config, machine: &Machine, notes: &mut Vec<String>) -> Result<(), SourceError> {
    let mut guessed = 0;
    for node in machine.nodes() {
        if usize::from(node.id.0) >= wire::MAX_NODES {
            return Err(too_large(machine, "node", node.id.0.into(), wire::MAX_NODES));
        }
        config.node_count = config.node_count.max(u32::from(node.id.0) + 1);
    }
    for from in machine.nodes() {
        let row = usize::from(from.id.0);
        config.node_has_memory[row] = u8::from(from.has_memory());
        for to in machine.nodes() {
            let known = machine.idle_latency_ns(from.id, to.id);
            guessed += u32::from(known.is_none() && from.has_cpus() && to.has_memory());
            let ns = known.unwrap_or_else(|| machine.idle_latency_or_guess_ns(from.id, to.id));
            let cycles = (ns * f64::from(config.clock_khz) / 1e6).round().clamp(1.0, f64::from(u16::MAX));
            config.memory_latency_cycles[row][usize::from(to.id.0)] = cycles as u16;
            let distance = machine.stated_distance(from.id, to.id);
            config.node_distance[row][usize::from(to.id.0)] = u8::try_from(distance).unwrap_or(u8::MAX);
        }
        config.node_memory_bytes[row] = from.memory_bytes;
        fill_node_order(&mut config.node_order[row], &machine.nodes_nearest_first(from.id), machine);
    }
    if !machine.nodes().iter().any(|node| node.has_memory()) {
        return Err(SourceError::Machine {
            machine: machine.name().to_owned(),
            reason: "none of its nodes has memory".to_owned(),
            remedy: "give at least one node memory in the model file".to_owned(),
        });
    }
    if guessed > 0 && config.mode == wire::MODE_INSTRUMENT {
        notes.push(format!(
            "{guessed} of machine {}'s idle latencies are unknown: each is assumed as the local one (100 ns where unknown) times distance / 10 \
             (this affects program time, not counts of accesses at given times of a thread's own work)",
            machine.name()
        ));
    }
    Ok(())
}

/// Nearest first; nodes without memory follow, so that every entry below the node count is a node.
fn fill_node_order(row: &mut [u8], nearest: &[NodeId], machine: &Machine) {
    let others = machine.nodes().iter().map(|node| node.id).filter(|id| !nearest.contains(id));
    for (place, id) in row.iter_mut().zip(nearest.iter().copied().chain(others)) {
        *place = u8::try_from(id.0).unwrap_or(u8::MAX);
    }
}

fn fill_caches(config: &mut wire::Config, machine: &Machine, layout: &[CpuId], notes: &mut Vec<String>) {
    let cpu = layout[0];
    let bytes = |level: u8| machine.data_cache(cpu, level).map(|cache| private_share(machine, cache));
    let cycles = |level: u8, default: f64| {
        round_u32(machine.data_cache(cpu, level).and_then(|c| c.latency_cycles).unwrap_or(default)).max(1)
    };
    if bytes(1).is_none() && bytes(2).is_none() && config.mode == wire::MODE_INSTRUMENT {
        notes.push(format!(
            "the private caches of machine {} are unknown: {} KiB of L1 and {} KiB of L2 are assumed",
            machine.name(),
            DEFAULT_L1_BYTES >> 10,
            DEFAULT_L2_BYTES >> 10
        ));
    }
    let l1_bytes = bytes(1).unwrap_or(DEFAULT_L1_BYTES);
    let l2_bytes = bytes(2).unwrap_or(if bytes(1).is_some() { 0 } else { DEFAULT_L2_BYTES });
    config.l1_lines = u32::try_from(previous_power_of_two(l1_bytes / LINE_BYTES).clamp(16, 1 << 16)).unwrap_or(1 << 16);
    let private_lines = ((l1_bytes + l2_bytes) / LINE_BYTES).clamp(16, 1 << 20);
    // A sample of the lines competes for the same share of the sets.
    let sampling = config.line_sampling.max(1);
    (config.l2_sets, config.l2_ways) = sets_and_ways(private_lines);
    config.l2_sets = (config.l2_sets / sampling).max(1);
    config.l2_cycles = cycles(2, DEFAULT_L2_CYCLES);
    config.l3_cycles = cycles(3, DEFAULT_L3_CYCLES);
    let l3 = machine.l3_caches();
    let largest = l3.iter().map(|cache| cache.size_bytes / LINE_BYTES).max().unwrap_or(0);
    if largest > 0 {
        if l3.iter().any(|cache| cache.size_bytes / LINE_BYTES != largest) {
            notes.push(format!(
                "machine {}'s L3 caches differ in size: all are simulated as the largest",
                machine.name()
            ));
        }
        let count = l3.len() as u64;
        let fitting = largest.min(MAX_L3_TAG_BYTES / 4 / count).max(16);
        (config.l3_sets, config.l3_ways) = sets_and_ways(fitting);
        config.l3_sets = (config.l3_sets / sampling).max(1);
        config.l3_count = u32::try_from(count).unwrap_or(u32::MAX);
    }
    let threads = u64::from(config.cpu_count);
    let tracked = threads * private_lines + u64::from(config.l3_count) * largest;
    // Twice the lines that all caches hold keeps entries from pushing each other out; 64 Mi entries are 512 MiB, sparse.
    config.dir_entries_log2 = (tracked * 2).next_power_of_two().ilog2().clamp(16, 26);
}

/// A thread's share of a cache: hardware threads of one core count once, because threads take whole cores first.
fn private_share(machine: &Machine, cache: &Cache) -> u64 {
    let cores = cache
        .cpus
        .iter()
        .filter(|id| {
            machine.cpu(**id).is_none_or(|cpu| cpu.siblings.iter().all(|s| s >= *id || !cache.cpus.contains(s)))
        })
        .count();
    cache.size_bytes / cores.max(1) as u64
}

#[cfg(test)]
mod tests {
    //! Geometry that the filters can be, and the machines of the models.

    use std::path::PathBuf;

    use super::*;

    #[test]
    fn any_capacity_is_met_to_within_a_sixteenth() {
        for lines in [16_u64, 100, 512, 1000, 9216, 8192, 20_480, 98_304, 524_288, 600_001] {
            let (sets, ways) = sets_and_ways(lines);
            assert!(sets.is_power_of_two() && (1..=16).contains(&ways));
            let capacity = f64::from(sets) * f64::from(ways);
            assert!((capacity / lines as f64 - 1.0).abs() <= 1.0 / 16.0, "{lines} lines became {sets} sets of {ways}");
        }
    }

    fn options(machine: &Machine) -> RecordOptions<'_> {
        RecordOptions::new(vec!["true".into()], PathBuf::from("x.numatrace"), machine)
    }

    #[test]
    fn the_opteron_is_simulated_as_its_model_says() {
        let machine = Machine::load("opteron-8385").unwrap();
        let simulated =
            simulate(&RecordOptions { line_sampling: 1, ..options(&machine) }, Engine::Instrument, 3_000_000).unwrap();
        let config = &simulated.config;
        assert_eq!((config.node_count, config.cpu_count, config.clock_khz), (4, 16, 2_300_000));
        assert_eq!(config.l1_lines, 1024, "64 KiB of 64-byte lines");
        assert_eq!(u64::from(config.l2_sets) * u64::from(config.l2_ways) * 64, (64 + 512) << 10);
        assert_eq!((config.l3_count, u64::from(config.l3_sets) * u64::from(config.l3_ways) * 64), (4, 6 << 20));
        assert_eq!(config.window_cycles, 230_000, "100 us");
        let local = config.memory_latency_cycles[0][0];
        for to in 1..4 {
            assert!(config.memory_latency_cycles[0][to] > local, "remote memory is farther than local");
        }
        let nodes: Vec<u16> = config.cpu_order[..4].iter().map(|cpu| config.cpu_node[usize::from(*cpu)]).collect();
        assert_eq!(nodes, [0, 1, 2, 3], "spread alternates nodes");
        assert_eq!(config.node_order[2][0], 2, "a node is its own nearest");
        assert_eq!(config.node_distance[2][2], 10);
        assert_eq!(config.node_memory_bytes[2], machine.nodes()[2].memory_bytes);
    }

    #[test]
    fn strangers_among_the_cpus_are_refused() {
        let machine = Machine::load("opteron-8385").unwrap();
        let mut options = options(&machine);
        options.cpus = Some(vec![CpuId(0), CpuId(99)]);
        let error = simulate(&options, Engine::Instrument, 3_000_000).unwrap_err();
        assert!(error.to_string().contains("no CPU 99"), "{error}");
        options.cpus = Some(vec![CpuId(5)]);
        assert_eq!(simulate(&options, Engine::Instrument, 3_000_000).unwrap().config.cpu_count, 1);
    }
}
