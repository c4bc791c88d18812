//! The TOML of a synthetic description, as it is written. `docs/simulator.md` documents every key.

use serde::Deserialize;
use toml::Spanned;

/// The format that this build reads.
pub(super) const FORMAT: u32 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub format: Spanned<u32>,
    pub name: Spanned<String>,
    /// A description for readers of the file.
    #[serde(default, rename = "description")]
    pub _description: String,
    pub repeat: Option<Spanned<u32>>,
    #[serde(default)]
    pub process: Vec<Spanned<RawProcess>>,
    #[serde(default)]
    pub region: Vec<Spanned<RawRegion>>,
    #[serde(default)]
    pub group: Vec<Spanned<RawGroup>>,
    #[serde(default)]
    pub phase: Vec<Spanned<RawPhase>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProcess {
    pub name: String,
    /// So many alike processes, each with its own regions and threads.
    #[serde(default = "one")]
    pub count: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRegion {
    pub name: String,
    pub process: Option<String>,
    pub mib: f64,
    #[serde(default)]
    pub pages: RawPages,
    #[serde(default)]
    pub first_touch: RawTouch,
    /// Name of the group whose threads touch the region first.
    pub group: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) enum RawPages {
    #[default]
    #[serde(rename = "4KiB")]
    Small,
    #[serde(rename = "2MiB")]
    Large,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawTouch {
    /// The thread that accesses a page first in the simulation.
    #[default]
    Use,
    /// The first thread of the group touches all pages.
    First,
    /// Each thread of the group its part.
    Parts,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGroup {
    pub name: String,
    pub process: Option<String>,
    pub threads: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPhase {
    pub name: String,
    /// Whether the phase runs once, before the repeated phases.
    #[serde(default)]
    pub once: bool,
    /// Number of consecutive executions of the phase.
    #[serde(default = "one")]
    pub times: u32,
    /// Whether all its threads wait for one another at its end (each time).
    #[serde(default = "yes")]
    pub barrier: bool,
    #[serde(default)]
    pub work: Vec<Spanned<RawWork>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWork {
    pub group: String,
    /// Only this many first threads of the group do the work; `None`: all.
    pub threads: Option<u32>,
    pub accesses: Option<f64>,
    pub ms: Option<f64>,
    pub accesses_per_us: Option<f64>,
    pub think_ns: Option<f64>,
    #[serde(default = "one_f64")]
    pub outstanding: f64,
    pub instructions_per_ns: Option<f64>,
    /// Greatest random difference of a thread's work, as a share; by a fixed draw.
    #[serde(default)]
    pub jitter: f64,
    #[serde(default)]
    pub on: Vec<Spanned<RawOn>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOn {
    pub region: String,
    #[serde(default = "one_f64")]
    pub share: f64,
    #[serde(default)]
    pub writes: f64,
    #[serde(default)]
    pub pattern: RawPattern,
    /// For pattern `parts`: thread i takes part i + shift.
    #[serde(default)]
    pub shift: u32,
    /// For pattern `zipf`: the exponent.
    pub exponent: Option<f64>,
    /// First and last part of the region that is used, 0 to 1.
    pub from: Option<f64>,
    pub to: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawPattern {
    /// Every thread accesses the whole region evenly.
    #[default]
    Shared,
    /// Each thread of the group its part.
    Parts,
    /// Every thread accesses page k with weight 1 / k^exponent.
    Zipf,
}

fn one() -> u32 {
    1
}

fn one_f64() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}
