//! The plan format: what people write is read as they mean it, what is wrong is named with its line, and what is written is read back.

use numapilot_machine::{CpuId, Machine, MemoryTier, NodeId};
use numapilot_plan::*;
use proptest::prelude::*;

const EXAMPLE: &str = r#"# Made for the naive variant.
# It gains 37 % (predicted).
version = 1
program = "streamcluster"
machine = "opteron-8385"

[[object]]
# block receives 95 % of all memory accesses, 74 % of them remote.
name = "block"
function = "cluster_stream"
file = "streamcluster.cpp"
line = 138
min_size = "1 MiB"
policy = "interleave"

[[object]]
symbol = "table"
policy = "node"
node = 2
strict = true

[[object]]
function = "make_inbox"
called_from = [{ function = "main", module = "server" }, { file = "pool.c", line = "10-20" }]
instances = "0,2-3"
policy = "hand-over"
to = "consumer*"

[[thread]]
name = "worker*"
order = "1-15"
nodes = "0-3"
layout = "spread"

[[process]]
command = "server"
cpus = "0-3"
"#;

fn listed(nodes: &[u16]) -> NodeSet {
    NodeSet::Listed(nodes.iter().copied().map(NodeId).collect())
}

#[test]
fn an_example_is_read_as_meant() {
    let plan = Plan::parse(EXAMPLE, "example.toml").unwrap();
    assert_eq!(plan.about, ["Made for the naive variant.", "It gains 37 % (predicted)."]);
    let block = &plan.objects[0];
    assert_eq!((block.name.as_str(), block.line, block.matches.min_size), ("block", 7, Some(1 << 20)));
    assert_eq!(block.evidence, ["block receives 95 % of all memory accesses, 74 % of them remote."]);
    assert_eq!(block.policy, Policy::Interleave(NodeSet::All));
    assert_eq!(block.matches.frame.lines, Some((138, 138)));
    assert_eq!(plan.objects[1].name, "table", "named after what it matches");
    assert_eq!(plan.objects[1].policy, Policy::Node { node: NodeId(2), strict: true });
    let inbox = &plan.objects[2];
    assert_eq!(inbox.matches.called_from[1].lines, Some((10, 20)));
    assert_eq!(inbox.matches.instances, [(0, 0), (2, 3)]);
    assert_eq!(plan.threads[0].placing, Placing::Nodes(listed(&[0, 1, 2, 3])));
    assert_eq!(plan.threads[0].layout, Layout::Spread);
    assert_eq!(plan.processes[0].placing, Placing::Cpus((0..4).map(CpuId).collect()));
}

/// A rule for thread 3 was one for "all", in the list of rules and in what was said of it.
#[test]
fn rules_for_threads_and_processes_say_which_these_are() {
    let example = Plan::parse(EXAMPLE, "example.toml").unwrap();
    assert_eq!([example.threads[0].which(), example.processes[0].which()], ["worker* number 1-15", "server"]);
    let text = "version = 1\n[[thread]]\norder = 3\nprocess = \"app\"\nnodes = \"0\"\n[[thread]]\nstart = \"run\"\nnodes = \"0\"\n\
        [[process]]\norder = \"0,2-3\"\nnodes = \"0\"\n[[process]]\nnodes = \"1\"\n";
    let plan = Plan::parse(text, "plan.toml").unwrap();
    let which: Vec<String> =
        plan.threads.iter().map(ThreadRule::which).chain(plan.processes.iter().map(ProcessRule::which)).collect();
    assert_eq!(which, ["3 of app", "run", "0,2-3", "all"]);
}

/// The planner in the program ends texts with a zero byte; the last byte of a longest text was cut off, and the pattern was another one.
#[test]
fn a_text_is_no_longer_than_the_planner_keeps() {
    let of = |bytes: usize| {
        let path = "x".repeat(bytes);
        Plan::parse(&format!("version = 1\n[[object]]\nmapped_file = \"{path}\"\npolicy = \"local\"\n"), "plan.toml")
    };
    assert!(of(511).is_ok());
    let why = of(512).unwrap_err().to_string();
    assert!(why.starts_with("plan.toml:3: mapped_file: longer than 511 bytes"), "{why}");
}

