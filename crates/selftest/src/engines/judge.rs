//! The verdict on a recording: pure, from the truth, the object that the trace has at the block's address, and the report.

use numapilot_machine::NodeId;
use numapilot_text::units::short_percent;
use serde_json::Value;

use super::{EngineTrial, Sees, ThreadPlacement};
use crate::engines::truth::Truth;
use crate::outcome::Check;

/// Least share of the block's accesses that must be where the truth has all of them: sampling, and a thread's first reading of its CPU, blur the rest.
const SHARE_MIN: f64 = 0.95;

/// Of the block's pages, one part in so many may move while it is read.
const MOVED_PARTS: u64 = 20;

/// The object that a trace has at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Number of the object in the trace.
    pub object: u64,
    /// Size of the object in bytes.
    pub bytes: u64,
    /// Kernel's number of the thread that allocated it, where it is known.
    pub thread: Option<u64>,
}

/// A recording and what is true of it.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The true accesses of the program.
    pub truth: &'a Truth,
    /// The CPUs and nodes that were requested.
    pub placement: &'a ThreadPlacement,
    /// The object at the block's address, if there is one.
    pub recorded: Option<Recorded>,
    /// `numapilot report --json --instances --threads` of the recording.
    pub report: &'a Value,
}

/// The name of an engine's check.
#[must_use]
pub fn name(engine: &EngineTrial) -> String {
    format!("engine {}", engine.engine)
}

/// Expected and found values, one by one.
#[derive(Default)]
struct Pieces {
    expected: Vec<String>,
    found: Vec<String>,
    wrong: Vec<&'static str>,
}

impl Pieces {
    fn compare(&mut self, what: &'static str, expected: String, found: String, holds: bool) {
        if !holds {
            self.wrong.push(what);
        }
        self.expected.push(format!("{what} {expected}"));
        self.found.push(format!("{what} {found}"));
    }
}

/// Size, owner; and as far as the engine sees them the home node, and who accessed the block from where.
#[must_use]
pub fn judge(engine: &EngineTrial, evidence: &Evidence<'_>) -> Check {
    let Evidence { truth, placement, recorded, report } = *evidence;
    let Some(recorded) = recorded else {
        let words = "the recording has no object at the block's address: it missed the allocation";
        return Check::judged(name(engine), false, words).with(format!("{} bytes", truth.bytes), "nothing");
    };
    if engine.sees == Sees::Accesses
        && !engine.engine.is_simulated()
        && truth.moved_pages() > truth.pages() / MOVED_PARTS
    {
        let words = format!(
            "the kernel moved {} of the block's {} pages while they were read, so they had no home node for all of the time (NUMA balancing does so: \
             `sudo sysctl kernel.numa_balancing=0` for the time of the test)",
            truth.moved_pages(),
            truth.pages()
        );
        return Check::not_judged(name(engine), words);
    }
    let mut pieces = Pieces::default();
    let (bytes, found) = (truth.bytes.to_string(), recorded.bytes.to_string());
    pieces.compare("bytes", bytes, found, recorded.bytes == truth.bytes);
    // Threads of simulated machines have the kernel's numbers too.
    let thread = recorded.thread.map_or("unknown".to_owned(), |thread| thread.to_string());
    pieces.compare(
        "allocated by thread",
        truth.owner_tid.to_string(),
        thread,
        recorded.thread == Some(truth.owner_tid),
    );
    if engine.sees != Sees::Objects {
        accesses(engine, evidence, recorded, report, &mut pieces);
    }
    let holds = pieces.wrong.is_empty();
    let reason = match (holds, engine.sees) {
        (true, Sees::Objects) => "the recording has the block with its size and the thread that allocated it".to_owned(),
        (true, Sees::FirstTouches) => {
            "the recording has the block with its size, its owner, its home node and the node of its first toucher".to_owned()
        }
        (true, Sees::Accesses) if placement.owner.1 == placement.reader.1 => {
            "the recording has the block with its size, its owner, its home node and its reader; both threads ran on one node".to_owned()
        }
        (true, Sees::Accesses) => {
            "the recording has the block with its size, its owner, its home node and the node that read it".to_owned()
        }
        (false, _) => format!("the recording is wrong in: {}", pieces.wrong.join(", ")),
    };
    Check::judged(name(engine), holds, reason).with(pieces.expected.join(", "), pieces.found.join(", "))
}

