//! Exact counts of a guest's memory accesses, from the plugin in `plugin/`: by CPU and memory node, and by page. This module reads the plugin's file.
//!
//! The plugin counts every access of user code, without sampling. It does not count the kernel's accesses on a program's behalf.

use std::collections::BTreeMap;

use numapilot_traffic::Work;
use serde_json::Value;
use serde_json::json;

use crate::samples::Sampling;
use crate::topology::Topology;

/// Which accesses of the guest are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TruthOptions {
    /// A private cache per CPU in front of the memory: only accesses that miss it count. `None`: every access counts.
    pub cache: Option<PrivateCache>,
    /// Whether only regions count that programs mark (`plugin/mark.h`). Otherwise the whole command counts, with all processes that it starts.
    pub marked_only: bool,
    /// An emulated PMU that samples what is counted.
    pub sampling: Option<Sampling>,
}

/// A set-associative cache of lines of 64 bytes. All CPUs' caches are kept coherent; lines that leave are not counted, nothing is prefetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateCache {
    /// Sets, a power of two up to 2^20.
    pub sets: u32,
    /// Lines of a set, 1 to 64.
    pub ways: u32,
}

/// Exact counts of the accesses of the guest's user code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Truth {
    /// CPUs of the guest.
    pub cpus: usize,
    /// Number of memory nodes.
    pub nodes: usize,
    /// The private cache that filtered the accesses, if any.
    pub cache: Option<PrivateCache>,
    /// Regions of interest, in order.
    pub regions: Vec<Region>,
    /// Counts of all regions by page; sorted.
    pub pages: Vec<PageCount>,
    /// Accesses of the regions that no page's count includes, because the plugin's table was full.
    pub without_page: u64,
    /// Regions that could not be kept.
    pub regions_lost: u64,
}

/// Counts of one region of interest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Region {
    /// When it began, on the clock of samples: instructions of counted user code of all CPUs, one a nanosecond.
    pub begin_ns: u64,
    /// End of the region in nanoseconds of the guest's clock.
    pub end_ns: u64,
    /// Counts by CPU.
    pub cpus: Vec<CpuCount>,
}

/// Counts of one CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuCount {
    /// Instructions of user code. A block of them that a fault cut short counts whole.
    pub instructions: u64,
    /// Accesses to memory of nodes, whether or not the cache had the line.
    pub accesses: u64,
    /// Accesses to anything else: devices.
    pub elsewhere: u64,
    /// Accesses that missed the cache, by home node.
    pub nodes: Vec<Count>,
}

/// Loads and stores. A locked instruction counts as a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Number of loads.
    pub loads: u64,
    /// Number of stores.
    pub stores: u64,
}

/// Counts of one CPU on one page, while it was on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageCount {
    /// Process; 0 where it is not known.
    pub pid: u32,
    /// Virtual address of its first byte.
    pub address: u64,
    /// Home node of the page.
    pub node: usize,
    /// CPU that accessed the page.
    pub cpu: usize,
    /// Number of loads.
    pub loads: u64,
    /// Number of stores.
    pub stores: u64,
}

impl Count {
    /// Sum of loads and stores.
    pub fn sum(self) -> u64 {
        self.loads + self.stores
    }
}

impl Truth {
    /// Accesses of all regions: `[cpu][node]`.
    pub fn matrix(&self) -> Vec<Vec<u64>> {
        let mut matrix = vec![vec![0; self.nodes]; self.cpus];
        for region in &self.regions {
            for (row, cpu) in matrix.iter_mut().zip(&region.cpus) {
                for (cell, count) in row.iter_mut().zip(&cpu.nodes) {
                    *cell += count.sum();
                }
            }
        }
        matrix
    }

