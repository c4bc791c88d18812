//! The page's JSON head: what ran, the machine as it is to be drawn, and every figure that `insight` computed, so that the page shows without
//! a filter exactly what `numapilot report` prints.

use numapilot_insight::Analysis;
use numapilot_insight::DecisionRow;
use numapilot_insight::FunctionRow;
use numapilot_insight::Headline;
use numapilot_insight::HeapProfile;
use numapilot_insight::Matrix;
use numapilot_insight::SampledHeap;
use numapilot_insight::ThreadRow;
use numapilot_insight::Verdict;
use numapilot_insight::cube::Cube;
use numapilot_insight::cube::Grain;
use numapilot_machine::Machine;
use serde_json::Value;
use serde_json::json;

use super::contents::METRICS;
use super::contents::Page;
use super::findings;
use super::pack::compact;
use super::tables::INSTANCES_MAX;
use super::tables::Tables;
use crate::counted::Counted;
use crate::topo::layout::Sizes;
use crate::topo::layout::layout;

/// Version of the page's data. It rises when a field is removed or changes its meaning.
const VERSION: u32 = 1;
/// Sites and functions whose rows come with intervals; the page computes the others from its own rows.
const ROWS_WITH_INTERVALS: usize = 400;
/// The machine's drawing: size of a node's card and the space between cards.
const SIZES: Sizes = Sizes { card_width: 176.0, card_height: 96.0, gap: 124.0 };

/// The head, and the text that the page shows without JavaScript.
pub struct Head {
    pub value: Value,
    pub program: String,
    pub summary: Vec<String>,
}

/// `insight`'s figures of the whole recording, computed in parallel with the cube.
pub struct Figures {
    headline: Headline,
    sites: Vec<DecisionRow>,
    matrix: Matrix,
    threads: Vec<ThreadRow>,
    functions: Vec<FunctionRow>,
    heap: Option<HeapProfile>,
    sampled_heap: Option<SampledHeap>,
}

impl Figures {
    pub fn of(analysis: &Analysis<'_>) -> Figures {
        let sites = analysis.sites();
        Figures {
            headline: analysis.headline_of(&sites),
            sites,
            matrix: analysis.matrix(),
            threads: analysis.threads(),
            functions: analysis.functions(),
            heap: analysis.heap(),
            sampled_heap: analysis.sampled_heap(),
        }
    }
}

/// Builds the head. The columns must be complete, because the head holds their strings.
pub fn head(page: &Page<'_>, cube: &Cube, figures: &Figures, tables: &Tables<'_>) -> Head {
    let analysis = page.analysis;
    let Figures { headline, sites, matrix, threads, functions, heap: allocated, sampled_heap: sampled } = figures;
    let priced = page.findings;
    let duration = headline.totals.duration.0;
    let verdict = if analysis.is_heap_only() {
        findings::heap_only()
    } else {
        findings::verdict(headline, priced, analysis.nodes())
    };
    let verdict = [findings::missing(page.heading), verdict].concat();
    let mut found = findings::priced(priced, analysis.trace(), page.machine);
    let counted = Counted::of(analysis.trace());
    // What page faults show of an object's use is too little for advice, and where there is nothing to fix, or nothing can be judged, there is none.
    if found.is_empty() && !counted.is_faults() {
        found = findings::findings(sites, analysis.nodes(), priced.nothing.is_none());
    }
    let memory = |node: &numapilot_machine::NodeId| analysis.memory_nodes().contains(node);
    let filter = analysis.filter();
    let summary = summary(headline, &verdict, &found);
    let value = json!({
        "format": "numapilot-html",
        "version": VERSION,
        "tool": page.version,
        "recording": page.heading,
        "limits": page.heading.limits(),
        "filtered": !filter.is_empty(),
        "counted": counted,
        "grain": grain(cube),
        "line_sampling": analysis.trace().line_sampling(),
        "clock_khz": analysis.trace().meta().clock.khz,
        "start_ns": cube.start.0,
        "duration_ns": duration,
        "nodes": analysis.nodes(),
        "has_memory": analysis.nodes().iter().map(memory).collect::<Vec<bool>>(),
        "machine": page.machine.map(machine),
        "headline": headline,
        "verdict": verdict,
        "findings": found,
        "matrix": matrix,
        "site_count": sites.len(),
        "sites": &sites[..sites.len().min(ROWS_WITH_INTERVALS)],
        "threads": threads,
        "function_count": functions.len(),
        "functions": &functions[..functions.len().min(ROWS_WITH_INTERVALS)],
        "heap": allocated.as_ref().map(heap),
        "sampled_heap": sampled.as_ref().map(sampled_heap),
        "heap_only": analysis.is_heap_only(),
        "marks": analysis.trace().marks(),
        "processes": analysis.trace().processes(),
        "strings": tables.strings(),
        "definitions": METRICS,
    });
    Head { value: compact(value), program: page.heading.program().to_owned(), summary }
}

