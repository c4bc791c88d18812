//! Derives the dependences between threads from their recorded waits: which thread waited for which. The rules are in `docs/simulator.md`, "Recorded
//! programs"; each function here implements one of them.
//!
//! A trace has the begin, the end and the kind of every wait. The event that ended a wait follows from the kind and the times: virtual time passes clocks
//! between threads exactly, so a wait ends at the nanosecond at which its cause happened.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_trace::ids::Pid;

use crate::ends::Ends;
use crate::model::Wait;
use crate::trace::Trace;

/// Stamps are rounded down to nanoseconds: equal clocks may differ by this much.
const SAME_NS: f64 = 1.5;

/// A synchronisation step of a thread: it signals an event, or waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deed {
    /// Arrives at an event: one more of the arrivals that it needs.
    Arrive(u32),
    /// Waits until the event has all its arrivals.
    Await(u32),
    /// Waits until the other threads, on average, have reached the same point of the recording; for waits whose cause is not known.
    Follow,
    /// Sleeps for this many nanoseconds.
    Sleep(f64),
}

/// Process, creator and lifetime of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Process, as an index.
    pub process: u32,
    /// The kernel's id of the process.
    pub pid: Pid,
    /// Thread that made it, as an index.
    pub parent: Option<u32>,
    /// Start in program time, ns.
    pub start_ns: f64,
    /// End in program time, ns, as [`Ends`] has it: a thread that the program's end cut off ends where it was seen last.
    pub end_ns: f64,
}

/// A wait of a thread, and the step that ended it.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// Start in program time, ns.
    pub began_ns: f64,
    /// End in program time, ns.
    pub ended_ns: f64,
    /// What the thread waited for.
    pub deed: Deed,
}

/// The synchronisation steps of one thread: its waits, and the moments at which it arrives at an event or would have waited.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Waits, ascending and not overlapping.
    pub waits: Vec<Waited>,
    /// Program time in ns and step of each mark, ascending by time, then by event.
    pub marks: Vec<(f64, Deed)>,
}

/// A segment of a thread's lifetime.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Start in program time, ns.
    pub from_ns: f64,
    /// End in program time, ns; equal to the start for a step that takes no time.
    pub to_ns: f64,
    /// The synchronisation step; `None`: the thread works.
    pub deed: Option<Deed>,
}

impl Order {
    /// The thread's lifetime as segments in order, without gaps: work and synchronisation steps.
    #[must_use]
    pub fn pieces(&self, life: Life) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut at, mut waits, mut marks) =
            (life.start_ns, self.waits.iter().peekable(), self.marks.iter().peekable());
        let mut push = |at: f64, from_ns: f64, to_ns: f64, deed: Option<Deed>| {
            if from_ns > at {
                pieces.push(Piece { from_ns: at, to_ns: from_ns, deed: None });
            }
            pieces.extend(deed.map(|deed| Piece { from_ns, to_ns, deed: Some(deed) }));
            to_ns
        };
        loop {
            let (wait, mark) = (waits.peek().copied(), marks.peek().copied());
            // A mark within a wait is before it; one at its end is after it.
            at = match (wait, mark) {
                (wait, Some(&(moment, deed))) if wait.is_none_or(|wait| moment < wait.ended_ns) => {
                    marks.next();
                    let latest = wait.map_or(life.end_ns.max(at), |wait| wait.began_ns);
                    let moment = moment.min(latest).clamp(at, life.end_ns.max(at));
                    push(at, moment, moment, Some(deed))
                }
                (Some(wait), _) => {
                    waits.next();
                    push(at, wait.began_ns, wait.ended_ns, Some(wait.deed))
                }
                (None, _) => break,
            };
        }
        push(at, life.end_ns, life.end_ns, None);
        pieces
    }
}

/// The dependences between the threads of a recording. Lists are indexed by thread.
#[derive(Clone, Debug, Default)]
pub struct Dependences {
    /// Process, creator and lifetime of each thread.
    pub lives: Vec<Life>,
    /// Synchronisation steps of each thread.
    pub orders: Vec<Order>,
    /// Number of arrivals that each event needs, indexed by event.
    pub events: Vec<u32>,
    /// The threads' ends, which `lives` have too, and whether the run lasts until then.
    pub ends: Ends,
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
    events: Vec<u32>,
}

impl Trace {
    /// Derives the dependences from the recorded waits, their kinds and their times.
    #[must_use]
    pub fn dependences(&self) -> Dependences {
        let end_ns = self.end().0 as f64;
        let life = |thread: &crate::Thread| Life {
            process: thread.process.0,
            pid: self.process(thread.process).map_or(Pid(0), |process| process.pid),
            parent: thread.parent.map(|parent| parent.0),
            start_ns: thread.start.0 as f64,
            end_ns: thread.end.map_or(end_ns, |end| end.0 as f64).max(thread.start.0 as f64),
        };
        let mut found = resolve(self.threads().iter().map(life).collect(), self.waits());
        // After the waits are resolved: no join waits for a thread that was cut off, wherever it was seen last.
        found.ends = Ends::of(self);
        for (life, until_ns) in found.lives.iter_mut().zip(&found.ends.until_ns) {
            life.end_ns = life.end_ns.min(*until_ns as f64).max(life.start_ns);
        }
        found
    }
}

