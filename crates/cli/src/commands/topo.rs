//! `numapilot topo`: draws this machine or a machine model.

use anyhow::Result;
use numapilot_machine::Machine;
use numapilot_machine::builtin_names;
use numapilot_report::topo;

use crate::args::TopoArgs;
use crate::output;

/// Draws the machine as text, JSON or SVG, or lists the built-in models.
pub fn run(arguments: &TopoArgs) -> Result<()> {
    if arguments.list {
        return list();
    }
    let machine = Machine::load(&arguments.machine)?;
    if let Some(path) = &arguments.svg {
        output::write_file(path, &topo::svg(&machine))?;
        if path.as_os_str() == "-" {
            return Ok(());
        }
    }
    if arguments.json {
        return output::print_json(&topo::json(&machine));
    }
    let look = output::look(&arguments.look);
    output::print(&topo::text(&machine, look.width, look.colour))?;
    if let Some(path) = &arguments.svg {
        output::print(&format!("\nPicture: {}\n", path.display()))?;
    }
    Ok(())
}

fn list() -> Result<()> {
    let mut text = String::new();
    for name in builtin_names() {
        let machine = Machine::load(name)?;
        let summary = format!("{} nodes, {} CPUs", machine.nodes().len(), machine.cpus().len());
        text.push_str(&format!("{name:<16} {summary:<22} {}\n", machine.description().unwrap_or_default()));
    }
    output::print(&text)
}
