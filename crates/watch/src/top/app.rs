//! What the screen shows and how keys change it. Pure.

use std::collections::VecDeque;

use numapilot_machine::Machine;

use crate::figures::MemoryView;
use crate::figures::Metric;
use crate::figures::ProcessFigures;
use crate::replay::Frame;

/// Intervals that histories keep.
const HISTORY_MAX: usize = 300;

/// What fills the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Metrics, the machine in short, processes.
    #[default]
    Overview,
    /// The machine: nodes, controllers and links as its topology, with histories.
    Machine,
    /// Processes only.
    Processes,
    /// One process: its threads and where its memory is.
    Process(u32),
}

/// By what processes are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// Processor time.
    #[default]
    Cpu,
    /// Resident memory.
    Memory,
    /// Local access ratio, the least first.
    Local,
    /// Memory accesses per second.
    Accesses,
    /// Page faults per second.
    Faults,
    /// Threads.
    Threads,
    /// Node.
    Node,
    /// Number.
    Pid,
    /// Name.
    Name,
}

impl SortKey {
    /// In the order in which `s` goes through them.
    pub const ALL: [SortKey; 9] = [
        SortKey::Cpu,
        SortKey::Memory,
        SortKey::Local,
        SortKey::Accesses,
        SortKey::Faults,
        SortKey::Threads,
        SortKey::Node,
        SortKey::Pid,
        SortKey::Name,
    ];
}

/// What a person does, free of any terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A character.
    Key(char),
    /// Enter, or right: opens.
    Enter,
    /// Escape, or left: back.
    Escape,
    /// Takes a character of the filter away.
    Backspace,
    /// The next view.
    Tab,
    /// So many rows down; negative: up.
    Move(i32),
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// The left button, at (column, row).
    Click(u16, u16),
}

/// A column of the heading: from, to, key.
pub type HeadingSpot = (u16, u16, SortKey);

/// Where clickable things are on the screen: told by drawing.
#[derive(Clone, Debug, Default)]
pub struct Spots {
    /// First row of the table's body, its height, and the first entry shown.
    pub rows: Option<(u16, u16, usize)>,
    /// Heading's row, and its columns.
    pub heading: Option<(u16, Vec<HeadingSpot>)>,
}

/// The state.
pub struct App {
    /// The machine that is shown.
    pub machine: Machine,
    /// What is shown, in a few words.
    pub label: String,
    /// What the reader must know.
    pub notes: Vec<String>,
    /// The latest frame.
    pub frame: Frame,
    /// The last frames' metrics, the latest last.
    pub history: VecDeque<[Option<f64>; 7]>,
    /// Each node's local share, controller load (or bytes per second) and busy share, likewise.
    pub node_history: Vec<VecDeque<NodePoint>>,
    /// What fills the screen.
    pub view: View,
    /// The keys are shown over it.
    pub help: bool,
    /// By what processes are ordered.
    pub sort: SortKey,
    /// The other way round.
    pub reversed: bool,
    /// Processes whose name holds this, or whose number begins with it.
    pub filter: String,
    /// Keys go to the filter.
    pub editing: bool,
    /// The chosen row.
    pub selected: usize,
    /// Which of the views of a process's memory is shown.
    pub memory_view: usize,
    /// No new frames for now.
    pub paused: bool,
    /// The source has no more frames.
    pub over: bool,
    /// It ends.
    pub quit: bool,
    /// Where clickable things are.
    pub spots: Spots,
}

/// A node at one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodePoint {
    /// Share of its CPUs' time.
    pub busy: Option<f64>,
    /// Its controller's utilisation.
    pub controller: Option<f64>,
}

impl App {
    /// Before the first frame.
    #[must_use]
    pub fn new(machine: Machine, label: String, notes: Vec<String>) -> App {
        App {
            node_history: vec![VecDeque::new(); machine.nodes().len()],
            machine,
            label,
            notes,
            frame: Frame::default(),
            history: VecDeque::new(),
            view: View::default(),
            help: false,
            sort: SortKey::default(),
            reversed: false,
            filter: String::new(),
            editing: false,
            selected: 0,
            memory_view: 0,
            paused: false,
            over: false,
            quit: false,
            spots: Spots::default(),
        }
    }

    /// The process that is looked at closely.
    #[must_use]
    pub fn detail(&self) -> Option<u32> {
        if let View::Process(pid) = self.view { Some(pid) } else { None }
    }

    /// Takes a frame in.
    pub fn update(&mut self, frame: Frame) {
        let metrics = Metric::ALL.map(|metric| frame.interval.metrics.get(metric).value());
        push(&mut self.history, metrics);
        for (history, node) in self.node_history.iter_mut().zip(&frame.interval.nodes) {
            let busy = node.busy_cpus.map(|busy| busy / node.cpus.max(1) as f64);
            push(history, NodePoint { busy, controller: node.controller_load });
        }
        self.frame = frame;
        self.selected = self.selected.min(self.row_count().saturating_sub(1));
    }

    /// History of a metric, the latest last.
    #[must_use]
    pub fn history_of(&self, metric: Metric) -> Vec<Option<f64>> {
        self.history.iter().map(|values| values[metric as usize]).collect()
    }

    fn matching(&self) -> impl Iterator<Item = &ProcessFigures> {
        let wanted = self.filter.to_lowercase();
        self.frame.interval.processes.iter().filter(move |process| {
            wanted.is_empty()
                || process.name.to_lowercase().contains(&wanted)
                || process.pid.to_string().starts_with(&wanted)
        })
    }

