//! Turns findings into a plan: for each of the first findings, the best fix that a plan can carry out, with its evidence as comments.

use numapilot_flows::{SiteId, Trace};
use numapilot_insight::whatif::Answer;
use numapilot_insight::{Analysis, Findings, Fix, FixKind, Surveyed, is_placeable};
use numapilot_machine::{Machine, MemoryTier};
use numapilot_plan::{Fit, Layout, NodeSet, ObjectMatch, ObjectRule, Placing, Plan, Policy, ProcessRule};
use numapilot_report::findings::{SHOWN, effect_words, fix_words};
use numapilot_text::units;

use super::plan_overrides;
use super::plan_sites::{Allocations, base};
use super::plan_threads::pinned_threads;

/// Greatest number of names listed in a comment.
const NAMES_MOST: usize = 5;
/// Smallest useful condition on sizes in bytes: programs make most of their allocations below.
const LEAST_SIZE: u64 = 4096;
/// What is said of a plan without rules, which no command takes.
pub const NO_RULE: &str = "no rule: no finding has a fix that surely gains and that a plan can carry out";

/// The plan for the first findings. The comments at its head name the better fixes that a plan cannot carry out.
pub fn plan(findings: &Findings, trace: &Trace, machine: Option<&Machine>) -> Plan {
    let meta = trace.meta();
    let program = meta.command.first().map(|path| base(path).to_owned());
    let mut plan = Plan {
        about: vec![
            "Made from the findings of a recording. Gains are predicted, not measured; docs/patterns.md.".to_owned(),
        ],
        program,
        machine: Some(meta.machine_name.clone()).filter(|name| !name.is_empty()),
        ..Plan::default()
    };
    let all = Allocations::of(trace);
    for finding in findings.findings.iter().take(SHOWN) {
        let gains = |fix: &&Fix| fix.decisive().low > 0.0;
        let best = finding.fixes.iter().find(gains);
        let planned =
            finding.fixes.iter().filter(gains).find(|fix| add(&mut plan, fix, finding.pattern.name(), &all, machine));
        if let Some(best) = best.filter(|best| planned != Some(best)) {
            plan.about.push(format!(
                "A better fix that no plan can carry out ({}): {}: {}.",
                finding.pattern.name(),
                fix_words(best, trace),
                effect_words(&best.gain, best.work_gain.as_ref(), &best.uncertainty)
            ));
        }
    }
    keep_effective(&mut plan, &all);
    bound_sizes(&mut plan, &all);
    if !has_rules(&plan) {
        plan.about.push(format!("This plan has {NO_RULE}. `run` and `record` refuse it."));
    }
    plan
}

/// Whether a plan has a rule.
pub fn has_rules(plan: &Plan) -> bool {
    !(plan.objects.is_empty() && plan.threads.is_empty() && plan.processes.is_empty())
}

/// Adds the predicted gain of all rules together to the plan's head. Gains of single rules do not add up, because two rules may speed up the same access.
/// `surveyed`: what the findings have left of the recording.
pub fn add_price(plan: &mut Plan, analysis: &Analysis<'_>, machine: &Machine, surveyed: &mut Surveyed) {
    if plan.objects.len() + plan.threads.len() + plan.processes.len() < 2 {
        return;
    }
    let comment = match price(plan, analysis, machine, surveyed) {
        Ok(all) => {
            plan.about.extend(all.too_large.iter().map(|why| format!("Too large: {why} Leave out a rule.")));
            let effect = effect_words(&all.gain, all.work_gain.as_ref(), &all.uncertainty);
            format!("All rules together: {effect}.")
        }
        Err(why) => format!("The gain of all rules together cannot be predicted: {why:#}."),
    };
    plan.about.push(comment);
}

fn price(plan: &Plan, analysis: &Analysis<'_>, machine: &Machine, surveyed: &mut Surveyed) -> anyhow::Result<Answer> {
    let fitted = plan.fit(machine, Fit::Exact)?;
    let found = plan_overrides::overrides(&fitted.plan, analysis.trace(), machine)?;
    Ok(analysis.what_if_surveyed(machine, &found.overrides, surveyed)?)
}

