//! The built-in models say what was published, and every slip in a model file gets an error with its line and remedy.

use numapilot_machine::{
    Bind, CpuId, Endpoint, LinkId, Machine, MemoryTier, NodeId, NodeKind, builtin_names, builtin_text,
};
use proptest::prelude::*;

const OPTERON: &str = include_str!("../../../models/opteron-8385.toml");

fn ns(machine: &Machine, from: u16, to: u16) -> f64 {
    machine.idle_latency_ns(NodeId(from), NodeId(to)).unwrap()
}

#[test]
fn the_opteron_is_as_published() {
    let machine = Machine::load("opteron-8385").unwrap();
    assert_eq!((machine.nodes().len(), machine.cpus().len(), machine.clock_mhz()), (4, 16, Some(2300.0)));
    assert_eq!(machine.memory_bytes(), 64 << 30);
    assert_eq!(machine.broadcasts_probes(), Some(true));
    assert_eq!(machine.links().len(), 8, "four cables, each two directed links");
    assert!(machine.links().iter().all(|l| l.bandwidth_bytes_per_s == 4e9));
    assert_eq!(machine.routes(NodeId(0), NodeId(3)).len(), 2, "the diagonal goes either way round");
    assert_eq!(machine.hops(NodeId(0), NodeId(0)), Some(0));
    for (from, to) in [(0, 1), (0, 2)] {
        let ratio = ns(&machine, from, to) / ns(&machine, from, from);
        assert!((1.08..=1.09).contains(&ratio), "one hop is 108-109 % of local: {ratio}");
    }
    let diagonal = ns(&machine, 0, 3) / ns(&machine, 0, 0);
    assert!((1.295..=1.31).contains(&diagonal), "two hops are 130 % of local: {diagonal}");
    for (place, low, high) in [("idle_latency[1].over_local", 1.08, 1.3), ("idle_latency[2].over_local", 1.28, 1.6)] {
        let ratio = machine.unknowns().iter().find(|unknown| unknown.place == place).unwrap();
        assert_eq!((ratio.low, ratio.high), (low, high), "a hop there and back: 30 of 100 ns at most");
    }
    let links = machine.unknowns().iter().find(|unknown| unknown.place == "links[0].bandwidth_gb_per_s").unwrap();
    assert_eq!((links.low, links.high), (3.2e9, 4e9), "HyperTransport 1.0 at 800 MHz and at 1 GHz");
    let l3 = machine.data_cache(CpuId(5), 3).unwrap();
    assert_eq!((l3.size_bytes, l3.ways, l3.latency_cycles, l3.cpus.len()), (6 << 20, Some(48), Some(56.0), 4));
}

/// The probe filter takes 1 MiB of each die's L3; STREAM says what the controllers reach, and the northbridge's 8 bytes at 1.8 GHz what they cannot exceed.
#[test]
fn magny_cours_has_its_probe_filter_and_its_northbridge() {
    for name in ["memprof-b", "memprof-c"] {
        let machine = Machine::load(name).unwrap();
        let l3 = machine.data_cache(CpuId(5), 3).unwrap();
        assert_eq!((l3.size_bytes, l3.ways), (5 << 20, Some(40)), "{name}");
        let sets = l3.size_bytes / 64 / 40;
        assert_eq!(sets, (6 << 20) / 64 / 48, "{name}: ways were taken, no sets");
        let peak = machine.nodes()[0].memory_bandwidth_bytes_per_s.unwrap();
        let efficiency = machine.unknowns().iter().find(|u| u.place == "traffic.controller_efficiency").unwrap();
        assert!((efficiency.high - 8.0 * 1.8e9 / peak).abs() < 0.005, "{name}: {efficiency:?}");
        // 100 GB/s of eight nodes, a third of it writes, which take none to two fifths longer (docs/traffic-model.md).
        let of = |turnaround: f64| 100e9 / 8.0 / peak * (1.0 + turnaround / 3.0);
        assert!((of(0.2) - efficiency.value).abs() < 0.01, "{name}: {efficiency:?}");
        assert!(efficiency.low <= of(0.0) && of(0.4) <= efficiency.high, "{name}: {efficiency:?}");
    }
}

