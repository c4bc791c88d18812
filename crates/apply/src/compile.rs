//! From a plan that fits a machine to the image that the planner library reads: names become addresses, node sets become bits.

use std::ffi::OsString;

use numapilot_launch::Target;
use numapilot_machine::{CpuId, Machine, NodeId};
use numapilot_plan::{Fitted, Frame, Layout, NodeSet, ObjectRule, Placing, Plan, Policy, ThreadRule};

use super::code::{Found, Module, disjoint, look_up, modules, statics};
use super::image::{Parts, Place, PlanImage, Rule};
use super::layout::*;
use super::policy;
use crate::error::ApplyError;

/// Different frames in one plan: a bit of a word for each.
const PATTERNS_MAX: usize = 64;

/// What a plan is applied for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Run the program with the plan.
    Run,
    /// To measure what the placement does, and nothing but the placement: blocks keep their addresses' low bits (`plan_twin.c`).
    Measure,
    /// The same where the program is emulated: the planner reserves few addresses there.
    MeasureEmulated,
}

/// Compiles a plan for `machine` and for the program of `command`.
///
/// # Errors
/// The plan names too many different frames, the machine has nodes with numbers from 64 on, or the system refuses shared memory.
pub fn compile(
    fitted: &Fitted,
    machine: &Machine,
    target: &Target,
    command: &[OsString],
    purpose: Purpose,
) -> Result<PlanImage, ApplyError> {
    let plan = &fitted.plan;
    if let Some(node) = beyond_masks(machine.nodes().iter().map(|node| node.id)) {
        return Err(ApplyError::Plan {
            reason: format!(
                "machine {} has node {node}, but plans reach nodes 0 to {} only",
                machine.name(),
                NODES - 1
            ),
            remedy: "place all of the program's memory without a plan: `numapilot run --interleave` or `--membind`"
                .to_owned(),
        });
    }
    let mut frames = Frames::default();
    let mut rules: Vec<Rule> = plan.objects.iter().map(|rule| dynamic_part(rule, fitted, &mut frames)).collect();
    let allowed = match purpose {
        Purpose::Run => given_cpus(),
        Purpose::Measure | Purpose::MeasureEmulated => [u64::MAX; CPU_WORDS],
    };
    let (threads, processes) = places(plan, machine, &allowed, &mut frames);
    if frames.list.len() > PATTERNS_MAX {
        return Err(ApplyError::Plan {
            reason: format!("{} names {} functions and lines of code", plan.file, frames.list.len()),
            remedy: format!("a plan can name {PATTERNS_MAX} at most: merge rules by patterns (`*`)"),
        });
    }
    let of_frames = frames.list.iter().filter_map(|frame| frame.module.as_deref());
    let named: Vec<&str> =
        of_frames.chain(plan.objects.iter().filter_map(|rule| rule.matches.frame.module.as_deref())).collect();
    let modules = modules(target, command, &named);
    let found = look_up(&modules, &frames.list);
    let statics = static_parts(&plan.objects, &modules);
    let (mut notes, mut dead) = (without_cpus(plan, &threads, &processes), vec![false; rules.len()]);
    notes.extend(without_start(plan, &threads, &found, &frames));
    for (index, (rule, object)) in rules.iter_mut().zip(&plan.objects).enumerate() {
        if let Some(problem) = problem(index, rule, &statics, &found, &frames) {
            notes.push(format!("{}:{}: rule {} matches nothing: {problem}", plan.file, object.line, object.name));
            dead[index] = true;
            (rule.min_size, rule.max_size) = (u64::MAX, 0);
        }
    }
    let live = || rules.iter().filter(|rule| rule.kind == KIND_DYNAMIC && rule.min_size <= rule.max_size);
    let parts = Parts {
        has_twins: purpose != Purpose::Run,
        is_emulated: purpose == Purpose::MeasureEmulated,
        memory_nodes: mask(&fitted.memory_nodes),
        node_cpus: machine.nodes().iter().map(|node| (node.id, node_cpus(machine, node.id))).collect(),
        min_size: live().map(|rule| rule.min_size).min().unwrap_or(u64::MAX),
        max_size: live().map(|rule| rule.max_size).max().unwrap_or(0),
        rules,
        threads,
        processes,
        modules: modules.iter().map(|module| module.id).collect(),
        code: code(modules.len(), &found),
        statics,
    };
    PlanImage::create(&parts, notes, dead)
}

