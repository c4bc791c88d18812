//! Every built-in model and every tree of testdata/sysfs is drawn; golden files hold a few of them to the letter.

use numapilot_machine::{Machine, builtin_names};
use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

use super::layout::{Sizes, layout};
use super::{json, svg, text};
use crate::fixture::system;

fn trees() -> Vec<Machine> {
    let names = numapilot_host::testing::names();
    assert!(names.len() >= 7, "{names:?}");
    let machine = |name: &String| Machine::from_sysfs(numapilot_host::testing::tree(name).path());
    names.iter().map(|name| machine(name).unwrap_or_else(|e| panic!("{name}: {e}"))).collect()
}

fn all() -> Vec<Machine> {
    builtin_names().map(|name| Machine::load(name).unwrap()).chain(trees()).collect()
}

#[test]
fn text_keeps_within_its_width_and_says_every_node() {
    for machine in all() {
        for width in [64, 80, 100] {
            let drawn = text(&machine, width, false);
            for line in drawn.lines() {
                assert!(line.width() <= width, "{} at {width}: {} columns\n{line}", machine.name(), line.width());
                assert!(!line.ends_with(' '), "{} at {width}: {line:?}", machine.name());
            }
            for node in machine.nodes() {
                assert!(drawn.contains(&format!("─ node {} ", node.id)), "node {} of {}", node.id, machine.name());
            }
            assert!(!drawn.contains('\u{1b}'));
        }
    }
}

#[test]
fn colour_changes_nothing_but_colour() {
    for machine in all() {
        let coloured = text(&machine, 100, true);
        assert!(coloured.contains('\u{1b}'));
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some(start) = rest.find('\u{1b}') {
            plain.push_str(&rest[..start]);
            rest = &rest[start + rest[start..].find('m').unwrap() + 1..];
        }
        plain.push_str(rest);
        assert_eq!(plain, text(&machine, 100, false));
    }
}

#[test]
fn cards_never_overlap() {
    let sizes = Sizes { card_width: 240.0, card_height: 180.0, gap: 100.0 };
    for machine in all() {
        let layout = layout(&machine, sizes);
        for (i, a) in layout.nodes.iter().enumerate() {
            assert!(a.0 >= 119.9 && a.0 <= layout.width - 119.9 && a.1 >= 89.9 && a.1 <= layout.height - 89.9);
            for b in &layout.nodes[i + 1..] {
                let apart = (a.0 - b.0).abs() >= sizes.card_width || (a.1 - b.1).abs() >= sizes.card_height;
                assert!(apart, "{}: {a:?} and {b:?}", machine.name());
            }
        }
    }
}

#[test]
fn json_carries_every_figure_with_its_source() {
    for name in builtin_names() {
        let machine = Machine::load(name).unwrap();
        let value = json(&machine);
        let figures = value["figures"].as_array().unwrap();
        assert!(figures.len() > 15);
        assert!(figures.iter().all(|f| f["source"].as_str().is_some_and(|s| s.contains(' '))), "{name}");
        assert_eq!(value["nodes"].as_array().unwrap().len(), machine.nodes().len());
        assert_eq!(value["idle_latency_ns"].as_array().unwrap().len(), machine.nodes().len());
    }
    let opteron = json(&Machine::load("opteron-8385").unwrap());
    assert_eq!(opteron["links"].as_array().unwrap().len(), 8);
    assert_eq!(opteron["nodes"][0]["memory_bandwidth_bytes_per_s"], 12.8e9);
    assert_eq!(opteron["routes"].as_array().unwrap().len(), 12);
}

#[test]
fn what_a_nodes_cpus_read_at_most_is_shown_where_it_is_known() {
    let opteron = numapilot_machine::builtin_text("opteron-8385").unwrap();
    let port = "cpus_read_gb_per_s = { value = 7.5, source = \"made up\" }\nmemory_kind";
    let machine = Machine::from_model_text(&opteron.replace("memory_kind", port), "ports").unwrap();
    assert_eq!(json(&machine)["nodes"][1]["cpus_read_bytes_per_s"], 7.5e9);
    assert!(json(&machine)["nodes"][1]["cpus_write_bytes_per_s"].is_null());
    let drawn = text(&machine, 74, false);
    assert!(drawn.contains("All CPUs read at most 7.5 GB/s") && !drawn.contains("write at most"), "{drawn}");
    assert!(!text(&Machine::load("opteron-8385").unwrap(), 100, false).contains("at most"));
}

