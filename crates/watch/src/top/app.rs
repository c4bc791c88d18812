//! State of the screen, and how input changes it. Pure.

use std::collections::VecDeque;

use numapilot_host::Pid;
use numapilot_machine::Machine;

use crate::figures::MemoryView;
use crate::figures::Metric;
use crate::figures::ProcessFigures;
use crate::replay::Frame;

/// Maximum number of intervals in a history.
const HISTORY_MAX: usize = 300;

/// A view that fills the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Metrics, a summary of the machine, and processes.
    #[default]
    Overview,
    /// The machine: nodes, controllers and links as its topology, with histories.
    Machine,
    /// Processes only.
    Processes,
    /// One process: its threads and where its memory is.
    Process(Pid),
}

/// Sort key of processes.
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
    /// Number of threads.
    Threads,
    /// Node on which it runs.
    Node,
    /// Process id.
    Pid,
    /// Name.
    Name,
}

impl SortKey {
    /// All keys, in the order in which key `s` selects them.
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

/// An input of the user, independent of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A character key.
    Key(char),
    /// Enter, or right: opens the selected row.
    Enter,
    /// Escape, or left: goes back.
    Escape,
    /// Backspace: deletes a character of the filter.
    Backspace,
    /// Tab: selects the next view.
    Tab,
    /// Moves the selection down by a number of rows; negative: up.
    Move(i32),
    /// Moves the selection to the first row.
    First,
    /// Moves the selection to the last row.
    Last,
    /// A click of the left button, at (column, row).
    Click(u16, u16),
}

/// A column of the heading: first and end column of the screen, sort key.
pub type HeadingSpot = (u16, u16, SortKey);

/// Positions of clickable elements on the screen, set by drawing.
#[derive(Clone, Debug, Default)]
pub struct Spots {
    /// First row of the table's body, its height, and the index of the first entry shown.
    pub rows: Option<(u16, u16, usize)>,
    /// Row of the heading, and its columns.
    pub heading: Option<(u16, Vec<HeadingSpot>)>,
}

/// State of the screen.
pub struct App {
    /// The machine that is shown.
    pub machine: Machine,
    /// Label of the source, in a few words.
    pub label: String,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The latest frame.
    pub frame: Frame,
    /// Metrics of the last frames, the latest last.
    pub history: VecDeque<[Option<f64>; 7]>,
    /// History of each node, the latest last.
    pub node_history: Vec<VecDeque<NodePoint>>,
    /// The present view.
    pub view: View,
    /// Whether the help is shown.
    pub help: bool,
    /// Sort key of processes.
    pub sort: SortKey,
    /// Whether the order is reversed.
    pub reversed: bool,
    /// Filter: only processes whose name contains it, or whose id begins with it, are shown.
    pub filter: String,
    /// Whether keys edit the filter.
    pub editing: bool,
    /// Index of the selected row.
    pub selected: usize,
    /// Number of the shown view of a process's memory.
    pub memory_view: usize,
    /// Whether frames are paused.
    pub paused: bool,
    /// Whether the source has no more frames.
    pub over: bool,
    /// Whether the program is to end.
    pub quit: bool,
    /// Positions of clickable elements.
    pub spots: Spots,
}

/// State of a node in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodePoint {
    /// Busy share of its CPUs' time, 0 to 1.
    pub busy: Option<f64>,
    /// Utilisation of its memory controller, 0 to 1.
    pub controller: Option<f64>,
}

impl App {
    /// Makes the state before the first frame.
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

    /// Id of the process that is shown in detail.
    #[must_use]
    pub fn detail(&self) -> Option<Pid> {
        if let View::Process(pid) = self.view { Some(pid) } else { None }
    }

    /// Updates the state with a new frame.
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

    /// The shown processes, filtered and ordered.
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

    /// The selected view of a process's memory.
    #[must_use]
    pub fn memory(&self, pid: Pid) -> Option<&MemoryView> {
        let views = self.frame.views.get(&pid)?;
        views.get(self.memory_view % views.len().max(1))
    }

    /// Number of rows over which the selection moves: processes, or the areas of the process shown in detail.
    fn row_count(&self) -> usize {
        match self.view {
            View::Process(pid) => self.memory(pid).map_or(0, |view| view.areas.len()),
            _ => self.matching().count(),
        }
    }

    /// Handles an input.
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

    /// Goes back: leaves the process, or clears the filter, or returns to the overview.
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

    /// A click on a heading sorts by its column (again: reverses the order), on a row selects it (again: opens it).
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
