//! Traces a decision back to its evidence and on to its outcome: gathers a journal's entries into one [`Story`] per decision.
//!
//! A question selects runs, decisions, processes, pages or a time. Ranges of pages that it does not select are left out and counted, so that memory stays
//! proportional to the answer.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::path::Path;

use numapilot_balancer::event::Action;
use numapilot_balancer::event::Batch;
use numapilot_balancer::event::Comparison;
use numapilot_balancer::event::Decision;
use numapilot_balancer::event::Entry;
use numapilot_balancer::event::Event;
use numapilot_balancer::event::Observation;
use numapilot_balancer::event::PingPong;
use numapilot_balancer::event::Start;
use numapilot_balancer::event::Stop;
use numapilot_balancer::event::ThreadOrder;
use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use serde::Serialize;

use crate::error::ServiceError;
use crate::journal;
use crate::journal::Reading;

/// A question about a journal. A field that is `None` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Number of a decision.
    pub decision: Option<u64>,
    /// Beginning of a run's name. Without it, a decision's number refers to the last run that has it.
    pub run: Option<String>,
    /// Selects orders about this process.
    pub pid: Option<Pid>,
    /// Selects orders about the page of this address.
    pub address: Option<VirtAddr>,
    /// Selects events from this time on, in nanoseconds since 1970.
    pub since_unix_ns: Option<u64>,
    /// Whether the ranges of all decisions are kept; otherwise only if a decision, process or page is selected.
    pub ranges: bool,
    /// Maximum number of decisions; the last ones are kept.
    pub last: usize,
}

impl Question {
    fn wants_ranges(&self) -> bool {
        self.ranges || self.decision.is_some() || self.pid.is_some() || self.address.is_some()
    }

    fn wants_batch(&self, batch: &Batch) -> bool {
        self.pid.is_none_or(|pid| pid == batch.pid)
            && self.address.is_none_or(|address| (batch.first..batch.end()).contains(&address.0))
    }

    fn wants_thread(&self, order: &ThreadOrder) -> bool {
        self.address.is_none() && self.pid.is_none_or(|pid| pid == order.pid)
    }

    /// Whether a decision is part of the answer, once all its orders were read.
    fn wants(&self, story: &Story) -> bool {
        let is_touched = self.pid.is_none() && self.address.is_none() || story.matched;
        is_touched
            && self.decision.is_none_or(|decision| decision == story.decision.decision)
            && self.since_unix_ns.is_none_or(|since| story.unix_ns >= since)
            && self.run.as_ref().is_none_or(|run| story.run.starts_with(run.as_str()))
    }
}

/// A decision with its evidence and outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Story {
    /// Name of its run.
    pub run: String,
    /// Time in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The observation; `None`: lost from the journal.
    pub observation: Option<Observation>,
    /// The decision.
    pub decision: Decision,
    /// Selected orders about ranges of pages.
    pub batches: Vec<Batch>,
    /// Number of orders about ranges that were not selected.
    pub other_batches: u64,
    /// Selected orders about threads.
    pub threads: Vec<ThreadOrder>,
    /// Outcomes of the orders, and of undoing them.
    pub actions: Vec<Action>,
    /// Comparisons of windows with and without the changes.
    pub comparisons: Vec<Comparison>,
    /// Ranges that were held back because they moved back and forth.
    pub ping_pongs: Vec<PingPong>,
    /// Whether a selected order was read.
    #[serde(skip)]
    matched: bool,
}

/// A run of the loop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Start time in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The start event.
    pub start: Start,
    /// Number of decisions.
    pub decisions: u64,
    /// Other events (settings, targets, commands, errors, losses), oldest first: the last [`NOTES`].
    pub notes: VecDeque<Note>,
    /// The stop event; `None`: the run continues, was killed, or its end is lost from the journal.
    pub stop: Option<Stop>,
}

/// An event that belongs to no decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// Time in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// Notes kept per run.
pub const NOTES: usize = 100;
/// Maximum number of observations between an observation and the decision based on it.
const OBSERVATIONS: usize = 64;

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// Every run in the journal, oldest first.
    pub runs: Vec<Run>,
    /// The selected decisions, oldest first.
    pub decisions: Vec<Story>,
    /// Number of selected decisions that [`Question::last`] left out.
    pub left_out: u64,
    /// Statistics of reading the journal.
    pub reading: Reading,
}

/// Reads a journal and answers a question.
///
/// # Errors
/// The journal cannot be read, or has no such decision or run.
pub fn explain(file: &Path, question: &Question) -> Result<Explanation, ServiceError> {
    let mut gatherer = Gatherer { question, out: Explanation::default(), open: BTreeMap::new(), seen: VecDeque::new() };
    let reading = journal::read(file, |entry| gatherer.entry(entry))?;
    gatherer.close();
    let mut out = gatherer.out;
    out.reading = reading;
    if question.decision.is_some() && question.run.is_none() {
        // Numbers start again with each run, so the last run with the number is meant.
        let first_of_last = out.decisions.len().saturating_sub(1);
        out.decisions.drain(..first_of_last);
    }
    if out.decisions.is_empty() && (question.decision.is_some() || question.run.is_some()) {
        return Err(ServiceError::NotInJournal(missing(file, question, &out)));
    }
    Ok(out)
}

