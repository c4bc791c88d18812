//! Rules of a plan for threads: how each thread is named in them, and its number. Pure.
//!
//! The planner numbers the threads of a process as they are created (`crates/runtime/c/plan_thread.c`). Where several threads create others, these numbers
//! change from run to run; names and start functions do not.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use numapilot_flows::{Thread, Trace};
use numapilot_machine::NodeId;
use numapilot_plan::{Layout, NodeSet, Placing, ThreadRule};
use numapilot_trace::ids::{ProcessIndex, ThreadIndex};

/// Greatest number of rules that each name one thread; more threads are numbered, many in one rule.
const NAMED_MOST: usize = 64;

/// How rules choose threads of a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Which {
    Start(String),
    Name(String),
    Order,
}

/// Each thread's number in its process, in the order of the trace's threads: 0 is the main thread, the others count as they were created. The start of a
/// thread in program time is its creation; where that is equal, or was not seen, the order in which threads began decides.
pub fn creation_numbers(trace: &Trace) -> Vec<u64> {
    let threads = trace.threads();
    let mut sorted: Vec<usize> = (0..threads.len()).collect();
    // A process's first thread is not a created one, whatever its clock says.
    let mut first: HashMap<ProcessIndex, usize> = HashMap::new();
    for (at, thread) in threads.iter().enumerate() {
        first.entry(thread.process).or_insert(at);
    }
    sorted.sort_by_key(|&at| (first[&threads[at].process] != at, threads[at].start, at));
    let mut numbers = vec![0; threads.len()];
    let mut in_process: HashMap<ProcessIndex, u64> = HashMap::new();
    for at in sorted {
        let next = in_process.entry(threads[at].process).or_default();
        numbers[at] = *next;
        *next += 1;
    }
    numbers
}

/// Rules for each node that name its `pinned` threads, and how many threads they leave out. A rule names a program, not a process: where processes of one
/// program want such threads on different nodes (or not pinned), no rule can tell them apart.
pub fn pinned_threads(
    pinned: &[(ThreadIndex, NodeId)],
    evidence: &[String],
    trace: &Trace,
) -> (Vec<ThreadRule>, usize) {
    let node_of: HashMap<ThreadIndex, NodeId> = pinned.iter().copied().collect();
    let wanted = |thread: &Thread| node_of.get(&thread.index).copied();
    let program_of = |thread: &Thread| trace.process(thread.process).map_or("", |process| process.command());
    let named = lasting(trace, &wanted, &program_of);
    let numbers = creation_numbers(trace);
    let mut by_number: BTreeMap<(&str, u64), Vec<Option<NodeId>>> = BTreeMap::new();
    for (thread, &number) in trace.threads().iter().zip(&numbers) {
        by_number.entry((program_of(thread), number)).or_default().push(wanted(thread));
    }
    let mut chosen: BTreeMap<(Which, NodeId, &str), BTreeSet<u64>> = BTreeMap::new();
    let mut placed = 0;
    for (thread, &number) in trace.threads().iter().zip(&numbers) {
        let (program, Some(node)) = (program_of(thread), wanted(thread)) else { continue };
        if let Some(which) = named.get(&thread.index) {
            placed += 1;
            chosen.entry((which.clone(), node, program)).or_default();
        } else if agreed(&by_number[&(program, number)]).is_some() {
            placed += 1;
            chosen.entry((Which::Order, node, program)).or_default().insert(number);
        }
    }
    // A recording of one process needs no name, and its plan works for a renamed program.
    let is_named = trace.processes().len() > 1;
    let mut rules = Vec::new();
    for ((which, node, program), numbers) in chosen {
        let mut evidence = evidence.to_vec();
        if which == Which::Order && has_several_creators(trace, program, &program_of) {
            evidence.push(
                "Several threads create others, so that these numbers may change from run to run: give the threads names (pthread_setname_np), and use `name`."
                    .to_owned(),
            );
        }
        let rule = |order: &[(u64, u64)]| ThreadRule {
            evidence: evidence.clone(),
            name: if let Which::Name(name) = &which { Some(name.clone()) } else { None },
            start: if let Which::Start(start) = &which { Some(start.clone()) } else { None },
            order: order.to_vec(),
            process: Some(program.to_owned()).filter(|program| is_named && !program.is_empty()),
            placing: Placing::Nodes(NodeSet::Listed(vec![node])),
            layout: Layout::Together,
            line: 0,
        };
        if which == Which::Order {
            rules.extend(ranges(numbers).chunks(numapilot_plan::RANGES_MAX).map(rule));
        } else {
            rules.push(rule(&[]));
        }
    }
    (rules, pinned.len().saturating_sub(placed))
}

/// The node that all want; `None` if they differ, or want none.
fn agreed(nodes: &[Option<NodeId>]) -> Option<NodeId> {
    let first = nodes.first().copied().flatten()?;
    nodes.iter().all(|node| *node == Some(first)).then_some(first)
}