/// The heap with its first sites. Without its threads: the page's tables of threads are of accesses.
fn heap(profile: &HeapProfile) -> Value {
    json!({
        "total": profile.total,
        "peak_bytes": profile.peak_bytes,
        "peak_blocks": profile.peak_blocks,
        "peak_time": profile.peak_time,
        "site_count": profile.sites.len(),
        "sites": &profile.sites[..profile.sites.len().min(ROWS_WITH_INTERVALS)],
    })
}

/// Java's objects with their first sites.
fn sampled_heap(sampled: &SampledHeap) -> Value {
    json!({
        "interval_bytes": sampled.interval_bytes,
        "total": sampled.total,
        "peak_time": sampled.peak_time,
        "site_count": sampled.sites.len(),
        "sites": &sampled.sites[..sampled.sites.len().min(ROWS_WITH_INTERVALS)],
    })
}

fn grain(cube: &Cube) -> Value {
    let (kind, level) = match cube.grain {
        Grain::Samples => ("samples", Value::Null),
        Grain::Cells(level) => ("cells", json!(level)),
    };
    json!({
        "kind": kind,
        "level": level,
        "bin_ns": cube.bin_ns,
        "page_bin_ns": cube.page_bin_ns,
        "latency_bin_ns": cube.latency_bin_ns,
        "rows": cube.rows.len(),
        "samples": cube.samples,
        "folded": cube.folded,
        "instances": cube.instances.len(),
        "instances_listed": cube.instances.len().min(INSTANCES_MAX),
    })
}

/// The machine as the page draws it: positions of nodes and routers, the links, and the route of each pair of nodes.
fn machine(machine: &Machine) -> Value {
    let layout = layout(machine, SIZES);
    let nodes = machine.nodes().iter().zip(&layout.nodes).map(|(node, place)| {
        json!({
            "id": node.id,
            "x": place.0,
            "y": place.1,
            "socket": node.socket,
            "cpus": node.cpus.iter().filter(|&&cpu| machine.cpu(cpu).is_some_and(|cpu| cpu.online)).count(),
            "memory_bytes": node.memory_bytes,
            "memory_kind": node.memory_kind,
            "memory_bandwidth_bytes_per_s": node.memory_bandwidth_bytes_per_s,
        })
    });
    let routers = machine.routers().iter().zip(&layout.routers);
    let routers = routers.map(|(router, place)| json!({"name": router.name, "x": place.0, "y": place.1}));
    let ids = || machine.nodes().iter().map(|node| node.id);
    let pairs = ids().flat_map(|home| ids().filter(move |from| *from != home).map(move |from| (home, from)));
    let routes = pairs.filter(|&(home, from)| !machine.routes(home, from).is_empty());
    json!({
        "name": machine.name(),
        "width": layout.width,
        "height": layout.height,
        "card_width": SIZES.card_width,
        "card_height": SIZES.card_height,
        "nodes": nodes.collect::<Vec<_>>(),
        "routers": routers.collect::<Vec<_>>(),
        "links": machine.links(),
        "routes": routes.map(|(home, from)| json!([home, from, machine.routes(home, from)])).collect::<Vec<_>>(),
    })
}

/// The first screen as plain sentences, for browsers without JavaScript.
fn summary(headline: &Headline, verdict: &[findings::Words], found: &[findings::Finding]) -> Vec<String> {
    if headline.verdict == Verdict::NotSampled {
        return vec![findings::text(verdict)];
    }
    let totals = &headline.totals;
    let figures = format!(
        "Remote accesses: {} of {}. Controller imbalance: {} (population).",
        crate::estimates::share(&totals.remote_share),
        crate::estimates::remote_base(totals, "memory accesses"),
        numapilot_text::units::whole_percent(totals.imbalance.population.value)
    );
    let has_figures = !matches!(
        headline.verdict,
        Verdict::Blind | Verdict::NothingSeen | Verdict::NothingPasses | Verdict::HomesUnknown | Verdict::PageFaults
    );
    let mut lines = vec![findings::text(verdict)];
    lines.extend(has_figures.then_some(figures));
    lines.extend(found.iter().map(|finding| format!("{} {}", findings::text(&finding.says), finding.advice)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_drawn_with_the_cpus_that_are_online() {
        let tree = numapilot_host::testing::tree("offline-cpus");
        let read = Machine::from_sysfs(tree.path()).unwrap();
        let drawn = machine(&read);
        let cpus = drawn["nodes"].as_array().unwrap().iter().map(|node| node["cpus"].as_u64().unwrap());
        assert_eq!(cpus.sum::<u64>(), read.online_cpu_count() as u64);
        assert!(read.nodes().iter().map(|node| node.cpus.len()).sum::<usize>() > read.online_cpu_count());
    }
}