#[test]
fn what_is_wrong_is_named_with_file_line_and_remedy() {
    let head = "version = 1\n";
    let object = "version = 1\n[[object]]\n";
    for (text, line, what, remedy) in [
        ("", 1, "no `version`", "version = 1"),
        ("version = 7\n", 1, "7 is unknown", "version 1"),
        ("version = 1\n", 1, "no rule", "[[object]]"),
        ("version = 1\nobject = 3\n", 2, "expected a list of tables, found type integer", "docs/plan-format.md"),
        ("version = \n", 1, "", "TOML"),
        (&format!("{object}policy = \"interleave\"\npolcy = 1\n"), 4, "unknown key `polcy`", "did you mean `policy`?"),
        (&format!("{object}symbol = \"x\"\n"), 2, "no `policy`", "interleave"),
        (&format!("{object}policy = \"magic\"\n"), 3, "\"magic\" is unknown", "first-use"),
        (&format!("{object}policy = \"node\"\n"), 2, "without a node", "node = N"),
        (&format!("{object}policy = \"node\"\nnode = 64\n"), 4, "out of range", "0 to 63"),
        (&format!("{object}policy = \"local\"\nnodes = \"0\"\n"), 4, "takes no such key", "interleave"),
        (&format!("{object}policy = \"interleave\"\nnodes = \"0-x\"\n"), 4, "not a number", "0-3"),
        (&format!("{object}policy = \"interleave\"\nnodes = \"\"\n"), 4, "empty", "leave the key out"),
        (&format!("{object}policy = \"interleave\"\nnodes = \"tier:hot\"\n"), 4, "no tier of memory", "tier:fast"),
        (&format!("{head}[[thread]]\nnodes = \"tier:slow\"\n"), 3, "on which no thread runs", "all"),
        (
            &format!("{object}policy = \"weighted-interleave\"\nweights = \"0:0\"\n"),
            4,
            "not a list of weights",
            "node:weight",
        ),
        (&format!("{object}policy = \"weighted-interleave\"\nweights = \"0:1,0:2\"\n"), 4, "twice", "one weight"),
        (&format!("{object}policy = \"local\"\nline = 3\n"), 4, "a line without a file", "`file`"),
        (&format!("{object}policy = \"local\"\noffset = 3\n"), 4, "without a module", "`module`"),
        (&format!("{object}policy = \"local\"\nmin_size = \"1 MB\"\n"), 4, "not a size", "MiB"),
        (&format!("{object}policy = \"local\"\nmin_size = 9\nmax_size = 8\n"), 5, "below min_size", "swap"),
        (&format!("{object}policy = \"local\"\nsymbol = \"a\"\nfunction = \"b\"\n"), 2, "several kinds", "one of"),
        (
            &format!("{object}policy = \"local\"\ncalled_from = [{{ module = \"a\" }}]\n"),
            4,
            "names no code",
            "function",
        ),
        (&format!("{object}policy = \"hand-over\"\n"), 2, "without receiving threads", "`to`"),
        (&format!("{head}[[thread]]\nname = \"a\"\n"), 2, "neither `nodes` nor `cpus`", "`nodes` or `cpus`"),
        (&format!("{head}[[thread]]\nnodes = \"0\"\ncpus = \"0\"\n"), 4, "both `nodes` and `cpus`", "one of them"),
        (&format!("{head}[[process]]\nnodes = \"0\"\nlayout = \"x\"\n"), 4, "unknown", "spread"),
    ] {
        let message = Plan::parse(text, "p.toml").unwrap_err().to_string();
        assert!(message.starts_with(&format!("p.toml:{line}: ")), "{text:?}: {message}");
        assert!(message.contains(what) && message.contains(remedy), "{text:?}: {message}");
    }
}