/// CPUs that this process may use, which are the program's; all, where the system does not say.
fn given_cpus() -> [u64; CPU_WORDS] {
    policy::cpus_here().map_or([u64::MAX; CPU_WORDS], |cpus| cpu_bits(cpus.into_iter()))
}

/// Notes on the rules for threads and processes of whose CPUs the program may use none.
fn without_cpus(plan: &Plan, threads: &[Place], processes: &[Place]) -> Vec<String> {
    let lines = plan.threads.iter().map(|rule| rule.line).chain(plan.processes.iter().map(|rule| rule.line));
    let is_empty = |place: &Place| place.cpus.iter().all(|word| *word == 0);
    let places = threads.iter().chain(processes);
    let note = |line| {
        format!(
            "{}:{line}: the rule pins nothing: taskset, a cpuset or `-C` keeps the program off all of the rule's CPUs; name CPUs that it may use",
            plan.file
        )
    };
    lines.zip(places).filter(|(_, place)| is_empty(place)).map(|(line, _)| note(line)).collect()
}

fn places(plan: &Plan, machine: &Machine, allowed: &[u64; CPU_WORDS], frames: &mut Frames) -> (Vec<Place>, Vec<Place>) {
    let thread = |rule: &ThreadRule| Place {
        name: rule.name.clone().unwrap_or_default(),
        process: rule.process.clone().unwrap_or_default(),
        start_pattern: rule.start.as_ref().map_or(NO_PATTERN, |start| frames.function(start)),
        order: rule.order.clone(),
        ..place(&rule.placing, rule.layout, machine, allowed)
    };
    let process = |rule: &numapilot_plan::ProcessRule| Place {
        process: rule.command.clone().unwrap_or_default(),
        order: rule.order.clone(),
        ..place(&rule.placing, rule.layout, machine, allowed)
    };
    (plan.threads.iter().map(thread).collect(), plan.processes.iter().map(process).collect())
}

/// Why a rule can match nothing in this program.
fn problem(index: usize, rule: &Rule, statics: &[Static], found: &[Found], frames: &Frames) -> Option<String> {
    if rule.policy == POLICY_HAND_OVER && rule.kind != KIND_DYNAMIC {
        return Some("only what `malloc` and `new` allocate can be handed over".to_owned());
    }
    if rule.kind == KIND_STATIC {
        let has_some = statics.iter().any(|(_, owner, _, _)| *owner as usize == index);
        return (!has_some).then(|| "no such symbol or section".to_owned());
    }
    let pattern = (0..found.len()).find(|&p| rule.patterns >> p & 1 == 1 && found[p].ranges.is_empty())?;
    Some(missing(pattern, found, frames))
}

/// That the code of a frame is nowhere, and what to do.
fn missing(pattern: usize, found: &[Found], frames: &Frames) -> String {
    match &found[pattern].lacks_debug {
        Some(path) => {
            format!("{} has no debug information, which rules on source lines need: build it with -g", path.display())
        }
        None => format!(
            "the program and the libraries that it is linked with have no {}; name it as `numapilot report` does",
            describe(&frames.list[pattern])
        ),
    }
}

/// Notes on the rules for threads whose start function is nowhere.
fn without_start(plan: &Plan, threads: &[Place], found: &[Found], frames: &Frames) -> Vec<String> {
    let note = |(rule, place): (&ThreadRule, &Place)| {
        let pattern = place.start_pattern as usize; // of those without one, there is no such number
        let is_missing = found.get(pattern)?.ranges.is_empty();
        is_missing.then(|| {
            let (which, why) = (rule.which(), missing(pattern, found, frames));
            format!("{}:{}: the rule for thread {which} matches nothing: {why}", plan.file, rule.line)
        })
    };
    plan.threads.iter().zip(threads).filter_map(note).collect()
}

