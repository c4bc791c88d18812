//! The findings of small synthetic traces against golden files, and the text where there are none.

use numapilot_fixtures::Kind;
use numapilot_flows::{Filter, ObjectKind, Site, SiteId, Tables, Trace};
use numapilot_insight::{
    Analysis, Confidence, Estimate, Evidence, Finding, Findings, Fix, FixKind, Nothing, OF_ITS_ACCESSES_REMOTE,
    PatternKind, Subject, Uncertainty, Unit,
};
use numapilot_machine::NodeId;
use numapilot_text::style::Look;
use unicode_width::UnicodeWidthStr;

use super::{doubt_words, effect_words, explanation, fix_words, gain_words, json, means_words, price_words, text};
use crate::fixture::open;

#[test]
fn findings_read_as_they_did() {
    let opened = open(Kind::Big, 50_000, 60, 8);
    let (some, all) = opened.with(Filter::default(), |export| {
        let found = export.analysis.findings(export.machine);
        let render = |all| text(&found, export.analysis.trace(), export.machine, all, Look::default());
        (render(false), render(true))
    });
    insta::assert_snapshot!("findings", some);
    insta::assert_snapshot!("all_findings", all);
}

/// A committed recording of a multigrid solver: several findings, with the prices of all their fixes.
#[test]
fn findings_of_a_recording_read_as_they_did() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
    let trace = Trace::open(&folder).expect("a committed trace");
    let machine = trace.machine();
    let found = Analysis::on(&trace, machine.as_ref(), Filter::default()).findings(machine.as_ref());
    assert!(found.findings.len() >= 3, "{found:?}");
    insta::assert_snapshot!("recorded", text(&found, &trace, machine.as_ref(), true, Look::default()));
    let narrow = text(&found, &trace, machine.as_ref(), false, Look { width: 80, ..Look::default() });
    assert!(narrow.contains("  1 more; `--findings` shows them"), "{narrow}");
    assert!(narrow.lines().all(|line| line.width() <= 80), "{narrow}");
}

#[test]
fn filters_and_empty_traces_are_no_grounds() {
    let opened = open(Kind::OneThread, 2000, 20, 1);
    let filter = Filter { is_write: Some(true), ..Filter::default() };
    let found = opened.with(filter, |export| export.analysis.findings(export.machine));
    assert!(found.findings.is_empty() && found.nothing.is_none(), "a filter hides half of the story");
    assert!(found.cannot_say[0].contains("filters"), "{:?}", found.cannot_say);
    let opened = open(Kind::Empty, 0, 0, 0);
    let found = opened.with(Filter::default(), |export| export.analysis.findings(export.machine));
    assert_eq!(found.nothing, Some(Nothing::NothingSeen));
}

#[test]
fn programs_get_the_words_too() {
    let opened = open(Kind::Big, 40_000, 60, 16);
    let value = opened.with(Filter::default(), |export| {
        json(&export.analysis.findings(export.machine), export.analysis.trace(), export.machine)
    });
    assert_eq!(value["predicted"], true);
    let fixes = value["tried_by_many"].as_array().expect("a list");
    assert!(fixes[0]["says"].as_str().expect("words").contains("numactl"), "{fixes:?}");
    assert!(value["findings"].is_array());
}

/// "By plan: interleave /data/index" was a promise that no plan keeps: the kernel places the page cache by the thread that reads a file in.
#[test]
fn no_plan_is_promised_for_the_pages_of_files() {
    let site = |kind, name: &str| Site { kind, name: name.into(), module: "/bin/app".into(), ..Site::default() };
    let sites = vec![
        site(ObjectKind::File, "/data/index"),
        site(ObjectKind::File, "/dev/shm/index"),
        site(ObjectKind::Heap, "block"),
        site(ObjectKind::Pool, "node in requests"),
    ];
    let trace = Trace::from_tables(Tables { sites, ..Tables::default() });
    let fix = |kind, sites: &[u32]| Fix {
        kind,
        sites: sites.iter().map(|site| SiteId(*site)).collect(),
        without_cpus: Vec::new(),
        threads: Vec::new(),
        processes: Vec::new(),
        gain: Estimate { value: 0.5, low: 0.4, high: 0.6 },
        work_gain: None,
        uncertainty: Uncertainty::default(),
        more_bytes: 0,
    };
    let of_file = fix(FixKind::Interleave, &[0]);
    assert!(!of_file.works_by_plan(&trace));
    assert!(means_words(&of_file, &trace).contains("No plan can move the pages of a file"));
    // Nor for blocks of a program's own pools, which the planner does not see.
    let of_pool = fix(FixKind::Interleave, &[3]);
    assert!(!of_pool.works_by_plan(&trace) && means_words(&of_pool, &trace).contains("Needs a change of the source"));
    for sites in [&[1][..], &[2], &[0, 2]] {
        let fix = fix(FixKind::Interleave, sites);
        assert!(fix.works_by_plan(&trace) && means_words(&fix, &trace).is_empty(), "{sites:?}");
    }
    assert!(means_words(&fix(FixKind::FirstTouchByUsers, &[2]), &trace).contains("change of the source"));
}