fn missing(file: &Path, question: &Question, found: &Explanation) -> String {
    let file = file.display();
    match (question.decision, &question.run) {
        (_, Some(run)) if !found.runs.iter().any(|r| r.start.run.starts_with(run.as_str())) => {
            format!("{file}: no run has a name that begins with {run}; `numapilot explain` lists the runs")
        }
        (Some(decision), _) => {
            let last = found.runs.last().map_or(0, |run| run.decisions);
            format!(
                "{file}: the journal does not hold decision {decision} (its oldest parts are removed as it grows); the last run has {last} decisions"
            )
        }
        _ => format!("{file}: the journal holds no decision of that run"),
    }
}

struct Gatherer<'a> {
    question: &'a Question,
    out: Explanation,
    /// Recent decisions of the run that is being read.
    open: BTreeMap<u64, Story>,
    seen: VecDeque<Observation>,
}

impl Gatherer<'_> {
    fn entry(&mut self, entry: Entry) {
        let unix_ns = entry.unix_ns;
        match entry.event {
            Event::Start(start) => {
                self.close();
                self.out.runs.push(Run { unix_ns, start, decisions: 0, notes: VecDeque::new(), stop: None });
            }
            Event::Observation(observation) => {
                self.seen.push_back(observation);
                if self.seen.len() > OBSERVATIONS {
                    self.seen.pop_front();
                }
            }
            Event::Decision(decision) => self.decision(unix_ns, decision),
            Event::Orders(orders) => {
                let question = self.question;
                let Some(story) = self.open.get_mut(&orders.decision) else { return };
                for batch in orders.batches {
                    let wanted = question.wants_batch(&batch);
                    story.matched |= wanted;
                    if wanted && question.wants_ranges() {
                        story.batches.push(batch);
                    } else {
                        story.other_batches += 1;
                    }
                }
                let before = story.threads.len();
                story.threads.extend(orders.threads.into_iter().filter(|order| question.wants_thread(order)));
                story.matched |= story.threads.len() > before;
            }
            Event::Action(action) => {
                if let Some(story) = self.open.get_mut(&action.decision) {
                    story.actions.push(action);
                }
            }
            Event::Comparison(comparison) => {
                for number in &comparison.decisions {
                    if let Some(story) = self.open.get_mut(number) {
                        story.comparisons.push(comparison.clone());
                    }
                }
            }
            Event::PingPong(ping_pong) => {
                let is_wanted = self.question.pid.is_none_or(|pid| pid == ping_pong.pid);
                if let Some(story) = self.open.get_mut(&ping_pong.decision).filter(|_| is_wanted) {
                    story.ping_pongs.push(ping_pong);
                }
            }
            Event::Stop(stop) => {
                if let Some(run) = self.out.runs.last_mut() {
                    run.stop = Some(stop);
                }
            }
            event @ (Event::BackOff(_)
            | Event::Copies(_)
            | Event::Pressure(_)
            | Event::Setting(_)
            | Event::Targets(_)
            | Event::Steered(_)
            | Event::Losses(_)
            | Event::Trouble(_)) => self.note(Note { unix_ns, event }),
            Event::Unknown => {}
        }
    }

    fn note(&mut self, note: Note) {
        if let Some(run) = self.out.runs.last_mut() {
            run.notes.push_back(note);
            if run.notes.len() > NOTES {
                run.notes.pop_front();
            }
        }
    }

    fn decision(&mut self, unix_ns: u64, decision: Decision) {
        let run = self.out.runs.last_mut().map(|run| {
            run.decisions += 1;
            run.start.run.clone()
        });
        let observation = self.seen.iter().find(|seen| seen.observation == decision.observation).cloned();
        let run = run.unwrap_or_default();
        self.open.insert(decision.decision, Story { run, unix_ns, observation, decision, ..Story::default() });
        // Later events of a decision follow soon, or are comparisons: so only the oldest decisions are completed early.
        if self.open.len() > 2 * self.question.last.max(512) {
            self.settle(self.question.last.max(512));
        }
    }

    /// Completes the oldest decisions until `keep` are left.
    fn settle(&mut self, keep: usize) {
        while self.open.len() > keep {
            let Some((_, story)) = self.open.pop_first() else { return };
            if self.question.wants(&story) {
                self.out.decisions.push(story);
            }
        }
        let surplus = self.out.decisions.len().saturating_sub(self.question.last);
        self.out.decisions.drain(..surplus);
        self.out.left_out += surplus as u64;
    }

    /// Ends a run, at the next start or at the end of the journal.
    fn close(&mut self) {
        self.settle(0);
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    //! Made journals and questions about them.

    use std::io::Write;

    use numapilot_balancer::event::Orders;
    use numapilot_balancer::event::PageDecision;
    use numapilot_balancer::event::Trouble;
    use numapilot_balancer::event::VERSION;
    use numapilot_balancer::event::Verdict;
    use numapilot_host::Tid;
    use numapilot_machine::NodeId;

    use super::*;

    /// Two runs of three decisions each; decision d moves 10 pages of process 100 + d at 0x1000_0000 * d.
    fn journal() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut unix_ns = 0;
        for run in ["aa", "ab"] {
            let mut line = 0;
            let mut put = |event: Event| {
                unix_ns += 1_000;
                let entry = Entry { v: VERSION, line, unix_ns, event };
                line += 1;
                writeln!(file, "{}", serde_json::to_string(&entry).unwrap()).unwrap();
            };
            put(Event::Start(Start { run: run.to_owned(), ..Start::default() }));
            for decision in 1..=3 {
                put(Event::Observation(Observation {
                    observation: decision,
                    samples: decision * 7,
                    ..Observation::default()
                }));
                put(Event::Decision(Decision { decision, observation: decision, pages: 10, ..Decision::default() }));
                let batch = Batch {
                    pid: Pid(100 + decision as u32),
                    first: 0x1000_0000 * decision,
                    pages: 10,
                    page_bytes: 4096,
                    order: PageDecision::Move { from: Some(NodeId(0)), to: NodeId(1) },
                    seen: Vec::new(),
                    because: String::new(),
                    predicted_gain_ns_per_s: None,
                };
                let thread =
                    ThreadOrder { pid: Pid(100 + decision as u32), tid: Some(Tid(7)), ..ThreadOrder::default() };
                put(Event::Orders(Orders { decision, batches: vec![batch], threads: vec![thread] }));
                put(Event::Action(Action { decision, ..Action::default() }));
            }
            put(Event::Trouble(Trouble { what: "w".to_owned(), times: 1 }));
            put(Event::Comparison(Comparison {
                decisions: vec![1, 2],
                verdict: Verdict::Undone,
                ..Comparison::default()
            }));
            put(Event::Action(Action { decision: 2, undo: true, ..Action::default() }));
            if run == "aa" {
                put(Event::Stop(Stop::default()));
            }
        }
        (folder, path)
    }

    fn ask(question: Question) -> Explanation {
        let (_folder, path) = journal();
        explain(&path, &question).unwrap()
    }

    fn all() -> Question {
        Question { last: 100, ..Question::default() }
    }

    #[test]
    fn every_decision_is_told_with_its_evidence_and_outcome() {
        let answer = ask(all());
        assert_eq!(answer.decisions.len(), 6);
        let story = &answer.decisions[4];
        assert_eq!((story.run.as_str(), story.decision.decision), ("ab", 2));
        assert_eq!(story.observation.as_ref().unwrap().samples, 14);
        assert_eq!((story.actions.len(), story.actions[1].undo), (2, true));
        assert_eq!(story.comparisons[0].verdict, Verdict::Undone);
        assert_eq!((story.batches.len(), story.other_batches), (0, 1), "ranges only where asked for");
        assert_eq!((answer.runs.len(), answer.runs[1].decisions, answer.runs[1].notes.len()), (2, 3, 1));
        assert!(answer.runs[0].stop.is_some() && answer.runs[1].stop.is_none());
    }

    #[test]
    fn a_number_means_the_last_run_unless_another_is_named() {
        let answer = ask(Question { decision: Some(1), ..all() });
        assert_eq!(answer.decisions.iter().map(|s| s.run.as_str()).collect::<Vec<_>>(), ["ab"]);
        assert_eq!(answer.decisions[0].batches.len(), 1);
        let answer = ask(Question { decision: Some(1), run: Some("aa".to_owned()), ..all() });
        assert_eq!(answer.decisions[0].run, "aa");
    }

    #[test]
    fn processes_pages_and_times_select() {
        let of_process = ask(Question { pid: Some(Pid(103)), ..all() });
        assert_eq!(of_process.decisions.iter().map(|s| s.decision.decision).collect::<Vec<_>>(), [3, 3]);
        let of_page = ask(Question { address: Some(VirtAddr(0x2000_9fff)), ..all() });
        assert_eq!(of_page.decisions.iter().map(|s| s.decision.decision).collect::<Vec<_>>(), [2, 2]);
        assert!(of_page.decisions[0].threads.is_empty());
        assert_eq!(ask(Question { address: Some(VirtAddr(0x2000_a000)), ..all() }).decisions, []);
        let since = ask(Question { since_unix_ns: Some(20_000), ..all() });
        assert!(!since.decisions.is_empty() && since.decisions.iter().all(|s| s.unix_ns >= 20_000));
        let last = ask(Question { last: 2, ..all() });
        assert_eq!((last.decisions.len(), last.left_out), (2, 4));
        assert_eq!(last.decisions[1].decision.decision, 3);
    }

    #[test]
    fn what_is_not_there_is_said() {
        let (_folder, path) = journal();
        let error = explain(&path, &Question { decision: Some(9), ..all() }).unwrap_err().to_string();
        assert!(error.contains("decision 9") && error.contains("the last run has 3"), "{error}");
        let error = explain(&path, &Question { run: Some("zz".to_owned()), ..all() }).unwrap_err().to_string();
        assert!(error.contains("no run has a name that begins with zz"), "{error}");
    }
}