fn accesses(engine: &EngineTrial, evidence: &Evidence<'_>, recorded: Recorded, report: &Value, pieces: &mut Pieces) {
    let Evidence { truth, placement, .. } = *evidence;
    let node_ids = node_ids(report);
    let instances = report["instances"].as_array().map_or(&[][..], Vec::as_slice);
    let row = instances.iter().find(|row| row["key"]["object"].as_u64() == Some(recorded.object));
    // On a simulated machine pages are at home where the model's first touch puts them; on this one, where the kernel says.
    let home = truth.home().filter(|_| !engine.engine.is_simulated()).unwrap_or(placement.owner.1);
    let share = |field: &str, node: NodeId| {
        let index = node_ids.iter().position(|id| *id == node)?;
        row?[field][index]["value"].as_f64()
    };
    let most = |field: &str| {
        let shares = node_ids.iter().filter_map(|node| Some((*node, share(field, *node)?)));
        shares.max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let told = |found: Option<(NodeId, f64)>| match found {
        Some((node, share)) => format!("node {node} ({})", short_percent(share)),
        None => "unknown".to_owned(),
    };
    let on = most("on_node");
    let is_home = on.is_some_and(|(node, share)| node == home && share >= SHARE_MIN);
    pieces.compare("home", format!("node {home}"), told(on), is_home);
    let from = most("from_node");
    if engine.sees == Sees::FirstTouches {
        let right = from.is_some_and(|(node, share)| node == placement.owner.1 && share >= SHARE_MIN);
        pieces.compare("touched first from", format!("node {}", placement.owner.1), told(from), right);
        return;
    }
    // The reader goes through the block several times, the owner once: most accesses are the reader's.
    let right = from.is_some_and(|(node, _)| node == placement.reader.1);
    pieces.compare("mostly accessed from", format!("node {}", placement.reader.1), told(from), right);
    let threads = report["threads"].as_array().map_or(&[][..], Vec::as_slice);
    let accesses = |row: &&Value| row["accesses"]["value"].as_f64().unwrap_or(0.0);
    let busiest = threads.iter().max_by(|a, b| accesses(a).total_cmp(&accesses(b)));
    let tid = busiest.and_then(|row| row["tid"].as_u64());
    let found = tid.map_or("unknown".to_owned(), |tid| tid.to_string());
    pieces.compare("mostly by thread", truth.reader_tid.to_string(), found, tid == Some(truth.reader_tid));
}

/// Nodes in the order of the report's columns.
fn node_ids(report: &Value) -> Vec<NodeId> {
    let nodes = report["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    nodes.iter().filter_map(|node| u16::try_from(node.as_u64()?).ok()).map(NodeId).collect()
}

#[cfg(test)]
mod tests {
    //! Made-up reports.

    use numapilot_machine::CpuId;
    use serde_json::json;

    use super::super::ENGINES;
    use super::*;
    use crate::outcome::Verdict;

    const PMU: EngineTrial = ENGINES[0];
    const FAULT: EngineTrial = ENGINES[1];
    const INSTRUMENT: EngineTrial = ENGINES[2];
    const TRACK: EngineTrial = ENGINES[4];

    fn truth() -> Truth {
        Truth {
            address: 4096,
            bytes: 1000,
            owner_tid: 11,
            reader_tid: 12,
            homes: Some([(NodeId(0), 9)].into()),
            first_homes: None,
        }
    }

    fn report(on: [f64; 2], from: [f64; 2], reader: f64) -> Value {
        let shares = |shares: [f64; 2]| shares.map(|value| json!({ "value": value }));
        json!({
            "nodes": [0, 1],
            "instances": [{ "key": { "object": 7 }, "on_node": shares(on), "from_node": shares(from) }],
            "threads": [{ "tid": 11, "accesses": { "value": 100.0 } }, { "tid": 12, "accesses": { "value": reader } }],
        })
    }

    fn verdict(engine: &EngineTrial, recorded: Option<Recorded>, report: &Value) -> Check {
        let (truth, placement) =
            (truth(), ThreadPlacement { owner: (CpuId(0), NodeId(0)), reader: (CpuId(1), NodeId(1)) });
        judge(engine, &Evidence { truth: &truth, placement: &placement, recorded, report })
    }

    const RIGHT: Option<Recorded> = Some(Recorded { object: 7, bytes: 1000, thread: Some(11) });

    #[test]
    fn a_right_recording_passes_and_each_wrong_piece_fails_by_name() {
        let good = report([0.99, 0.01], [0.2, 0.8], 400.0);
        let check = verdict(&PMU, RIGHT, &good);
        assert_eq!(check.verdict, Verdict::Pass, "{check:?}");
        for (recorded, report, piece) in [
            (Some(Recorded { bytes: 999, ..RIGHT.expect("some") }), good.clone(), "bytes"),
            (Some(Recorded { thread: Some(12), ..RIGHT.expect("some") }), good.clone(), "allocated by thread"),
            (RIGHT, report([0.1, 0.9], [0.2, 0.8], 400.0), "home"),
            (RIGHT, report([0.9, 0.1], [0.2, 0.8], 400.0), "home"),
            (RIGHT, report([1.0, 0.0], [0.8, 0.2], 400.0), "mostly accessed from"),
            (RIGHT, report([1.0, 0.0], [0.2, 0.8], 40.0), "mostly by thread"),
            (RIGHT, json!({}), "home"),
            (None, good.clone(), "no object"),
        ] {
            let check = verdict(&PMU, recorded, &report);
            assert!(check.verdict == Verdict::Fail && check.reason.contains(piece), "{piece}: {check:?}");
        }
    }

    #[test]
    fn an_engine_is_held_to_what_it_claims_and_no_more() {
        assert_eq!(verdict(&TRACK, RIGHT, &json!({})).verdict, Verdict::Pass);
        let touches = report([1.0, 0.0], [1.0, 0.0], 0.0);
        assert_eq!(verdict(&FAULT, RIGHT, &touches).verdict, Verdict::Pass);
        assert_eq!(verdict(&FAULT, RIGHT, &report([1.0, 0.0], [0.0, 1.0], 0.0)).verdict, Verdict::Fail);
    }

    #[test]
    fn on_a_simulated_machine_the_kernels_nodes_do_not_count() {
        let truth = Truth { homes: Some([(NodeId(0), 9)].into()), ..truth() };
        let placement = ThreadPlacement { owner: (CpuId(0), NodeId(1)), reader: (CpuId(1), NodeId(0)) };
        let report = report([0.0, 1.0], [0.8, 0.2], 400.0);
        let check =
            judge(&INSTRUMENT, &Evidence { truth: &truth, placement: &placement, recorded: RIGHT, report: &report });
        assert_eq!(check.verdict, Verdict::Pass, "{check:?}");
    }

    #[test]
    fn pages_that_the_kernel_moved_meanwhile_leave_it_open() {
        let placement = ThreadPlacement { owner: (CpuId(0), NodeId(0)), reader: (CpuId(1), NodeId(1)) };
        let report = report([0.5, 0.5], [0.2, 0.8], 400.0);
        let judged = |left: u64| {
            let (first, last) = ([(NodeId(0), 100)].into(), [(NodeId(0), left), (NodeId(1), 100 - left)].into());
            let truth = Truth { homes: Some(last), first_homes: Some(first), ..truth() };
            judge(&PMU, &Evidence { truth: &truth, placement: &placement, recorded: RIGHT, report: &report }).verdict
        };
        assert_eq!((judged(94), judged(10), judged(95)), (Verdict::NotJudged, Verdict::NotJudged, Verdict::Fail));
    }
}
