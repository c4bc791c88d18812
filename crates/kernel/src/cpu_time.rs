//! Busy time of each CPU: `/proc/stat` (proc(5)).

use std::fs;
use std::path::Path;

use numapilot_machine::CpuId;

use crate::error::KernelError;

/// Most ticks of a kind that are believed: those of 40,000 years. Hypervisors and containers' own `/proc/stat` have told absurd times, and sums over all CPUs
/// are to fit into a number.
const TICKS_MAX: u64 = 1 << 47;

/// One CPU's ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    /// The CPU.
    pub cpu: CpuId,
    /// Ticks in which it ran code: all but idle, waiting for devices, and taken by a hypervisor.
    pub busy_ticks: u64,
    /// Ticks that a hypervisor took.
    pub stolen_ticks: u64,
    /// Sum of the ticks of all kinds.
    pub all_ticks: u64,
}

/// Every online CPU's time, under a root prefix.
///
/// # Errors
/// The file cannot be read.
pub fn all(root: &Path) -> Result<Vec<CpuTime>, KernelError> {
    let path = root.join("proc/stat");
    let text = fs::read(&path).map_err(|source| KernelError::File { path, source })?;
    Ok(parse(&text).collect())
}

/// Every CPU's time in the text of `/proc/stat`.
pub fn parse(text: &[u8]) -> impl Iterator<Item = CpuTime> {
    text.split(|&byte| byte == b'\n').filter_map(line)
}

/// `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`: guests are counted in user and nice.
fn line(text: &[u8]) -> Option<CpuTime> {
    // The line without a number is the sum of all CPUs.
    let rest = text.strip_prefix(b"cpu").filter(|rest| rest.first().is_some_and(u8::is_ascii_digit))?;
    let mut words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let cpu = CpuId(number(words.next()?)?.try_into().ok()?);
    let mut ticks = [0; 8];
    ticks.iter_mut().zip(words).for_each(|(tick, word)| *tick = number(word).unwrap_or(0).min(TICKS_MAX));
    let all_ticks = ticks.iter().sum();
    let [.., idle, waiting, _, _, stolen_ticks] = ticks;
    Some(CpuTime { cpu, busy_ticks: all_ticks - idle - waiting - stolen_ticks, stolen_ticks, all_ticks })
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Ticks per second of processor times in /proc, by which their sums are divided.
#[must_use]
pub fn ticks_per_s() -> f64 {
    numapilot_host::ticks_per_s() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_by_cpu() {
        let cpu3 = CpuTime { cpu: CpuId(3), busy_ticks: 1 + 2 + 3 + 6 + 7, stolen_ticks: 8, all_ticks: 36 };
        // Kernels before 2.6.11 wrote only four fields.
        let cpu10 = CpuTime { cpu: CpuId(10), busy_ticks: 6, stolen_ticks: 0, all_ticks: 10 };
        let text = b"cpu  1 2 3\ncpu3 1 2 3 4 5 6 7 8 9 10\ncpu10 1 2 3 4\ncpu\nintr 5\n";
        assert_eq!(parse(text).collect::<Vec<_>>(), [cpu3, cpu10]);
        assert!(!all(Path::new("/")).unwrap().is_empty() && ticks_per_s() >= 1.0);
    }

    /// Their sum wrapped round, which ends a program that checks for it.
    #[test]
    fn absurd_times_are_limited_so_that_all_cpus_can_be_summed() {
        let line = |cpu: u32| format!("cpu{cpu} 18446744073709551615{}\n", " 9223372036854775807".repeat(7));
        let text: String = (0..8192).map(line).collect();
        let all: Vec<CpuTime> = parse(text.as_bytes()).collect();
        assert_eq!((all.len(), all[0].busy_ticks, all[0].stolen_ticks), (8192, 5 * TICKS_MAX, TICKS_MAX));
        assert_eq!(all.iter().map(|time| time.all_ticks).sum::<u64>(), 8192 * 8 * TICKS_MAX);
    }
}