/// One thread that adds up an array reads 4.51 GB/s on Shanghai at 2.9 GHz and 74 ns (McCalpin, 2010). A line's eight adds are eight cycles of own work, which
/// the traffic model counts beside the waiting: what is left is the waiting.
#[test]
fn streams_on_k10_wait_for_what_own_work_leaves() {
    let outstanding = |own_cycles: f64| 74.0 / (64.0 / 4.512 - own_cycles / 2.9);
    for name in ["opteron-8385", "memprof-a", "memprof-b", "memprof-c"] {
        let streams = Machine::load(name).unwrap().traffic().stream_outstanding.unwrap();
        assert!((outstanding(8.0) - streams).abs() < 0.05, "{name}: {streams}, {} by the loop", outstanding(8.0));
    }
    assert!((outstanding(0.0) - 5.2).abs() < 0.05, "the least, {}", outstanding(0.0));
}

#[test]
fn the_others_have_the_published_shape() {
    let shapes = [
        ("memprof-a", 4, 16, 2500.0, 32u64),
        ("memprof-b", 4, 24, 1700.0, 48),
        ("memprof-c", 8, 48, 2200.0, 256),
        ("x1-32xlarge", 4, 128, 2300.0, 1920),
        ("epyc-2s-nps1", 2, 256, 3100.0, 768),
        ("epyc-2s-nps4", 8, 256, 3100.0, 768),
        ("xeon-2s", 2, 224, 2000.0, 512),
        ("xeon-2s-snc2", 4, 224, 2000.0, 512),
        ("xeon-2s-snc4", 8, 224, 2000.0, 512),
        ("xeon-2s-cxl", 3, 224, 2000.0, 640),
        ("xeon-max-flat", 4, 224, 1900.0, 384),
    ];
    assert_eq!(shapes.len() + 1, builtin_names().count());
    for (name, nodes, cpus, mhz, gib) in shapes {
        let machine = Machine::load(name).unwrap();
        assert_eq!(
            (machine.nodes().len(), machine.cpus().len(), machine.clock_mhz()),
            (nodes, cpus, Some(mhz)),
            "{name}"
        );
        assert_eq!(machine.memory_bytes(), gib << 30, "{name}");
        for from in machine.nodes().iter().filter(|n| n.has_cpus()) {
            assert!(machine.nodes().iter().all(|to| machine.idle_latency_cycles(from.id, to.id).is_some()), "{name}");
            assert!(
                machine.nodes().iter().all(|to| ns(&machine, from.id.0, to.id.0) >= ns(&machine, from.id.0, from.id.0)),
                "{name}"
            );
        }
        let layout = machine.thread_layout(Bind::Spread, None);
        let with_cpus: Vec<_> = machine.nodes().iter().filter(|n| n.has_cpus()).map(|n| n.id).collect();
        for (thread, cpu) in layout.iter().enumerate() {
            assert_eq!(machine.node_of_cpu(*cpu), Some(with_cpus[thread % with_cpus.len()]), "{name}: thread {thread}");
        }
        let mut sorted = layout.clone();
        sorted.sort();
        assert!(sorted.iter().copied().eq(machine.cpus().iter().map(|c| c.id)), "{name}: every CPU once");
    }
    let two_hops = Machine::load("memprof-c").unwrap();
    assert_eq!(two_hops.hops(NodeId(0), NodeId(3)), Some(2), "two-hop pairs exist");
    let cxl = Machine::load("xeon-2s-cxl").unwrap();
    assert_eq!(cxl.node(NodeId(2)).unwrap().kind(), NodeKind::MemoryOnly);
    assert!((170.0..=250.0).contains(&ns(&cxl, 0, 2)));
    let hbm = Machine::load("xeon-max-flat").unwrap();
    assert_eq!([2, 3].map(|id| hbm.node(NodeId(id)).unwrap().kind()), [NodeKind::MemoryOnly; 2]);
    assert_eq!(hbm.nodes_of_tier(MemoryTier::Wide), [NodeId(2), NodeId(3)]);
    let epyc = Machine::load("epyc-2s-nps1").unwrap();
    assert_eq!(epyc.l3_caches().len(), 16);
    let first: Vec<_> = epyc.thread_layout(Bind::Spread, None)[..16].iter().map(|&c| epyc.l3_index(c)).collect();
    let mut distinct = first.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 16, "spread takes each L3 once before any twice: {first:?}");
}