    /// What each CPU did in a region, for the traffic model ([`numapilot_traffic::phase_time_s`]), which makes *modelled* time of it. `topology`: of the
    /// guest. CPUs that did nothing are left out.
    pub fn work(&self, region: usize, topology: &Topology) -> Vec<Work> {
        let cpus = self.regions.get(region).map(|r| r.cpus.as_slice()).unwrap_or_default();
        let node_of =
            |cpu| (0..topology.nodes()).find(|&n| topology.cpus_of(n).is_some_and(|(a, b)| (a..=b).contains(&cpu)));
        let busy = (0_u32..).zip(cpus).filter(|(_, count)| count.instructions > 0);
        let work = busy.filter_map(|(cpu, count)| {
            Some(Work {
                from: node_of(cpu)?,
                instructions: count.instructions as f64,
                reads: count.nodes.iter().map(|c| c.loads as f64).collect(),
                writes: count.nodes.iter().map(|c| c.stores as f64).collect(),
            })
        });
        work.collect()
    }

    /// As JSON, for people and scripts: counts as in the fields here, addresses in hexadecimal.
    pub fn to_json(&self) -> Value {
        let cpu = |(number, cpu): (usize, &CpuCount)| {
            let loads: Vec<u64> = cpu.nodes.iter().map(|c| c.loads).collect();
            let stores: Vec<u64> = cpu.nodes.iter().map(|c| c.stores).collect();
            json!({ "cpu": number, "instructions": cpu.instructions, "accesses": cpu.accesses, "elsewhere": cpu.elsewhere,
                    "loads_by_node": loads, "stores_by_node": stores })
        };
        let region = |region: &Region| {
            let cpus: Vec<_> = region.cpus.iter().enumerate().map(cpu).collect();
            json!({ "begin_ns": region.begin_ns, "end_ns": region.end_ns, "cpus": cpus })
        };
        let page = |page: &PageCount| {
            json!({ "pid": page.pid, "address": format!("{:#x}", page.address), "node": page.node, "cpu": page.cpu,
                    "loads": page.loads, "stores": page.stores })
        };
        json!({
            "what": "exact counts of user-mode accesses in an emulated guest",
            "version": 1,
            "cpus": self.cpus,
            "nodes": self.nodes,
            "cache": self.cache.map(|c| json!({ "sets": c.sets, "ways": c.ways, "line_bytes": 64 })),
            "accesses_without_page": self.without_page,
            "regions_lost": self.regions_lost,
            "regions": self.regions.iter().map(region).collect::<Vec<_>>(),
            "pages": self.pages.iter().map(page).collect::<Vec<_>>(),
        })
    }

    /// Reads what the plugin wrote.
    ///
    /// # Errors
    /// The line that has no known format, in words.
    pub(crate) fn parse(text: &str) -> Result<Truth, String> {
        let mut lines = text.lines();
        if lines.next() != Some("numapilot-truth 1") {
            return Err("it is not a file of counts of version 1".into());
        }
        let mut reader = Reader::default();
        for (index, line) in lines.enumerate() {
            reader.line(line).ok_or_else(|| format!("line {} has no known format: {line:?}", index + 2))?;
        }
        if !reader.ended {
            return Err("its last line is missing".into());
        }
        Ok(reader.finish())
    }
}

#[derive(Default)]
struct Reader {
    truth: Truth,
    pids: Vec<u32>,
    /// Counts by address space, address, node and CPU.
    pages: BTreeMap<(usize, u64, usize, usize), Count>,
    ended: bool,
}

fn number(word: &str) -> Option<usize> {
    word.parse().ok()
}

