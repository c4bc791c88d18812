//! From recorded waits to dependences between threads. The rules are in `docs/simulator.md`, "Recorded programs"; each function here is one of them.
//!
//! A trace tells of every wait when it began and ended, and of what kind it was. Whose deed ended it follows from the kind and the times: program time
//! hands over clocks exactly, so a wait ends at the very nanosecond at which its cause happened.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_trace::tables::SyncRow;

use crate::program::{Action, Builder};

/// Stamps are rounded down to nanoseconds: equal clocks may differ by this much.
const SAME_NS: f64 = 1.5;

/// What is known of a thread's life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) process: u32,
    pub(super) pid: u32,
    pub(super) parent: Option<u32>,
    pub(super) start_ns: f64,
    pub(super) end_ns: f64,
}

/// A wait of a thread, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) began_ns: f64,
    pub(super) ended_ns: f64,
    pub(super) action: Action,
}

/// What orders one thread: its waits, and moments at which it arrives somewhere or would have waited.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// Ascending, not overlapping.
    pub(super) waits: Vec<Wait>,
    /// Ascending by time, then by event.
    pub(super) marks: Vec<(f64, Action)>,
}

/// One recorded wait.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    thread: u32,
    /// Its position among the thread's waits.
    at: usize,
    kind: &'a str,
    object: u64,
    began_ns: f64,
    ended_ns: f64,
}

struct Resolver<'a> {
    lives: &'a [Life],
    rows: Vec<Row<'a>>,
    orders: Vec<Order>,
    builder: &'a mut Builder,
}

/// Orders all threads.
pub(super) fn resolve(lives: &[Life], syncs: &[SyncRow], builder: &mut Builder) -> Vec<Order> {
    let mut sorted: Vec<&SyncRow> = syncs.iter().filter(|row| (row.thread as usize) < lives.len()).collect();
    sorted.sort_by_key(|row| (row.thread, row.began_ns, row.ended_ns));
    let mut orders = vec![Order::default(); lives.len()];
    let mut rows = Vec::with_capacity(sorted.len());
    for row in sorted {
        let waits = &mut orders[row.thread as usize].waits;
        let life = lives[row.thread as usize];
        let earliest = waits.last().map_or(life.start_ns, |wait: &Wait| wait.ended_ns);
        let (began_ns, ended_ns) = ((row.began_ns as f64).max(earliest), (row.ended_ns as f64).min(life.end_ns));
        if ended_ns <= began_ns {
            continue;
        }
        let action = if &*row.kind == "sleep" { Action::Sleep { ns: ended_ns - began_ns } } else { Action::Follow };
        waits.push(Wait { began_ns, ended_ns, action });
        let at = waits.len() - 1;
        rows.push(Row { thread: row.thread, at, kind: &row.kind, object: row.object, began_ns, ended_ns });
    }
    let mut resolver = Resolver { lives, rows, orders, builder };
    resolver.creations();
    resolver.barriers();
    resolver.team_starts();
    resolver.team_ends();
    resolver.joins();
    for order in &mut resolver.orders {
        let key = |action: &Action| match *action {
            Action::Arrive { event } => (event, 0),
            Action::Await { event } => (event, 1),
            _ => (0, 0),
        };
        order.marks.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| key(&a.1).cmp(&key(&b.1))));
    }
    resolver.orders
}

