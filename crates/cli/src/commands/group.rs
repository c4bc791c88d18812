//! Which running processes a command is about: its `--pid`, `--no-children`, `--unit` and `--cgroup`.

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use numapilot_host::Group;
use numapilot_host::Members;
use numapilot_host::Pid;
use numapilot_host::ProcessPages;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::cgroups;
use numapilot_host::title;
use numapilot_kernel::KernelError;
use numapilot_kernel::task::Process;
use numapilot_kernel::task::why_absent;
use numapilot_watch::WatchError;

use crate::args::GroupArgs;
use crate::output::tell;

/// A process that was named, from now on meant whoever gets its number.
///
/// # Errors
/// There is none, which all commands say in the same words and with the same status; or it cannot be referred to.
pub fn named(pid: Pid) -> Result<Process> {
    Process::open(pid).map_err(|error| match error {
        KernelError::Gone { pid } => WatchError::NoProcess { pid }.into(),
        other => other.into(),
    })
}

/// Refuses named processes that do not exist, or that have ended and whose parents have not waited for them. What else is wrong with a process, whoever looks
/// at it says.
///
/// # Errors
/// The first of them, as [`named`] has it, or the first that has ended.
pub fn require(pids: &[Pid]) -> Result<()> {
    let is_absent =
        |error: &anyhow::Error| matches!(error.downcast_ref::<WatchError>(), Some(WatchError::NoProcess { .. }));
    pids.iter().filter_map(|pid| named(*pid).err()).find(is_absent).map_or(Ok(()), Err)?;
    let (root, mut buffer) = (Root::default(), Vec::new());
    let zombie = pids.iter().find(|pid| TaskStat::read(&root, **pid, &mut buffer).is_some_and(|stat| stat.is_zombie()));
    zombie.map_or(Ok(()), |pid| Err(anyhow!(why_absent(*pid))))
}

/// [`require`] for commands that are about memory: threads of the kernel, too, are refused. Without that a recording of nothing succeeded.
///
/// # Errors
/// The first of them, and what to do.
pub fn require_memory(root: &Root, pids: &[Pid]) -> Result<()> {
    require(pids)?;
    refuse_threads_of_the_kernel(root, pids)
}

/// Refuses named processes that are threads of the kernel.
///
/// # Errors
/// The first of them, and what to do.
pub fn refuse_threads_of_the_kernel(root: &Root, pids: &[Pid]) -> Result<()> {
    let Some(&pid) = pids.iter().find(|pid| is_of_the_kernel(root, **pid)) else { return Ok(()) };
    let name = title(root, pid, &mut Vec::new());
    bail!(
        "process {pid} ({name}) is a thread of the kernel and has no memory of its own; name another one (`ps -e -o pid,rss,args` lists them)"
    );
}

/// Whether it runs without an address space. One that has ended has none either, and one whose first thread alone has ended seems to have none.
pub fn is_of_the_kernel(root: &Root, pid: Pid) -> bool {
    let has_none = ProcessPages::read(root, pid).is_some_and(|pages| pages.mapped == 0);
    has_none && TaskStat::read(root, pid, &mut Vec::new()).is_some_and(|stat| !stat.has_ended())
}

/// An error for a process that was named and is not among those found: it has ended, or /proc hides it. Without that its figures would be those of nobody.
///
/// # Errors
/// The first named process that was not found, and why.
pub fn all_found(pids: &[Pid], members: &Members) -> Result<()> {
    let absent = pids.iter().find(|pid| !members.contains(**pid));
    absent.map_or(Ok(()), |pid| Err(anyhow!(why_absent(*pid))))
}

/// The group of processes that was named; `None`: none was. Says on standard error which instances stand for a unit, unless `is_quiet`.
///
/// # Errors
/// Both processes and a unit or cgroup are named, or there is no such unit or cgroup, or it has no processes.
pub fn group(root: &Root, pids: &[Pid], named: &GroupArgs, is_quiet: bool) -> Result<Option<Group>> {
    if !named.is_named() {
        return Ok(match (pids.is_empty(), named.no_children) {
            (true, true) => bail!("--no-children needs --pid; name the processes with --pid"),
            (true, false) => None,
            (false, true) => Some(Group::Processes(pids.to_vec())),
            (false, false) => Some(Group::Trees(pids.to_vec())),
        });
    }
    if !pids.is_empty() {
        bail!("both processes and a unit or cgroup are named; name the processes by --pid, or the unit by --unit");
    }
    if named.no_children {
        bail!("--no-children goes with --pid; a unit or cgroup is all of its processes");
    }
    let mut folders = Vec::new();
    let hierarchies = cgroups::Hierarchies::of(root);
    for unit in &named.unit {
        let found = hierarchies.unit(unit)?;
        let is_itself = found.names.iter().any(|name| name == unit || *name == format!("{unit}.service"));
        if !is_itself && !is_quiet {
            tell!("numapilot: {unit} has no processes of its own; using its instances: {}", found.names.join(", "));
        }
        folders.extend(found.folders);
    }
    for path in &named.cgroup {
        folders.push(cgroups::of_path(root, path)?);
    }
    Ok(Some(Group::Cgroups(folders)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// `record`, `stat`, `balance` and `export` had two messages and two statuses for it, one of which said that it had ended.
    #[test]
    fn a_process_that_is_not_there_is_said_not_to_be() {
        let none = Pid(0x7fff_ffff);
        let told = [named(none).map(drop), require_memory(&Root::default(), &[Pid::own(), none])];
        for told in told.map(|told| told.unwrap_err().to_string()) {
            assert_eq!(
                told,
                format!("there is no process {none}: it has ended, or never ran; look it up with `pgrep` or `ps`")
            );
        }
    }

    /// `top` showed an empty list, and `record` had another status than the other commands.
    #[test]
    fn a_process_that_nobody_has_waited_for_is_said_to_have_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::of_child(&child);
        let (root, mut buffer) = (Root::default(), Vec::new());
        while TaskStat::read(&root, pid, &mut buffer).is_none_or(|stat| !stat.is_zombie()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for told in [require(&[Pid::own(), pid]), require_memory(&root, &[pid])] {
            let told = told.unwrap_err().to_string();
            assert!(told.starts_with(&format!("process {pid} has ended")), "{told}");
        }
        child.wait().unwrap();
        assert!(require(&[Pid::own()]).is_ok());
    }

    /// `record --pid 2` ended with status 0 and an empty trace.
    #[test]
    fn threads_of_the_kernel_are_told_from_other_processes_without_memory() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for (pid, state, pages) in [(7, 'S', "0 0 0 0 0 0 0"), (8, 'Z', "0 0 0 0 0 0 0"), (9, 'S', "50 4 1 3 0 9 0")] {
            let of_process = folder.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&of_process).unwrap();
            fs::write(of_process.join("statm"), format!("{pages}\n")).unwrap();
            let zeros = " 0".repeat(48);
            fs::write(of_process.join("stat"), format!("{pid} (task) {state} 1{zeros}\n")).unwrap();
        }
        let found = [7, 8, 9, 10].map(|pid| is_of_the_kernel(&root, Pid(pid)));
        assert_eq!(found, [true, false, false, false]);
        fs::write(folder.path().join("proc/7/comm"), "kswapd0\n").unwrap();
        let refused = refuse_threads_of_the_kernel(&root, &[Pid(9), Pid(7)]).unwrap_err().to_string();
        assert!(refused.starts_with("process 7 (kswapd0) is a thread of the kernel"), "{refused}");
        let refused = require_memory(&root, &[Pid::own()]);
        assert!(refused.is_ok(), "{refused:?}");
    }
}
