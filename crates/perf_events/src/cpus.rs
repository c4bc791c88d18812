//! CPUs of the running kernel.

use std::io;
use std::path::PathBuf;

use numapilot_machine::CpuId;
use numapilot_machine::parse_cpu_list;

use crate::error::EventsError;

/// CPUs that are online, ascending.
pub(crate) fn online_cpus() -> Result<Vec<CpuId>, EventsError> {
    let path = PathBuf::from("/sys/devices/system/cpu/online");
    let fail = |source| EventsError::File {
        path: path.clone(),
        source,
        remedy: "sysfs must be mounted at /sys for recording events",
    };
    let text = std::fs::read_to_string(&path).map_err(fail)?;
    let list = parse_cpu_list(text.trim()).map_err(|error| fail(io::Error::other(error.to_string())))?;
    Ok(list.into_iter().map(CpuId).collect())
}

/// CPUs that are online now and were not known.
pub(crate) fn came_online(known: &[CpuId], online: &[CpuId]) -> Vec<CpuId> {
    online.iter().copied().filter(|cpu| !known.contains(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_went_offline_are_no_news() {
        assert_eq!(came_online(&[0, 1, 2, 8].map(CpuId), &[0, 2, 3, 8, 9].map(CpuId)), [CpuId(3), CpuId(9)]);
        assert!(came_online(&[0, 1].map(CpuId), &[CpuId(0)]).is_empty());
    }
}
