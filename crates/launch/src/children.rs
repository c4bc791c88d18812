//! The children of a process, as the kernel lists them.

use std::fs;
use std::path::Path;

use numapilot_host::Pid;

/// The children now of the process whose folder in `/proc` this is. `None` where it is gone, or the kernel does not list them (CONFIG_PROC_CHILDREN).
pub(crate) fn children(process: &Path) -> Option<Vec<Pid>> {
    let mut pids = Vec::new();
    for task in fs::read_dir(process.join("task")).ok()?.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => pids.extend(list.split_whitespace().filter_map(|pid| pid.parse::<Pid>().ok())),
            // A thread that ended meanwhile has no children either; a kernel that cannot list them lacks even our own file.
            Err(_) if Path::new("/proc/thread-self/children").exists() => {}
            Err(_) => return None,
        }
    }
    Some(pids)
}