#[test]
fn every_figure_has_a_source_and_every_source_is_used() {
    for name in builtin_names() {
        let machine = Machine::load(name).unwrap();
        for line in
            builtin_text(name).unwrap().lines().skip_while(|l| *l != "[sources]").skip(1).take_while(|l| !l.is_empty())
        {
            let words = line.split_once("= ").unwrap().1.trim_matches('"');
            assert!(machine.figures().iter().any(|f| f.source == words), "{name}: nothing is from {line}");
        }
    }
}

#[test]
fn routes_go_over_routers_and_one_way_links() {
    let epyc = Machine::load("epyc-2s-nps4").unwrap();
    let path = epyc.route(NodeId(1), NodeId(6));
    let stops: Vec<Endpoint> = path.iter().map(|&l| epyc.link(l).unwrap().to).collect();
    assert!(matches!(stops[..], [Endpoint::Router(_), Endpoint::Router(_), Endpoint::Node(NodeId(6))]), "{stops:?}");
    let one_way = OPTERON.replace(
        "pairs = [[0, 1], [0, 2], [1, 3], [2, 3]]\nboth_ways = true",
        "pairs = [[0, 1], [1, 3], [3, 2], [2, 0]]",
    ) + "[[idle_latency]]\nhops = 3\nns = { value = 170, source = \"a test\" }\n";
    let ring = Machine::from_model_text(&one_way, "ring.toml").unwrap();
    assert_eq!((ring.hops(NodeId(0), NodeId(1)), ring.hops(NodeId(1), NodeId(0))), (Some(1), Some(3)));
    let explicit = OPTERON.to_owned() + "[[routes]]\npaths = [[0, 2, 3]]\n";
    let explicit = Machine::from_model_text(&explicit, "explicit.toml").unwrap();
    assert_eq!(explicit.routes(NodeId(0), NodeId(3)), [vec![LinkId(2), LinkId(6)]]);
    assert_eq!(explicit.routes(NodeId(3), NodeId(0)).len(), 2, "the way back is derived as before");
}

/// Text to replace, its replacement, and what the error must hold.
const SLIPS: &[(&str, &str, &[&str])] = &[
    ("format = 1", "format = 9", &["slip.toml:4:", "format 9", "write `format = 1`"]),
    ("clock_mhz = { value = 2300", "clock_mhz = { value = -1", &["slip.toml:8:", "clock_mhz", "give a number"]),
    ("clock_mhz = { value = 2300", "clock_mhz = { value = nan", &["clock_mhz", "NaN"]),
    ("value = 4, source = \"ht1\"", "value = 0, source = \"ht1\"", &["links[0].bandwidth_gb_per_s", "give a number"]),
    ("value = 16, source = \"carrefour\"", "value = 1e300, source = \"carrefour\"", &["nodes[0].memory_gib"]),
    (
        "pairs = [[0, 1], [0, 2], [1, 3], [2, 3]]",
        "pairs = [[0, 1]]",
        &["links", "no route leads from node", "add the missing"],
    ),
    (
        "pairs = [[0, 1], [0, 2], [1, 3], [2, 3]]\nboth_ways = true",
        "pairs = [[0, 1], [0, 2], [1, 3], [2, 3]]",
        &["no route leads from node 1 to node 0"],
    ),
    ("pairs = [[0, 1], ", "pairs = [[0, 9], ", &["links", "node 9 does not exist"]),
    ("pairs = [[0, 1], ", "pairs = [[0, \"hub\"], ", &["no router \"hub\"", "[[routers]]"]),
    ("pairs = [[0, 1], ", "pairs = [[0, 1], [1, 0], ", &["described twice"]),
    ("pairs = [[0, 1], ", "pairs = [[2, 2], [0, 1], ", &["both of its ends are the same"]),
    ("ids = [0, 1, 2, 3]", "ids = [0, 1, 2, 2]", &["slip.toml:", "node 2", "described twice"]),
    ("\"12-15\"", "\"0-3\"", &["CPU 0", "described twice"]),
    ("\"12-15\"", "\"12-2000\"", &["1024 CPUs"]),
    ("\"12-15\"", "\"12-x\"", &["nodes[0].cpus[3]", "not a number"]),
    ("threads_per_core = 1", "threads_per_core = 3", &["threads_per_core"]),
    ("sockets = [0, 1, 2, 3]", "sockets = [0, 1]", &["2 entries for 4 ids"]),
    ("shared_by = \"node\"", "", &["caches[2]", "shared_by"]),
    ("hops = 2", "hops = 7", &["no pair of nodes fits"]),
    (
        "source = \"jedec\"",
        "source = \"jedek\"",
        &["nodes[0].memory_bandwidth_gb_per_s", "\"jedek\" is not in [sources]"],
    ),
    (
        "memory_kind",
        "cpus_read_gb_per_s = { value = 0, source = \"jedec\" }\nmemory_kind",
        &["nodes[0].cpus_read_gb_per_s", "give a number from"],
    ),
    ("threads_per_core", "threads_per_chore", &["slip.toml:", "unknown field `threads_per_chore`"]),
    ("level = 3", "level = 9", &["level 9 is not a cache level"]),
    ("name = \"opteron-8385\"", "name = \"../etc\"", &["slip.toml:5:", "is not a valid model name"]),
    ("[[nodes]]", "[[nodes", &["slip.toml:"]),
];

