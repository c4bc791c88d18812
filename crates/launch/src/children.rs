//! The children of a process, as the kernel lists them.

use numapilot_host::Pid;
use numapilot_host::Root;

/// The children now of a process, which is named as its folder in `/proc` is: by its number, or `self`. `None` where it is gone, or the kernel does not list
/// them (CONFIG_PROC_CHILDREN).
pub(crate) fn children(process: &str) -> Option<Vec<Pid>> {
    let root = Root::default();
    let tasks = root.names(&format!("proc/{process}/task"));
    if tasks.is_empty() {
        return None;
    }
    let mut pids = Vec::new();
    for task in tasks {
        match root.text(&format!("proc/{process}/task/{task}/children")) {
            Some(list) => pids.extend(list.split_whitespace().filter_map(|pid| pid.parse::<Pid>().ok())),
            // A thread that ended meanwhile has no children either; a kernel that cannot list them lacks even our own file.
            None if root.has("proc/thread-self/children") => {}
            None => return None,
        }
    }
    Some(pids)
}
