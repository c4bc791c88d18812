//! From findings to a plan: the best fix of each of the first findings that a plan can carry out, with its evidence as comments.

use numapilot_flows::{ObjectKind, Site, SiteId, Trace};
use numapilot_insight::{Findings, Fix, FixKind};
use numapilot_machine::{Machine, NodeId};
use numapilot_plan::{Frame, Layout, NodeSet, ObjectMatch, ObjectRule, Placing, Plan, Policy, ProcessRule, ThreadRule};
use numapilot_report::findings::{SHOWN, fix_words, gain_words};

/// The plan of the first findings. Names what could not be planned in its head.
pub fn plan(findings: &Findings, trace: &Trace, machine: Option<&Machine>) -> Plan {
    let meta = trace.meta();
    let program = meta.command.first().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
    let mut plan = Plan {
        about: vec![
            "Made from the findings of a recording. Gains are predicted, not measured; docs/patterns.md.".to_owned(),
        ],
        program,
        machine: Some(meta.machine_name.clone()).filter(|name| !name.is_empty()),
        ..Plan::default()
    };
    for finding in findings.findings.iter().take(SHOWN) {
        let gains = |fix: &&Fix| fix.gain.low > 0.0;
        let best = finding.fixes.iter().find(gains);
        let planned =
            finding.fixes.iter().filter(gains).find(|fix| add(&mut plan, fix, finding.pattern.name(), trace, machine));
        if let Some(best) = best.filter(|best| planned != Some(best)) {
            plan.about.push(format!(
                "Better, and not to be done by a plan ({}): {}: {}.",
                finding.pattern.name(),
                fix_words(best, trace),
                gain_words(&best.gain)
            ));
        }
    }
    plan
}

/// Adds a fix's rules; false if no rule can say it.
fn add(plan: &mut Plan, fix: &Fix, pattern: &str, trace: &Trace, machine: Option<&Machine>) -> bool {
    let evidence = vec![format!("{pattern}: {}: {}.", fix_words(fix, trace), gain_words(&fix.gain))];
    match &fix.kind {
        FixKind::PinThreads => {
            plan.threads.extend(pinned_threads(fix, &evidence, trace));
            true
        }
        FixKind::PinProcesses => {
            plan.processes.extend(pinned_processes(fix, &evidence, trace));
            true
        }
        kind => {
            let Some(policy) = policy(kind, machine) else { return false };
            let rules: Vec<ObjectRule> =
                fix.sites.iter().filter_map(|site| rule(*site, policy.clone(), &evidence, trace)).collect();
            let is_new = |rule: &ObjectRule| plan.objects.iter().all(|known| known.matches != rule.matches);
            let could = !rules.is_empty();
            let new: Vec<ObjectRule> = rules.into_iter().filter(is_new).collect();
            plan.objects.extend(new);
            could
        }
    }
}

fn policy(kind: &FixKind, machine: Option<&Machine>) -> Option<Policy> {
    Some(match kind {
        FixKind::AllocateOnNode(node) => Policy::Node { node: node.0, strict: false },
        FixKind::Interleave => Policy::Interleave(NodeSet::All),
        FixKind::WeightedInterleave(weights) => {
            Policy::WeightedInterleave(weights.iter().map(|(node, weight)| (node.0, *weight)).collect())
        }
        FixKind::LocalArenas => Policy::Local,
        FixKind::NearTier => {
            let near = machine?.nodes().iter().filter(|node| node.has_cpus() && node.has_memory());
            Policy::Interleave(NodeSet::Listed(near.map(|node| node.id.0).collect()))
        }
        // A hand-over needs the taking threads' name, which findings do not know; the rest needs the source.
        FixKind::FirstTouchByUsers
        | FixKind::ParallelFirstTouch
        | FixKind::MigrateAtHandOver
        | FixKind::Replicate
        | FixKind::SpreadHot
        | FixKind::SplitOrAlign
        | FixKind::InterleaveAll
        | FixKind::PinThreads
        | FixKind::PinProcesses => return None,
    })
}

fn rule(site: SiteId, policy: Policy, evidence: &[String], trace: &Trace) -> Option<ObjectRule> {
    let site = trace.site(site)?;
    Some(ObjectRule {
        name: site.name.to_string(),
        evidence: evidence.to_vec(),
        matches: matches(site)?,
        policy,
        huge_pages: None,
        line: 0,
    })
}