#[test]
fn every_slip_is_named_with_place_and_remedy() {
    for (from, to, parts) in SLIPS {
        assert!(OPTERON.contains(from), "{from}");
        let message = Machine::from_model_text(&OPTERON.replacen(from, to, 1), "slip.toml").expect_err(to).to_string();
        for part in *parts {
            assert!(message.contains(part), "{from:?} -> {to:?}: {message:?} lacks {part:?}");
        }
        assert!(message.contains("slip.toml"), "{message}");
    }
}

#[test]
fn slips_in_routes_are_named() {
    for (paths, part) in [
        ("[[0, 3]]", "step 1 of the path from node 0 to node 3 has no link"),
        ("[[0, 1, 0, 2, 3]]", "a cycle"),
        ("[[0, 1], [0, 2]]", "different pairs"),
        ("[]", "no path"),
        ("[[]]", "does not begin and end at nodes"),
        ("[[1]]", "from one node to another"),
        ("[[0, 1, 3], [0, 7, 3]]", "has no link"),
    ] {
        let text = format!("{OPTERON}[[routes]]\npaths = {paths}\n");
        let message = Machine::from_model_text(&text, "slip.toml").expect_err(paths).to_string();
        assert!(message.contains(part) && message.contains("routes"), "{paths}: {message}");
    }
    let missing = OPTERON.replace("[[idle_latency]]\nhops = 2", "[[idle_latency]]\nhops = 1");
    let message = Machine::from_model_text(&missing, "slip.toml").unwrap_err().to_string();
    assert!(message.contains("from node 0 to node 3 (2 hops)") && message.contains("hops = 2"), "{message}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let message = Machine::load("./no/such.toml").unwrap_err().to_string();
    assert!(message.contains("./no/such.toml") && message.contains("check the path"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, OPTERON).unwrap();
    assert_eq!(Machine::load(path.to_str().unwrap()).unwrap().name(), "opteron-8385");
    std::fs::write(&path, [0u8, 159, 146]).unwrap();
    assert!(Machine::load(path.to_str().unwrap()).unwrap_err().to_string().contains("mine.toml"));
}

#[test]
fn machines_survive_json() {
    for name in builtin_names() {
        let machine = Machine::load(name).unwrap();
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    /// Cuts, repeats and overwrites pieces of real models: an answer or an error that names the file, never a panic.
    #[test]
    fn mutated_models_never_panic(
        which in 0usize..12,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, "[0-9a-z\\[\\]{}=\", .-]{0,12}|-1|1e999|nan|99999999999|\u{0}"), 1..6),
    ) {
        let mut text = builtin_text(builtin_names().nth(which).unwrap()).unwrap().as_bytes().to_vec();
        for (at, length, new) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            text.splice(at..end, new.into_bytes());
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        if let Err(error) = Machine::from_model_text(&text, "mutated.toml") {
            prop_assert!(error.to_string().starts_with("mutated.toml"), "{}", error);
        }
    }

    /// Single figures replaced by other numbers: the likeliest slip of all.
    #[test]
    fn changed_numbers_never_panic(which in 0usize..12, nth in any::<prop::sample::Index>(), number in prop_oneof![
        any::<f64>().prop_map(|f| f.to_string()), any::<i64>().prop_map(|i| i.to_string()), (0u32..400).prop_map(|i| i.to_string()),
    ]) {
        let text = builtin_text(builtin_names().nth(which).unwrap()).unwrap();
        let starts: Vec<usize> = text.match_indices(char::is_numeric).map(|(i, _)| i).filter(|&i| i == 0 || !text.as_bytes()[i - 1].is_ascii_digit()).collect();
        let start = *nth.get(&starts);
        let end = start + text[start..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - start);
        let _ = Machine::from_model_text(&format!("{}{number}{}", &text[..start], &text[end..]), "mutated.toml");
    }
}

#[test]
fn the_documented_example_is_a_model() {
    let page = include_str!("../../../docs/machine-model.md");
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let machine = Machine::from_model_text(example, "docs/machine-model.md").unwrap();
    assert_eq!((machine.nodes().len(), machine.cpus().len()), (3, 16));
    assert_eq!(machine.cpu(CpuId(9)).unwrap().siblings, [CpuId(1), CpuId(9)]);
    assert_eq!(ns(&machine, 1, 2), 230.0);
    assert_eq!(machine.route(NodeId(1), NodeId(2)).len(), 2);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), Some(17), "derived: 150 ns over 90 ns");
}