/// "All nodes with memory" did not say that a CXL expander is one of them.
#[test]
fn spreading_over_all_nodes_names_those_without_cpus() {
    let says = |nodes: &[u16]| {
        let fix = Fix {
            kind: FixKind::InterleaveAll,
            sites: Vec::new(),
            without_cpus: nodes.iter().map(|node| NodeId(*node)).collect(),
            threads: Vec::new(),
            processes: Vec::new(),
            gain: Estimate::default(),
            work_gain: None,
            uncertainty: Uncertainty::default(),
            more_bytes: 0,
        };
        fix_words(&fix, &Trace::from_tables(Tables::default()))
    };
    assert_eq!(says(&[]), "interleave everything (numactl --interleave=all)");
    assert!(says(&[2]).ends_with("=all), also node 2, which has no CPUs"), "{}", says(&[2]));
    assert!(says(&[2, 3]).ends_with("=all), also nodes 2-3, which have no CPUs"), "{}", says(&[2, 3]));
}

/// A gain that some of the machines and programs do not confirm says so beside its interval, and one that is sure says nothing.
#[test]
fn a_fix_that_may_lose_says_so() {
    let doubt = |low, high| {
        doubt_words(&Fix {
            kind: FixKind::Interleave,
            sites: Vec::new(),
            without_cpus: Vec::new(),
            threads: Vec::new(),
            processes: Vec::new(),
            gain: Estimate { value: 0.047, low, high },
            work_gain: None,
            uncertainty: Uncertainty::default(),
            more_bytes: 0,
        })
    };
    assert_eq!(doubt(0.01, 0.096), "");
    assert_eq!(doubt(-0.079, 0.096), " It may gain nothing, or lose.");
    assert_eq!(doubt(0.0, 0.096), " It may gain nothing.");
    assert_eq!(doubt(-0.079, -0.01), "", "other words say that it loses");
}

/// Memory of which most is local was said to be used by threads of another node, all of it.
#[test]
fn memory_of_which_a_part_is_remote_is_not_said_to_be_so_as_a_whole() {
    let finding = |remote: f64| Finding {
        pattern: PatternKind::RemoteAfterAllocation,
        subject: Subject::Site(SiteId(0)),
        at_stake: Estimate::exact(0.1),
        evidence: vec![Evidence {
            what: OF_ITS_ACCESSES_REMOTE.to_owned(),
            value: Estimate::exact(remote),
            unit: Unit::Share,
        }],
        confidence: Confidence::High,
        confidence_because: String::new(),
        would_change: Vec::new(),
        fixes: Vec::new(),
    };
    let part = explanation(&finding(0.15));
    assert!(part.starts_with("Part of this memory is on the node"), "{part}");
    assert!(part.contains("15 % of the accesses to this memory are remote."), "{part}");
    assert!(explanation(&finding(0.9)).starts_with("This memory is on the node"));
}

#[test]
fn a_loss_keeps_its_sign() {
    assert_eq!(gain_words(&Estimate { value: -0.051, low: -0.067, high: -0.036 }), "-5.1 % (-6.7 to -3.6), predicted");
    assert_eq!(gain_words(&Estimate { value: 0.931, low: 0.65, high: 1.21 }), "+93 % (65 to 121), predicted");
}

#[test]
fn a_model_that_did_not_converge_says_so_beside_its_figure() {
    let gain = Estimate { value: 0.2, low: 0.1, high: 0.3 };
    let words = |unsettled| price_words(&gain, &Uncertainty { unsettled, ..Uncertainty::default() });
    assert_eq!(words(0.0), gain_words(&gain));
    let open = "(the model did not converge: at least ± 2.1 percentage points)";
    assert_eq!(words(0.021), format!("{} {open}", gain_words(&gain)));
    assert!(words(f64::INFINITY).ends_with("(the model did not converge)"));
}

#[test]
fn what_a_sleeping_program_gains_is_processor_time() {
    let gain = Estimate { value: 0.0, low: 0.0, high: 0.001 };
    let words = |value: f64, low: f64, high: f64| {
        effect_words(&gain, Some(&Estimate { value, low, high }), &Uncertainty::default())
    };
    assert_eq!(words(0.25, 0.1, 1.0), "20 % less processor time for the same work (9 to 50), predicted");
    assert_eq!(words(0.05, -0.01, 0.1), "4.8 % less processor time for the same work (-1.0 to 9.1), predicted");
    assert_eq!(words(-0.2, -0.5, -0.1), "25 % more processor time for the same work (11 to 100), predicted");
    // An end that the model left open: all of the time is saved at most.
    assert_eq!(words(0.25, 0.0, f64::INFINITY), "20 % less processor time for the same work (0 to 100), predicted");
    assert_eq!(effect_words(&gain, None, &Uncertainty::default()), gain_words(&gain));
}

#[test]
fn an_end_that_is_left_open_is_no_number() {
    let open = Estimate { value: 0.2, low: 0.1, high: f64::INFINITY };
    assert_eq!(gain_words(&open), "+20 % (at least 10), predicted");
    // A run that takes for ever: few samples, or a model that did not converge.
    let work = |value: f64| Estimate { value, low: -1.0, high: 1.0 };
    let words = |value: f64| effect_words(&open, Some(&work(value)), &Uncertainty::default());
    assert_eq!(words(0.25), "20 % less processor time for the same work (at most 50), predicted");
    assert_eq!(words(-0.2), "25 % more processor time for the same work (at least -50), predicted");
}

#[test]
fn nothing_is_said_in_whole_sentences() {
    let found = Findings { nothing: Some(Nothing::HardlyWaits), memory_share: Some(0.004), ..Findings::default() };
    let opened = open(Kind::OneThread, 100, 4, 1);
    let words = text(&found, &opened.trace, None, false, Look::default());
    assert!(words.contains("Nothing to fix: the threads spend 0.4 % of their time waiting for memory"), "{words}");
}