impl Resolver<'_> {
    fn is_alive(&self, thread: u32, at_ns: f64) -> bool {
        let life = self.lives[thread as usize];
        life.start_ns <= at_ns && at_ns <= life.end_ns + SAME_NS
    }

    /// Whether a thread works at a moment: it is alive and in no recorded wait.
    fn works(&self, thread: u32, at_ns: f64) -> bool {
        let waits = &self.orders[thread as usize].waits;
        let next = waits.partition_point(|wait| wait.ended_ns < at_ns - SAME_NS);
        self.is_alive(thread, at_ns) && waits.get(next).is_none_or(|wait| wait.began_ns >= at_ns)
    }

    fn threads_of(&self, process: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.lives.len() as u32).filter(move |&thread| self.lives[thread as usize].process == process)
    }

    /// The wait goes on when the event is complete.
    fn await_event(&mut self, row: Row<'_>, event: u32) {
        self.orders[row.thread as usize].waits[row.at].action = Action::Await { event };
    }

    fn mark(&mut self, thread: u32, at_ns: f64, action: Action) {
        self.orders[thread as usize].marks.push((at_ns, action));
    }

    /// A thread begins when its creator came to that point; one without a known creator when it did.
    fn creations(&mut self) {
        for thread in 0..self.lives.len() as u32 {
            let life = self.lives[thread as usize];
            let parent = life.parent.filter(|&parent| parent != thread && self.is_alive(parent, life.start_ns));
            if let Some(parent) = parent {
                let event = self.builder.event(1);
                self.mark(parent, life.start_ns, Action::Arrive { event });
                self.mark(thread, life.start_ns, Action::Await { event });
            } else if life.start_ns > 0.0 {
                self.mark(thread, life.start_ns, Action::Sleep { ns: life.start_ns });
            }
        }
    }

    /// Waits at one barrier that end at one moment are one meeting. Threads that meet there at other times, and work at that moment, are those that came last.
    fn barriers(&mut self) {
        let mut meetings: BTreeMap<(u32, &str, u64, u64), Vec<Row<'_>>> = BTreeMap::new();
        let mut guests: BTreeMap<(u32, &str, u64), BTreeSet<u32>> = BTreeMap::new();
        for &row in self.rows.iter().filter(|row| matches!(row.kind, "barrier" | "omp_barrier")) {
            let process = self.lives[row.thread as usize].process;
            meetings.entry((process, row.kind, row.object, row.ended_ns as u64)).or_default().push(row);
            guests.entry((process, row.kind, row.object)).or_default().insert(row.thread);
        }
        let meetings: Vec<(BTreeSet<u32>, Vec<Row<'_>>, f64)> = meetings
            .into_iter()
            .map(|((process, kind, object, _), rows)| {
                let ended_ns = rows[0].ended_ns;
                let waits = |thread: &u32| rows.iter().any(|row| row.thread == *thread);
                let last = |thread: &u32| !waits(thread) && self.works(*thread, ended_ns);
                let mut late: BTreeSet<u32> = guests[&(process, kind, object)].iter().copied().filter(last).collect();
                if late.is_empty() {
                    late = self.only_worker(process, &rows, ended_ns).into_iter().collect();
                }
                (late, rows, ended_ns)
            })
            .collect();
        for (late, rows, ended_ns) in meetings {
            if late.is_empty() {
                continue;
            }
            let event = self.builder.event((late.len() + rows.len()) as u32);
            for row in rows {
                self.mark(row.thread, row.began_ns, Action::Arrive { event });
                self.await_event(row, event);
            }
            for thread in late {
                self.mark(thread, ended_ns, Action::Arrive { event });
                self.mark(thread, ended_ns, Action::Await { event });
            }
        }
    }

    /// The thread that always comes last has no waits to show: it is the creator of those that wait, or else the only one that works.
    fn only_worker(&self, process: u32, rows: &[Row<'_>], at_ns: f64) -> Option<u32> {
        let parent = self.lives[rows[0].thread as usize].parent;
        let working: Vec<u32> = self.threads_of(process).filter(|&thread| self.works(thread, at_ns)).collect();
        match working.as_slice() {
            [only] => Some(*only),
            _ => parent.filter(|parent| working.contains(parent)),
        }
    }

    /// Members of a team wait for its next region; the thread that opens it is the one that works then. Before that, it has waited for all of them.
    fn team_starts(&mut self) {
        let mut teams: BTreeMap<(u32, u64), Vec<Row<'_>>> = BTreeMap::new();
        for &row in self.rows.iter().filter(|row| row.kind == "team_start") {
            teams.entry((self.lives[row.thread as usize].process, row.ended_ns as u64)).or_default().push(row);
        }
        for ((process, _), rows) in teams {
            let ended_ns = rows[0].ended_ns;
            let Some(master) = self.only_worker(process, &rows, ended_ns) else {
                continue;
            };
            let fork = self.builder.event(1);
            self.mark(master, ended_ns, Action::Arrive { event: fork });
            let before: Vec<Row<'_>> = rows
                .iter()
                .copied()
                .filter(|row| row.began_ns > self.lives[row.thread as usize].start_ns + SAME_NS)
                .collect();
            for row in rows {
                self.await_event(row, fork);
            }
            if before.is_empty() {
                continue;
            }
            let join = self.builder.event(before.len() as u32);
            for row in &before {
                self.mark(row.thread, row.began_ns, Action::Arrive { event: join });
            }
            let latest = before.iter().map(|row| row.began_ns).fold(0.0, f64::max);
            self.await_at(master, latest, join);
        }
    }

    /// A thread waits for an event at a moment: in the recorded wait that ended then, or without one, having come last itself.
    fn await_at(&mut self, thread: u32, at_ns: f64, event: u32) {
        let waits = &mut self.orders[thread as usize].waits;
        match waits.iter_mut().find(|wait| (wait.ended_ns - at_ns).abs() <= SAME_NS) {
            Some(wait) => wait.action = Action::Await { event },
            None => self.mark(thread, at_ns, Action::Await { event }),
        }
    }

    /// The end of the last region: its opener waits for those whose work ended while it waited, the latest at that very moment.
    fn team_ends(&mut self) {
        let open: Vec<Row<'_>> = self.rows.iter().copied().filter(|row| row.kind == "team_end").collect();
        for row in open {
            if self.orders[row.thread as usize].waits[row.at].action != Action::Follow {
                continue;
            }
            let process = self.lives[row.thread as usize].process;
            let mut arrivals: Vec<(u32, f64)> = Vec::new();
            for thread in self.threads_of(process).filter(|&thread| thread != row.thread) {
                let waits = &self.orders[thread as usize].waits;
                let wait = waits.iter().map(|wait| wait.began_ns).find(|&began| began > row.began_ns);
                let at = wait.unwrap_or(self.lives[thread as usize].end_ns);
                if at > row.began_ns && at <= row.ended_ns + SAME_NS {
                    arrivals.push((thread, at));
                }
            }
            if !arrivals.iter().any(|&(_, at)| (at - row.ended_ns).abs() <= SAME_NS) {
                continue;
            }
            let event = self.builder.event(arrivals.len() as u32);
            for (thread, at) in arrivals {
                self.mark(thread, at, Action::Arrive { event });
            }
            self.await_event(row, event);
        }
    }

    /// A join waits for the thread (or, by its number, the process) that it names, and for all children of the joiner that had ended by then.
    fn joins(&mut self) {
        let joins: Vec<Row<'_>> = self.rows.iter().copied().filter(|row| row.kind == "join").collect();
        let mut joined: BTreeSet<u32> = BTreeSet::new();
        for row in joins {
            let by_then = |thread: u32| self.lives[thread as usize].end_ns <= row.ended_ns + SAME_NS;
            let named = |thread: u32| {
                let life = self.lives[thread as usize];
                let same = life.process == self.lives[row.thread as usize].process;
                if same { u64::from(thread) == row.object } else { u64::from(life.pid) == row.object }
            };
            let child = |thread: u32| self.lives[thread as usize].parent == Some(row.thread);
            let wanted = |&thread: &u32| {
                thread != row.thread && by_then(thread) && !joined.contains(&thread) && (named(thread) || child(thread))
            };
            let ended: Vec<u32> = (0..self.lives.len() as u32).filter(wanted).collect();
            if !ended.iter().any(|&thread| named(thread)) {
                continue;
            }
            let event = self.builder.event(ended.len() as u32);
            for thread in ended {
                joined.insert(thread);
                self.mark(thread, self.lives[thread as usize].end_ns, Action::Arrive { event });
            }
            self.await_event(row, event);
        }
    }
}