/// Adds a fix's rules to the plan; false if no rule can express the fix.
fn add(plan: &mut Plan, fix: &Fix, pattern: &str, all: &Allocations<'_>, machine: Option<&Machine>) -> bool {
    let trace = all.trace();
    let effect = effect_words(&fix.gain, fix.work_gain.as_ref(), &fix.uncertainty);
    let evidence = vec![format!("{pattern}: {}: {effect}.", fix_words(fix, trace))];
    match &fix.kind {
        FixKind::PinThreads => {
            let (rules, left_out) = pinned_threads(&fix.threads, &evidence, trace);
            let could = !rules.is_empty();
            plan.threads.extend(rules);
            if left_out > 0 {
                plan.about.push(format!(
                    "Left out: threads that should be pinned ({left_out}): processes of one program need theirs on different nodes, and rules cannot tell \
                     these processes apart."
                ));
            }
            could
        }
        FixKind::PinProcesses => {
            plan.processes.extend(pinned_processes(fix, &evidence, trace));
            true
        }
        kind => {
            let Some(policy) = policy(kind, machine) else { return false };
            let rules: Vec<ObjectRule> =
                fix.sites.iter().flat_map(|site| rules(*site, &policy, &evidence, all, trace)).collect();
            let could = !rules.is_empty();
            rules.into_iter().for_each(|rule| merge_rule(plan, rule));
            could
        }
    }
}

/// Adds a rule. If an earlier rule matches the same objects, the new rule's name is added to that rule's comments instead.
fn merge_rule(plan: &mut Plan, rule: ObjectRule) {
    let Some(known) = plan.objects.iter_mut().find(|known| known.matches == rule.matches) else {
        plan.objects.push(rule);
        return;
    };
    if known.name != rule.name && known.policy == rule.policy {
        known.evidence.push(format!("{} too: their allocations cannot be told apart.", rule.name));
    }
}

/// Removes the rules that match nothing in the plan's recording, and notes each in the plan's head.
fn keep_effective(plan: &mut Plan, all: &Allocations<'_>) {
    let conditions: Vec<&ObjectMatch> = plan.objects.iter().map(|rule| &rule.matches).collect();
    let is_effective = all.effective(&conditions);
    let (mut at, mut left_out) = (0, Vec::new());
    plan.objects.retain(|rule| {
        at += 1;
        let keep = !rule.matches.is_dynamic() || is_effective[at - 1];
        if !keep {
            left_out.push(format!("Left out: {}: earlier rules match all its objects.", rule.name));
        }
        keep
    });
    plan.about.extend(left_out);
}

/// Gives rules on code a least size, well below what they matched in the recording, where that is large. Without one, the planner in the program has to walk
/// the call stack of every allocation, small ones included, which takes longer than the allocation itself.
fn bound_sizes(plan: &mut Plan, all: &Allocations<'_>) {
    for rule in plan.objects.iter_mut().filter(|rule| rule.matches.is_dynamic() && rule.matches.min_size.is_none()) {
        let Some(smallest) = all.smallest(&rule.matches) else { continue };
        let least = match smallest / 2 {
            0 => 0,
            half => 1_u64 << half.ilog2(),
        };
        if least >= LEAST_SIZE {
            rule.matches.min_size = Some(least);
            rule.evidence.push(format!(
                "The recording has no matching object below {}. Without `min_size`, the call stack of every allocation would be walked.",
                units::bytes(smallest)
            ));
        }
    }
}