fn resolve(lives: Vec<Life>, waits: &[Wait]) -> Dependences {
    let mut sorted: Vec<&Wait> = waits.iter().filter(|wait| (wait.thread.0 as usize) < lives.len()).collect();
    sorted.sort_by_key(|wait| (wait.thread, wait.began, wait.ended));
    let mut orders = vec![Order::default(); lives.len()];
    let mut rows = Vec::with_capacity(sorted.len());
    for wait in sorted {
        let thread = wait.thread.0;
        let waits = &mut orders[thread as usize].waits;
        let life = lives[thread as usize];
        let earliest = waits.last().map_or(life.start_ns, |wait: &Waited| wait.ended_ns);
        let (began_ns, ended_ns) = ((wait.began.0 as f64).max(earliest), (wait.ended.0 as f64).min(life.end_ns));
        if ended_ns <= began_ns {
            continue;
        }
        let deed = if &*wait.kind == "sleep" { Deed::Sleep(ended_ns - began_ns) } else { Deed::Follow };
        waits.push(Waited { began_ns, ended_ns, deed });
        let at = waits.len() - 1;
        rows.push(Row { thread, at, kind: &wait.kind, object: wait.object, began_ns, ended_ns });
    }
    let mut resolver = Resolver { lives: &lives, rows, orders, events: Vec::new() };
    resolver.creations();
    resolver.barriers();
    resolver.team_starts();
    resolver.team_ends();
    resolver.joins();
    for order in &mut resolver.orders {
        let key = |deed: &Deed| match *deed {
            Deed::Arrive(event) => (event, 0),
            Deed::Await(event) => (event, 1),
            Deed::Follow | Deed::Sleep(_) => (0, 0),
        };
        order.marks.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| key(&a.1).cmp(&key(&b.1))));
    }
    let Resolver { orders, events, .. } = resolver;
    Dependences { lives, orders, events, ends: Ends::default() }
}