#[test]
fn pictures_are_well_formed_and_the_same_every_time() {
    for machine in all() {
        let picture = svg(&machine);
        assert_eq!(picture, svg(&machine));
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(!picture.contains("NaN") && !picture.contains("inf\""), "{}", machine.name());
        // Every element is closed: those with content by name, all others at once.
        let elements = picture.lines().filter(|l| !l.starts_with("<svg") && !l.starts_with("</svg"));
        for line in elements {
            let closed = line.ends_with("/>") || line.ends_with("</text>") || line.ends_with("</title>");
            assert!(closed && line.starts_with('<'), "{line}");
        }
        assert!(!picture.contains("href") && !picture.contains("<style") && !picture.contains("<script"));
    }
}

#[test]
fn what_is_offline_is_not_among_the_cpus_and_threads_of_a_node() {
    let tree = numapilot_host::testing::tree("offline-cpus");
    let machine = Machine::from_sysfs(tree.path()).unwrap();
    // Of core 0 both threads are online, of the other one: not 2 x 2.
    let drawn = text(&machine, 100, false);
    assert!(drawn.contains("CPUs 0-2 (2 cores, up to 2 threads each)"), "{drawn}");
    assert!(drawn.contains("Offline 3"), "{drawn}");
    let picture = svg(&machine);
    assert!(picture.contains(">CPUs 0-2 · 2 cores<"), "{picture}");
}

#[test]
fn hostile_names_stay_text() {
    let model = include_str!("../../../../models/opteron-8385.toml");
    let hostile = model.replace("cpu = \"4 x AMD", "cpu = \"\\u001b[2J</text><script>&\\u202e");
    let machine = Machine::from_model_text(&hostile, "hostile.toml").unwrap();
    assert!(!text(&machine, 100, false).contains('\u{1b}'));
    let picture = svg(&machine);
    assert!(!picture.contains("<script>") && !picture.contains('\u{1b}'));
}

#[test]
fn golden_drawings() {
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false }, {
        for name in ["opteron-8385", "memprof-c", "epyc-2s-nps4", "xeon-2s-cxl"] {
            let machine = Machine::load(name).unwrap();
            insta::assert_snapshot!(format!("{name}-100"), text(&machine, 100, false));
            insta::assert_snapshot!(format!("{name}-svg"), svg(&machine));
        }
        insta::assert_snapshot!("x1-32xlarge-80", text(&Machine::load("x1-32xlarge").unwrap(), 80, false));
    });
}

/// Where the firmware told the latency of CXL memory alone, that was called the local one.
#[test]
fn what_is_known_of_far_memory_alone_is_not_local() {
    let folder = numapilot_host::testing::tree("cxl");
    for node in ["node0", "node1"] {
        let file = format!("sys/devices/system/node/{node}/access1/initiators/read_latency");
        std::fs::write(folder.path().join(file), "0\n").unwrap();
    }
    let machine = Machine::from_sysfs(folder.path()).unwrap();
    let drawn = text(&machine, 100, false);
    let row = drawn.lines().find(|line| line.starts_with("  node 0 ")).unwrap_or_default();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["node", "0", "-", "-", "210"], "{drawn}");
    assert!(!svg(&machine).contains("#dcefdf"), "nothing is known to be local");
}

#[test]
fn distances_lead_from_the_row_to_the_column() {
    // `nodeN/distance` lists the distances from node N, as the rows of `numactl -H` do.
    let machine = system(2, 1, false);
    let drawn = text(&machine, 80, false);
    let table = drawn.split("Distances from row to column (ACPI, 10 is local)\n").nth(1).unwrap();
    let words: Vec<Vec<&str>> = table.lines().take(4).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["0", "2", "4"]);
    assert_eq!(words[1], ["node", "0", "10", "12", "13"]);
    assert_eq!(words[2], ["node", "2", "14", "10", "16"]);
    assert_eq!(words[3], ["node", "4", "17", "18", "10"]);
    assert_eq!(json(&machine)["distances"][0][2], 13);
    let picture = svg(&machine);
    let places =
        ["10", "12", "13", "14", "16", "17", "18"].map(|cell| picture.find(&format!(">{cell}</text>")).unwrap());
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "rows one after the other: {places:?}");
}

#[test]
fn sixty_four_nodes_fit_and_their_picture_is_no_ribbon() {
    let sizes = Sizes { card_width: 240.0, card_height: 180.0, gap: 40.0 };
    for (with_cpus, bare, sockets) in [(64, 0, false), (64, 0, true), (2, 32, true)] {
        let machine = system(with_cpus, bare, sockets);
        for width in [40, 80, 120] {
            let drawn = text(&machine, width, false);
            assert!(drawn.lines().all(|line| line.width() <= width), "{width}:\n{drawn}");
            assert!(drawn.contains(&format!("─ node {} ", 2 * (with_cpus + bare - 1))), "{drawn}");
        }
        let layout = layout(&machine, sizes);
        let ratio = layout.width / layout.height;
        assert!((0.5..=2.0).contains(&ratio), "{with_cpus} + {bare}: {} x {}", layout.width, layout.height);
        for (i, a) in layout.nodes.iter().enumerate() {
            let clear = |b: &(f64, f64)| (a.0 - b.0).abs() >= 240.0 || (a.1 - b.1).abs() >= 180.0;
            assert!(layout.nodes[i + 1..].iter().all(clear), "{with_cpus} + {bare}: {a:?}");
        }
        // Nothing is known of links, so that none is drawn.
        assert!(!svg(&machine).contains("<polygon"));
    }
}

