//! Other sources of evidence about a process's memory: a recording in progress ([`recording`]), and a balancer that manages the process ([`balancing`]). Both
//! may be slow, so a separate thread of lower priority asks them, at limited frequency.

pub mod balancing;
pub mod recording;

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;

use crate::figures::MemoryView;
use balancing::Balanced;
use recording::Scratch;

/// Asking takes at most 1 part in this many of the time.
const SHARE: u32 = 20;
/// Minimum interval between two questions.
const EVERY: Duration = Duration::from_secs(2);
/// Niceness of the thread that asks.
const NICE: libc::c_int = 5;

/// A question to the thread.
#[derive(Clone, Debug)]
struct Question {
    pid: Pid,
    /// Process ids of possible recorders.
    recorders: Vec<Pid>,
    socket: PathBuf,
}

/// The answer of the providers about a process.
#[derive(Clone, Debug, Default)]
pub struct ProcessEvidence {
    /// Process id.
    pub pid: Pid,
    /// Its objects, if it is recorded.
    pub recorded: Option<MemoryView>,
    /// The balancer's evidence, if it is managed.
    pub balanced: Option<Balanced>,
}

/// The providers, asked by a thread that starts with the first question.
pub struct EvidenceProviders {
    socket: PathBuf,
    scratch: Scratch,
    questions: Option<(SyncSender<Question>, Receiver<ProcessEvidence>)>,
    asked_at: Option<Instant>,
    due: Instant,
    last: ProcessEvidence,
}

impl EvidenceProviders {
    /// Makes the providers without asking yet. `socket`: control socket of the balancer.
    #[must_use]
    pub fn new(socket: PathBuf) -> EvidenceProviders {
        let last = ProcessEvidence::default();
        EvidenceProviders {
            socket,
            scratch: Scratch::default(),
            questions: None,
            asked_at: None,
            due: Instant::now(),
            last,
        }
    }

    /// Returns the last answer about a process; asks again if that is due. Never waits.
    pub fn of(&mut self, pid: Pid, recorders: impl FnOnce() -> Vec<Pid>) -> ProcessEvidence {
        if self.questions.is_none() {
            self.questions = start(self.scratch.clone());
        }
        let Some((questions, answers)) = &self.questions else { return ProcessEvidence::default() };
        if let Ok(answer) = answers.try_recv() {
            let took = self.asked_at.take().map_or(Duration::ZERO, |at| at.elapsed());
            self.due = Instant::now() + (took * SHARE).max(EVERY);
            self.last = answer;
        }
        let is_due = Instant::now() >= self.due || self.last.pid != pid;
        if is_due && self.asked_at.is_none() {
            let question = Question { pid, recorders: recorders(), socket: self.socket.clone() };
            if questions.try_send(question).is_ok() {
                self.asked_at = Some(Instant::now());
            }
        }
        if self.last.pid == pid { self.last.clone() } else { ProcessEvidence::default() }
    }
}

impl Drop for EvidenceProviders {
    fn drop(&mut self) {
        // The thread may still be busy; it ends with this process.
        self.scratch.close();
    }
}

fn start(scratch: Scratch) -> Option<(SyncSender<Question>, Receiver<ProcessEvidence>)> {
    let (questions, asked) = sync_channel::<Question>(1);
    let (answers, answered) = sync_channel(1);
    let work = move || {
        // SAFETY: takes numbers; of Linux's threads each has a niceness of its own, which those that it starts inherit.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        for question in asked {
            let balanced = balancing::ask(question.pid, &question.socket);
            let recorded = recording::objects(question.pid, &question.recorders, &scratch);
            let evidence_of_process = ProcessEvidence { pid: question.pid, recorded, balanced };
            if answers.send(evidence_of_process).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("evidence".to_owned()).spawn(work).ok().map(|_| (questions, answered))
}