#[test]
fn a_machine_with_fewer_nodes_is_an_error_or_folds() {
    let machine = Machine::load("opteron-8385").unwrap();
    let text = "version = 1\n[[object]]\nsymbol = \"a\"\npolicy = \"node\"\nnode = 6\n[[object]]\nsymbol = \"b\"\npolicy = \"interleave\"\n\
                [[object]]\nsymbol=\"c\"\npolicy=\"weighted-interleave\"\nweights=\"1:2,5:3\"\n[[thread]]\nnodes = \"5,9\"\n";
    let plan = Plan::parse(text, "p.toml").unwrap();
    let message = plan.fit(&machine, Fit::Exact).unwrap_err().to_string();
    assert!(
        message.starts_with("p.toml:2: it names node 6") && message.contains("0-3") && message.contains("--fold"),
        "{message}"
    );
    let fitted = plan.fit(&machine, Fit::Fold).unwrap();
    assert_eq!(fitted.plan.objects[0].policy, Policy::Node { node: NodeId(2), strict: false });
    assert_eq!(fitted.plan.objects[1].policy, Policy::Interleave(listed(&[0, 1, 2, 3])));
    assert_eq!(fitted.plan.objects[2].policy, Policy::WeightedInterleave(vec![(NodeId(1), 5)]));
    assert_eq!(fitted.plan.threads[0].placing, Placing::Nodes(listed(&[1])));
    assert!(!fitted.is_moot());
    // Weights are bytes: 400 to 100 became 255 to 100.
    for (weights, folded) in [("0:100,1:200,5:200", [(0, 1), (1, 4)]), ("0:101,1:200,5:200", [(0, 64), (1, 255)])] {
        let text =
            format!("version = 1\n[[object]]\nsymbol=\"c\"\npolicy=\"weighted-interleave\"\nweights=\"{weights}\"\n");
        let fitted = Plan::parse(&text, "p.toml").unwrap().fit(&machine, Fit::Fold).unwrap();
        let folded = folded.map(|(node, weight)| (NodeId(node), weight));
        assert_eq!(fitted.plan.objects[0].policy, Policy::WeightedInterleave(folded.to_vec()));
    }
    let cpus = Plan::parse("version = 1\n[[process]]\ncpus = \"16\"\n", "p.toml").unwrap();
    let message = cpus.fit(&machine, Fit::Fold).unwrap_err().to_string();
    assert!(message.contains("CPU 16") && message.contains("0-15"), "{message}");
}

/// Threads were sent to a node whose CPUs are all offline, and "all" spread them over it.
#[test]
fn a_node_whose_cpus_are_all_offline_takes_no_threads() {
    let folder = numapilot_host::testing::tree("offline-cpus");
    std::fs::write(folder.path().join("sys/devices/system/cpu/online"), "0-2").unwrap();
    std::fs::write(folder.path().join("sys/devices/system/node/node1/cpulist"), "").unwrap();
    let machine = Machine::from_sysfs(folder.path()).unwrap();
    let plan = |nodes: &str| {
        let text = format!(
            "version = 1\n[[object]]\nsymbol = \"a\"\npolicy = \"interleave\"\n[[thread]]\nnodes = \"{nodes}\"\n"
        );
        Plan::parse(&text, "p.toml").unwrap()
    };
    let fitted = plan("all").fit(&machine, Fit::Exact).unwrap();
    assert_eq!((&*fitted.memory_nodes, &*fitted.cpu_nodes), (&[NodeId(0), NodeId(1)][..], &[NodeId(0)][..]));
    assert_eq!(fitted.plan.threads[0].placing, Placing::Nodes(listed(&[0])));
    assert_eq!(fitted.plan.objects[0].policy, Policy::Interleave(listed(&[0, 1])), "its memory is there");
    let message = plan("1").fit(&machine, Fit::Exact).unwrap_err().to_string();
    assert!(
        message.contains("names node 1") && message.contains("only nodes 0 with CPUs that are online"),
        "{message}"
    );
    let folded = plan("1").fit(&machine, Fit::Fold).unwrap();
    assert_eq!(folded.plan.threads[0].placing, Placing::Nodes(listed(&[0])));
}