fn policy(kind: &FixKind, machine: Option<&Machine>) -> Option<Policy> {
    Some(match kind {
        FixKind::AllocateOnNode(node) => Policy::Node { node: *node, strict: false },
        FixKind::Interleave => Policy::Interleave(NodeSet::All),
        FixKind::WeightedInterleave(weights) => Policy::WeightedInterleave(weights.clone()),
        FixKind::LocalArenas => Policy::Local,
        FixKind::NearTier => {
            let machine = machine?;
            let is_named = !machine.nodes_of_tier(MemoryTier::Fast).is_empty();
            let near = || NodeSet::Listed(machine.cpu_and_memory_nodes().map(|node| node.id).collect());
            Policy::Interleave(if is_named { NodeSet::Tier(MemoryTier::Fast) } else { near() })
        }
        // A hand-over rule needs the name of the threads that take over, which findings do not have; the other fixes need the source.
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

/// The rules that match a site's objects: one, or one for each call where other sites share its source line.
fn rules(site: SiteId, policy: &Policy, evidence: &[String], all: &Allocations<'_>, trace: &Trace) -> Vec<ObjectRule> {
    let Some(named) = trace.site(site).filter(|site| is_placeable(site.kind, &site.name)) else { return Vec::new() };
    let rule = |matches: ObjectMatch| {
        let mut evidence = evidence.to_vec();
        evidence.extend(also_taken(site, &matches, all, trace));
        if matches.frame.offset.is_some() {
            evidence.push(
                "The offset distinguishes it from other allocations of its line, and changes when the program is rebuilt.".to_owned(),
            );
        }
        let (name, policy) = (named.name.to_string(), policy.clone());
        ObjectRule { name, evidence, matches, policy, huge_pages: None, line: 0 }
    };
    let mut rules: Vec<ObjectRule> = all.conditions(site).into_iter().map(rule).collect();
    if let [only] = rules.as_mut_slice()
        && only.matches.frame.offset.is_none()
        && only.matches.is_dynamic()
    {
        only.evidence.extend(calls_comment(site, all));
    }
    rules
}

/// A comment with the other sites that a rule matches, because no condition distinguishes them; `None` if there are none.
fn also_taken(site: SiteId, matches: &ObjectMatch, all: &Allocations<'_>, trace: &Trace) -> Option<String> {
    let mut others: Vec<String> =
        all.others(matches, site).filter_map(|other| trace.site(other)).map(|other| other.name.to_string()).collect();
    others.sort();
    others.dedup();
    let more = others.len().saturating_sub(NAMES_MOST);
    others.truncate(NAMES_MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!others.is_empty())
        .then(|| format!("It also matches {}{more}: their allocations cannot be told apart.", others.join(", ")))
}

/// A comment with the calls that allocate at a site, each of which can have its own rule; `None` if there is one call.
fn calls_comment(site: SiteId, all: &Allocations<'_>) -> Option<String> {
    let calls = all.calls(site);
    if calls.len() < 2 {
        return None;
    }
    let listed = calls.iter().take(NAMES_MOST);
    let listed: Vec<String> =
        listed.map(|(module, offset, bytes)| format!("{offset:#x} in {module} ({})", units::bytes(*bytes))).collect();
    let more = calls.len().saturating_sub(NAMES_MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!(
        "{} calls allocate there, at offsets {}{more}; `module` and `offset` choose one.",
        calls.len(),
        listed.join(", ")
    ))
}

/// A rule for each program's name that spreads its processes over the nodes in turn.
fn pinned_processes(fix: &Fix, evidence: &[String], trace: &Trace) -> Vec<ProcessRule> {
    let mut commands: Vec<String> = (fix.processes.iter())
        .filter_map(|(process, _)| trace.process(*process))
        .map(|process| process.command().to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;
    use numapilot_flows::Tables;
    use numapilot_plan::Frame;

    fn rule(name: &str, line: u32, policy: Policy) -> ObjectRule {
        let frame = Frame { file: Some("a.c".to_owned()), lines: Some((line, line)), ..Frame::default() };
        ObjectRule {
            name: name.to_owned(),
            evidence: Vec::new(),
            matches: ObjectMatch { frame, ..ObjectMatch::default() },
            policy,
            huge_pages: None,
            line: 0,
        }
    }

    #[test]
    fn equal_rules_are_one_that_names_both_and_idle_ones_are_left_out() {
        let mut plan = Plan::default();
        for (name, line) in [("u", 7), ("v", 7), ("w", 8)] {
            merge_rule(&mut plan, rule(name, line, Policy::Local));
        }
        assert_eq!(plan.objects.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["u", "w"]);
        assert!(plan.objects[0].evidence[0].starts_with("v too"), "{:?}", plan.objects[0].evidence);
        // Nothing was allocated there in this trace.
        let trace = Trace::from_tables(Tables::default());
        keep_effective(&mut plan, &Allocations::of(&trace));
        assert!(plan.objects.is_empty() && plan.about.len() == 2, "{plan:?}");
    }

    #[test]
    fn a_plan_without_rules_says_so() {
        let trace = Trace::from_tables(Tables::default());
        let plan = plan(&Findings::default(), &trace, None);
        assert!(!has_rules(&plan) && plan.to_toml().contains("# This plan has no rule"), "{}", plan.to_toml());
    }

    /// Line 7 allocated 8 MiB and 5 MiB, line 9 once only 100 bytes.
    #[test]
    fn rules_for_large_objects_say_so_and_others_do_not() {
        let at = |line: u32| numapilot_flows::Location {
            module: "/bin/app".into(),
            frames: vec![numapilot_flows::Frame {
                function: "main".into(),
                file: "/src/a.c".into(),
                line,
                column: 0,
                inlined: false,
            }],
            ..Default::default()
        };
        let site = |line: u32| numapilot_flows::Site {
            kind: numapilot_flows::ObjectKind::Heap,
            name: "x".into(),
            function: "main".into(),
            file: "/src/a.c".into(),
            line,
            module: "/bin/app".into(),
        };
        let object = |(number, (site, bytes)): (usize, (u32, u64))| numapilot_flows::Object {
            id: numapilot_trace::ids::ObjectId(number as u32),
            site: SiteId(site),
            bytes,
            stack: numapilot_trace::ids::StackId(site + 1),
            ..Default::default()
        };
        let sizes = [(0, 8 << 20), (0, 5 << 20), (1, 8 << 20), (1, 100)];
        let trace = Trace::from_tables(Tables {
            sites: vec![site(7), site(9)],
            objects: sizes.into_iter().enumerate().map(object).collect(),
            locations: vec![numapilot_flows::Location::default(), at(7), at(9)],
            stacks: vec![vec![], vec![numapilot_flows::LocationId(1)], vec![numapilot_flows::LocationId(2)]],
            ..Tables::default()
        });
        let objects = vec![rule("large", 7, Policy::Local), rule("mixed", 9, Policy::Local)];
        let mut plan = Plan { objects, ..Plan::default() };
        bound_sizes(&mut plan, &Allocations::of(&trace));
        let least: Vec<Option<u64>> = plan.objects.iter().map(|rule| rule.matches.min_size).collect();
        assert_eq!(least, [Some(2 << 20), None]);
        assert_eq!(Plan::parse(&plan.to_toml(), "made.toml").expect("a plan").objects[0].matches.min_size, least[0]);
    }

    /// The kernel would take the policy of a mapped file, and place nothing by it.
    #[test]
    fn files_and_constants_have_no_rule_and_shared_memory_has() {
        let site = |kind, name: &str| numapilot_flows::Site {
            kind,
            name: name.into(),
            module: "/bin/app".into(),
            ..numapilot_flows::Site::default()
        };
        let kinds = [
            site(numapilot_flows::ObjectKind::File, "/data/index"),
            site(numapilot_flows::ObjectKind::Section, ".rodata"),
            site(numapilot_flows::ObjectKind::File, "/dev/shm/index"),
            site(numapilot_flows::ObjectKind::Section, ".bss"),
            site(numapilot_flows::ObjectKind::Shared, "/dev/shm/index"),
            site(numapilot_flows::ObjectKind::Shared, "System V segment id 3"),
        ];
        let trace = Trace::from_tables(Tables { sites: kinds.to_vec(), ..Tables::default() });
        let all = Allocations::of(&trace);
        let made = |number: u32| rules(SiteId(number), &Policy::Interleave(NodeSet::All), &[], &all, &trace).len();
        assert_eq!([0, 1, 2, 3, 4, 5].map(made), [0, 0, 1, 1, 1, 0]);
    }
}
