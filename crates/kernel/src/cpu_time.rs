//! For how long each CPU has worked: `/proc/stat` (proc(5)).

use std::fs;
use std::path::Path;

use numapilot_machine::CpuId;

use crate::error::KernelError;

/// One CPU's ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    /// Which.
    pub cpu: CpuId,
    /// Ticks in which it worked for somebody: all but idle, waiting for devices, and taken by a hypervisor.
    pub busy_ticks: u64,
}

/// Every online CPU's time, under a root prefix.
///
/// # Errors
/// The file cannot be read.
pub fn all(root: &Path) -> Result<Vec<CpuTime>, KernelError> {
    let path = root.join("proc/stat");
    let text = fs::read_to_string(&path).map_err(|source| KernelError::File { path, source })?;
    Ok(text.lines().filter_map(line).collect())
}

/// `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`: guests are counted in user and nice.
fn line(text: &str) -> Option<CpuTime> {
    // Without a number, the line is of all of them.
    let rest = text.strip_prefix("cpu").filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))?;
    let mut words = rest.split_ascii_whitespace();
    let cpu = CpuId(words.next()?.parse().ok()?);
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let of = |field: usize| ticks.get(field).copied().unwrap_or(0);
    Some(CpuTime { cpu, busy_ticks: of(0) + of(1) + of(2) + of(5) + of(6) })
}

/// Ticks per second of processor times in /proc.
#[must_use]
pub fn ticks_per_s() -> f64 {
    // SAFETY: asks for a constant of the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_by_cpu() {
        let cpu3 = CpuTime { cpu: CpuId(3), busy_ticks: 1 + 2 + 3 + 6 + 7 };
        assert_eq!(line("cpu3 1 2 3 4 5 6 7 8 9 10"), Some(cpu3));
        assert_eq!((line("cpu  1 2 3"), line("intr 5")), (None, None));
        assert!(!all(Path::new("/")).unwrap().is_empty() && ticks_per_s() >= 1.0);
    }
}
