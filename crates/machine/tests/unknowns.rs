//! What is not known exactly of a machine: ranges are read and checked, and other values go where they belong.

use numapilot_machine::{FigureValue, Machine, NodeId, Subject, builtin_names};

const OPTERON: &str = include_str!("../../../models/opteron-8385.toml");

fn ns(machine: &Machine, from: u16, to: u16) -> f64 {
    machine.idle_latency_ns(NodeId(from), NodeId(to)).unwrap()
}

#[test]
fn every_estimate_of_the_built_in_models_has_a_range() {
    for name in builtin_names() {
        let machine = Machine::load(name).unwrap();
        for figure in machine.figures().iter().filter(|f| f.estimate && matches!(f.value, FigureValue::Number(_))) {
            let place = figure.place.replace(".ns", ".over_local");
            let known = figure.range.is_some() || machine.unknowns().iter().any(|unknown| unknown.place == place);
            assert!(known, "{name}: {} has no range", figure.place);
        }
        assert!(machine.unknowns().iter().all(|u| u.low <= u.value && u.value <= u.high && u.low < u.high), "{name}");
        assert!(machine.unknowns().iter().all(|u| !u.source.is_empty()), "{name}");
    }
}

#[test]
fn the_values_that_a_machine_has_change_nothing() {
    for name in builtin_names() {
        let machine = Machine::load(name).unwrap();
        let values: Vec<_> = machine.unknowns().iter().map(|unknown| (unknown, unknown.value)).collect();
        let same = machine.with_values(&values).unwrap();
        for (from, to) in machine.nodes().iter().flat_map(|a| machine.nodes().iter().map(|b| (a.id, b.id))) {
            let (was, is) = (machine.idle_latency_ns(from, to), same.idle_latency_ns(from, to));
            assert!(
                was.zip(is).is_none_or(|(was, is)| (was - is).abs() < 1e-9),
                "{name}: {from} to {to}: {was:?} {is:?}"
            );
        }
        let bandwidths =
            |machine: &Machine| -> Vec<f64> { machine.links().iter().map(|l| l.bandwidth_bytes_per_s).collect() };
        assert_eq!(bandwidths(&same), bandwidths(&machine), "{name}");
    }
}

#[test]
fn a_remote_latency_keeps_its_ratio_to_the_local_one() {
    let machine = Machine::load("opteron-8385").unwrap();
    let local = machine.unknowns().iter().find(|u| matches!(&u.subject, Subject::IdleLatency(_))).unwrap();
    assert_eq!((local.place.as_str(), local.low, local.high), ("idle_latency[0].ns", 87.0, 130.0));
    let slower = machine.with_values(&[(local, 130.0)]).unwrap();
    assert_eq!(ns(&slower, 2, 2), 130.0);
    assert!((ns(&slower, 0, 1) / 130.0 - 125.0 / 115.0).abs() < 1e-9);
    let far = machine.unknowns().iter().find(|u| u.place == "idle_latency[2].over_local").unwrap();
    let farther = machine.with_values(&[(local, 100.0), (far, 1.32)]).unwrap();
    assert!((ns(&farther, 0, 3) - 132.0).abs() < 1e-3, "{}", ns(&farther, 0, 3));
    assert!((ns(&farther, 0, 1) - 100.0 * 125.0 / 115.0).abs() < 1e-9, "its own ratio was not changed");
}

#[test]
fn other_figures_go_where_they_belong() {
    let machine = Machine::load("xeon-2s-cxl").unwrap();
    let of = |place: &str| machine.unknowns().iter().find(|u| u.place == place).unwrap();
    let expander = of("nodes[1].memory_bandwidth_gb_per_s");
    let (upi, cxl) = (of("links[0].bandwidth_gb_per_s"), of("links[1].bandwidth_gb_per_s"));
    let other = machine.with_values(&[(expander, 40e9), (upi, 144e9), (cxl, 55e9)]).unwrap();
    assert_eq!(other.node(NodeId(2)).unwrap().memory_bandwidth_bytes_per_s, Some(40e9));
    assert_eq!(other.node(NodeId(0)).unwrap().memory_bandwidth_bytes_per_s, Some(307.2e9));
    let links: Vec<f64> = other.links().iter().map(|link| link.bandwidth_bytes_per_s).collect();
    assert_eq!(links, [144e9, 144e9, 55e9, 55e9]);
    assert!(machine.with_values(&[(upi, -1.0)]).is_err());
}