/// Of each module, the code of all frames, cut so that no ranges overlap.
fn code(modules: usize, found: &[Found]) -> Vec<(u32, u64, u64, u64)> {
    let mut code = Vec::new();
    for module in 0..modules as u32 {
        let of_frame = |(pattern, found): (usize, &'_ Found)| -> Vec<_> {
            found.ranges.iter().filter(|range| range.0 == module).map(|range| (range.1, pattern as u32)).collect()
        };
        let ranges: Vec<_> = found.iter().enumerate().flat_map(of_frame).collect();
        code.extend(disjoint(&ranges).into_iter().map(|((first, last), patterns)| (module, first, last, patterns)));
    }
    code
}

/// The different frames of a plan; a frame's number is its bit.
#[derive(Default)]
struct Frames {
    list: Vec<Frame>,
}

impl Frames {
    fn number(&mut self, frame: &Frame) -> u32 {
        let index = self.list.iter().position(|known| known == frame).unwrap_or_else(|| {
            self.list.push(frame.clone());
            self.list.len() - 1
        });
        index as u32
    }

    fn function(&mut self, name: &str) -> u32 {
        self.number(&Frame { function: Some(name.to_owned()), ..Frame::default() })
    }

    /// Bits beyond the word are of no account: such a plan is refused as a whole.
    fn bits(&mut self, frames: impl Iterator<Item = Frame>) -> u64 {
        frames.fold(0, |bits, frame| bits | 1_u64 << (self.number(&frame) % 64))
    }
}

/// `function f at a.c:3 in libx.so`.
fn describe(frame: &Frame) -> String {
    let function = frame.function.as_ref().map_or("code".to_owned(), |name| format!("function {name}"));
    let place = frame.file.as_ref().map(|file| match frame.lines {
        Some((first, last)) if first != last => format!("{file}:{first}-{last}"),
        Some((line, _)) => format!("{file}:{line}"),
        None => file.clone(),
    });
    let module = frame.module.as_ref().map(|module| format!("in {module}"));
    let parts: Vec<String> =
        [Some(function), place.map(|place| format!("at {place}")), module].into_iter().flatten().collect();
    parts.join(" ")
}

/// A node whose number has no bit in the planner's masks: it would stand for another one.
fn beyond_masks(mut nodes: impl Iterator<Item = NodeId>) -> Option<NodeId> {
    nodes.find(|node| usize::from(node.0) >= NODES)
}

fn mask(nodes: &[NodeId]) -> u64 {
    nodes.iter().fold(0, |bits, node| bits | 1_u64 << (node.0 % 64))
}

fn set_mask(set: &NodeSet) -> u64 {
    // Fitted plans list their nodes.
    if let NodeSet::Listed(nodes) = set { mask(nodes) } else { 0 }
}

/// All of a rule but what the binaries decide.
fn dynamic_part(object: &ObjectRule, fitted: &Fitted, frames: &mut Frames) -> Rule {
    let matches = &object.matches;
    let kind = match (&matches.mapped_file, matches.is_dynamic()) {
        (Some(_), _) => KIND_FILE,
        (None, false) => KIND_STATIC,
        (None, true) => KIND_DYNAMIC,
    };
    let mut rule = Rule {
        kind,
        min_size: matches.min_size.unwrap_or(0),
        max_size: matches.max_size.unwrap_or(1 << 62),
        to_pattern: NO_PATTERN,
        instances: matches.instances.clone(),
        process: matches.process.clone().unwrap_or_default(),
        text: matches.mapped_file.clone().unwrap_or_default(),
        ..Rule::default()
    };
    if kind == KIND_DYNAMIC {
        let own = (!matches.frame.is_empty()).then(|| matches.frame.clone());
        rule.patterns = frames.bits(own.into_iter().chain(matches.called_from.iter().cloned()));
    }
    rule.flags = match object.huge_pages {
        Some(true) => FLAG_HUGE,
        Some(false) => FLAG_NO_HUGE,
        None => 0,
    };
    let all = mask(&fitted.memory_nodes);
    (rule.policy, rule.nodes) = match &object.policy {
        Policy::Node { node, strict } => {
            rule.flags |= if *strict { FLAG_STRICT } else { 0 };
            (POLICY_NODE, mask(&[*node]))
        }
        Policy::Interleave(nodes) => (POLICY_INTERLEAVE, set_mask(nodes)),
        Policy::WeightedInterleave(weights) if weights.is_empty() => (POLICY_WEIGHTED, all),
        Policy::WeightedInterleave(weights) => {
            rule.flags |= FLAG_OWN_WEIGHTS;
            rule.weights.clone_from(weights);
            (POLICY_WEIGHTED, weights.iter().fold(0, |bits, (node, _)| bits | mask(&[*node])))
        }
        Policy::Local => (POLICY_LOCAL, 0),
        Policy::FirstUse => (POLICY_FIRST_USE, 0),
        Policy::Split(nodes) => (POLICY_SPLIT, set_mask(nodes)),
        Policy::Replicate => (POLICY_REPLICATE, 0),
        Policy::HandOver(hand_over) => {
            rule.to_pattern = frames.function(&hand_over.to);
            rule.text.clone_from(&hand_over.to);
            (POLICY_HAND_OVER, 0)
        }
    };
    rule
}

