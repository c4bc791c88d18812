//! `cargo xtask lab`: one command on a kernel with several memory nodes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::ValueEnum;
use numapilot_lab::Accelerator;
use numapilot_lab::Arch;
use numapilot_lab::Kernel;
use numapilot_lab::Lab;
use numapilot_lab::PrivateCache;
use numapilot_lab::Sampling;
use numapilot_lab::Topology;
use numapilot_lab::TruthOptions;

use crate::truth;

const EXAMPLES: &str = "\
Examples:
  cargo xtask lab -- numactl --hardware
  cargo xtask lab --nodes 8 --distances opteron -- target/debug/numapilot topo
  cargo xtask lab --memory-only 1 --hmat -- sh -c 'cat /sys/devices/virtual/memory_tiering/*/nodelist'
  cargo xtask lab --kernel 6.1 --icount -- numactl --interleave=all ls
  cargo xtask lab --icount --truth counts.json --cache 1024x8 --model opteron-8385 -- ./program
  cargo xtask lab --icount --truth counts.json --samples perf.data -- ./program
  cargo xtask lab --arch aarch64 -- numactl --hardware
  cargo xtask lab --setup";

/// Runs a command on a real kernel with several memory nodes, in QEMU.
///
/// The guest sees the host's files under the same paths (one of another architecture only some folders of them: docs/lab.md). The working folder is shared for
/// writing; changes elsewhere stay in the guest. /run/lab ($NUMAPILOT_LAB_FILES) is the exchange folder. Exit code and output are the command's. Run times are
/// not meaningful, because all memory of the guest has the same latency.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LabArgs {
    /// Nodes with CPUs and memory
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// CPUs of each of them
    #[arg(long, default_value_t = 2, value_name = "N")]
    cpus: u32,
    /// Memory of each node, MiB
    #[arg(long, default_value_t = 512, value_name = "MIB")]
    memory: u32,
    /// `symmetric` (all others at 20), `opteron` (16 or 22), or a file with a row of numbers a line
    #[arg(long, default_value = "symmetric", value_name = "WHICH")]
    distances: String,
    /// Add latencies and bandwidths to the firmware (an ACPI HMAT table), derived from the distances
    #[arg(long)]
    hmat: bool,
    /// Nodes without CPUs, beside the others
    #[arg(long, default_value_t = 0, value_name = "N")]
    memory_only: usize,
    /// Architecture of the guest: x86_64 or aarch64
    #[arg(long, default_value_t = Arch::X86_64)]
    arch: Arch,
    /// A folder of the host that a guest of another architecture sees, beside the working folder, the project, temporary files and the program's folder
    #[arg(long, value_name = "FOLDER")]
    see: Vec<PathBuf>,
    /// Version of the kernel: 6.12 or 6.1
    #[arg(long, default_value_t = Kernel::V6_12)]
    kernel: Kernel,
    /// Derive the guest's time from executed instructions, so that runs are reproducible
    #[arg(long)]
    icount: bool,
    /// KVM or emulation; `auto` uses KVM where a guest boots under it
    #[arg(long, value_enum, default_value_t = Run::Auto, conflicts_with = "icount")]
    run: Run,
    /// Boot instead of restoring a snapshot
    #[arg(long)]
    cold: bool,
    /// Time limit of the guest in seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    limit: u64,
    /// A TCG plugin for QEMU with its arguments ({files} becomes the exchange folder on the host)
    #[arg(long, value_name = "FILE[,ARGUMENTS]")]
    plugin: Vec<String>,
    /// A further argument for QEMU's command line ({files} becomes the exchange folder on the host)
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    device: Vec<String>,
    /// Count every memory access of the command's user code, exactly, by CPU, node and page, into this file (JSON)
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Count only accesses that miss a private cache per CPU, of lines of 64 bytes
    #[arg(long, value_name = "SETSxWAYS", requires = "truth", value_parser = parse_cache)]
    cache: Option<PrivateCache>,
    /// Count only regions that programs mark (crates/lab/plugin/mark.h)
    #[arg(long, requires = "truth")]
    marked: bool,
    /// Sample the counted accesses, as a PMU would, into this recording in perf's format: `numapilot import FILE`
    #[arg(long, value_name = "FILE", requires = "truth")]
    samples: Option<PathBuf>,
    /// Memory accesses per sample, on average
    #[arg(long, default_value_t = 1000, value_name = "N", requires = "samples", value_parser = clap::value_parser!(u64).range(1..))]
    period: u64,
    /// Predict the time of the counted work on this machine: a model's name, or a model file
    #[arg(long, value_name = "MACHINE", requires = "truth")]
    model: Option<String>,
    /// Only download and prepare everything: QEMU, both kernels, a snapshot
    #[arg(long)]
    setup: bool,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "setup")]
    command: Vec<String>,
}

