//! What a plan did to a program: the planner library's counters, by rule, as sentences.

use numapilot_plan::{Fitted, Placing, Plan, Policy};

use super::image::PlanImage;

/// What became of one `[[object]]` rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOutcome {
    /// The rule's name.
    pub name: String,
    /// Its policy, in words.
    pub policy: String,
    /// Number of objects that were placed.
    pub placed: u64,
    /// Size of these objects in bytes, as the program requested.
    pub placed_bytes: u64,
    /// Objects that matched and were not placed: no memory was left, or the kernel refused.
    pub passed: u64,
    /// Number of system calls that the kernel refused.
    pub failures: u64,
    /// Why it refused the last one.
    pub error: Option<String>,
    /// Number of hand-overs done.
    pub moved: u64,
    /// It could not match anything in this program, or its policy cannot be carried out by a plan.
    pub is_idle: bool,
}

/// What became of one `[[thread]]` or `[[process]]` rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceOutcome {
    /// `thread` or `process`.
    pub kind: &'static str,
    /// The rule's matched threads or processes, in words.
    pub which: String,
    /// Where they run, in words.
    pub place: String,
    /// Number of threads or processes that were placed.
    pub placed: u64,
    /// Number of system calls that the kernel refused.
    pub failures: u64,
    /// Why it refused the last one.
    pub error: Option<String>,
}

/// Counts of what the planner did with a plan in a program's processes, by rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Processes that the library was loaded into.
    pub processes: u64,
    /// Processes in which it could not reserve addresses, so that nothing was placed.
    pub without_memory: u64,
    /// Programs that were started without the library, because their loader cannot load it.
    pub unplaced_programs: u64,
    /// Objects that went to one node as a whole, because the kernel allows a process only so many mappings.
    pub whole_objects: u64,
    /// Outcome of each object rule, in the plan's order.
    pub objects: Vec<RuleOutcome>,
    /// By thread rule, then by process rule.
    pub places: Vec<PlaceOutcome>,
}

fn error(number: u64) -> Option<String> {
    let number = i32::try_from(number).ok().filter(|number| *number != 0)?;
    Some(std::io::Error::from_raw_os_error(number).to_string())
}

impl Outcome {
    /// Reads the counters of a finished (or running) program.
    #[must_use]
    pub fn read(image: &PlanImage, fitted: &Fitted) -> Outcome {
        let plan = &fitted.plan;
        let [processes, without_memory, unplaced_programs, whole_objects] = image.header();
        let object = |(index, rule): (usize, &numapilot_plan::ObjectRule)| {
            let [placed, placed_bytes, passed, failures, errno, moved] = image.rule(index);
            RuleOutcome {
                name: rule.name.clone(),
                policy: rule.policy.describe(),
                placed,
                placed_bytes,
                passed,
                failures,
                error: error(errno),
                moved,
                is_idle: image.dead.get(index).copied().unwrap_or(false) || rule.policy == Policy::Replicate,
            }
        };
        let objects = plan.objects.iter().enumerate().map(object).collect();
        let places = places(image, plan);
        Outcome { processes, without_memory, unplaced_programs, whole_objects, objects, places }
    }
}

fn places(image: &PlanImage, plan: &Plan) -> Vec<PlaceOutcome> {
    let outcome = |kind, which, placing: &Placing, [_, _, placed, failures, errno]: [u64; 5]| PlaceOutcome {
        kind,
        which,
        place: match placing {
            Placing::Nodes(nodes) => format!("nodes {}", nodes.text()),
            Placing::Cpus(cpus) => format!("CPUs {}", numapilot_machine::format_cpu_list(cpus.iter().map(|cpu| cpu.0))),
        },
        placed,
        failures,
        error: error(errno),
    };
    let threads = plan.threads.iter().enumerate();
    let threads = threads.map(|(index, rule)| outcome("thread", rule.which(), &rule.placing, image.thread(index)));
    let processes = plan.processes.iter().enumerate();
    let processes =
        processes.map(|(index, rule)| outcome("process", rule.which(), &rule.placing, image.process(index)));
    threads.chain(processes).collect()
}
