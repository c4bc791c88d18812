//! The screen over a replayed trace and machines of testdata/sysfs, at several sizes, with and without colour; and what keys and the mouse do.

use std::path::Path;
use std::path::PathBuf;

use numapilot_host::Group;
use numapilot_host::Pid;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;

use super::*;
use crate::figures::MemoryView;
use crate::figures::Metric;
use crate::fixture::Tree;
use crate::live::Live;
use crate::live::LiveOptions;
use crate::replay::ReplayOptions;
use crate::replay::replay;

fn replayed(machine: Option<&str>) -> App {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
    let options = ReplayOptions { policy: "first-touch".to_owned(), interval_ns: 20_000_000, length_ns: None, seed: 1 };
    let machine = machine.map(|name| Machine::load(name).unwrap());
    let mut source = ReplaySource::new(replay(&trace, machine, &options).unwrap());
    let mut app = App::new(source.machine().clone(), source.label(), source.notes());
    for _ in 0..4 {
        app.update(source.next(None).unwrap());
    }
    app
}

fn shown(app: &mut App, width: u16, height: u16, palette: Palette) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| {
            let area = frame.area();
            draw(app, palette, area, frame.buffer_mut());
        })
        .unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let row = |y: u16| -> String { (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect() };
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
}

#[test]
fn the_screen_is_as_it_was_at_several_sizes() {
    let mut app = replayed(None);
    insta::assert_snapshot!("overview_80x24", text(&shown(&mut app, 80, 24, Palette::Plain)));
    insta::assert_snapshot!("overview_120x40", text(&shown(&mut app, 120, 40, Palette::Colour)));
    app.input(Input::Key('2'));
    insta::assert_snapshot!("machine_120x40", text(&shown(&mut app, 120, 40, Palette::Plain)));
    app.input(Input::Key('3'));
    app.input(Input::Enter);
    insta::assert_snapshot!("process_80x24", text(&shown(&mut app, 80, 24, Palette::Plain)));
    app.input(Input::Key('?'));
    insta::assert_snapshot!("help_80x24", text(&shown(&mut app, 80, 24, Palette::Plain)));
}

#[test]
fn no_size_and_no_view_makes_it_panic() {
    for machine in ["opteron-8385", "epyc-2s-nps4"] {
        let mut app = replayed(Some(machine));
        for (width, height) in [(1, 1), (20, 5), (40, 10), (79, 23), (200, 70)] {
            for key in ['1', '2', '3', '?'] {
                app.help = false;
                app.input(Input::Key(key));
                shown(&mut app, width, height, Palette::Colour);
            }
            app.help = false;
            app.input(Input::Enter);
            shown(&mut app, width, height, Palette::Colour);
        }
    }
}

/// Why something is not counted is told of each interval, not of the machine.
#[test]
fn the_machines_view_has_the_notes_of_the_interval() {
    let mut app = replayed(None);
    app.notes = vec!["Processes are hidden.".to_owned()];
    app.frame.interval.notes = vec!["Processes are hidden.".to_owned(), "Nothing is sampled: no rights.".to_owned()];
    app.input(Input::Key('2'));
    let screen = text(&shown(&mut app, 120, 60, Palette::Plain));
    assert!(screen.contains("Nothing is sampled: no rights."), "{screen}");
    assert_eq!(screen.matches("Processes are hidden.").count(), 1, "{screen}");
}

#[test]
fn narrow_terminals_show_every_value() {
    let mut app = replayed(None);
    for width in [40, 60, 71, 72, 79] {
        let screen = text(&shown(&mut app, width, 30, Palette::Plain));
        for metric in Metric::ALL {
            let told = app.frame.interval.metrics.get(metric);
            let words = told.value().map_or_else(|| "not available".to_owned(), |value| metric.format(value));
            assert!(screen.contains(&words), "{metric:?} at {width}: no {words} in\n{screen}");
        }
        assert!(screen.lines().next().unwrap().ends_with(" · 0.1 s"), "{screen}");
    }
}