#[test]
fn how_far_a_core_overlaps_is_read_bounded_and_kept() {
    for name in numapilot_machine::builtin_names() {
        let core = *Machine::load(name).unwrap().core();
        assert!(core.window_instructions.is_some() && core.outstanding_misses.is_some(), "{name}");
    }
    let text = OPTERON.split("\n[core]").next().unwrap();
    let with = |line: &str| Machine::from_model_text(&format!("{text}\n[core]\n{line}\n"), "m.toml");
    let unknown = *with("").unwrap().core();
    assert!(unknown.is_empty());
    assert_eq!((unknown.window().value, unknown.misses().low, unknown.misses().high), (128.0, 8.0, 12.0));
    let known = with("outstanding_misses = { value = 20, source = \"a guess\", range = [18, 22.5] }").unwrap();
    let misses = known.core().misses();
    assert_eq!((misses.low, misses.value, misses.high), (18.0, 20.0, 22.5));
    let exact = with("window_instructions = { value = 512, source = \"a manual\" }").unwrap().core().window();
    assert_eq!((exact.low, exact.high), (512.0, 512.0), "without a range it is known");
    let kept: Machine = serde_json::from_str(&serde_json::to_string(&known).unwrap()).unwrap();
    assert_eq!(kept, known);
    let error = with("outstanding_misses = { value = 0, source = \"a guess\" }").unwrap_err().to_string();
    assert!(error.contains("core.outstanding_misses") && error.contains("m.toml"), "{error}");
    let error =
        with("window_instructions = { value = 9, source = \"a guess\", range = [1, 8] }").unwrap_err().to_string();
    assert!(error.contains("does not hold its value 9"), "{error}");
    assert!(with("reorder_buffer = { value = 9, source = \"a guess\" }").is_err());
}

#[test]
fn measured_queueing_delays_are_a_range_around_the_models() {
    let with = |figure: &str| {
        let line = format!("[traffic]\nqueueing_delay = {{ source = \"a measurement\", {figure} }}\n");
        Machine::from_model_text(&OPTERON.replace("[traffic]\n", &line), "m.toml")
    };
    let good = with("value = 1, range = [0.913, 1.217]").unwrap();
    let delay = good.traffic().queueing_delay.unwrap();
    assert_eq!((delay.value, delay.low, delay.high), (1.0, 0.913, 1.217));
    assert!(good.figures().iter().any(|f| f.place == "traffic.queueing_delay" && f.range == Some((0.913, 1.217))));
    assert_eq!(serde_json::from_str::<Machine>(&serde_json::to_string(&good).unwrap()).unwrap(), good);
    for (figure, part) in [
        ("value = 1", "it has no range"),
        ("value = 1.1, range = [0.9, 1.2]", "its value is 1.1"),
        ("value = 1, range = [1.1, 1.2]", "does not hold its value 1"),
        ("value = 1, range = [0, 1.2]", "a bound of its range is 0"),
        ("value = 1, range = [-1, 1.2]", "a bound of its range is -1"),
        ("value = 1, range = [0.9, 1e9]", "a bound of its range is 1000000000"),
        ("value = 1, range = [nan, 1.2]", "NaN"),
        ("value = 1, range = [0.9, inf]", "inf"),
        ("value = nan, range = [0.9, 1.2]", "NaN"),
    ] {
        let error = with(figure).expect_err(figure).to_string();
        assert!(
            error.contains(part) && error.contains("traffic.queueing_delay") && error.contains("m.toml:"),
            "{error}"
        );
    }
    for figure in ["value = 1, range = [0.9]", "value = 1, range = \"all\"", "range = [0.9, 1.2]"] {
        assert!(with(figure).is_err(), "{figure}");
    }
    // A recording's description of its machine is checked as well.
    for (was, is) in
        [("\"low\":0.913", "\"low\":-3.0"), ("\"high\":1.217", "\"high\":1e300"), ("\"high\":1.217", "\"high\":0.5")]
    {
        let text = serde_json::to_string(&good).unwrap();
        assert!(text.contains(was), "{text}");
        assert!(serde_json::from_str::<Machine>(&text.replacen(was, is, 1)).is_err(), "{is}");
    }
}

