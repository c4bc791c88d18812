//! Caches, from each online CPU's `cache/indexN` folders.

use std::collections::BTreeMap;

use super::tree::{Tree, shortened};
use crate::check;
use crate::error::MachineError;
use crate::hardware::{Cache, CacheKind, Cpu};
use crate::ids::CpuId;

const CPU: &str = "sys/devices/system/cpu";
/// More index folders than this no CPU has.
const INDICES_MAX: usize = 16;

/// Every cache once. A cache's CPUs are those whose own folders say the same of level, kind and sharers: hypervisors are known
/// to give lists that contradict each other.
pub fn read(tree: &mut Tree, cpus: &[Cpu]) -> Result<Vec<Cache>, MachineError> {
    let mut caches: BTreeMap<(u8, CacheKind, Vec<u32>), Cache> = BTreeMap::new();
    for cpu in cpus {
        let mut seen = Vec::new();
        let folder = format!("{CPU}/cpu{}/cache", cpu.id);
        for index in tree.numbered(&folder, "index").into_iter().take(INDICES_MAX) {
            let Some((cache, sharers)) = one(tree, &format!("{folder}/index{index}"), cpu.id)? else { continue };
            if seen.contains(&(cache.level, cache.kind)) {
                tree.notes.push(format!(
                    "CPU {} has two caches of level {} and of one kind: only the first is used.",
                    cpu.id, cache.level
                ));
                continue;
            }
            seen.push((cache.level, cache.kind));
            caches.entry((cache.level, cache.kind, sharers)).or_insert(cache).cpus.push(cpu.id);
        }
    }
    let mut caches: Vec<Cache> = caches.into_values().collect();
    caches.sort_by(|a, b| (a.level, a.kind, &a.cpus).cmp(&(b.level, b.kind, &b.cpus)));
    Ok(caches)
}

/// One index folder: the cache, still without CPUs, and its list of sharers. `None` if it says too little to be of use.
fn one(tree: &mut Tree, folder: &str, cpu: CpuId) -> Result<Option<(Cache, Vec<u32>)>, MachineError> {
    let level_file = format!("{folder}/level");
    let Some(level) = tree.number(&level_file)? else { return Ok(None) };
    let Some(level) = u8::try_from(level).ok().filter(|l| (1..=5).contains(l)) else {
        return Err(tree.malformed(&level_file, format!("{level} is not a cache level")));
    };
    let kind_file = format!("{folder}/type");
    let kind = match tree.text(&kind_file)?.as_deref() {
        None => return Ok(None),
        Some("Data") => CacheKind::Data,
        Some("Instruction") => CacheKind::Instruction,
        Some("Unified") => CacheKind::Unified,
        Some(other) => return Err(tree.malformed(&kind_file, format!("{:?} is not a kind of cache", shortened(other)))),
    };
    let size_file = format!("{folder}/size");
    let Some(text) = tree.text(&size_file)? else { return Ok(None) };
    let Some(size_bytes) = size(&text).filter(|&size| size <= check::CACHE_BYTES_MAX) else {
        return Err(tree.malformed(&size_file, format!("{:?} is not a size like 512K", shortened(&text))));
    };
    if size_bytes == 0 {
        return Ok(None);
    }
    let line_file = format!("{folder}/coherency_line_size");
    let line_bytes = tree.number(&line_file)?.filter(|&line| line > 0);
    if let Some(line) = line_bytes.filter(|line| !line.is_power_of_two() || !(8..=4096).contains(line)) {
        return Err(tree.malformed(&line_file, format!("a line of {line} bytes")));
    }
    let ways_file = format!("{folder}/ways_of_associativity");
    let ways = tree.number(&ways_file)?.filter(|&ways| ways > 0);
    if let Some(ways) = ways.filter(|&ways| ways > 65_536) {
        return Err(tree.malformed(&ways_file, format!("{ways} ways")));
    }
    let sharers = tree.list(&format!("{folder}/shared_cpu_list"))?.unwrap_or_else(|| vec![cpu.0]);
    let cache = Cache {
        level,
        kind,
        size_bytes,
        line_bytes: line_bytes.map(|line| line as u32),
        ways: ways.map(|ways| ways as u32),
        latency_cycles: None,
        cpus: Vec::new(),
    };
    Ok(Some((cache, sharers)))
}

/// `512K`, `6M`, `1G`, or plain bytes: the kernel's own form, not what people write, which `numapilot_text::quantity` reads.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 1u64 << 10),
        b'M' | b'm' => (&text[..text.len() - 1], 1 << 20),
        b'G' | b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten()?.checked_mul(unit)
}

#[cfg(test)]
mod unit_tests {
    use super::size;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(size("32K"), Some(32 << 10));
        assert_eq!(size("6M"), Some(6 << 20));
        assert_eq!(size("1G"), Some(1 << 30));
        assert_eq!(size("512"), Some(512));
        for wrong in ["", "K", "-1K", "1T", "3 K", "99999999999999999999G", "18446744073709551615K"] {
            assert_eq!(size(wrong).filter(|&s| s > 0), None, "{wrong}");
        }
    }
}
