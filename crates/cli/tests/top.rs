//! `numapilot top` on a real terminal: a pseudo-terminal with the program on one side and a terminal emulator on the other. What it shows, what keys do, and
//! that the terminal is left as it was, whatever ends it.

use std::fs::File;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::common::*;

const ROWS: u16 = 24;
const COLUMNS: u16 = 80;
const PATIENCE: Duration = Duration::from_secs(60);

/// The program on a terminal of its own.
struct Session {
    child: Child,
    keyboard: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    terminal: OwnedFd,
    before: String,
    began: Instant,
}

impl Session {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Session {
        Session::of("top", arguments, environment)
    }

    fn of(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Session {
        let (mut ours, mut theirs) = (0, 0);
        let size = libc::winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: two places for descriptors and a size; no name and no settings.
        let made = unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(made, 0, "openpty: {}", std::io::Error::last_os_error());
        // SAFETY: both are open and ours alone.
        let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        for fd in [&ours, &theirs] {
            // SAFETY: a flag of a descriptor of ours: no other test's child may hold it.
            unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        let before = settings(&theirs);
        let side = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        let mut command = Command::new(BINARY);
        command.arg(name).args(arguments).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.envs(environment.iter().copied()).stdin(side()).stdout(side()).stderr(side());
        // A group of its own, whose parent is in another one: SIGTSTP stops nobody in a group that no shell looks after, such as a build server's.
        command.process_group(0);
        // Signals end it as they end what a shell starts in the foreground, however these tests were started: what the caller ignores stays ignored.
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        let began = Instant::now();
        let child = command.spawn().expect("the program starts");
        let mut reader = File::from(ours.try_clone().expect("a descriptor"));
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading ends with an error once no side is held open any more.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        let screen = vt100::Parser::new(ROWS, COLUMNS, 0);
        Session { child, keyboard: File::from(ours), output, screen, terminal: theirs, before, began }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the keyboard");
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Reads output until the screen meets the condition.
    fn wait(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) -> Duration {
        let began = Instant::now();
        while !is_so(self.screen.screen()) {
            assert!(began.elapsed() < PATIENCE, "no {what} on the screen:\n{}", self.text());
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(100)) {
                self.screen.process(&bytes);
            }
        }
        self.began.elapsed()
    }

    fn wait_for(&mut self, words: &str) -> Duration {
        let words = words.to_owned();
        self.wait(&words, |screen| screen.contents().contains(&words))
    }

    fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a pid");
        // SAFETY: a signal to our own child.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// All that the program writes until its end.
    fn written(mut self) -> String {
        let (began, mut bytes) = (Instant::now(), Vec::new());
        loop {
            let has_ended = self.child.try_wait().expect("a status").is_some();
            while let Ok(more) = self.output.recv_timeout(Duration::from_millis(200)) {
                bytes.extend(more);
            }
            // The thread that reads may be late on a busy machine.
            if has_ended && !bytes.is_empty() {
                return String::from_utf8_lossy(&bytes).into_owned();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end, or writes nothing");
        }
    }

    /// Waits for the program's end: its exit code, after a check that the terminal is restored.
    fn end(mut self) -> i32 {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        };
        // What it wrote last may be read late on a busy machine; and whatever it wrote after that counts, too.
        self.wait("screen given back", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(200)) {
            self.screen.process(&bytes);
        }
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "the screen is given back");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None, "the mouse is given back");
        assert_eq!(settings(&self.terminal), self.before, "the terminal's settings are as they were");
        status.code().unwrap_or(-1)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The line discipline's settings, as text.
fn settings(terminal: &OwnedFd) -> String {
    // SAFETY: an all-zero termios is a valid value, which the call fills.
    let termios = unsafe {
        let mut termios: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut termios), 0);
        termios
    };
    format!(
        "{:x} {:x} {:x} {:x} {:?}",
        termios.c_iflag, termios.c_oflag, termios.c_cflag, termios.c_lflag, termios.c_cc
    )
}