#[test]
fn figures_for_the_traffic_model_are_read_and_bounded() {
    let figures = *Machine::load("x1-32xlarge").unwrap().traffic();
    assert!(figures.controller_efficiency.is_some() && figures.stream_outstanding.is_some());
    assert_eq!(figures.message_bytes, None, "nobody told: the traffic model's default");
    let opteron = numapilot_machine::TrafficFigures {
        message_bytes: Some(8.0),
        answer_bytes: Some(4.0),
        completion_bytes: Some(4.0),
        release_bytes: Some(4.0),
        link_efficiency: Some(0.87),
        stream_outstanding: Some(6.5),
        ..Default::default()
    };
    assert_eq!(*Machine::load("opteron-8385").unwrap().traffic(), opteron);
    assert_eq!(*Machine::load("memprof-a").unwrap().traffic(), opteron, "the same links");
    let with = |line: &str| {
        Machine::from_model_text(&OPTERON.replace("[traffic]\n", &format!("[traffic]\n{line}\n")), "m.toml")
    };
    let good = with("write_turnaround = { value = 0.3, source = \"a guess\", estimate = true }").unwrap();
    assert_eq!(good.traffic().write_turnaround, Some(0.3));
    assert!(good.figures().iter().any(|f| f.place == "traffic.write_turnaround" && f.estimate));
    let kept: Machine = serde_json::from_str(&serde_json::to_string(&good).unwrap()).unwrap();
    assert_eq!(kept, good);
    // Waits beside queues: through a model file and through a recording, with its range.
    let crowded = with("crowding = { value = 33.9, source = \"a guess\", estimate = true, range = [20, 50] }").unwrap();
    assert_eq!(crowded.traffic().crowding, Some(33.9));
    let unknown = crowded.unknowns().iter().find(|unknown| unknown.place == "traffic.crowding").expect("its range");
    assert_eq!((unknown.low, unknown.value, unknown.high), (20.0, 33.9, 50.0));
    assert_eq!(serde_json::from_str::<Machine>(&serde_json::to_string(&crowded).unwrap()).unwrap(), crowded);
    assert!(!serde_json::to_string(&good).unwrap().contains("crowding"), "recordings without it are as they were");
    for value in ["-0.1", "10001", "nan", "inf"] {
        let error = with(&format!("crowding = {{ value = {value}, source = \"a guess\" }}")).unwrap_err().to_string();
        assert!(error.contains("traffic.crowding") && error.contains("m.toml"), "{value}: {error}");
    }
    let error = with("controller_efficiency = { value = 80, source = \"a guess\" }").unwrap_err().to_string();
    assert!(error.contains("traffic.controller_efficiency") && error.contains("0.01 to 1"), "{error}");
    assert!(with("efficiency = { value = 0.8, source = \"a guess\" }").is_err());
    for (was, is, place) in [
        ("release_bytes = { value = 4,", "release_bytes = { value = 0.5,", "traffic.release_bytes"),
        ("answer_bytes = { value = 4,", "answer_bytes = { value = 300,", "traffic.answer_bytes"),
        ("completion_bytes = { value = 4,", "completion_bytes = { value = nan,", "traffic.completion_bytes"),
        ("link_efficiency = { value = 0.87,", "link_efficiency = { value = 1.1,", "traffic.link_efficiency"),
    ] {
        assert!(OPTERON.contains(was), "{was}");
        let error = Machine::from_model_text(&OPTERON.replace(was, is), "m.toml").unwrap_err().to_string();
        assert!(error.contains(place) && error.contains("m.toml"), "{error}");
    }
}
