//! The feature sections: facts about the machine and the recording.

use crate::bytes::{Bytes, Endian};
use crate::error::DecodeError;

/// Numbers of the sections that are read here (`HEADER_*` in `tools/perf/util/header.h`).
#[allow(missing_docs)]
pub mod feature {
    pub const BUILD_ID: u32 = 2;
    pub const HOSTNAME: u32 = 3;
    pub const OSRELEASE: u32 = 4;
    pub const VERSION: u32 = 5;
    pub const ARCH: u32 = 6;
    pub const NRCPUS: u32 = 7;
    pub const CPUDESC: u32 = 8;
    pub const CPUID: u32 = 9;
    pub const TOTAL_MEM: u32 = 10;
    pub const CMDLINE: u32 = 11;
    pub const EVENT_DESC: u32 = 12;
    pub const CPU_TOPOLOGY: u32 = 13;
    pub const NUMA_TOPOLOGY: u32 = 14;
    pub const PMU_MAPPINGS: u32 = 16;
    pub const CACHE: u32 = 20;
    pub const SAMPLE_TIME: u32 = 21;
    pub const MEM_TOPOLOGY: u32 = 22;
    pub const CLOCKID: u32 = 23;
    pub const COMPRESSED: u32 = 27;
    pub const CLOCK_DATA: u32 = 29;
}

/// A node as the recording machine saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFact {
    /// The node's number.
    pub node: u32,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// Free memory in KiB.
    pub free_kib: u64,
    /// CPUs, as a list ("0-3,8").
    pub cpus: String,
}

/// Blocks of physical memory of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryNode {
    /// The node's number.
    pub node: u64,
    /// Bit n: the node has block n.
    pub blocks: Vec<u64>,
}

/// A cache, as the recording describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheFact {
    /// Level: 1, 2, 3, ...
    pub level: u32,
    /// Size of a cache line in bytes.
    pub line_bytes: u32,
    /// Associativity in ways.
    pub ways: u32,
    /// Kind: "Data", "Instruction" or "Unified".
    pub kind: String,
    /// Size as sysfs writes it ("32K").
    pub size: String,
    /// CPUs that share it, as a list.
    pub cpus: String,
}

/// What the recording says about the machine and itself. Empty or `None`: not said.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Features {
    pub hostname: String,
    pub os_release: String,
    pub perf_version: String,
    pub arch: String,
    pub cpu_description: String,
    pub cpu_id: String,
    /// CPUs that the machine can have, and those online.
    pub cpu_counts: Option<(u32, u32)>,
    pub memory_kib: Option<u64>,
    pub command: Vec<String>,
    /// Names of the events, in their order, with their ids.
    pub event_names: Vec<(String, Vec<u64>)>,
    /// Package of each CPU, by CPU number.
    pub sockets: Vec<u32>,
    pub nodes: Vec<NodeFact>,
    /// Number of each PMU and its name.
    pub pmus: Vec<(u32, String)>,
    pub caches: Vec<CacheFact>,
    pub memory_block_bytes: u64,
    pub memory: Vec<MemoryNode>,
    /// Build id of each file, with its path.
    pub build_ids: Vec<(Vec<u8>, String)>,
    /// Time of the first and the last sample.
    pub sample_time: Option<(u64, u64)>,
    /// Nanoseconds since 1970 and on the recording's clock, at one moment.
    pub wall_clock: Option<(u64, u64)>,
    pub is_compressed: bool,
    /// Numbers of the sections that are there, read or not.
    pub present: Vec<u32>,
}

