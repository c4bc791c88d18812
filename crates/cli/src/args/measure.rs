//! `numapilot measure`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use numapilot_text::quantity;

use super::LookArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot measure                                     about 10 seconds: what this machine can do
  numapilot measure --full --html machine.html          everything, with pictures
  numapilot measure --model mine.toml --pages large     a machine model that every other command takes
  numapilot simulate app.numatrace --machine mine.toml  ... such as this one
  numapilot measure --only latency --cpu-nodes 0 --nodes 2,3 --stride 256
  numapilot measure --only loaded --load 2:1 --svg loaded.svg --picture loaded
  numapilot measure --full --dry-run                    what would be measured, and about how long it takes

It needs no special rights. Memory is bound to its node, and its location verified, before it is timed. Other work on the machine disturbs the \
measurement: stolen time, preemption and a changing clock are reported with the figures. Where the machine's speed changes meanwhile, measurements are \
repeated, which may take as long again. docs/measure.md defines each figure.")]
pub struct MeasureArgs {
    /// Take about 10 seconds, and leave out the least important measurements (the default)
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Measure everything: every pair of nodes, every bandwidth kernel and every array size
    #[arg(long)]
    pub full: bool,
    /// Time limit, such as 30s or 5m
    #[arg(long = "for", value_name = "TIME", value_parser = super::time)]
    pub budget: Option<Duration>,
    /// Measure only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART,...")]
    pub only: Vec<MeasurePart>,
    /// Nodes whose memory is measured, such as 0,2-3
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
    /// Nodes whose CPUs take the measurements
    #[arg(long, value_name = "LIST")]
    pub cpu_nodes: Option<String>,
    /// CPUs that may be used
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Memory of pointer chases, and of each array of the bandwidth kernels, such as 512MiB [default: four times the last-level caches]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub size: Option<usize>,
    /// Page size: base pages as most programs use, transparent large pages, or reserved huge pages
    #[arg(long, value_enum, default_value_t = MeasurePages::Base)]
    pub pages: MeasurePages,
    /// Order of random pointer chases: every line at random, or page by page (fewer page walks, but easier to prefetch)
    #[arg(long, value_enum, default_value_t = MeasureOrder::Random)]
    pub order: MeasureOrder,
    /// Stride of the strided chase, bytes: a multiple of 8
    #[arg(long, value_name = "BYTES", value_parser = stride, default_value = "128")]
    pub stride: usize,
    /// Instruction set of the bandwidth kernels [default: the widest that works here]
    #[arg(long, value_enum)]
    pub isa: Option<MeasureIsa>,
    /// Bandwidth kernel (a loop that reads, writes or copies memory) that the other CPUs run while latency under load is measured
    #[arg(long, value_name = "KERNEL", default_value = "read",
          value_parser = ["copy", "scale", "add", "triad", "copy-nt", "scale-nt", "add-nt", "triad-nt", "read", "write", "write-nt", "1:1", "2:1", "3:1"])]
    pub load: String,
    /// Also measure a weighted interleave: NODE:WEIGHT,..., such as 0:3,1:1
    #[arg(long, value_name = "WEIGHTS")]
    pub weights: Option<String>,
    /// Write a machine model, fitted to the figures, to this file (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Name of that model
    #[arg(long, value_name = "NAME", default_value = "measured", requires = "model", value_parser = model_name)]
    pub name: String,
    /// Write one page with pictures and tables
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write one picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Which picture
    #[arg(long, value_enum, default_value_t = MeasurePicture::Latency, requires = "svg")]
    pub picture: MeasurePicture,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show what would be measured, and measure nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Seed of the random chases
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeasurePart {
    /// Latency of every pair: random and strided chase
    Latency,
    /// Latency against array size
    Caches,
    /// Bandwidth of every pair
    Bandwidth,
    /// Latency under load of every pair
    Loaded,
    /// Hand-off of a cache line between CPUs
    Handoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeasurePages {
    /// The smallest page size
    Base,
    /// Transparent large pages, as far as the kernel provides them
    Large,
    /// Reserved huge pages (vm.nr_hugepages)
    Huge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeasureOrder {
    /// Every line at random
    Random,
    /// Pages at random, each finished before the next
    Page,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeasureIsa {
    /// The target's baseline
    Portable,
    /// x86-64, 32 bytes
    Avx2,
    /// x86-64, 64 bytes
    Avx512,
    /// 64-bit Arm, 16 bytes
    Neon,
    /// 64-bit Arm, the processor's length
    Sve,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeasurePicture {
    /// Latency against array size
    Staircase,
    /// Latency of every pair
    Latency,
    /// Bandwidth of every pair
    Bandwidth,
    /// Latency under load
    Loaded,
    /// Hand-off between CPUs
    Handoff,
}

/// `512MiB`, `1G`: bytes of an array to measure in.
fn size(text: &str) -> Result<usize, String> {
    let bytes = Some(quantity::whole_bytes(text)?).filter(|bytes| (1 << 16..=1 << 42).contains(bytes));
    bytes.map(|bytes| bytes as usize).ok_or_else(|| "give 64 KiB to 4 TiB".to_owned())
}

/// Parses the name of a machine model.
fn model_name(text: &str) -> Result<String, String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = (1..=64).contains(&text.len()) && text.chars().all(valid);
    is_name.then(|| text.to_owned()).ok_or_else(|| "use 1 to 64 letters, digits, '-', '_' and '.'".to_owned())
}

fn stride(text: &str) -> Result<usize, String> {
    let bytes = text.parse::<usize>().ok().filter(|bytes| bytes.is_multiple_of(8) && (8..=1 << 20).contains(bytes));
    bytes.ok_or_else(|| "give a multiple of 8 from 8 to 1048576".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(size("512MiB"), Ok(512 << 20));
        assert_eq!(size("1g"), Ok(1 << 30));
        for wrong in ["", "1", "5TB", "-1M", "99999999G", "MiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(model_name("mine-2.0").is_ok() && model_name("a b").is_err() && model_name("").is_err());
        assert!(stride("12").is_err() && stride("0").is_err() && stride("256") == Ok(256));
    }
}
