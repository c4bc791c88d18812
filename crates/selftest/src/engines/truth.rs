//! The program whose accesses are known, as numapilot's own executable runs it (`truth.c` does the same for engine `instrument`), and its output.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::affinity::{CpuMask, set_thread};
use numapilot_kernel::memory::PageQuery;
use numapilot_kernel::task::{Pid, Tid};
use numapilot_machine::{CpuId, NodeId};
use serde::{Deserialize, Serialize};

/// The program in C.
pub const SOURCE: &str = include_str!("truth.c");
const WORD: usize = size_of::<u64>();
/// Words in a line: a reader that loads one of each reads all of the block.
const LINE_WORDS: usize = 8;

/// What the program should do: `OWNER_CPU:READER_CPU:BYTES:PASSES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// CPU of the thread that allocates and touches.
    pub owner: CpuId,
    /// CPU of the thread that reads.
    pub reader: CpuId,
    /// Bytes of the block.
    pub bytes: usize,
    /// Number of passes over the block.
    pub passes: u32,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.owner, self.reader, self.bytes, self.passes)
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Order, String> {
        let wrong = || format!("{text}: write OWNER_CPU:READER_CPU:BYTES:PASSES");
        let numbers: Option<Vec<u64>> = text.split(':').map(|number| number.parse().ok()).collect();
        let Some([owner, reader, bytes, passes]) = numbers.as_deref().and_then(|numbers| numbers.first_chunk()) else {
            return Err(wrong());
        };
        let cpu = |number: u64| u32::try_from(number).map(CpuId).map_err(|_| wrong());
        Ok(Order {
            owner: cpu(*owner)?,
            reader: cpu(*reader)?,
            bytes: usize::try_from(*bytes).map_err(|_| wrong())?,
            passes: u32::try_from(*passes).map_err(|_| wrong())?,
        })
    }
}

/// What the program did, by its own word: it prints this as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// First byte of the block.
    pub address: u64,
    /// Size of the block in bytes.
    pub bytes: u64,
    /// Kernel's number of the thread that allocated and touched it.
    pub owner_tid: u64,
    /// Kernel's number of the reading thread.
    pub reader_tid: u64,
    /// Pages by node, as the kernel reported; `None` where it was not asked, or reported nothing.
    pub homes: Option<BTreeMap<NodeId, u64>>,
    /// Pages by node before the reading thread read them; `None` as for `homes`.
    #[serde(default)]
    pub first_homes: Option<BTreeMap<NodeId, u64>>,
}

impl Truth {
    /// Pages that the kernel reported at the end.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.homes.iter().flat_map(BTreeMap::values).sum()
    }

    /// Least number of pages that went to other nodes during the reading; 0 where homes are unknown.
    #[must_use]
    pub fn moved_pages(&self) -> u64 {
        let Some((first, last)) = self.first_homes.as_ref().zip(self.homes.as_ref()) else { return 0 };
        first.iter().map(|(node, pages)| pages.saturating_sub(last.get(node).copied().unwrap_or(0))).sum()
    }

    /// The node with most of the block's pages, by the kernel's word.
    #[must_use]
    pub fn home(&self) -> Option<NodeId> {
        self.homes.as_ref()?.iter().max_by_key(|(_, pages)| **pages).map(|(node, _)| *node)
    }
}

/// Carries it out in this process.
///
/// # Errors
/// A CPU is not this process's: the words.
pub fn carry_out(order: &Order) -> Result<Truth, String> {
    let Order { owner, reader, bytes, passes } = *order;
    let own = on_cpu(owner, move || {
        // Zeroed memory would come untouched from the kernel: each word is written here, on this CPU.
        let mut block: Vec<u64> = Vec::with_capacity(bytes / WORD);
        block.resize(bytes / WORD, 1);
        block
    });
    let (owner_tid, block) = own?;
    let first_homes = homes_of(&block);
    let (reader_tid, block) = on_cpu(reader, move || {
        for _ in 0..passes {
            let seen: u64 = block.iter().step_by(LINE_WORDS).sum();
            std::hint::black_box(seen);
            std::hint::black_box(&block);
        }
        block
    })?;
    let homes = homes_of(&block);
    Ok(Truth { address: block.as_ptr() as u64, bytes: bytes as u64, owner_tid, reader_tid, homes, first_homes })
}

/// Pages by node, as the kernel reports.
fn homes_of(block: &[u64]) -> Option<BTreeMap<NodeId, u64>> {
    let address = block.as_ptr() as u64;
    let pages: Vec<u64> = (address..address + size_of_val(block) as u64).step_by(page_bytes() as usize).collect();
    let mut states = Vec::new();
    let answer = PageQuery::new().states(Pid::CALLING, &pages, &mut states);
    let mut homes = BTreeMap::new();
    states.iter().filter_map(|state| state.node()).for_each(|node| *homes.entry(node).or_insert(0) += 1);
    answer.is_ok().then_some(homes)
}

/// Does the work in a thread on this CPU; returns the thread's number and the result.
fn on_cpu<T: Send>(cpu: CpuId, work: impl FnOnce() -> T + Send) -> Result<(u64, T), String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            let mask: CpuMask = [cpu].into_iter().collect();
            set_thread(Tid::CALLING, &mask).map_err(|error| format!("cannot run a thread on CPU {cpu}: {error}"))?;
            // SAFETY: no precondition.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) };
            Ok((tid.unsigned_abs(), work()))
        });
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}; raise `ulimit -u`"))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_is_written() {
        let order = Order { owner: CpuId(3), reader: CpuId(17), bytes: 1 << 20, passes: 4 };
        assert_eq!(order.to_string().parse(), Ok(order));
        for wrong in ["", "1:2:3", "a:1:2:3", "1:2:3:-4", "99999999999:1:1:1"] {
            assert!(wrong.parse::<Order>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_program_tells_what_it_did() {
        let cpu = *numapilot_measure::Permit::of_this_process().cpus.iter().next().expect("a CPU");
        let order = Order { owner: cpu, reader: cpu, bytes: 1 << 20, passes: 1 };
        let truth = carry_out(&order).expect("a CPU of ours");
        assert!(truth.bytes == 1 << 20 && truth.owner_tid != truth.reader_tid && truth.address != 0, "{truth:?}");
        if let Some(homes) = &truth.homes {
            assert!(homes.values().sum::<u64>() >= 255, "{homes:?}");
        }
        let text = serde_json::to_string(&truth).expect("JSON");
        assert_eq!(serde_json::from_str::<Truth>(&text).expect("the same"), truth);
        assert!(carry_out(&Order { owner: CpuId(8190), ..order }).is_err());
    }
}
