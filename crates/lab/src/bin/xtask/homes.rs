//! `cargo xtask homes`: home nodes of a program's pages, simulated and in a real kernel.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use numapilot_lab::Lab;
use numapilot_lab::Topology;
use numapilot_lab::homes::Compared;
use numapilot_lab::homes::Comparison;
use numapilot_lab::homes::Example;
use numapilot_lab::homes::ObjectHomes;
use numapilot_trace::engine::Engine;

const NODES: usize = 4;
/// Greatest number of pages that are listed one by one.
const EXAMPLES: usize = 40;

/// Records a program on a simulated machine inside the lab, with its threads on the same nodes of the real kernel, and
/// compares where both have each of its pages (docs/zoo.md).
#[derive(Debug, Args)]
pub struct HomesArgs {
    /// The recorder
    #[arg(long, default_value = "target/release/numapilot", value_name = "PROGRAM")]
    numapilot: PathBuf,
    /// instrument or emulate
    #[arg(long, default_value = "instrument", value_name = "NAME", value_parser = simulating_engine)]
    engine: Engine,
    /// Machine model with four nodes
    #[arg(long, default_value = "opteron-8385", value_name = "NAME")]
    machine: String,
    /// Memory of each of the guest's nodes, MiB
    #[arg(long, default_value_t = 512, value_name = "MIB")]
    memory: u32,
    /// Time limit of the guest in seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    limit: u64,
    /// Keep the trace and the list of the kernel's pages and page faults in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// An engine whose page homes are simulated: the others' are the kernel's own.
fn simulating_engine(name: &str) -> Result<Engine, String> {
    let known = Engine::from_name(name).filter(|engine| engine.is_simulated());
    known.ok_or_else(|| format!("the homes of pages are simulated by `instrument` and `emulate`, not by `{name}`"))
}

/// Runs the comparison; the exit code is that of the program.
pub fn run(args: &HomesArgs) -> anyhow::Result<ExitCode> {
    let recorder = args.numapilot.canonicalize();
    let recorder = recorder.with_context(|| format!("cannot find the recorder {}", args.numapilot.display()))?;
    let comparison = Comparison {
        recorder,
        engine: args.engine,
        machine: args.machine.clone(),
        command: args.command.clone(),
        environment: Vec::new(),
        folder: Some(std::env::current_dir().context("cannot determine the working folder")?),
        keep: args.keep.clone(),
    };
    let lab = Lab::new(Topology::opteron(NODES).memory_per_node_mib(args.memory)).icount(true);
    let compared = comparison.run(&lab.time_limit(Duration::from_secs(args.limit)))?;
    let mut out = std::io::stdout().lock();
    if args.json { print_json(&mut out, &compared) } else { print(&mut out, &compared) }
        .context("cannot write the comparison")?;
    Ok(ExitCode::from(u8::try_from(compared.exit).unwrap_or(1)))
}

fn row(name: &str, homes: &ObjectHomes) -> String {
    let share = 100.0 * homes.share_same();
    format!(
        "{share:6.2} {:8} {:9} {:8} {:9} {:8}  {name}",
        homes.same, homes.explained, homes.other, homes.simulated_only, homes.kernel_only
    )
}

fn print(out: &mut impl Write, compared: &Compared) -> std::io::Result<()> {
    writeln!(out, "{}", compared.how)?;
    writeln!(out, "same %     same explained    other simulated   kernel  pages of")?;
    writeln!(out, "{}", row("all", &compared.homes.total()))?;
    let mut objects: Vec<_> = compared.homes.objects.iter().collect();
    objects.sort_by_key(|(_, homes)| std::cmp::Reverse(homes.simulated() + homes.kernel_only));
    for ((kind, name), homes) in objects.into_iter().take(40) {
        writeln!(out, "{}", row(&format!("{kind} {name}"), homes))?;
    }
    for (reason, pages) in &compared.homes.reasons {
        writeln!(out, "explained by {}: {pages}", reason.word())?;
    }
    for page in compared.homes.examples.iter().take(EXAMPLES) {
        let Example { address, simulated, kernel, object, evidence } = page;
        writeln!(out, "{address:#x}: simulated {simulated}, kernel {kernel}: {object}; {evidence}")?;
    }
    if compared.homes.lost_faults > 0 {
        writeln!(
            out,
            "{} page faults were lost: pages without a recorded fault may have had one",
            compared.homes.lost_faults
        )?;
    }
    Ok(())
}

fn print_json(out: &mut impl Write, compared: &Compared) -> std::io::Result<()> {
    let counts = |homes: &ObjectHomes| {
        serde_json::json!({
            "same": homes.same,
            "explained": homes.explained,
            "other": homes.other,
            "simulated_only": homes.simulated_only,
            "kernel_only": homes.kernel_only,
        })
    };
    let objects: Vec<_> = (compared.homes.objects.iter())
        .map(|((kind, name), homes)| serde_json::json!({"kind": kind, "name": name, "pages": counts(homes)}))
        .collect();
    let reasons: BTreeMap<_, _> = compared.homes.reasons.iter().map(|(reason, pages)| (reason.word(), pages)).collect();
    let told = serde_json::json!({
        "how": compared.how,
        "exit": compared.exit,
        "total": counts(&compared.homes.total()),
        "reasons": reasons,
        "lost_faults": compared.homes.lost_faults,
        "objects": objects,
    });
    writeln!(out, "{told}")
}