#[test]
fn limits_of_a_nodes_cpus_are_read_kept_and_drawn() {
    let ports = "cpus_read_gb_per_s = { value = 8, source = \"made up\", estimate = true, range = [6, 9] }\n\
        cpus_write_gb_per_s = { value = 4, source = \"made up\" }\nmemory_kind";
    let machine = Machine::from_model_text(&OPTERON.replace("memory_kind", ports), "ports").unwrap();
    let of = |machine: &Machine| -> Vec<_> {
        machine.nodes().iter().map(|node| (node.cpus_read_bytes_per_s, node.cpus_write_bytes_per_s)).collect()
    };
    assert_eq!(of(&machine), [(Some(8e9), Some(4e9)); 4]);
    let kept: Machine = serde_json::from_str(&serde_json::to_string(&machine).unwrap()).unwrap();
    assert_eq!(of(&kept), of(&machine));
    let reads = machine.unknowns().iter().find(|u| u.place == "nodes[0].cpus_read_gb_per_s").unwrap();
    assert_eq!((&reads.subject, reads.low, reads.high), (&Subject::CpusRead(vec![0, 1, 2, 3]), 6e9, 9e9));
    assert_eq!(of(&machine.with_values(&[(reads, 6.5e9)]).unwrap()), [(Some(6.5e9), Some(4e9)); 4]);
    // A live machine takes them from the model of it, as it does the memories' bandwidths.
    let bare = Machine::load("opteron-8385").unwrap();
    assert_eq!(of(&bare.with_figures_of(&machine).unwrap()), of(&machine));
    // Whoever has none is stored as before.
    let plain = serde_json::to_string(&bare).unwrap();
    assert!(!plain.contains("cpus_read"), "{plain}");
}

#[test]
fn a_memory_without_cpus_has_no_limit_of_cpus() {
    let text = include_str!("../../../models/xeon-2s-cxl.toml");
    let at = text.rfind("memory_gib").unwrap();
    let slip = format!("{}cpus_write_gb_per_s = {{ value = 4, source = \"made up\" }}\n{}", &text[..at], &text[at..]);
    let message = Machine::from_model_text(&slip, "slip.toml").unwrap_err().to_string();
    assert!(message.contains("cpus_write_gb_per_s of a node without CPUs"), "{message}");
}

#[test]
fn what_a_trace_keeps_of_a_machine_has_its_unknowns() {
    let machine = Machine::load("memprof-c").unwrap();
    let kept: Machine = serde_json::from_str(&serde_json::to_string(&machine).unwrap()).unwrap();
    assert_eq!(kept.unknowns(), machine.unknowns());
    // A trace from before there were any.
    let mut old = serde_json::to_value(&machine).unwrap();
    old.as_object_mut().unwrap().remove("unknowns");
    let old: Machine = serde_json::from_value(old).unwrap();
    assert!(old.unknowns().is_empty());
}

#[test]
fn slips_in_ranges_are_told_with_their_place() {
    let with = |old: &str, new: &str| {
        assert!(OPTERON.contains(old), "{old}");
        Machine::from_model_text(&OPTERON.replacen(old, new, 1), "m.toml").unwrap_err().to_string()
    };
    let error = with("range = [87, 130]", "range = [120, 130]");
    assert!(error.contains("idle_latency[0].ns") && error.contains("does not hold its value 115"), "{error}");
    assert!(with("range = [87, 130]", "range = [130, 87]").contains("does not hold its value"));
    assert!(with("range = [87, 130]", "range = [nan, 130]").contains("a bound of its range"));
    let error = with("over_local = [1.08, 1.3]", "over_local = [1.2, 1.3]");
    assert!(error.contains("idle_latency[1].over_local") && error.contains("1.087 times"), "{error}");
    let error = with("range = [87, 130] }", "range = [87, 130] }\nover_local = [1, 2]");
    assert!(error.contains("two ranges"), "{error}");
    let error = with(", range = [87, 130] }", " }\nover_local = [0.9, 2]");
    assert!(error.contains("without a latency to compare it with"), "{error}");
}
