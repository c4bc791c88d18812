//! `numapilot maps`: shows the memory of processes by object and node.

use std::io::IsTerminal;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use numapilot_host::Root;
use numapilot_kernel::KernelError;
use numapilot_machine::Machine;
use numapilot_watch::WatchError;
use numapilot_watch::maps;
use numapilot_watch::maps::MemoryMap;
use numapilot_watch::maps::Reader;
use numapilot_watch::maps::TextOptions;

use crate::args::MapsArgs;
use crate::output;

/// Shows the processes' memory once, or repeatedly with `--watch`.
pub fn run(arguments: &MapsArgs) -> Result<()> {
    let root = Root::new(&arguments.root);
    let machine = Machine::from_sysfs(root.path())?;
    let mut reader = Reader::default();
    let mut pids = arguments.pids.clone();
    let began = Instant::now();
    if arguments.csv {
        output::print(maps::csv_heading())?;
    }
    for reading in 0_u64.. {
        let mut shown = Vec::new();
        for pid in pids.clone() {
            match reader.read(&root, &machine, pid) {
                Ok(map) => shown.push(map),
                Err(WatchError::Kernel(KernelError::Gone { .. })) if reading > 0 => {
                    eprintln!("numapilot: process {pid} has ended");
                    pids.retain(|other| *other != pid);
                }
                Err(WatchError::Kernel(KernelError::Gone { pid })) => return Err(WatchError::NoProcess { pid }.into()),
                Err(error) => return Err(error.into()),
            }
        }
        if pids.is_empty() {
            break;
        }
        show(arguments, &shown, began.elapsed().as_secs_f64())?;
        let Some(pause) = arguments.watch.filter(|_| arguments.count.is_none_or(|count| reading + 1 < count)) else {
            break;
        };
        // Readings keep their schedule, however long one takes.
        let next = pause * u32::try_from(reading + 1).unwrap_or(u32::MAX);
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    Ok(())
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
    let options = TextOptions { top: arguments.top, pages: arguments.pages };
    let parts: Vec<String> = shown.iter().map(|map| maps::text(map, &objects(map), options, look)).collect();
    // On a terminal each reading replaces the previous one.
    let is_screen = arguments.watch.is_some() && std::io::stdout().is_terminal();
    let lead = if is_screen { "\x1b[H\x1b[2J" } else { "" };
    let tail = if arguments.watch.is_some() && !is_screen { "\n" } else { "" };
    output::print(&format!("{lead}{}{tail}", parts.join("\n")))
}
