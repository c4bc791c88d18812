//! Policies by name: the list of policies, their options, and construction from `name:key=value,...`.

use numapilot_machine::Machine;

use crate::carrefour::{self, Carrefour};
use crate::damon::Damon;
use crate::error::PlacementError;
use crate::fixed::{FirstTouch, Interleave, Local, WeightedInterleave};
use crate::kernel_balancing::KernelBalancing;
use crate::kernel_tiering::KernelTiering;
use crate::nodes::NodeFacts;
use crate::options::{OptionInfo, Options};
use crate::pilot::Pilot;
use crate::policy::Policy;
use crate::replication::Replication;
use crate::tiering::Tiering;

type Make = fn(&Options, &Machine, NodeFacts, u64) -> Result<Box<dyn Policy>, PlacementError>;

/// A policy in the list of policies.
pub struct PolicyInfo {
    /// Name of the policy, as users write it.
    pub name: &'static str,
    /// Summary of the policy, in one line.
    pub summary: &'static str,
    options: &'static [OptionInfo],
    /// Defaults that differ from those in `options`.
    defaults: &'static [(&'static str, &'static str)],
    make: Make,
}

impl PolicyInfo {
    /// The options of the policy, each with its default.
    pub fn options(&self) -> Vec<OptionInfo> {
        let own = |key: &str| self.defaults.iter().find(|(k, _)| *k == key).map(|(_, default)| *default);
        self.options.iter().map(|o| OptionInfo { default: own(o.key).unwrap_or(o.default), ..*o }).collect()
    }
}

/// All policies, the simplest first.
static POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "first-touch",
        summary: "a page is allocated on the node of its first touch and stays: the default of Linux",
        options: &[],
        defaults: &[],
        make: |_, _, _, _| Ok(Box::new(FirstTouch)),
    },
    PolicyInfo {
        name: "local",
        summary: "the same, set for every process in place of the policy that it had: numactl --localalloc",
        options: &[],
        defaults: &[],
        make: |_, _, _, _| Ok(Box::new(Local::default())),
    },
    PolicyInfo {
        name: "interleave",
        summary: "new pages round robin over nodes: numactl --interleave",
        options: Interleave::OPTIONS,
        defaults: &[],
        make: |options, _, facts, _| Ok(Box::new(Interleave::new(options, &facts)?)),
    },
    PolicyInfo {
        name: "weighted-interleave",
        summary: "new pages round robin with weights by bandwidth, as Linux 6.9 and later can",
        options: WeightedInterleave::OPTIONS,
        defaults: &[],
        make: |options, _, facts, _| Ok(Box::new(WeightedInterleave::new(options, &facts)?)),
    },
    PolicyInfo {
        name: "kernel-balancing",
        summary: "a model of Linux NUMA balancing: NUMA hinting faults move pages to threads, and threads to pages",
        options: KernelBalancing::OPTIONS,
        defaults: &[],
        make: |options, _, facts, _| Ok(Box::new(KernelBalancing::new(options, facts)?)),
    },
    PolicyInfo {
        name: "kernel-tiering",
        summary: "a model of Linux memory tiering (numa_balancing=2 with demotion): hot pages of slow memory are promoted, cold ones demoted",
        options: KernelTiering::OPTIONS,
        defaults: &[],
        make: |options, machine, facts, _| Ok(Box::new(KernelTiering::new(options, machine, &facts)?)),
    },
    PolicyInfo {
        name: "damon",
        summary: "a model of DAMON's schemes migrate_hot and migrate_cold: accessed bits of sampled pages tell hot regions from cold ones",
        options: Damon::OPTIONS,
        defaults: &[],
        make: |options, machine, facts, seed| Ok(Box::new(Damon::new(options, machine, &facts, seed)?)),
    },
    PolicyInfo {
        name: "carrefour",
        summary: "collocates, interleaves and replicates by traffic, as published (ASPLOS 2013)",
        options: carrefour::OPTIONS,
        defaults: &[],
        make: |options, _, facts, seed| Ok(Box::new(Carrefour::new("carrefour", options, facts, seed)?)),
    },
    PolicyInfo {
        name: "carrefour-as-coded",
        summary: "the same with the thresholds and the random choice of targets of the released code",
        options: carrefour::OPTIONS,
        defaults: carrefour::AS_CODED,
        make: |options, _, facts, seed| Ok(Box::new(Carrefour::new("carrefour-as-coded", options, facts, seed)?)),
    },
    PolicyInfo {
        name: "carrefour-lp",
        summary: "the form for large pages: moves each once, splits what is shared or hot (USENIX ATC 2014)",
        options: carrefour::OPTIONS,
        defaults: carrefour::LARGE_PAGES,
        make: |options, _, facts, seed| Ok(Box::new(Carrefour::new("carrefour-lp", options, facts, seed)?)),
    },
    PolicyInfo {
        name: "replication",
        summary: "copies of pages that several nodes read and none writes; waits longer after each collapse",
        options: Replication::OPTIONS,
        defaults: &[],
        make: |options, _, facts, _| Ok(Box::new(Replication::new(options, facts)?)),
    },
    PolicyInfo {
        name: "tiering",
        summary: "moves pages between memory with and without CPUs until both answer equally fast under load, as Colloid does (SOSP 2024)",
        options: Tiering::OPTIONS,
        defaults: &[],
        make: |options, machine, facts, _| Ok(Box::new(Tiering::new(options, machine, facts)?)),
    },
    PolicyInfo {
        name: "pilot",
        summary: "numapilot's own: moves pages and threads to the placement with the least delay by the traffic model, once waiting has cost as much as moving",
        options: Pilot::OPTIONS,
        defaults: &[],
        make: |options, machine, facts, _| Ok(Box::new(Pilot::new(options, machine, &facts)?)),
    },
];

/// Every policy that [`policy_by_name`] knows.
pub fn policies() -> &'static [PolicyInfo] {
    POLICIES
}

/// The policy called `spec`: a name, or `name:key=value,key=value`. Whatever it draws at random follows from `seed`. Errors say what would be valid.
pub fn policy_by_name(spec: &str, machine: &Machine, seed: u64) -> Result<Box<dyn Policy>, PlacementError> {
    let (name, text) = spec.split_once(':').unwrap_or((spec, ""));
    let name = name.trim();
    let Some(info) = POLICIES.iter().find(|p| p.name == name) else {
        return Err(PlacementError::UnknownPolicy {
            name: name.to_owned(),
            known: POLICIES.iter().map(|p| p.name).collect(),
        });
    };
    let options = Options::parse(info.name, info.options(), text)?;
    (info.make)(&options, machine, NodeFacts::new(machine)?, seed)
}