/// The threads that their start function or their name chooses, with no thread beside them that should run elsewhere.
fn lasting<'t>(
    trace: &'t Trace,
    wanted: &dyn Fn(&Thread) -> Option<NodeId>,
    program_of: &dyn Fn(&Thread) -> &'t str,
) -> HashMap<ThreadIndex, Which> {
    let mut nodes: HashMap<(&str, Which), Vec<Option<NodeId>>> = HashMap::new();
    // A thread that has its creator's name was given none: threads that get names later begin with that one, too.
    let mut inherited: BTreeSet<(&str, &str)> = BTreeSet::new();
    for thread in trace.threads() {
        let program = program_of(thread);
        for which in [start_of(thread), name_of(thread)].into_iter().flatten() {
            nodes.entry((program, which)).or_default().push(wanted(thread));
        }
        let creator = thread.parent.and_then(|parent| trace.thread(parent));
        if creator.is_none_or(|creator| creator.name == thread.name) {
            inherited.insert((program, &*thread.name));
        }
    }
    let chooses =
        |program: &str, which: &Which| nodes.get(&(program, which.clone())).is_some_and(|all| agreed(all).is_some());
    let mut found = HashMap::new();
    let mut names = BTreeSet::new();
    for thread in trace.threads() {
        let program = program_of(thread);
        let start = start_of(thread).filter(|which| chooses(program, which));
        let name = || {
            name_of(thread).filter(|which| !inherited.contains(&(program, &*thread.name)) && chooses(program, which))
        };
        let Some(which) = start.or_else(name) else { continue };
        if let Which::Name(name) = &which {
            names.insert((program, name.clone()));
        }
        found.insert(thread.index, which);
    }
    if names.len() > NAMED_MOST {
        found.retain(|_, which| !matches!(which, Which::Name(_)));
    }
    found
}

/// A text that a pattern can be: no characters that stand for others.
fn literal(text: &str) -> Option<String> {
    (!text.is_empty() && !text.contains(['*', '?'])).then(|| text.to_owned())
}

/// A rule's match of a thread by its start function, without the function's parameters; `None`: there is no name, or a pattern would read it otherwise.
fn start_of(thread: &Thread) -> Option<Which> {
    let name = thread.start_function.split(['(', '[']).next().unwrap_or_default();
    literal(name.trim_end()).map(Which::Start)
}

/// None for a name that is longer than the kernel's: a runtime has told it, and the planner sees what the kernel was given.
fn name_of(thread: &Thread) -> Option<Which> {
    literal(&thread.name).filter(|name| thread.kernel_names() == [name.as_str()]).map(Which::Name)
}

/// Whether more than one thread of a program created threads of its process.
fn has_several_creators<'t>(trace: &'t Trace, program: &str, program_of: &dyn Fn(&Thread) -> &'t str) -> bool {
    let mut creators: HashMap<ProcessIndex, ThreadIndex> = HashMap::new();
    trace.threads().iter().any(|thread| {
        let parent = thread.parent.and_then(|parent| trace.thread(parent));
        let Some(creator) = parent.filter(|parent| parent.process == thread.process) else { return false };
        program_of(thread) == program && *creators.entry(thread.process).or_insert(creator.index) != creator.index
    })
}