/// Module, rule, first and last address.
type Static = (u32, u32, u64, u64);

fn static_parts(objects: &[ObjectRule], modules: &[Module]) -> Vec<Static> {
    let is_static =
        |(_, object): &(usize, &ObjectRule)| object.matches.symbol.is_some() || object.matches.section.is_some();
    objects
        .iter()
        .enumerate()
        .filter(is_static)
        .flat_map(|(rule, object)| static_part(object, rule as u32, modules))
        .collect()
}

fn static_part(object: &ObjectRule, rule: u32, modules: &[Module]) -> Vec<Static> {
    let matches = &object.matches;
    let (least, most) = (matches.min_size.unwrap_or(0), matches.max_size.unwrap_or(u64::MAX));
    let mut parts = Vec::new();
    for (number, module) in modules.iter().enumerate() {
        let is_meant = match &matches.frame.module {
            Some(end) => module.is_named(end),
            None => number == 0,
        };
        if is_meant {
            let ranges = statics(&module.path, matches.symbol.as_deref(), matches.section.as_deref());
            let fitting = ranges.into_iter().filter(|(first, last)| (least..=most).contains(&(last - first + 1)));
            parts.extend(fitting.map(|(first, last)| (number as u32, rule, first, last)));
        }
    }
    parts
}