#[test]
fn a_tier_of_memory_is_that_of_the_machine_on_which_the_plan_is_applied() {
    let plan = |nodes: &str| {
        let text = format!("version = 1\n[[object]]\nsymbol = \"a\"\npolicy = \"interleave\"\nnodes = \"{nodes}\"\n");
        Plan::parse(&text, "p.toml").unwrap()
    };
    let placed = |nodes: &str, machine: &Machine, fit: Fit| {
        plan(nodes).fit(machine, fit).map(|fitted| fitted.plan.objects[0].policy.clone()).map_err(|why| why.to_string())
    };
    let expanded = Machine::load("xeon-2s-cxl").unwrap();
    assert_eq!(placed("tier:fast", &expanded, Fit::Exact), Ok(Policy::Interleave(listed(&[0, 1]))));
    assert_eq!(placed("tier:slow", &expanded, Fit::Exact), Ok(Policy::Interleave(listed(&[2]))));
    let why = placed("tier:wide", &expanded, Fit::Exact).unwrap_err();
    assert!(why.starts_with("p.toml:2: it names tier wide of memory, but machine xeon-2s-cxl has none;"), "{why}");
    let even = Machine::load("opteron-8385").unwrap();
    for tier in ["tier:fast", "tier:slow", "tier:wide"] {
        let why = placed(tier, &even, Fit::Exact).unwrap_err();
        assert!(why.contains("opteron-8385 has none: all its nodes have CPUs") && why.contains("--fold"), "{why}");
        assert_eq!(placed(tier, &even, Fit::Fold), Ok(Policy::Interleave(listed(&[0, 1, 2, 3]))));
    }
}

/// A third of the memory that threads touch in parallel was put on a node from which none does.
#[test]
fn memory_is_split_over_the_nodes_whose_threads_touch_it() {
    let expanded = Machine::load("xeon-2s-cxl").unwrap();
    let placed = |policy: &str| {
        let text = format!("version = 1\n[[object]]\nsymbol = \"a\"\npolicy = {policy}\n");
        Plan::parse(&text, "p.toml").unwrap().fit(&expanded, Fit::Exact).unwrap().plan.objects[0].policy.clone()
    };
    assert_eq!(placed("\"split\""), Policy::Split(listed(&[0, 1])));
    assert_eq!(placed("\"split\"\nnodes = \"0-2\""), Policy::Split(listed(&[0, 1, 2])));
    assert_eq!(placed("\"interleave\""), Policy::Interleave(listed(&[0, 1, 2])));
}

fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z_:*?./<>\"'\\\\#= é-]{1,20}"
}

/// Comment lines as they come back: one blank between words, none around.
fn lines() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-z%#]{1,9}( [a-z%]{1,9}){0,4}", 0..3)
}

fn frame() -> impl Strategy<Value = Frame> {
    let lines = prop::option::of((0u32..9999).prop_flat_map(|a| (Just(a), a..10_000)));
    let offset = prop::option::of(0u64..1 << 40);
    (prop::option::of(text()), prop::option::of((text(), lines)), prop::option::of((text(), offset))).prop_map(
        |(function, file, module)| {
            let (file, lines) = file.map_or((None, None), |(file, lines)| (Some(file), lines));
            let (module, offset) = module.map_or((None, None), |(module, offset)| (Some(module), offset));
            Frame { function, file, lines, module, offset }
        },
    )
}

fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((1u64..5, 0u64..5), 0..5).prop_map(|steps| {
        let mut at = 0;
        let place = |(gap, length): (u64, u64)| {
            let first = at + gap + 1;
            at = first + length;
            (first, at)
        };
        steps.into_iter().map(place).collect()
    })
}

fn node_set() -> impl Strategy<Value = NodeSet> {
    prop_oneof![
        Just(NodeSet::All),
        prop::collection::btree_set(0u16..64, 1..6)
            .prop_map(|set| NodeSet::Listed(set.into_iter().map(NodeId).collect())),
    ]
}

fn memory_set() -> impl Strategy<Value = NodeSet> {
    let tier = (0..MemoryTier::ALL.len()).prop_map(|tier| NodeSet::Tier(MemoryTier::ALL[tier]));
    prop_oneof![node_set(), tier]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        (0u16..64, any::<bool>()).prop_map(|(node, strict)| Policy::Node { node: NodeId(node), strict }),
        memory_set().prop_map(Policy::Interleave),
        memory_set().prop_map(Policy::Split),
        prop::collection::btree_map((0u16..64).prop_map(NodeId), 1u32..=255, 0..5)
            .prop_map(|map| Policy::WeightedInterleave(map.into_iter().collect())),
        Just(Policy::Local),
        Just(Policy::FirstUse),
        Just(Policy::Replicate),
        text().prop_map(|to| Policy::HandOver(HandOver { to })),
    ]
}