/// Numbers as ascending ranges.
fn ranges(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers.into_iter().collect::<BTreeSet<u64>>() {
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == number => last.1 = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use numapilot_flows::Tables;
    use numapilot_plan::Plan;
    use numapilot_trace::ids::TimeNs;

    use super::*;

    fn pins(threads: &[(u32, u16)]) -> Vec<(ThreadIndex, NodeId)> {
        threads.iter().map(|&(thread, node)| (ThreadIndex(thread), NodeId(node))).collect()
    }

    fn trace_of(processes: &[(&str, u32)]) -> Trace {
        let mut tables = Tables::default();
        for (number, (exe, threads)) in processes.iter().enumerate() {
            tables.processes.push(numapilot_flows::Process { exe: (*exe).into(), ..Default::default() });
            for _ in 0..*threads {
                let index = ThreadIndex(tables.threads.len() as u32);
                let process = ProcessIndex(number as u32);
                tables.threads.push(Thread { index, process, ..Default::default() });
            }
        }
        Trace::from_tables(tables)
    }

    /// The rules as `numapilot run --plan` reads them.
    fn read_back(rules: Vec<ThreadRule>) -> Vec<ThreadRule> {
        let plan = Plan { threads: rules, ..Plan::default() };
        Plan::parse(&plan.to_toml(), "made.toml").expect("a plan that can be read").threads
    }

    #[test]
    fn every_second_of_many_threads_is_pinned_by_rules_that_can_be_read() {
        let trace = trace_of(&[("/bin/app", 40)]);
        let (rules, left_out) =
            pinned_threads(&pins(&(0..20).map(|n| (2 * n + 1, 1)).collect::<Vec<_>>()), &[], &trace);
        let read = read_back(rules);
        assert_eq!((read.len(), left_out), (3, 0));
        let orders: Vec<u64> = read.iter().flat_map(|rule| rule.order.iter().map(|range| range.0)).collect();
        assert_eq!(orders, (0..20).map(|n| 2 * n + 1).collect::<Vec<u64>>());
        assert!(read.iter().all(|rule| rule.process.is_none()));
    }

    #[test]
    fn processes_of_one_program_that_disagree_are_left_out_and_others_named() {
        // Two ranks want their second thread on different nodes, their third on one; a helper has threads of the same orders.
        let trace = trace_of(&[("/bin/rank", 3), ("/bin/rank", 3), ("/bin/helper", 3)]);
        let (rules, left_out) = pinned_threads(&pins(&[(1, 0), (4, 1), (2, 1), (5, 1)]), &[], &trace);
        let read = read_back(rules);
        assert_eq!((read.len(), left_out), (1, 2));
        assert_eq!((read[0].order.clone(), read[0].process.as_deref()), (vec![(2, 2)], Some("rank")));
        // A forked child's first thread is not pinned with its parent's.
        let trace = trace_of(&[("/bin/app", 2), ("/bin/app", 1)]);
        assert_eq!(pinned_threads(&pins(&[(0, 1)]), &[], &trace), (vec![], 1));
    }

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(ranges(vec![5, 1, 2, 3, 9, 8, 2]), [(1, 3), (5, 5), (8, 9)]);
        assert!(ranges([]).is_empty());
    }

    /// A trace of one program; each thread's name, start function, creator, and program time of its start.
    fn threads(rows: &[(&str, &str, Option<u32>, u64)]) -> Trace {
        let mut tables = Tables::default();
        tables.processes.push(numapilot_flows::Process { exe: "/bin/app".into(), ..Default::default() });
        for (at, (name, start, parent, time)) in rows.iter().enumerate() {
            tables.threads.push(Thread {
                index: ThreadIndex(at as u32),
                name: (*name).into(),
                start_function: (*start).into(),
                parent: parent.map(ThreadIndex),
                start: TimeNs(*time),
                ..Default::default()
            });
        }
        Trace::from_tables(tables)
    }

    /// Threads begin in another order than that in which they were created, and the next run has another one still.
    #[test]
    fn threads_are_numbered_as_they_were_created() {
        let trace =
            threads(&[("app", "", None, 5), ("", "", Some(0), 30), ("", "", Some(0), 10), ("", "", Some(0), 20)]);
        assert_eq!(creation_numbers(&trace), [0, 3, 1, 2]);
        let (rules, left_out) = pinned_threads(&pins(&[(1, 1)]), &[], &trace);
        assert_eq!((rules[0].order.clone(), left_out), (vec![(3, 3)], 0));
        assert!(rules[0].evidence.is_empty(), "one thread creates all");
    }

    #[test]
    fn start_functions_and_names_come_before_numbers() {
        let trace = threads(&[
            ("app", "", None, 0),
            ("app", "read_all(void*)", Some(0), 1),
            ("app", "read_all(void*)", Some(0), 2),
            ("app", "pool", Some(0), 3),
            ("w-1", "pool", Some(0), 4),
            ("w-2", "pool", Some(0), 5),
        ]);
        let (rules, left_out) = pinned_threads(&pins(&[(1, 0), (2, 0), (3, 1), (4, 1), (5, 0)]), &[], &trace);
        let read = read_back(rules);
        let by_word: Vec<_> = read.iter().map(|rule| (rule.start.as_deref(), rule.name.as_deref())).collect();
        // Of the last the name is its creator's, with which all begin.
        assert_eq!(by_word, [(Some("read_all"), None), (None, Some("w-1")), (None, Some("w-2")), (None, None)]);
        let numbers: Vec<_> = read.iter().map(|rule| rule.order.clone()).collect();
        assert_eq!(numbers, [vec![], vec![], vec![], vec![(3, 3)]]);
        assert_eq!(left_out, 0);
    }

    /// A runtime told the name; the kernel, and so the planner, has 15 bytes of it.
    #[test]
    fn a_name_longer_than_the_kernels_chooses_no_thread() {
        let long = "a name of more than fifteen bytes";
        let trace = threads(&[("app", "", None, 0), (long, "run", Some(0), 1), ("fifteen letters", "run", Some(0), 2)]);
        let (rules, left_out) = pinned_threads(&pins(&[(1, 0), (2, 1)]), &[], &trace);
        let read = read_back(rules);
        let found: Vec<_> = read.iter().map(|rule| (rule.name.as_deref(), rule.order.clone())).collect();
        assert_eq!((found, left_out), (vec![(Some("fifteen letters"), vec![]), (None, vec![(1, 1)])], 0));
    }

    #[test]
    fn numbers_that_change_from_run_to_run_say_so() {
        let trace = threads(&[("app", "", None, 0), ("", "", Some(0), 1), ("", "", Some(0), 2), ("", "", Some(1), 3)]);
        let (rules, _) = pinned_threads(&pins(&[(3, 1)]), &["why".to_owned()], &trace);
        assert_eq!(rules[0].evidence.len(), 2);
        assert!(rules[0].evidence[1].contains("may change from run to run"), "{:?}", rules[0].evidence);
    }
}