fn cpu_bits(cpus: impl Iterator<Item = CpuId>) -> [u64; CPU_WORDS] {
    let mut words = [0; CPU_WORDS];
    for CpuId(cpu) in cpus.filter(|cpu| (cpu.0 as usize) < CPU_WORDS * 64) {
        words[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    words
}

fn both(cpus: [u64; CPU_WORDS], allowed: &[u64; CPU_WORDS]) -> [u64; CPU_WORDS] {
    std::array::from_fn(|word| cpus[word] & allowed[word])
}

fn node_cpus(machine: &Machine, node: NodeId) -> [u64; CPU_WORDS] {
    cpu_bits(machine.cpus().iter().filter(|cpu| cpu.node == Some(node)).map(|cpu| cpu.id))
}

/// On those CPUs only that the program was given: others may be somebody else's. Nodes without one take no turn.
fn place(placing: &Placing, layout: Layout, machine: &Machine, allowed: &[u64; CPU_WORDS]) -> Place {
    let spread = layout == Layout::Spread;
    let start_pattern = NO_PATTERN;
    match placing {
        Placing::Nodes(set) => {
            let has_cpu =
                |node: NodeId| node_cpus(machine, node).iter().zip(allowed).any(|(cpus, may)| cpus & may != 0);
            let usable = machine.nodes().iter().map(|node| node.id).filter(|node| has_cpu(*node));
            let nodes = set_mask(set) & mask(&usable.collect::<Vec<_>>());
            let is_in = |cpu: &&numapilot_machine::Cpu| cpu.node.is_some_and(|id| nodes >> (id.0 % 64) & 1 == 1);
            let cpus = both(cpu_bits(machine.cpus().iter().filter(is_in).map(|cpu| cpu.id)), allowed);
            Place { start_pattern, spread, by_node: true, nodes, cpus, ..Place::default() }
        }
        Placing::Cpus(cpus) => {
            let cpus = both(cpu_bits(cpus.iter().copied()), allowed);
            Place { start_pattern, spread, cpus, ..Place::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use numapilot_plan::Fit;

    use super::*;

    #[test]
    fn missing_code_is_named_as_a_person_would() {
        let frame = Frame { file: Some("a.c".to_owned()), lines: Some((3, 3)), ..Frame::default() };
        assert_eq!(describe(&frame), "code at a.c:3");
        let (function, module) = (Some("f".to_owned()), Some("libx.so".to_owned()));
        assert_eq!(describe(&Frame { function, module, ..frame }), "function f at a.c:3 in libx.so");
    }

    /// A misspelt start function was a rule of which the outcome said "0 placed", and nothing else.
    #[test]
    fn a_rule_that_can_match_nothing_is_named_with_its_line() {
        let text = "version = 1\n[[object]]\nsymbol = \"table\"\npolicy = \"hand-over\"\nto = \"w\"\n\
            [[thread]]\nstart = \"no_such_start\"\nnodes = \"all\"\n[[thread]]\nname = \"w\"\nnodes = \"all\"\n";
        let machine = Machine::load("opteron-8385").expect("a model that comes with the program");
        let fitted = Plan::parse(text, "plan.toml").expect("a plan").fit(&machine, Fit::Exact).expect("it fits");
        let command = [OsString::from("true")];
        let target = numapilot_launch::resolve_target(&command).expect("a program");
        let image = compile(&fitted, &machine, &target, &command, Purpose::MeasureEmulated).expect("an image");
        let [start, handed] = image.notes.as_slice() else { panic!("{:?}", image.notes) };
        let begins = "plan.toml:6: the rule for thread no_such_start matches nothing: the program and the libraries that it is linked with have no function";
        assert!(start.starts_with(begins), "{start}");
        assert!(handed.starts_with("plan.toml:2: rule table matches nothing: only what `malloc`"), "{handed}");
    }

    /// Node 64 was taken for node 0: memory went to a node that the plan does not name.
    #[test]
    fn a_node_that_masks_cannot_hold_is_refused_and_not_taken_for_another() {
        assert_eq!(mask(&[NodeId(64)]), mask(&[NodeId(0)]), "why");
        assert_eq!(beyond_masks([0, 8, 63].map(NodeId).into_iter()), None);
        assert_eq!(beyond_masks([0, 8, 252, 253].map(NodeId).into_iter()), Some(NodeId(252)));
    }

    /// Two nodes of four CPUs in turn, of which a batch system gave us some: no rule goes beyond, and spreading skips the node that has none.
    #[test]
    fn rules_use_only_cpus_that_the_program_was_given() {
        let machine = Machine::load("epyc-2s-nps1").expect("a model that comes with the program");
        let first = machine.nodes()[0].id;
        let of_first = node_cpus(&machine, first);
        let is_of_first = |cpu: &u32| of_first[*cpu as usize / 64] >> (cpu % 64) & 1 == 1;
        let one = cpu_bits((0..1024).find(is_of_first).map(CpuId).into_iter());
        let all: Vec<NodeId> = machine.nodes().iter().map(|node| node.id).collect();
        let nodes = Placing::Nodes(NodeSet::Listed(all.clone()));
        let spread = place(&nodes, Layout::Spread, &machine, &one);
        assert_eq!((spread.nodes, spread.cpus), (mask(&[first]), one));
        assert_eq!(place(&Placing::Cpus((0..64).map(CpuId).collect()), Layout::Together, &machine, &one).cpus, one);
        let whole = place(&nodes, Layout::Spread, &machine, &[u64::MAX; CPU_WORDS]);
        assert_eq!(whole.nodes, mask(&all));
        let text = "version = 1\n[[thread]]\nname = \"a\"\ncpus = \"1\"\n";
        let plan = Plan::parse(text, "plan.toml").expect("a plan");
        let (threads, processes) =
            places(&plan, &machine, &cpu_bits(std::iter::once(CpuId(0))), &mut Frames::default());
        let notes = without_cpus(&plan, &threads, &processes);
        assert!(notes.len() == 1 && notes[0].starts_with("plan.toml:2: the rule pins nothing"), "{notes:?}");
    }
}