impl Features {
    /// Reads the feature section of this number (`HEADER_*`) into the facts.
    ///
    /// # Errors
    /// If it is cut. What was read of it before stays.
    pub fn read(&mut self, number: u32, bytes: &mut Bytes<'_>) -> Result<(), DecodeError> {
        self.present.push(number);
        match number {
            feature::HOSTNAME => self.hostname = text(bytes)?,
            feature::OSRELEASE => self.os_release = text(bytes)?,
            feature::VERSION => self.perf_version = text(bytes)?,
            feature::ARCH => self.arch = text(bytes)?,
            feature::CPUDESC => self.cpu_description = text(bytes)?,
            feature::CPUID => self.cpu_id = text(bytes)?,
            feature::NRCPUS => self.cpu_counts = Some((bytes.u32("the CPUs")?, bytes.u32("the CPUs online")?)),
            feature::TOTAL_MEM => self.memory_kib = Some(bytes.u64("the memory")?),
            feature::CMDLINE => self.command = texts(bytes)?,
            feature::EVENT_DESC => self.event_names = event_names(bytes)?,
            feature::CPU_TOPOLOGY => self.sockets = sockets(bytes, self.cpu_counts.map_or(0, |(all, _)| all))?,
            feature::NUMA_TOPOLOGY => self.nodes = nodes(bytes)?,
            feature::PMU_MAPPINGS => {
                for _ in 0..bytes.u32("the number of PMUs")? {
                    self.pmus.push((bytes.u32("a PMU")?, text(bytes)?));
                }
            }
            feature::CACHE => self.caches = caches(bytes)?,
            feature::SAMPLE_TIME => {
                self.sample_time = Some((bytes.u64("the first time")?, bytes.u64("the last time")?));
            }
            feature::MEM_TOPOLOGY => self.memory(bytes)?,
            feature::BUILD_ID => self.build_ids = build_ids(bytes)?,
            feature::COMPRESSED => self.is_compressed = true,
            feature::CLOCK_DATA => {
                bytes.u64("the clock")?;
                self.wall_clock = Some((bytes.u64("the clock")?, bytes.u64("the clock")?));
            }
            _ => {}
        }
        Ok(())
    }

    fn memory(&mut self, bytes: &mut Bytes<'_>) -> Result<(), DecodeError> {
        let version = bytes.u64("the version of the memory's map")?;
        if version != 1 {
            return Ok(());
        }
        self.memory_block_bytes = bytes.u64("the size of a memory block")?;
        for _ in 0..bytes.u64("the number of nodes")? {
            let node = bytes.u64("a node")?;
            bytes.u64("a node's blocks")?;
            let bits = bytes.u64("a node's blocks")?;
            let blocks = bytes.words(bits.div_ceil(64), "a node's blocks")?.iter().collect();
            self.memory.push(MemoryNode { node, blocks });
        }
        Ok(())
    }

    /// Name of a PMU by its number.
    #[must_use]
    pub fn pmu_name(&self, kind: u32) -> Option<&str> {
        self.pmus.iter().find(|(number, _)| *number == kind).map(|(_, name)| name.as_str())
    }
}