    /// Processes as shown: filtered and ordered.
    #[must_use]
    pub fn processes(&self) -> Vec<&ProcessFigures> {
        let mut shown: Vec<&ProcessFigures> = self.matching().collect();
        let down = |a: f64, b: f64| b.total_cmp(&a);
        shown.sort_by(|a, b| {
            let order = match self.sort {
                SortKey::Cpu => down(a.cpus, b.cpus),
                SortKey::Memory => b.resident_bytes.cmp(&a.resident_bytes),
                SortKey::Local => {
                    let of = |process: &ProcessFigures| process.local_share.value().unwrap_or(f64::INFINITY);
                    of(a).total_cmp(&of(b))
                }
                SortKey::Accesses => down(a.accesses_per_s.unwrap_or(-1.0), b.accesses_per_s.unwrap_or(-1.0)),
                SortKey::Faults => down(a.faults_per_s, b.faults_per_s),
                SortKey::Threads => b.threads.cmp(&a.threads),
                SortKey::Node => a.node.cmp(&b.node),
                SortKey::Pid => a.pid.cmp(&b.pid),
                SortKey::Name => a.name.cmp(&b.name),
            };
            let order = if self.reversed { order.reverse() } else { order };
            order.then(a.pid.cmp(&b.pid))
        });
        shown
    }

    /// The chosen view of a process's memory.
    #[must_use]
    pub fn memory(&self, pid: u32) -> Option<&MemoryView> {
        let views = self.frame.views.get(&pid)?;
        views.get(self.memory_view % views.len().max(1))
    }

    /// How many rows the cursor moves over: processes, or the areas of the one that is looked at.
    fn row_count(&self) -> usize {
        match self.view {
            View::Process(pid) => self.memory(pid).map_or(0, |view| view.areas.len()),
            _ => self.matching().count(),
        }
    }

    /// Does what a person wants.
    pub fn input(&mut self, input: Input) {
        if self.editing {
            return self.edit(input);
        }
        if self.help {
            self.help = false;
            return;
        }
        match input {
            Input::Key('q') => self.quit = true,
            Input::Key('?' | 'h') => self.help = true,
            Input::Key('1') => self.go(View::Overview),
            Input::Key('2') => self.go(View::Machine),
            Input::Key('3') => self.go(View::Processes),
            Input::Tab => self.go(match self.view {
                View::Overview => View::Machine,
                View::Machine => View::Processes,
                View::Processes | View::Process(_) => View::Overview,
            }),
            Input::Key('/') => self.editing = true,
            Input::Key('s') => self.next_key(1),
            Input::Key('S') => self.next_key(SortKey::ALL.len() - 1),
            Input::Key('r') => self.reversed = !self.reversed,
            Input::Key('o') => (self.memory_view, self.selected) = (self.memory_view.wrapping_add(1), 0),
            Input::Key('p' | ' ') => self.paused = !self.paused,
            Input::Key('j') => self.move_by(1),
            Input::Key('k') => self.move_by(-1),
            Input::Move(rows) => self.move_by(rows),
            Input::First => self.selected = 0,
            Input::Last => self.move_by(i32::MAX),
            Input::Enter => self.open(),
            Input::Escape => self.back(),
            Input::Click(column, row) => self.click(column, row),
            Input::Key(_) | Input::Backspace => {}
        }
    }

    fn go(&mut self, view: View) {
        (self.view, self.selected, self.memory_view) = (view, 0, 0);
    }

    fn edit(&mut self, input: Input) {
        match input {
            Input::Key(c) => self.filter.push(c),
            Input::Backspace => drop(self.filter.pop()),
            Input::Enter => self.editing = false,
            Input::Escape => {
                self.editing = false;
                self.filter.clear();
            }
            _ => {}
        }
        self.selected = 0;
    }

    fn next_key(&mut self, step: usize) {
        let at = SortKey::ALL.iter().position(|key| *key == self.sort).unwrap_or(0);
        self.sort = SortKey::ALL[(at + step) % SortKey::ALL.len()];
    }

    fn move_by(&mut self, rows: i32) {
        let last = self.row_count().saturating_sub(1);
        let step = usize::try_from(rows.unsigned_abs()).unwrap_or(usize::MAX);
        self.selected = match rows < 0 {
            true => self.selected.saturating_sub(step),
            false => self.selected.saturating_add(step).min(last),
        };
    }

    fn open(&mut self) {
        let chosen = self.processes().get(self.selected).map(|process| process.pid);
        if let (None, Some(pid)) = (self.detail(), chosen) {
            self.go(View::Process(pid));
        }
    }

    /// Out of the process, else the filter away, else to the overview.
    fn back(&mut self) {
        match self.view {
            View::Process(pid) => {
                self.go(View::Overview);
                self.selected = self.processes().iter().position(|process| process.pid == pid).unwrap_or(0);
            }
            _ if !self.filter.is_empty() => self.filter.clear(),
            _ => self.go(View::Overview),
        }
    }

    /// A heading orders by its column (again: the other way), a row is chosen (again: opened).
    fn click(&mut self, column: u16, row: u16) {
        if let Some((at, columns)) = &self.spots.heading
            && *at == row
        {
            let hit = columns.iter().find(|(from, to, _)| (*from..*to).contains(&column)).map(|(_, _, key)| *key);
            match hit {
                Some(key) if key == self.sort => self.reversed = !self.reversed,
                Some(key) => (self.sort, self.reversed) = (key, false),
                None => {}
            }
        } else if let Some((first, height, offset)) = self.spots.rows
            && (first..first + height).contains(&row)
        {
            let entry = offset + usize::from(row - first);
            if entry < self.row_count() {
                let again = self.selected == entry;
                self.selected = entry;
                if again {
                    self.open();
                }
            }
        }
    }
}

fn push<T>(history: &mut VecDeque<T>, value: T) {
    if history.len() == HISTORY_MAX {
        history.pop_front();
    }
    history.push_back(value);
}