fn parse_cache(text: &str) -> Result<PrivateCache, String> {
    let numbers = text.split_once('x').and_then(|(sets, ways)| Some((sets.parse().ok()?, ways.parse().ok()?)));
    match numbers {
        Some((sets, ways)) if u32::is_power_of_two(sets) && sets <= 1 << 20 && (1..=64).contains(&ways) => {
            Ok(PrivateCache { sets, ways })
        }
        _ => Err("give a power of two of sets, and 1 to 64 ways: 64x8 holds 32 KiB".into()),
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Run {
    Auto,
    Kvm,
    Emulated,
}

/// Runs the command in the lab and returns its exit code.
pub fn run(args: &LabArgs) -> anyhow::Result<ExitCode> {
    if args.setup {
        for kernel in Kernel::ALL {
            args.lab()?.kernel(kernel).prepare()?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let [program, arguments @ ..] = args.command.as_slice() else { anyhow::bail!("name a command after --") };
    let topology = args.topology()?;
    let mut modelled = args.model.as_deref().map(|model| truth::Modelled::on(model, &topology)).transpose()?;
    let outcome = args.lab()?.stream(true).run(Command::new(program).args(arguments))?;
    eprintln!("numapilot-lab: {}; ran for {:.1} s", outcome.how, outcome.run.as_secs_f64());
    if let (Some(path), Some(counted)) = (&args.truth, &outcome.truth) {
        if let Some(modelled) = &mut modelled {
            modelled.price(counted, &topology)?;
        }
        truth::write(path, counted, modelled.as_ref())?;
        if let (Some(path), Some(samples)) = (&args.samples, &outcome.samples) {
            truth::write_bytes(path, samples)?;
        }
        truth::print(path, counted, modelled.as_ref());
    }
    Ok(ExitCode::from(u8::try_from(outcome.exit).unwrap_or(1)))
}

impl LabArgs {
    fn lab(&self) -> anyhow::Result<Lab> {
        let accelerator = match (self.icount, self.run) {
            (true, _) => Accelerator::Icount,
            (false, Run::Auto) => Accelerator::Auto,
            (false, Run::Kvm) => Accelerator::Kvm,
            (false, Run::Emulated) => Accelerator::Emulated,
        };
        let lab =
            Lab::new(self.topology()?).arch(self.arch).kernel(self.kernel).accelerator(accelerator).cold(self.cold);
        let lab = self.see.iter().fold(lab, |lab, folder| lab.see(folder));
        let mut lab = lab.time_limit(Duration::from_secs(self.limit)).device(self.device.iter().cloned());
        if self.truth.is_some() {
            let sampling = self.samples.as_ref().map(|_| Sampling { period: self.period, seed: 0 });
            lab = lab.truth(TruthOptions { cache: self.cache, marked_only: self.marked, sampling });
        }
        for plugin in &self.plugin {
            let (file, arguments) = plugin.split_once(',').unwrap_or((plugin, ""));
            let file = PathBuf::from(file);
            let file = file.canonicalize().with_context(|| format!("cannot find the plugin {}", file.display()))?;
            lab = lab.plugin(&file, arguments);
        }
        Ok(lab)
    }

    fn topology(&self) -> anyhow::Result<Topology> {
        let topology = match self.distances.as_str() {
            "symmetric" => Topology::symmetric(self.nodes),
            "opteron" => Topology::opteron(self.nodes),
            file => {
                let text = fs::read_to_string(file).with_context(|| format!("cannot read distances from {file}"))?;
                Topology::with_distances(Topology::parse_distances(&text)?)
            }
        };
        let mut topology = topology.cpus_per_node(self.cpus).memory_per_node_mib(self.memory).hmat(self.hmat);
        for _ in 0..self.memory_only {
            topology = topology.memory_only_node();
        }
        Ok(topology)
    }
}
