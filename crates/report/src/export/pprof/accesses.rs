//! Samples of accesses: one for all accesses with the same call stack, thread, node, home and object.

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::{LocationId, SiteId};
use numapilot_insight::LINE_BYTES;
use numapilot_machine::NodeId;
use numapilot_trace::ids::{StackId, ThreadIndex};

use super::writer::Writer;
use crate::export::{Export, ExportError, places};

/// The key by which accesses are summed to one sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    stack: StackId,
    location: LocationId,
    thread: ThreadIndex,
    node: Option<NodeId>,
    home: Option<NodeId>,
    site: Option<SiteId>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    accesses: u64,
    latency_cycles: u64,
}

fn sums_of(export: &Export<'_>) -> Vec<(Key, Sums)> {
    let mut sums: HashMap<Key, Sums> = HashMap::new();
    for access in export.accesses() {
        let key = Key {
            stack: access.stack,
            location: access.location,
            thread: access.thread,
            node: access.node,
            home: access.home,
            site: export.site_of(&access),
        };
        let sum = sums.entry(key).or_default();
        sum.accesses += u64::from(access.weight);
        let latency = u64::from(access.latency_cycles.unwrap_or(0));
        sum.latency_cycles = sum.latency_cycles.saturating_add(latency * u64::from(access.weight));
    }
    let mut sums: Vec<(Key, Sums)> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, _)| *key);
    sums
}

const ACCESSES: [(&str, &str); 4] =
    [("accesses", "count"), ("remote_accesses", "count"), ("bytes", "bytes"), ("latency", "nanoseconds")];
const FAULTS: [(&str, &str); 2] = [("page_faults", "count"), ("remote_page_faults", "count")];

/// The type of sample that readers show first, and that the period counts. Readers show the last type where they do not find this one.
pub(super) fn default_type(export: &Export<'_>) -> &'static str {
    if export.trace().holds_faults() { FAULTS[0].0 } else { ACCESSES[0].0 }
}

pub(super) fn samples(writer: &mut Writer<'_>) -> Result<(), ExportError> {
    let export = writer.export;
    let sums = sums_of(export);
    let khz = u128::from(export.trace().meta().latency_khz().unwrap_or(0));
    let is_of_faults = export.trace().holds_faults();
    let has_latency = khz > 0 && !is_of_faults && sums.iter().any(|(_, sums)| sums.latency_cycles > 0);
    let types = if is_of_faults { &FAULTS[..] } else { &ACCESSES[..if has_latency { 4 } else { 3 }] };
    writer.value_types(types)?;
    let mut threads: HashMap<ThreadIndex, u64> = HashMap::new();
    let mut sites: HashMap<Option<SiteId>, u64> = HashMap::new();
    let keys = ["node", "home", "object", "thread"].map(|key| writer.strings.number(key));
    for (key, sums) in &sums {
        let is_remote = matches!((key.node, key.home), (Some(node), Some(home)) if node != home);
        let remote = if is_remote { sums.accesses } else { 0 };
        let bytes = sums.accesses * LINE_BYTES as u64;
        let latency_ns = (u128::from(sums.latency_cycles) * 1_000_000 / khz.max(1)) as u64;
        let values = [sums.accesses, remote, bytes, latency_ns];
        let strings = &mut writer.strings;
        let thread = *threads.entry(key.thread).or_insert_with(|| strings.number(&export.thread_name(key.thread)));
        let site = *sites.entry(key.site).or_insert_with(|| strings.number(&export.site_name(key.site)));
        let mut node = |node: Option<NodeId>| match node {
            Some(node) => strings.number(&node.to_string()),
            None => strings.number("unknown"),
        };
        let [of_node, of_home, of_object, of_thread] = keys;
        let labels = [(of_node, node(key.node)), (of_home, node(key.home)), (of_object, site), (of_thread, thread)];
        let stack = places(export.trace(), key.stack, key.location);
        writer.sample(stack, &values[..types.len()], &labels)?;
    }
    Ok(())
}
