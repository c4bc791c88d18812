//! Which running processes a command is about: its `--pid`, `--no-children`, `--unit` and `--cgroup`.

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use numapilot_host::Group;
use numapilot_host::Members;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::cgroups;
use numapilot_kernel::task::why_absent;

use crate::args::GroupArgs;
use crate::output::tell;

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