impl Resolver<'_> {
    fn is_alive(&self, thread: u32, at_ns: f64) -> bool {
        // A thread that another one names as its creator need not be in the tables.
        let life = self.lives.get(thread as usize);
        life.is_some_and(|life| life.start_ns <= at_ns && at_ns <= life.end_ns + SAME_NS)
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

    /// Adds an event that needs this many arrivals.
    fn event(&mut self, needed: u32) -> u32 {
        self.events.push(needed);
        self.events.len() as u32 - 1
    }

    /// Makes the wait end when the event is complete.
    fn await_event(&mut self, row: Row<'_>, event: u32) {
        self.orders[row.thread as usize].waits[row.at].deed = Deed::Await(event);
    }

    fn mark(&mut self, thread: u32, at_ns: f64, deed: Deed) {
        self.orders[thread as usize].marks.push((at_ns, deed));
    }

    /// A thread starts when its creator reaches the point of its creation; a thread without a known creator at its recorded time.
    fn creations(&mut self) {
        for thread in 0..self.lives.len() as u32 {
            let life = self.lives[thread as usize];
            let parent = life.parent.filter(|&parent| parent != thread && self.is_alive(parent, life.start_ns));
            if let Some(parent) = parent {
                let event = self.event(1);
                self.mark(parent, life.start_ns, Deed::Arrive(event));
                self.mark(thread, life.start_ns, Deed::Await(event));
            } else if life.start_ns > 0.0 {
                self.mark(thread, life.start_ns, Deed::Sleep(life.start_ns));
            }
        }
    }

    /// Waits at one barrier that end at one moment are one episode. Threads that wait there in other episodes, and work at that moment, arrived last.
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
            let event = self.event((late.len() + rows.len()) as u32);
            for row in rows {
                self.mark(row.thread, row.began_ns, Deed::Arrive(event));
                self.await_event(row, event);
            }
            for thread in late {
                self.mark(thread, ended_ns, Deed::Arrive(event));
                self.mark(thread, ended_ns, Deed::Await(event));
            }
        }
    }

    /// The thread that always arrives last has no waits: it is the creator of those that wait, or else the only one that works.
    fn only_worker(&self, process: u32, rows: &[Row<'_>], at_ns: f64) -> Option<u32> {
        let parent = self.lives[rows[0].thread as usize].parent;
        let working: Vec<u32> = self.threads_of(process).filter(|&thread| self.works(thread, at_ns)).collect();
        match working.as_slice() {
            [only] => Some(*only),
            _ => parent.filter(|parent| working.contains(parent)),
        }
    }

    /// Members of a team wait for its next parallel region; the thread that opens it works at that moment, and has waited for all of them before.
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
            let fork = self.event(1);
            self.mark(master, ended_ns, Deed::Arrive(fork));
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
            let join = self.event(before.len() as u32);
            for row in &before {
                self.mark(row.thread, row.began_ns, Deed::Arrive(join));
            }
            let latest = before.iter().map(|row| row.began_ns).fold(0.0, f64::max);
            self.await_at(master, latest, join);
        }
    }

    /// Makes a thread wait for an event at a moment: in the recorded wait that ended then, or without one if the thread itself arrived last.
    fn await_at(&mut self, thread: u32, at_ns: f64, event: u32) {
        let waits = &mut self.orders[thread as usize].waits;
        let first = waits.partition_point(|wait| wait.ended_ns < at_ns - SAME_NS);
        match waits.get_mut(first).filter(|wait| wait.ended_ns <= at_ns + SAME_NS) {
            Some(wait) => wait.deed = Deed::Await(event),
            None => self.mark(thread, at_ns, Deed::Await(event)),
        }
    }

    /// The end of a region: the thread that opened it waits for those whose work ended while it waited, the latest of them at that moment.
    fn team_ends(&mut self) {
        let open: Vec<Row<'_>> = self.rows.iter().copied().filter(|row| row.kind == "team_end").collect();
        for row in open {
            if self.orders[row.thread as usize].waits[row.at].deed != Deed::Follow {
                continue;
            }
            let process = self.lives[row.thread as usize].process;
            let mut arrivals: Vec<(u32, f64)> = Vec::new();
            for thread in self.threads_of(process).filter(|&thread| thread != row.thread) {
                let waits = &self.orders[thread as usize].waits;
                let later = waits.partition_point(|wait| wait.began_ns <= row.began_ns);
                let at = waits.get(later).map_or(self.lives[thread as usize].end_ns, |wait| wait.began_ns);
                if at > row.began_ns && at <= row.ended_ns + SAME_NS {
                    arrivals.push((thread, at));
                }
            }
            if !arrivals.iter().any(|&(_, at)| (at - row.ended_ns).abs() <= SAME_NS) {
                continue;
            }
            let event = self.event(arrivals.len() as u32);
            for (thread, at) in arrivals {
                self.mark(thread, at, Deed::Arrive(event));
            }
            self.await_event(row, event);
        }
    }

    /// A join waits for the thread (or, by its number, the process) that it names, and for all children of the joiner that had ended by then.
    fn joins(&mut self) {
        let lives = self.lives;
        let joins: Vec<Row<'_>> = self.rows.iter().copied().filter(|row| row.kind == "join").collect();
        let mut families = Families::of(lives);
        let mut joined: BTreeSet<u32> = BTreeSet::new();
        for row in joins {
            let by_then = |thread: &u32| lives[*thread as usize].end_ns <= row.ended_ns + SAME_NS;
            let is_open = |thread: &u32| *thread != row.thread && by_then(thread) && !joined.contains(thread);
            let mut ended: Vec<u32> = families.named(lives, &row).filter(is_open).collect();
            if ended.is_empty() {
                continue;
            }
            ended.extend(families.take_children(row.thread, by_then).iter().copied().filter(is_open));
            ended.sort_unstable();
            ended.dedup();
            let event = self.event(ended.len() as u32);
            for thread in ended {
                joined.insert(thread);
                self.mark(thread, self.lives[thread as usize].end_ns, Deed::Arrive(event));
            }
            self.await_event(row, event);
        }
    }
}

/// Threads by their creators and by their processes' numbers. Joins look them up here: a server has a million threads, and joins each.
struct Families {
    /// By creator: its threads in the order of their ends, and how many of them were taken.
    children: Vec<(Vec<u32>, usize)>,
    of_pid: BTreeMap<u64, Vec<u32>>,
}

impl Families {
    fn of(lives: &[Life]) -> Families {
        let mut families = Families { children: vec![(Vec::new(), 0); lives.len()], of_pid: BTreeMap::new() };
        for (thread, life) in (0..).zip(lives) {
            families.of_pid.entry(u64::from(life.pid.0)).or_default().push(thread);
            if let Some((children, _)) = life.parent.and_then(|parent| families.children.get_mut(parent as usize)) {
                children.push(thread);
            }
        }
        for (children, _) in &mut families.children {
            children.sort_by(|a, b| lives[*a as usize].end_ns.total_cmp(&lives[*b as usize].end_ns));
        }
        families
    }