fn object() -> impl Strategy<Value = ObjectRule> {
    let dynamic =
        (frame(), prop::collection::vec(frame().prop_filter("names code", Frame::names_code), 0..3), ranges())
            .prop_map(|(frame, called_from, instances)| ObjectMatch {
                frame,
                called_from,
                instances,
                ..ObjectMatch::default()
            });
    let named = (0..3, text()).prop_map(|(kind, name)| {
        let mut matches = ObjectMatch::default();
        match kind {
            0 => matches.symbol = Some(name),
            1 => matches.section = Some(name),
            _ => matches.mapped_file = Some(name),
        }
        matches
    });
    let sizes = prop::option::of((0u64..1 << 40, 0u64..1 << 40));
    let rest = (text(), lines(), sizes, prop::option::of(text()), policy(), prop::option::of(any::<bool>()));
    (prop_oneof![dynamic, named], rest).prop_map(
        |(mut matches, (name, evidence, sizes, process, policy, huge_pages))| {
            matches.min_size = sizes.map(|(min, _)| min);
            matches.max_size = sizes.map(|(min, more)| min + more);
            matches.process = process;
            ObjectRule { name, evidence, matches, policy, huge_pages, line: 0 }
        },
    )
}

fn placing() -> impl Strategy<Value = (Placing, Layout)> {
    let cpus = prop::collection::btree_set(0u32..1024, 1..6)
        .prop_map(|set| Placing::Cpus(set.into_iter().map(CpuId).collect()));
    (prop_oneof![node_set().prop_map(Placing::Nodes), cpus], prop_oneof![Just(Layout::Together), Just(Layout::Spread)])
}

fn plan() -> impl Strategy<Value = Plan> {
    let thread =
        (lines(), prop::option::of(text()), prop::option::of(text()), ranges(), prop::option::of(text()), placing())
            .prop_map(|(evidence, name, start, order, process, (placing, layout))| ThreadRule {
                evidence,
                name,
                start,
                order,
                process,
                placing,
                layout,
                line: 0,
            });
    let process = (lines(), prop::option::of(text()), ranges(), placing()).prop_map(
        |(evidence, command, order, (placing, layout))| ProcessRule {
            evidence,
            command,
            order,
            placing,
            layout,
            line: 0,
        },
    );
    let rules = (
        prop::collection::vec(object(), 1..4),
        prop::collection::vec(thread, 0..3),
        prop::collection::vec(process, 0..3),
    );
    (lines(), prop::option::of(text()), prop::option::of(text()), rules).prop_map(
        |(about, program, machine, (objects, threads, processes))| Plan {
            file: "x.toml".to_owned(),
            about,
            program,
            machine,
            objects,
            threads,
            processes,
        },
    )
}

fn without_lines(mut plan: Plan) -> Plan {
    plan.objects.iter_mut().for_each(|rule| rule.line = 0);
    plan.threads.iter_mut().for_each(|rule| rule.line = 0);
    plan.processes.iter_mut().for_each(|rule| rule.line = 0);
    plan
}

proptest! {
    #[test]
    fn writing_and_reading_returns_the_same_plan(plan in plan()) {
        let text = plan.to_toml();
        let read = Plan::parse(&text, "x.toml").map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(without_lines(read), plan, "{}", text);
    }

    #[test]
    fn no_text_makes_it_panic(text in "(version = 1\n)?(\\[\\[(object|thread|process)\\]\\]\n|[a-z_]{1,9} = [\"a-z0-9{},\\[\\] -]{0,12}\n|.{0,20}\n){0,12}") {
        let _ = Plan::parse(&text, "x.toml");
    }
}

#[test]
fn long_evidence_is_folded_and_cannot_leave_its_comment() {
    let mut plan = Plan::parse("version = 1\n[[object]]\nsymbol = \"a\"\npolicy = \"local\"\n", "p").unwrap();
    plan.about = vec!["word ".repeat(60), "a\nversion = 2".to_owned()];
    let text = plan.to_toml();
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    assert_eq!(
        Plan::parse(&text, "p").unwrap().objects,
        plan.objects.iter().map(|o| ObjectRule { line: 7, ..o.clone() }).collect::<Vec<_>>()
    );
}
