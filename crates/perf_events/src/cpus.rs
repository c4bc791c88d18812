//! CPUs of the running kernel.

use std::io;

use numapilot_host::FileError;
use numapilot_host::Root;
use numapilot_machine::CpuId;
use numapilot_machine::parse_cpu_list;

use crate::error::EventsError;

/// List of the CPUs that are online.
pub(crate) const ONLINE: &str = "sys/devices/system/cpu/online";

/// CPUs that are online, ascending.
pub(crate) fn online_cpus() -> Result<Vec<CpuId>, EventsError> {
    let (root, mut text) = (Root::default(), Vec::new());
    let remedy = "sysfs must be mounted at /sys for recording events";
    let fail = |FileError { path, source }: FileError| EventsError::File { path, source, remedy };
    let list = String::from_utf8_lossy(root.read(ONLINE, &mut text).map_err(fail)?);
    let cpus = parse_cpu_list(list.trim()).map_err(|error| {
        let source = io::Error::other(error.to_string());
        fail(FileError { path: root.path().join(ONLINE), source })
    })?;
    Ok(cpus.into_iter().map(CpuId).collect())
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