impl Reader {
    fn line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            _ if self.ended => return None,
            ["machine", cpus, nodes] => {
                self.truth.cpus = number(cpus).filter(|n| (1..=256).contains(n))?;
                self.truth.nodes = number(nodes).filter(|n| (1..=64).contains(n))?;
            }
            ["cache", sets, ways] => {
                let cache = PrivateCache { sets: sets.parse().ok()?, ways: ways.parse().ok()? };
                self.truth.cache = (cache.sets > 0).then_some(cache);
            }
            ["unlisted", accesses, regions] => {
                (self.truth.without_page, self.truth.regions_lost) = (accesses.parse().ok()?, regions.parse().ok()?);
            }
            ["region", index, begin, end] => {
                let empty = CpuCount { nodes: vec![Count::default(); self.truth.nodes], ..CpuCount::default() };
                let cpus = vec![empty; self.truth.cpus];
                (number(index)? == self.truth.regions.len()).then_some(())?;
                self.truth.regions.push(Region { begin_ns: begin.parse().ok()?, end_ns: end.parse().ok()?, cpus });
            }
            ["cpu", cpu, instructions, accesses, elsewhere] => {
                let cpu = self.truth.regions.last_mut()?.cpus.get_mut(number(cpu)?)?;
                cpu.instructions = instructions.parse().ok()?;
                cpu.accesses = accesses.parse().ok()?;
                cpu.elsewhere = elsewhere.parse().ok()?;
            }
            ["matrix", cpu, node, loads, stores] => {
                let cpu = self.truth.regions.last_mut()?.cpus.get_mut(number(cpu)?)?;
                *cpu.nodes.get_mut(number(node)?)? = Count { loads: loads.parse().ok()?, stores: stores.parse().ok()? };
            }
            ["space", index, pid] => {
                (number(index)? == self.pids.len()).then_some(())?;
                self.pids.push(pid.parse().ok()?);
            }
            ["page", space, address, node, cpu, loads, stores] => {
                let space = number(space).filter(|&s| s < self.pids.len())?;
                let address = u64::from_str_radix(address, 16).ok()?;
                let node = number(node).filter(|&n| n < self.truth.nodes)?;
                let cpu = number(cpu).filter(|&c| c < self.truth.cpus)?;
                let count = Count { loads: loads.parse().ok()?, stores: stores.parse().ok()? };
                self.pages.insert((space, address, node, cpu), count);
            }
            ["end"] => self.ended = true,
            _ => return None,
        }
        Some(())
    }

    fn finish(mut self) -> Truth {
        let rows = self.pages.iter().map(|(&(space, address, node, cpu), count)| PageCount {
            pid: self.pids[space],
            address,
            node,
            cpu,
            loads: count.loads,
            stores: count.stores,
        });
        self.truth.pages = rows.collect();
        self.truth.pages.sort_unstable();
        self.truth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "numapilot-truth 1\nmachine 2 2\ncache 64 8\nunlisted 3 0\nregion 0 5 105\ncpu 0 100 40 1\nmatrix 0 1 7 5\ncpu 1 0 0 0\n\
                        space 0 0\nspace 1 250\npage 1 7f0000001000 1 0 7 5\nend\n";

    #[test]
    fn a_file_is_read_back() {
        let truth = Truth::parse(TEXT).expect("a whole file");
        assert_eq!(truth.matrix(), [[0, 12], [0, 0]]);
        assert_eq!(truth.regions[0].cpus[0].accesses, 40);
        assert_eq!((truth.regions[0].begin_ns, truth.regions[0].end_ns), (5, 105));
        let page = PageCount { pid: 250, address: 0x7f00_0000_1000, node: 1, cpu: 0, loads: 7, stores: 5 };
        assert_eq!(truth.pages, [page]);
        assert_eq!(truth.to_json()["regions"][0]["cpus"][0]["stores_by_node"], json!([0, 5]));
        assert_eq!(truth.to_json()["pages"][0]["address"], "0x7f0000001000");
    }

    #[test]
    fn a_file_that_is_cut_or_wrong_is_refused_with_its_line() {
        for cut in 0..TEXT.len() - 1 {
            assert!(Truth::parse(&TEXT[..cut]).is_err(), "cut after {cut} bytes");
        }
        for (from, to, told) in [
            ("matrix 0 1", "matrix 0 2", "line 7"),
            ("cpu 1 0", "cpu 2 0", "line 8"),
            ("page 1", "page 2", "line 11"),
            ("space 1", "space 3", "line 10"),
            ("machine 2 2", "machine 2 99", "line 2"),
        ] {
            let error = Truth::parse(&TEXT.replace(from, to)).expect_err("wrong");
            assert!(error.starts_with(told), "{error}");
        }
    }
}