#[test]
fn a_picture_says_which_table_it_leaves_out() {
    let note = "Not drawn for more than 16 nodes: `numapilot topo` has it";
    let (drawn, left_out) = (svg(&system(16, 0, true)), svg(&system(17, 0, true)));
    for picture in [&drawn, &left_out] {
        assert!(picture.contains(">Distance (10 is local)</text>"), "{picture}");
    }
    assert!(drawn.contains(">from 30</text>") && !drawn.contains(note), "{drawn}");
    assert!(!left_out.contains(">from 32</text>") && left_out.contains(note), "{left_out}");
}

#[test]
fn long_names_stay_within_the_picture_and_are_told_in_full() {
    let model = random_model(2, &[]);
    for (name, cpu) in [("n".repeat(64), "W".repeat(90)), ("short".to_owned(), "処理装置".repeat(20))] {
        let model = model.replace("\"random\"", &format!("\"{name}\"")).replace("\"x\"", &format!("\"{cpu}\""));
        let picture = svg(&Machine::from_model_text(&model, "long.toml").unwrap());
        assert!(picture.starts_with("<svg ") && picture.contains("width=\"760\""), "{picture}");
        // Wide letters are as wide as the type is high.
        let line = picture.lines().find(|line| line.contains("font-size=\"14\"")).unwrap();
        let (told, shown) = line.strip_suffix("</text>").unwrap().split_once("</title>").unwrap();
        assert!(told.ends_with(&format!("<title>{cpu}")) && shown.contains('…'), "{line}");
        let left: f64 = line.split('"').nth(1).unwrap().parse().unwrap();
        assert!(left + shown.chars().count() as f64 * 14.0 <= 716.0 && shown.chars().count() > 9, "{line}");
        let line = picture.lines().find(|line| line.contains("font-size=\"22\"")).unwrap();
        assert_eq!(line.contains(&format!("<title>{name}</title>")), name.len() > 5, "{line}");
    }
}

#[test]
fn the_longest_name_of_a_model_fits_a_narrow_terminal() {
    let name = "n".repeat(64);
    let model = random_model(2, &[]).replace("name = \"random\"", &format!("name = \"{name}\""));
    let machine = Machine::from_model_text(&model, "long.toml").unwrap();
    for line in text(&machine, 40, false).lines() {
        assert!(line.width() <= 40 && !line.ends_with(' '), "{line:?}");
    }
}

/// A model of `n` nodes on one-way and two-way links of various widths, all reaching all over a ring.
fn random_model(n: usize, extra: &[(usize, usize, u32)]) -> String {
    let mut model = String::from(
        "format = 1\nname = \"random\"\ncpu = \"x\"\nclock_mhz = { value = 2000, source = \"a test\" }\n[sources]\n",
    );
    for node in 0..n {
        model.push_str(&format!(
            "[[nodes]]\nids = [{node}]\ncpus = [\"{node}\"]\nsource = \"a test\"\nmemory_gib = {{ value = 1, source = \"a test\" }}\n"
        ));
    }
    let mut pairs: Vec<(usize, usize, u32)> = (0..n).map(|i| (i, (i + 1) % n, 10)).collect();
    for &(a, b, width) in extra {
        if a % n != b % n && !pairs.iter().any(|p| (p.0, p.1) == (a % n, b % n)) {
            pairs.push((a % n, b % n, width));
        }
    }
    for (a, b, width) in pairs {
        let figure = format!("{{ value = {width}, source = \"a test\" }}");
        model.push_str(&format!("[[links]]\npairs = [[{a}, {b}]]\nkind = \"wire\"\nbandwidth_gb_per_s = {figure}\n"));
    }
    let ids: Vec<usize> = (0..n).collect();
    model.push_str(&format!(
        "[[idle_latency]]\nfrom = {ids:?}\nto = {ids:?}\nns = {{ value = 100, source = \"a test\" }}\n"
    ));
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_wiring_is_drawn_within_the_width(n in 2usize..14, extra in prop::collection::vec((0usize..14, 0usize..14, 1u32..500), 0..20)) {
        let machine = Machine::from_model_text(&random_model(n, &extra), "random.toml").unwrap();
        for width in [48, 80, 100] {
            for line in text(&machine, width, false).lines() {
                prop_assert!(line.width() <= width, "{}: {}", width, line);
            }
        }
        prop_assert!(!svg(&machine).contains("NaN"));
    }
}