/// What a rule matches a site's objects by; `None` for stacks and what is not known.
fn matches(site: &Site) -> Option<ObjectMatch> {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let module = || Some(base(&site.module)).filter(|module| !module.is_empty());
    let named = ObjectMatch { frame: Frame { module: module(), ..Frame::default() }, ..ObjectMatch::default() };
    match site.kind {
        ObjectKind::Heap | ObjectKind::Anonymous | ObjectKind::Shared if site.line > 0 => {
            let frame = Frame { file: Some(base(&site.file)), lines: Some((site.line, site.line)), ..Frame::default() };
            Some(ObjectMatch { frame, ..ObjectMatch::default() })
        }
        ObjectKind::Heap | ObjectKind::Anonymous if !site.function.is_empty() => {
            let function = site.function.split(['(', '[']).next().unwrap_or_default().to_owned();
            Some(ObjectMatch {
                frame: Frame { function: Some(function), ..Frame::default() },
                ..ObjectMatch::default()
            })
        }
        ObjectKind::Static => Some(ObjectMatch { symbol: Some(site.name.to_string()), ..named }),
        ObjectKind::Section => Some(ObjectMatch { section: Some(site.name.to_string()), ..named }),
        ObjectKind::File => Some(ObjectMatch { mapped_file: Some(site.name.to_string()), ..ObjectMatch::default() }),
        _ => None,
    }
}

/// A rule for each node, with the numbers of its threads in the order of creation within their process.
fn pinned_threads(fix: &Fix, evidence: &[String], trace: &Trace) -> Vec<ThreadRule> {
    let mut nodes: Vec<NodeId> = fix.threads.iter().map(|(_, node)| *node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let order_of = |index: numapilot_trace::ids::ThreadIndex| {
        let process = trace.thread(index).map(|thread| thread.process);
        let before = trace.threads().iter().take_while(|thread| thread.index != index);
        before.filter(|thread| Some(thread.process) == process).count() as u64
    };
    let rule = |node: NodeId| ThreadRule {
        evidence: evidence.to_vec(),
        name: None,
        start: None,
        order: ranges(fix.threads.iter().filter(|(_, of)| *of == node).map(|(thread, _)| order_of(*thread)).collect()),
        process: None,
        placing: Placing::Nodes(NodeSet::Listed(vec![node.0])),
        layout: Layout::Together,
        line: 0,
    };
    nodes.into_iter().map(rule).collect()
}

/// One rule for each program's name: its processes take the nodes in turn.
fn pinned_processes(fix: &Fix, evidence: &[String], trace: &Trace) -> Vec<ProcessRule> {
    let mut commands: Vec<String> = (fix.processes.iter())
        .filter_map(|(process, _)| trace.process(*process))
        .map(|process| process.exe.rsplit('/').next().unwrap_or("").to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    commands.sort();
    commands.dedup();
    let rule = |command: String| ProcessRule {
        evidence: evidence.to_vec(),
        command: Some(command),
        order: Vec::new(),
        placing: Placing::Nodes(NodeSet::All),
        layout: Layout::Spread,
        line: 0,
    };
    commands.into_iter().map(rule).collect()
}

/// Numbers as ascending ranges.
fn ranges(mut numbers: Vec<u64>) -> Vec<(u64, u64)> {
    numbers.sort_unstable();
    numbers.dedup();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == number => last.1 = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(ranges(vec![5, 1, 2, 3, 9, 8, 2]), [(1, 3), (5, 5), (8, 9)]);
        assert!(ranges(Vec::new()).is_empty());
    }

    #[test]
    fn a_line_or_else_a_function_names_a_heap_site() {
        let site = Site {
            kind: ObjectKind::Heap,
            file: "/src/a.cpp".into(),
            line: 7,
            function: "f()".into(),
            ..Site::default()
        };
        let frame = matches(&site).expect("it can be named").frame;
        assert_eq!((frame.file.as_deref(), frame.lines, frame.function), (Some("a.cpp"), Some((7, 7)), None));
        let frame = matches(&Site { line: 0, ..site.clone() }).expect("it can be named").frame;
        assert_eq!(frame.function.as_deref(), Some("f"));
        assert_eq!(matches(&Site { kind: ObjectKind::Stack, ..site }), None);
    }
}