/// A text with its length before it.
fn text(bytes: &mut Bytes<'_>) -> Result<String, DecodeError> {
    let length = bytes.u32("the length of a text")?;
    let text = bytes.take(u64::from(length), "a text")?;
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

fn texts(bytes: &mut Bytes<'_>) -> Result<Vec<String>, DecodeError> {
    let mut out = Vec::new();
    for _ in 0..bytes.u32("the number of texts")? {
        out.push(text(bytes)?);
    }
    Ok(out)
}

fn event_names(bytes: &mut Bytes<'_>) -> Result<Vec<(String, Vec<u64>)>, DecodeError> {
    let count = bytes.u32("the number of events")?;
    let attr_bytes = bytes.u32("the size of an event's description")?;
    let mut out = Vec::new();
    for _ in 0..count {
        bytes.take(u64::from(attr_bytes), "an event's description")?;
        let ids = bytes.u32("the number of ids")?;
        let name = text(bytes)?;
        out.push((name, bytes.words(u64::from(ids), "ids")?.iter().collect()));
    }
    Ok(out)
}

/// Core and thread siblings as lists, then core and package of each CPU.
fn sockets(bytes: &mut Bytes<'_>, cpu_count: u32) -> Result<Vec<u32>, DecodeError> {
    texts(bytes)?;
    texts(bytes)?;
    let mut out = Vec::new();
    for _ in 0..cpu_count {
        // Old recordings end before this.
        if bytes.left() == 0 {
            break;
        }
        bytes.u32("a CPU's core")?;
        out.push(bytes.u32("a CPU's package")?);
    }
    Ok(out)
}

fn nodes(bytes: &mut Bytes<'_>) -> Result<Vec<NodeFact>, DecodeError> {
    let mut out = Vec::new();
    for _ in 0..bytes.u32("the number of nodes")? {
        out.push(NodeFact {
            node: bytes.u32("a node")?,
            memory_kib: bytes.u64("a node's memory")?,
            free_kib: bytes.u64("a node's free memory")?,
            cpus: text(bytes)?,
        });
    }
    Ok(out)
}

fn caches(bytes: &mut Bytes<'_>) -> Result<Vec<CacheFact>, DecodeError> {
    let mut out = Vec::new();
    if bytes.u32("the version of the caches' list")? != 1 {
        return Ok(out);
    }
    for _ in 0..bytes.u32("the number of caches")? {
        let level = bytes.u32("a cache's level")?;
        let line_bytes = bytes.u32("a cache's line size")?;
        bytes.u32("a cache's sets")?;
        let ways = bytes.u32("a cache's ways")?;
        out.push(CacheFact { level, line_bytes, ways, kind: text(bytes)?, size: text(bytes)?, cpus: text(bytes)? });
    }
    Ok(out)
}

/// Records of their own kind: header, process, 24 bytes with the id, path.
fn build_ids(bytes: &mut Bytes<'_>) -> Result<Vec<(Vec<u8>, String)>, DecodeError> {
    const HEAD_BYTES: u64 = 8;
    let mut out = Vec::new();
    while bytes.left() as u64 > HEAD_BYTES {
        let endian = bytes.endian();
        bytes.u32("a build id's record")?;
        let misc = bytes.u16("a build id's record")?;
        let size = bytes.u16("a build id's record")?;
        let offset = bytes.offset();
        let body = bytes.take(u64::from(size).saturating_sub(HEAD_BYTES), "a build id's record")?;
        out.extend(build_id(misc, &mut Bytes::new(body, offset, endian))?);
        if u64::from(size) < HEAD_BYTES {
            break;
        }
    }
    Ok(out)
}

/// The body of a build id's record.
pub(super) fn build_id(misc: u16, bytes: &mut Bytes<'_>) -> Result<Option<(Vec<u8>, String)>, DecodeError> {
    const HAS_SIZE: u16 = 1 << 15;
    const LONGEST: usize = 20;
    /// Of linkers' other kinds: `fast` of lld, and `md5` and `uuid`.
    const SHORTER: [usize; 2] = [8, 16];
    bytes.u32("a process")?;
    let id = bytes.take(24, "a build id")?;
    // perf before 5.10 does not say how long an id is, and fills it up with zeroes.
    let by_zeroes = || SHORTER.into_iter().find(|&size| id[size..LONGEST].iter().all(|&byte| byte == 0));
    let size = match misc & HAS_SIZE != 0 {
        true => usize::from(id[LONGEST]).min(LONGEST),
        false => by_zeroes().unwrap_or(LONGEST),
    };
    let path = String::from_utf8_lossy(bytes.text()).into_owned();
    Ok((!path.is_empty()).then(|| (id[..size].to_vec(), path)))
}

/// Reads a section that stands in the file.
pub(super) fn read_section(
    features: &mut Features,
    number: u32,
    bytes: &[u8],
    offset: u64,
    endian: Endian,
) -> Result<(), DecodeError> {
    features.read(number, &mut Bytes::new(bytes, offset, endian))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_any_length_are_those_of_their_files() {
        let id = |misc: u16, bytes: &[u8], size: u8| {
            let mut record = vec![0; 4];
            record.extend_from_slice(bytes);
            record.resize(4 + 20, 0);
            record.extend_from_slice(&[size, 0, 0, 0]);
            record.extend_from_slice(b"/lib.so\0");
            let (id, path) = build_id(misc, &mut Bytes::new(&record, 0, Endian::Little)).unwrap().unwrap();
            assert_eq!(path, "/lib.so");
            id
        };
        for length in [8, 16, 20] {
            let own: Vec<u8> = (1..=length).collect();
            assert_eq!(id(1 << 15, &own, length), own, "told");
            assert_eq!(id(0, &own, 0), own, "not told, as perf before 5.10");
        }
    }
}