    /// The threads that a join names: one of the joiner's process by its number, or those of another process by that one's.
    fn named<'f>(&'f self, lives: &'f [Life], row: &Row<'_>) -> impl Iterator<Item = u32> + use<'f> {
        let own = lives[row.thread as usize].process;
        let is_own = move |thread: &u32| lives.get(*thread as usize).is_some_and(|life| life.process == own);
        let thread = u32::try_from(row.object).ok().filter(is_own);
        let others = self.of_pid.get(&row.object).into_iter().flatten().copied();
        thread.into_iter().chain(others.filter(move |thread| !is_own(thread)))
    }

    /// The children of a thread that have ended, by `has_ended`, and were not taken before. A thread's joins are asked in the order of their ends.
    fn take_children(&mut self, parent: u32, has_ended: impl Fn(&u32) -> bool) -> &[u32] {
        let (children, taken) = &mut self.children[parent as usize];
        let (first, end) = (*taken, children.partition_point(has_ended).max(*taken));
        *taken = end;
        &children[first..end]
    }
}

#[cfg(test)]
mod tests {
    use numapilot_trace::ids::{ThreadIndex, TimeNs};

    use super::*;

    fn life(process: u32, parent: Option<u32>, start_ns: u64, end_ns: u64) -> Life {
        let (start_ns, end_ns) = (start_ns as f64, end_ns as f64);
        Life { process, pid: Pid(100 + process), parent, start_ns, end_ns }
    }

    fn wait(thread: u32, kind: &str, object: u64, (began, ended): (u64, u64)) -> Wait {
        let (began, ended) = (TimeNs(began), TimeNs(ended));
        Wait { thread: ThreadIndex(thread), kind: kind.into(), object, began, ended }
    }

    /// The arrivals that each wait of a thread awaits; `None`: its cause is not known.
    fn awaited(found: &Dependences, thread: usize) -> Vec<Option<u32>> {
        let needed = |wait: &Waited| match wait.deed {
            Deed::Await(event) => Some(found.events[event as usize]),
            _ => None,
        };
        found.orders[thread].waits.iter().map(needed).collect()
    }

    #[test]
    fn a_join_waits_for_whom_it_names_and_for_children_that_ended_before() {
        let lives = vec![
            life(0, None, 0, 1000),
            life(0, Some(0), 10, 100),
            // Detached; ended before the second join.
            life(0, Some(0), 10, 150),
            life(0, Some(0), 10, 200),
            // Another process, of two threads.
            life(1, Some(0), 10, 300),
            life(1, Some(4), 20, 250),
            life(0, Some(0), 10, 900),
        ];
        let join = |object, began, ended| wait(0, "join", object, (began, ended));
        // The last two name nobody, and a thread that goes on.
        let waits = [join(1, 50, 100), join(3, 110, 200), join(101, 210, 300), join(77, 310, 320), join(6, 330, 340)];
        let found = resolve(lives, &waits);
        assert_eq!(awaited(&found, 0), [Some(1), Some(2), Some(2), None, None]);
        assert!(found.orders[2].marks.iter().any(|(at, deed)| *at == 150.0 && matches!(deed, Deed::Arrive(_))));
    }

    #[test]
    fn a_thread_of_a_creator_that_is_in_no_table_starts_at_its_time() {
        let found = resolve(vec![life(0, None, 0, 100), life(0, Some(7), 10, 50)], &[]);
        assert_eq!(found.orders[1].marks, [(10.0, Deed::Sleep(10.0))]);
    }

    /// Looking through all threads at each join, or through all waits at each region, this would go on for minutes.
    #[test]
    fn many_threads_and_many_regions_are_soon_resolved() {
        const MANY: u64 = 100_000;
        let mut lives = vec![life(0, None, 0, 10 * MANY + 100)];
        lives.extend((0..MANY).map(|at| life(0, Some(0), 10 * at + 1, 10 * at + 8)));
        let joins: Vec<Wait> = (0..MANY).map(|at| wait(0, "join", at + 1, (10 * at + 2, 10 * at + 8))).collect();
        let found = resolve(lives, &joins);
        assert!(awaited(&found, 0).iter().all(|needed| *needed == Some(1)));

        // The second thread of a team waits for each region; the first one for the second at each region's end.
        let lives = vec![life(0, None, 0, 10 * MANY + 100), life(0, Some(0), 0, 10 * MANY + 100)];
        let region = |at: u64| {
            let begin = 10 * at;
            [wait(1, "team_start", 0, (begin + 2, begin + 9)), wait(0, "team_end", 0, (begin + 1, begin + 2))]
        };
        let regions: Vec<Wait> = (1..=MANY).flat_map(region).collect();
        let found = resolve(lives, &regions);
        assert!(awaited(&found, 1).iter().all(|needed| *needed == Some(1)), "each region has a beginning");
        assert!(awaited(&found, 0).iter().all(|needed| *needed == Some(1)), "and an end");
    }
}