#[test]
fn without_colour_no_colour_is_sent() {
    let mut app = replayed(None);
    let of = |buffer: &Buffer| {
        buffer.content.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(of(&shown(&mut app, 80, 24, Palette::Plain)), 0);
    assert!(of(&shown(&mut app, 80, 24, Palette::Colour)) > 100);
}

#[test]
fn a_machine_without_a_pmu_is_shown_by_what_its_kernel_tells() {
    let tree = Tree::of("sparse-nodes");
    tree.process(40, "app", &[(40, 0, 900), (41, 1, 50)]);
    tree.process(41, "\u{1b}[2Jevil", &[(41, 0, 5)]);
    tree.put("proc/stat", "cpu  1\ncpu0 10 0 0 90\nprocesses 5");
    tree.put("proc/40/numa_maps", "5600bb000000 default heap anon=6 N0=500 kernelpagesize_kB=4");
    let options = LiveOptions { no_latency: "nothing counts latencies".to_owned(), ..LiveOptions::default() };
    let mut source = LiveSource::new(Live::open(tree.root(), tree.machine(), &options), PathBuf::new());
    let mut app = App::new(source.machine().clone(), "made".to_owned(), Vec::new());
    app.update(source.next(None).unwrap());
    let screen = text(&shown(&mut app, 100, 40, Palette::Plain));
    assert!(screen.contains("no CPUs") || screen.contains("no memory"), "{screen}");
    assert!(screen.contains("\\u{1b}[2Jevil") && !screen.contains('\u{1b}'), "{screen}");
    app.input(Input::Key('/'));
    "app".chars().for_each(|c| app.input(Input::Key(c)));
    app.input(Input::Enter);
    app.input(Input::Enter);
    assert_eq!(app.detail(), Some(Pid(40)));
    let screen = text(&shown(&mut app, 100, 40, Palette::Plain));
    assert!(screen.contains("where its threads run is not known (yet)"), "{screen}");
    app.update(source.next(app.detail()).unwrap());
    let screen = text(&shown(&mut app, 100, 40, Palette::Plain));
    assert!(screen.contains("heap [heap]") && screen.contains("1.95 MiB") && screen.contains("threads"), "{screen}");
    // Of many notes it is said how many are left out.
    let notes = (0..9).map(|number| format!("Note {number}.")).collect();
    app.frame.views.insert(Pid(40), vec![MemoryView { notes, ..MemoryView::default() }]);
    let screen = text(&shown(&mut app, 100, 40, Palette::Plain));
    assert!(screen.contains("Note 2.") && screen.contains("(6 more lines of notes)"), "{screen}");
    assert!(!screen.contains("Note 3."), "{screen}");
}

#[test]
fn every_machine_of_testdata_is_drawn_with_all_its_nodes() {
    for name in [
        "one-node",
        "two-sockets-smt",
        "four-nodes",
        "nps4",
        "snc2",
        "cxl",
        "memory-less",
        "offline-cpus",
        "sparse-nodes",
    ] {
        let tree = Tree::of(name);
        tree.put("proc/stat", "processes 1");
        let (machine, live) = (tree.machine(), Live::open(tree.root(), tree.machine(), &LiveOptions::default()));
        let mut source = LiveSource::new(live, PathBuf::new());
        let mut app = App::new(machine.clone(), source.label(), Vec::new());
        app.update(source.next(None).unwrap());
        app.input(Input::Key('2'));
        let screen = text(&shown(&mut app, 120, 50, Palette::Plain));
        let online = machine.cpus().iter().filter(|cpu| cpu.online).count();
        assert!(app.label.contains(&format!("{online} CPU")), "{name}: {}", app.label);
        for node in machine.nodes() {
            let cpus = node.cpus.iter().filter(|cpu| machine.cpu(**cpu).is_some_and(|cpu| cpu.online)).count();
            assert!(screen.contains(&format!("node {}", node.id)), "{name}: no node {} in\n{screen}", node.id);
            assert!(cpus > 0 || screen.contains("no CPUs"), "{name}:\n{screen}");
            assert!(node.has_memory() || screen.contains("no memory"), "{name}:\n{screen}");
        }
    }
}

#[test]
fn tiers_of_memory_are_shown_where_there_are_several() {
    let tree = Tree::of("cxl");
    tree.put("proc/stat", "processes 1");
    let far = tree.machine().nodes().iter().find(|node| !node.has_cpus()).unwrap().id;
    let screen = || {
        let live = Live::open(tree.root(), tree.machine(), &LiveOptions::default());
        let mut source = LiveSource::new(live, PathBuf::new());
        let mut app = App::new(source.machine().clone(), source.label(), Vec::new());
        app.update(source.next(None).unwrap());
        app.input(Input::Key('2'));
        text(&shown(&mut app, 120, 50, Palette::Plain))
    };
    tree.put("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1");
    assert!(!screen().contains("tier"), "one tier is no news");
    tree.put("sys/devices/virtual/memory_tiering/memory_tier22/nodelist", &far.to_string());
    let screen = screen();
    assert!(screen.contains(&format!("node {far}, no CPUs, tier 22")) && screen.contains("node 0, tier 4"), "{screen}");
}

#[test]
fn a_thousand_cpus_on_64_nodes_fit_on_a_screen() {
    let tree = Tree::symmetric(64, 16, 1 << 20);
    tree.put("proc/stat", "processes 1");
    let mut source = LiveSource::new(Live::open(tree.root(), tree.machine(), &LiveOptions::default()), PathBuf::new());
    let mut app = App::new(source.machine().clone(), source.label(), Vec::new());
    app.update(source.next(None).unwrap());
    assert!(app.label.contains("64 nodes, 1024 CPUs"));
    let screen = text(&shown(&mut app, 80, 24, Palette::Plain));
    assert!(screen.contains("16 CPUs"), "{screen}");
    let shown = screen.lines().filter(|line| line.starts_with("node ")).count();
    assert!(screen.contains(&format!("not shown: {} nodes, less busy", 64 - shown)), "{screen}");
}

#[test]
fn nothing_is_drawn_of_nodes_before_the_first_frame() {
    let mut app = App::new(Machine::load("opteron-8385").unwrap(), "empty".to_owned(), Vec::new());
    for (key, width, height) in [('1', 80, 24), ('2', 80, 24), ('1', 200, 70), ('2', 20, 5)] {
        app.input(Input::Key(key));
        assert!(!text(&shown(&mut app, width, height, Palette::Plain)).contains("node 0"));
    }
}

#[test]
fn narrow_terminals_show_names_of_processes() {
    let mut app = replayed(None);
    app.input(Input::Key('3'));
    let head: String = app.frame.interval.processes[0].name.chars().take(2).collect();
    for width in [26, 40, 60, 70, 80] {
        let screen = text(&shown(&mut app, width, 10, Palette::Plain));
        let row = screen.lines().nth(2).unwrap();
        assert!(row.contains(&format!(" {head}")), "at {width}: no {head} in\n{screen}");
    }
}

#[test]
fn users_who_do_not_see_all_processes_are_told() {
    let tree = Tree::symmetric(2, 2, 1 << 20);
    tree.put("proc/stat", "processes 1");
    let open = || Live::open(tree.root(), tree.machine(), &LiveOptions::default());
    assert!(LiveSource::new(open(), PathBuf::new()).notes().is_empty());
    tree.put("proc/self/mountinfo", "25 28 0:23 / /proc rw - proc proc rw,hidepid=invisible");
    let notes = LiveSource::new(open(), PathBuf::new()).notes();
    assert!(notes[0].starts_with("Processes of other users are hidden: "), "{notes:?}");
    assert_eq!(open().interval().notes, notes, "of stat, too");
}

#[test]
fn a_thread_that_began_since_the_last_frame_is_shown_with_its_time() {
    let tree = Tree::symmetric(1, 2, 1 << 20);
    tree.put("proc/stat", "processes 1");
    tree.put("proc/40/numa_maps", "7f0000000000 default anon=9 N0=9 kernelpagesize_kB=4");
    tree.process(40, "pool", &[(40, 0, 1000)]);
    let mut source = LiveSource::new(Live::open(tree.root(), tree.machine(), &LiveOptions::default()), PathBuf::new());
    let mut cpus = || -> Vec<f64> {
        let frame = source.next(Some(Pid(40))).unwrap();
        frame.threads[&Pid(40)].iter().map(|thread| thread.cpus).collect()
    };
    assert_eq!(cpus(), [0.0], "what it did before is not known by time");
    tree.process(40, "pool", &[(40, 0, 1000), (41, 1, 5)]);
    let second = cpus();
    assert!(second[0] == 0.0 && second[1] > 0.0, "{second:?}");
}

#[test]
fn many_new_processes_have_their_titles_a_part_at_a_time_and_a_group_is_found_among_them() {
    let tree = Tree::symmetric(2, 2, 1 << 20);
    tree.put("proc/stat", "processes 1");
    for pid in 100..500 {
        tree.process(pid, "worker", &[(pid, 0, 0)]);
        tree.put(&format!("proc/{pid}/cmdline"), &format!("worker: number {pid}\0"));
    }
    let open = || Live::open(tree.root(), tree.machine(), &LiveOptions::default());
    let mut source = LiveSource::new(open(), PathBuf::new());
    let mut titles = || {
        let processes = source.next(None).unwrap().interval.processes;
        let titled =
            |process: &&crate::figures::ProcessFigures| *process.name == *format!("worker: number {}", process.pid);
        (processes.iter().filter(titled).count(), processes.len())
    };
    // Later ones take longer: each is a read of another process's memory.
    let counts = [titles(), titles(), titles(), titles()];
    assert_eq!(counts, [(256, 400), (320, 400), (384, 400), (400, 400)]);
    let mut named = LiveSource::new(open(), PathBuf::new()).with_group(Some(Group::Trees(vec![Pid(123), Pid(77)])));
    let frame = named.next(None).unwrap();
    let shown: Vec<(u32, &str)> =
        frame.interval.processes.iter().map(|process| (process.pid.0, &*process.name)).collect();
    assert_eq!(shown, [(123, "worker: number 123")]);
    assert_eq!(frame.total.map(|total| total.threads), Some(1));
}

/// Titles were kept by process id and name: of two workers one after the other with the same id, the second had the title of the first until it did something.
#[test]
fn a_process_does_not_have_the_title_of_one_that_had_its_id() {
    let tree = Tree::symmetric(1, 2, 1 << 20);
    tree.put("proc/stat", "processes 1");
    tree.process(40, "worker", &[(40, 0, 0)]);
    tree.put("proc/40/cmdline", "worker: old\0");
    let mut source = LiveSource::new(Live::open(tree.root(), tree.machine(), &LiveOptions::default()), PathBuf::new());
    let mut name = || source.next(None).unwrap().interval.processes[0].name.to_string();
    assert_eq!(name(), "worker: old");
    let stat = std::fs::read_to_string(tree.root().path().join("proc/40/stat")).unwrap();
    tree.put("proc/40/stat", &stat.replace(" 90 1000000 ", " 91 1000000 "));
    tree.put("proc/40/cmdline", "worker: new\0");
    assert_eq!(name(), "worker: new");
}

#[test]
fn keys_and_the_mouse_order_filter_and_open() {
    let mut app = replayed(None);
    let mut one = app.frame.clone();
    let first = one.interval.processes[0].clone();
    for (pid, name, cpus, bytes) in [(7, "alpha", 0.1, 900), (8, "beta", 0.9, 5), (9, "gamma", 0.5, 100)] {
        let process = crate::figures::ProcessFigures {
            pid: Pid(pid),
            name: name.into(),
            cpus,
            resident_bytes: bytes,
            ..first.clone()
        };
        one.interval.processes.push(process);
    }
    one.interval.processes.remove(0);
    app.update(one);
    let order = |app: &App| -> Vec<u32> { app.processes().iter().map(|process| process.pid.0).collect() };
    assert_eq!(order(&app), [8, 9, 7]);
    app.input(Input::Key('s'));
    assert_eq!((app.sort, order(&app)), (SortKey::Memory, vec![7, 9, 8]));
    app.input(Input::Key('r'));
    assert_eq!(order(&app), [8, 9, 7]);
    app.input(Input::Key('S'));
    assert_eq!(app.sort, SortKey::Cpu);
    // The heading by mouse: its own column turns the order, another takes it over.
    shown(&mut app, 80, 24, Palette::Plain);
    let (row, columns) = app.spots.heading.clone().unwrap();
    let column = columns.iter().find(|(_, _, key)| *key == SortKey::Pid).unwrap().0;
    app.input(Input::Click(column, row));
    assert_eq!((app.sort, app.reversed, order(&app)), (SortKey::Pid, false, vec![7, 8, 9]));
    app.input(Input::Click(column, row));
    assert_eq!(order(&app), [9, 8, 7]);
    // Second row: chosen, then opened.
    app.input(Input::Click(3, row + 2));
    assert_eq!((app.selected, app.detail()), (1, None));
    app.input(Input::Click(3, row + 2));
    assert_eq!(app.detail(), Some(Pid(8)));
    app.input(Input::Escape);
    assert_eq!((app.view, app.selected), (View::Overview, 1));
    app.input(Input::Key('/'));
    app.input(Input::Key('m'));
    app.input(Input::Enter);
    assert_eq!(order(&app), [9]);
    app.input(Input::Escape);
    assert_eq!(order(&app).len(), 3);
    app.input(Input::Last);
    app.input(Input::Move(-1));
    assert_eq!(app.selected, 1);
    app.input(Input::Key('p'));
    assert!(app.paused);
    app.input(Input::Key('?'));
    app.input(Input::Key('q'));
    assert!(!app.quit, "any key closes the help and does nothing else");
    app.input(Input::Key('q'));
    assert!(app.quit);
}

#[test]
fn a_screen_becomes_a_picture() {
    let mut app = replayed(None);
    let picture = svg(&shown(&mut app, 100, 30, Palette::Colour), "a <title>");
    assert!(picture.starts_with("<svg") && picture.contains("&lt;title&gt;") && picture.ends_with("</svg>\n"));
    let empty = svg(&Buffer::empty(Rect::new(0, 0, 3, 2)), "");
    assert!(!empty.contains("<text"));
}