#[test]
fn the_running_machine_is_shown_and_keys_work() {
    let mut session = Session::start(&["--interval", "200ms"], &[]);
    let started = session.wait_for("numapilot top");
    eprintln!("first picture after {started:?}");
    session.wait_for("┌ node");
    session.wait_for("threads");
    session.press("?");
    session.wait_for("Any key closes this");
    session.press("x");
    session.wait("help closed", |screen| !screen.contents().contains("Any key closes this"));
    session.press("2");
    session.wait_for("not available here, because");
    // Found by its process ID, because other processes may have the same name.
    let pid = session.child.id();
    session.press(&format!("3/{pid}"));
    session.wait_for(&format!("filter: {pid}"));
    session.press("\r");
    session.wait("only this program", |screen| {
        let contents = screen.contents();
        let mut rows =
            contents.lines().skip(2).take_while(|row| !row.starts_with("q end")).filter(|row| !row.trim().is_empty());
        rows.clone().count() >= 1 && rows.all(|row| row.contains("numapilot"))
    });
    session.press("\r");
    // By sampled page faults first, once there are some; by node else.
    session.wait_for("memory, by ");
    session.wait_for("heap [heap]");
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn a_replayed_trace_is_shown_and_mouse_and_colour_are_as_wished() {
    let trace = root().join("testdata/traces/mg.numatrace");
    let arguments = ["--replay", trace.to_str().expect("a path"), "--machine", "opteron-8385", "--interval", "50ms"];
    let mut session = Session::start(&arguments, &[("NO_COLOR", "1")]);
    session.wait_for("SIMULATED mg on opteron-8385");
    session.wait_for("at its end");
    // The wheel and clicks, as xterm reports them (SGR): the process's row is the last of the table.
    session.wait_for(" mg");
    let row = session.text().lines().position(|row| row.trim_end().ends_with(" mg")).expect("the process") + 1;
    session.press(&format!("\x1b[<0;10;{row}M\x1b[<0;10;{row}m"));
    session.wait_for("objects, by memory accesses");
    session.wait_for("(mg.c:");
    let screen = session.screen.screen();
    let is_coloured = (0..ROWS).flat_map(|row| (0..COLUMNS).filter_map(move |column| screen.cell(row, column)));
    assert!(is_coloured.into_iter().all(|cell| cell.fgcolor() == vt100::Color::Default), "NO_COLOR");
    session.press("\x03");
    assert_eq!(session.end(), 0);
}

#[test]
fn signals_and_suspension_leave_the_terminal_as_it_was() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut session = Session::start(&["--interval", "100ms"], &[]);
        session.wait_for("numapilot top");
        session.signal(signal);
        assert_eq!(session.end(), 128 + signal);
    }
    let mut session = Session::start(&["--interval", "100ms"], &[]);
    session.wait_for("numapilot top");
    session.signal(libc::SIGTSTP);
    session.wait("the screen given back", |screen| !screen.alternate_screen());
    // A stopped process writes nothing; its terminal is as it was. (The screen goes back a moment before its settings do.)
    let deadline = Instant::now() + PATIENCE;
    while settings(&session.terminal) != session.before && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(settings(&session.terminal), session.before);
    session.signal(libc::SIGCONT);
    session.wait("the screen taken again", vt100::Screen::alternate_screen);
    session.wait_for("numapilot top");
    session.press("q");
    assert_eq!(session.end(), 0);
}

/// A terminal that prints what would control it showed colours, and what would clear it, as text.
#[test]
fn a_dumb_terminal_gets_no_control_sequences() {
    let written = |kind: &str| Session::of("topo", &[], &[("TERM", kind)]).written();
    let (plain, coloured) = (written("dumb"), written("xterm-256color"));
    assert!(plain.contains("node") && !plain.contains('\u{1b}'), "{plain:?}");
    assert!(coloured.contains('\u{1b}'), "{coloured:?}");
    // Nor the line that moves while a report is made.
    let trace = root().join("testdata/traces/mg.numatrace").display().to_string();
    let report = Session::of("report", &[&trace], &[("TERM", "dumb")]).written();
    assert!(report.contains("mg") && !report.contains('\u{1b}'), "{report:?}");
}

#[test]
fn without_a_terminal_it_says_what_to_do_and_a_picture_needs_none() {
    let ran = run(&["top"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("stat -I 1") && ran.stderr.contains("--snapshot"), "{}", ran.stderr);
    let folder = scratch();
    let picture = folder.path().join("top.svg");
    let file = picture.to_str().expect("a path");
    run(&["top", "--interval", "50ms", "--snapshot", file, "--keys", "2", "--size", "90x20"]).succeeded();
    let text = std::fs::read_to_string(&picture).expect("the picture");
    assert!(text.contains("numapilot\u{a0}top") && text.trim_end().ends_with("</svg>"), "{text}");
}
