//! `numapilot maps`: shows the memory of processes by object and node.

use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use numapilot_host::Members;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::title;
use numapilot_kernel::KernelError;
use numapilot_kernel::task::Process;
use numapilot_kernel::task::why_absent;
use numapilot_machine::Machine;
use numapilot_text::units;
use numapilot_watch::WatchError;
use numapilot_watch::maps;
use numapilot_watch::maps::MemoryMap;
use numapilot_watch::maps::Reader;
use numapilot_watch::maps::TextOptions;

use super::group::group;
use super::group::is_of_the_kernel;
use super::group::refuse_threads_of_the_kernel;
use super::schedule;
use crate::args::MapsArgs;
use crate::output;

/// Objects shown of a process, and of each of several.
const OBJECTS: usize = 30;
const TREE_OBJECTS: usize = 5;

/// Why a named process is not shown. One that exists is not called absent: /proc hides it (hidepid), or it is a zombie. Only this machine's own
/// processes can be asked.
fn absent(root: &Root, pid: Pid) -> anyhow::Error {
    let exists = root.is_live() && Process::open(pid).is_ok();
    if exists { anyhow!(why_absent(pid)) } else { WatchError::NoProcess { pid }.into() }
}

/// Shows the processes' memory once, or repeatedly with `--watch`.
pub fn run(arguments: &MapsArgs) -> Result<()> {
    let root = Root::new(&arguments.root);
    let machine = Machine::from_sysfs(root.path())?;
    let mut reader = Reader::default();
    let Some(group) = group(&root, &arguments.pids, &arguments.group, false)? else {
        bail!("name a process, a unit (--unit) or a cgroup (--cgroup)");
    };
    let mut members = Members::new(group);
    let mut before = BTreeSet::new();
    refuse_threads_of_the_kernel(&root, &arguments.pids)?;
    let (began, mut next) = (Instant::now(), Duration::ZERO);
    if arguments.csv {
        output::print(maps::csv_heading())?;
    }
    for reading in 0_u64.. {
        members.refresh(&root);
        let pids = with_memory(&root, members.pids(), reading == 0)?;
        if let Some(pid) = arguments.pids.iter().find(|pid| reading == 0 && !members.contains(**pid)) {
            return Err(absent(&root, *pid));
        }
        for pid in before.iter().filter(|pid| !pids.contains(pid)) {
            crate::output::tell!("numapilot: process {pid} has ended");
        }
        before = pids.iter().copied().collect();
        reader.keep(&before);
        let shown = read(&mut reader, &root, &machine, &pids, arguments)?;
        if reading == 0 && shown.is_empty() {
            bail!("the processes have ended before their memory could be read");
        }
        if pids.is_empty() {
            break;
        }
        show(arguments, &shown, began.elapsed().as_secs_f64())?;
        let Some(pause) = arguments.watch.filter(|_| arguments.count.is_none_or(|count| reading + 1 < count)) else {
            break;
        };
        next = schedule::next(next, pause, began.elapsed());
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    Ok(())
}

/// These processes without threads of the kernel, which have no memory of their own. `is_first`: says how many they are.
///
/// # Errors
/// At the first look, there are no others.
fn with_memory(root: &Root, pids: Vec<Pid>, is_first: bool) -> Result<Vec<Pid>> {
    let (kernels, pids): (Vec<Pid>, Vec<Pid>) = pids.into_iter().partition(|pid| is_of_the_kernel(root, *pid));
    if is_first && !kernels.is_empty() {
        let told = units::counted(kernels.len() as u64, "thread of the kernel has", "threads of the kernel have");
        if pids.is_empty() {
            bail!("{told} no memory to show, and there are no other processes");
        }
        crate::output::tell!("numapilot: left out: {told} no memory to show");
    }
    Ok(pids)
}

/// Memory of the processes. One that ends meanwhile is left out; one that may not be inspected is named, and is an error only if it was named itself.
fn read(
    reader: &mut Reader,
    root: &Root,
    machine: &Machine,
    pids: &[Pid],
    arguments: &MapsArgs,
) -> Result<Vec<MemoryMap>> {
    let (mut shown, mut closed, mut locked) = (Vec::new(), Vec::new(), Vec::new());
    for &pid in pids {
        match reader.read(root, machine, pid) {
            Ok(map) => shown.push(map),
            Err(WatchError::Kernel(KernelError::Gone { .. })) => {}
            Err(WatchError::Kernel(KernelError::Denied { .. })) if !arguments.pids.contains(&pid) => closed.push(pid),
            Err(WatchError::Kernel(error)) if error.is_unanswered() && !arguments.pids.contains(&pid) => {
                locked.push(pid);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if !closed.is_empty() {
        crate::output::tell!(
            "numapilot: {} of {} processes may not be inspected, and are left out: {}; run as root, or with CAP_SYS_PTRACE",
            closed.len(),
            pids.len(),
            titles(root, &closed)
        );
    }
    if !locked.is_empty() {
        crate::output::tell!(
            "numapilot: {} of {} processes are not read, because threads of theirs have their address spaces locked, as while a file \
             server does not answer: {}",
            locked.len(),
            pids.len(),
            titles(root, &locked)
        );
    }
    if shown.is_empty() && !closed.is_empty() {
        bail!("none of the processes may be inspected");
    }
    if shown.is_empty() && !locked.is_empty() {
        bail!("none of the processes can be read now");
    }
    Ok(shown)
}

/// Processes by id and title.
fn titles(root: &Root, pids: &[Pid]) -> String {
    let mut buffer = Vec::new();
    let named: Vec<String> = pids.iter().map(|pid| format!("{pid} ({})", title(root, *pid, &mut buffer))).collect();
    named.join(", ")
}

fn show(arguments: &MapsArgs, shown: &[MemoryMap], time_s: f64) -> Result<()> {
    let objects = |map: &MemoryMap| map.objects(arguments.sort.into(), arguments.all);
    if arguments.csv {
        return output::print(&shown.iter().map(|map| maps::csv(map, &objects(map), time_s)).collect::<String>());
    }
    if arguments.json {
        let mut values: Vec<_> = shown.iter().map(|map| maps::json(map, &objects(map))).collect();
        if arguments.watch.is_none() {
            let whole = if values.len() == 1 { values.remove(0) } else { values.into() };
            return output::print_json(&whole);
        }
        for value in &mut values {
            value["time_s"] = time_s.into();
            output::print(&(serde_json::to_string(&value).context("JSON")? + "\n"))?;
        }
        return Ok(());
    }
    let look = output::look(&arguments.look);
    let is_tree = shown.len() > 1;
    let top = arguments.top.unwrap_or(if is_tree { TREE_OBJECTS } else { OBJECTS });
    let options = TextOptions { top, pages: arguments.pages };
    let table = is_tree.then(|| maps::tree_text(shown, look));
    let each = shown.iter().map(|map| maps::text(map, &objects(map), options, look));
    let parts: Vec<String> = table.into_iter().chain(each).collect();
    // On a terminal that can do it each reading replaces the previous one.
    let is_screen = arguments.watch.is_some() && output::is_screen();
    let lead = if is_screen { "\x1b[H\x1b[2J" } else { "" };
    let tail = if arguments.watch.is_some() && !is_screen { "\n" } else { "" };
    output::print(&format!("{lead}{}{tail}", parts.join("\n")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Arguments;
    use crate::args::Command;

    /// Nothing was shown, with status 0.
    #[test]
    fn processes_that_end_before_they_are_read_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        put("sys/devices/system/cpu/present", "0\n");
        put("sys/devices/system/cpu/online", "0\n");
        put("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 400 kB\n");
        put("proc/7/stat", &format!("7 (task) S 1{}\n", " 0".repeat(48)));
        let words = ["numapilot", "maps", "--root", folder.path().to_str().unwrap(), "7"];
        let Command::Maps(arguments) = Arguments::try_parse_from(words).unwrap().command else { panic!("no maps") };
        let ended = run(&arguments).unwrap_err().to_string();
        assert!(ended.contains("have ended before"), "{ended}");
    }

    /// Each had a table of nothing, with a note that it might be ending.
    #[test]
    fn threads_of_the_kernel_are_left_out_of_a_group() {
        let folder = tempfile::tempdir().unwrap();
        for (pid, pages) in [(7, "0 0"), (9, "50 4")] {
            let of_process = folder.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&of_process).unwrap();
            std::fs::write(of_process.join("statm"), format!("{pages} 0 0 0 0 0\n")).unwrap();
            std::fs::write(of_process.join("stat"), format!("{pid} (task) S 1{}\n", " 0".repeat(48))).unwrap();
        }
        let root = Root::new(folder.path());
        assert_eq!(with_memory(&root, vec![Pid(7), Pid(9)], true).unwrap(), [Pid(9)]);
        let none = with_memory(&root, vec![Pid(7)], true).unwrap_err().to_string();
        assert!(none.starts_with("1 thread of the kernel has no memory"), "{none}");
        assert!(with_memory(&root, vec![Pid(7)], false).unwrap().is_empty());
    }

    /// With hidepid, the process of another user is not among those found; "there is no process" was wrong.
    #[test]
    fn a_process_that_exists_is_not_called_absent() {
        let own = Pid::own();
        let hidden = absent(&Root::default(), own).to_string();
        assert!(hidden.contains("runs, but /proc does not show it"), "{hidden}");
        let elsewhere = absent(&Root::new("/no/such/root"), own).to_string();
        assert!(elsewhere.contains("there is no process"), "{elsewhere}");
    }
}
