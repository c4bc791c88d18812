//! Samples of an emulated PMU: converts the plugin's samples into a recording in perf's format, with the guest's nodes and memory in it, as `perf record`
//! would write it. Any reader of such recordings can read it; the names of its PMU, host and processor say that it was emulated.

use std::io;

use numapilot_perf::Endian;
use numapilot_perf::EventAttr;
use numapilot_perf::abi::sample;
use numapilot_perf::file::feature;
use numapilot_perf::testing::DataFile;
use numapilot_perf::testing::Out;
use numapilot_perf::testing::put_text;

use crate::topology::Topology;

/// Settings of the emulated PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Memory accesses per sample, on average: what the private cache lets through, or all without one.
    pub period: u64,
    /// Seed of the choice of samples: the same seed samples the same accesses of the same run.
    pub seed: u64,
}

/// Fields of a sample, in the order in which `plugin/sampler.c` writes them.
const FIELDS: u64 = sample::IP
    | sample::TID
    | sample::TIME
    | sample::ADDR
    | sample::CPU
    | sample::PERIOD
    | sample::WEIGHT
    | sample::DATA_SRC
    | sample::PHYS_ADDR;
/// Bytes of a record of the plugin.
const RECORD_BYTES: usize = 80;
/// A PMU number that no kernel gives, and what this one is called.
const PMU: (u32, &str) = (0x6e70, "emulated_memory");
/// Memory blocks of the description, bytes.
const BLOCK: u64 = 1 << 20;
const LATENCY_LOCAL_CYCLES: u64 = 200;

/// Modelled latency in cycles of an access from one node to another's memory: 200 for local memory, in proportion to the distance for remote memory.
pub(crate) fn latency_cycles(topology: &Topology, from: usize, to: usize) -> u64 {
    LATENCY_LOCAL_CYCLES * u64::from(topology.distances()[from][to]) / u64::from(topology.distances()[from][from])
}

/// The recording: `records` as the plugin wrote them.
pub(crate) fn recording(
    records: &[u8],
    sampling: Sampling,
    topology: &Topology,
    command: &[String],
) -> io::Result<Vec<u8>> {
    if !records.len().is_multiple_of(RECORD_BYTES) {
        return Err(io::Error::other("the plugin's last sample is truncated"));
    }
    let attr = EventAttr { kind: PMU.0, period_or_freq: sampling.period, sample_type: FIELDS, ..EventAttr::default() };
    let records = records.chunks_exact(RECORD_BYTES).map(<[u8]>::to_vec).collect();
    let features = features(topology, command);
    Ok(DataFile { endian: Endian::Little, events: vec![(attr, Vec::new())], records, features }.file())
}

fn cpu_list(topology: &Topology, node: usize) -> String {
    topology.cpus_of(node).map(|(first, last)| format!("{first}-{last}")).unwrap_or_default()
}

fn features(topology: &Topology, command: &[String]) -> Vec<(u32, Vec<u8>)> {
    let section = |number: u32, fill: &dyn Fn(&mut Out)| {
        let mut out = Out::new(Endian::Little);
        fill(&mut out);
        (number, out.bytes)
    };
    let nodes = 0..topology.nodes();
    vec![
        section(feature::HOSTNAME, &|out| put_text(out, "emulated guest of numapilot's lab")),
        section(feature::ARCH, &|out| put_text(out, "x86_64")),
        section(feature::NRCPUS, &|out| {
            out.u32(topology.cpus()).u32(topology.cpus());
        }),
        section(feature::CPUDESC, &|out| {
            put_text(out, "emulated by QEMU: samples of an emulated PMU, latencies modelled");
        }),
        section(feature::CMDLINE, &|out| {
            out.u32(command.len() as u32);
            for word in command {
                put_text(out, word);
            }
        }),
        section(feature::NUMA_TOPOLOGY, &|out| {
            out.u32(topology.nodes() as u32);
            for node in nodes.clone() {
                let kib = topology.memory_mib(node) * 1024;
                out.u32(node as u32).u64(kib).u64(kib);
                put_text(out, &cpu_list(topology, node));
            }
        }),
        section(feature::PMU_MAPPINGS, &|out| {
            out.u32(1).u32(PMU.0);
            put_text(out, PMU.1);
        }),
        section(feature::MEM_TOPOLOGY, &|out| {
            out.words(&[1, BLOCK, topology.nodes() as u64]);
            for node in nodes.clone() {
                let words = blocks(topology, node);
                let bits = 64 * words.len() as u64;
                out.words(&[node as u64, bits, bits]).words(&words);
            }
        }),
    ]
}

/// Bits of a node's memory blocks.
fn blocks(topology: &Topology, node: usize) -> Vec<u64> {
    let ranges = topology.memory_ranges();
    let end = ranges.iter().map(|(_, end, _)| end.div_ceil(BLOCK)).max().unwrap_or(0);
    let mut words = vec![0; end.div_ceil(64) as usize];
    for (first, end, _) in ranges.iter().filter(|range| range.2 == node) {
        for block in first / BLOCK..end / BLOCK {
            words[(block / 64) as usize] |= 1 << (block % 64);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use numapilot_perf::file::Walker;

    use super::*;

    #[test]
    fn the_decoder_finds_the_guests_nodes_and_memory() {
        let topology = Topology::symmetric(4).memory_per_node_mib(1536);
        let sampling = Sampling { period: 100, seed: 0 };
        let bytes = recording(&[0; 80], sampling, &topology, &["./program".into(), "-x".into()]).expect("whole");
        let walker = Walker::open(Cursor::new(bytes), Path::new("made")).expect("a recording");
        let features = walker.features();
        assert_eq!(features.nodes.len(), 4);
        assert_eq!(features.nodes[3].cpus, "6-7");
        assert_eq!((features.memory_block_bytes, features.memory.len()), (BLOCK, 4));
        // Node 1 ends behind the hole.
        let node = &features.memory[1];
        let has = |mib: usize| node.blocks[mib / 64] >> (mib % 64) & 1 != 0;
        assert_eq!(
            [1535, 1536, 2047, 2048, 4095, 4096, 5119, 5120].map(has),
            [false, true, true, false, false, true, true, false]
        );
        assert_eq!(walker.session().events()[0].period(), Some(100));
        assert!(recording(&[0; 79], sampling, &topology, &[]).is_err());
    }
}
