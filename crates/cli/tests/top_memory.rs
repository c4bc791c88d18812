//! An opened process in `top`: its hottest memory by samples of this kernel's events.

use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use crate::common::*;

const SOURCE: &str = include_str!("programs/again.c");
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends when this is dropped, because its standard input closes.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let began = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(folder: &Path) -> PathBuf {
    build_plain(folder, "again", SOURCE, &["-g", "-O1"])
}

/// The number that the program has written by now.
fn number_in(file: &Path) -> u32 {
    let began = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(file) {
            return text.trim().parse().expect("a number");
        }
        assert!(began.elapsed() < PATIENCE, "the program does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The screen's text with this process opened, `o` pressed this many times; tried until it holds `words`, or for a while.
fn opened(folder: &Path, pid: u32, options: &[&str], words: &str) -> String {
    let picture = folder.join("top.svg");
    let began = Instant::now();
    // Evidence providers run beside the screen and answer late on a busy machine, so each attempt waits longer.
    for looks in [6, 12, 24, 48, 96] {
        let mut command = numapilot(&["top", "--interval", "700ms", "--size", "110x40"]);
        command.arg("--count").arg(looks.to_string());
        command.arg("--keys").arg(format!("/{pid}\r\r")).args(options).arg("--snapshot").arg(&picture);
        finish(&mut command).succeeded();
        let text = std::fs::read_to_string(&picture).expect("the picture").replace('\u{a0}', " ");
        if text.contains(words) || began.elapsed() > PATIENCE {
            return text;
        }
    }
    std::fs::read_to_string(&picture).expect("the picture").replace('\u{a0}', " ")
}

fn faults_can_be_sampled() -> bool {
    let ran = run(&["stat", "--json", "--", "true"]);
    let value: serde_json::Value = serde_json::from_str(&ran.stderr).expect("JSON");
    if value["samples"].is_null() {
        numapilot_not_run::not_run!(PageFaultEvents, "{}", value["notes"]);
    }
    !value["samples"].is_null()
}

#[test]
fn the_hottest_memory_of_a_process_is_told_by_its_faults() {
    if !faults_can_be_sampled() {
        return;
    }
    let folder = scratch();
    let file = folder.path().join("pid");
    let _running = Running::start(Command::new(program(folder.path())).arg(&file));
    let pid = number_in(&file);
    let screen = opened(folder.path(), pid, &[], "sampled page faults");
    assert!(screen.contains("memory, by sampled page faults"), "{screen}");
    assert!(screen.contains("first touches"), "it says what faults are: {screen}");
    // The block is a mapping of its own, and nearly all faults are on it.
    // Of each row the pieces that look different are texts of their own, at the same height.
    let height = |line: &str| line.split(" y=\"").nth(1).and_then(|rest| rest.split('"').next().map(str::to_owned));
    let name = screen.lines().find(|line| line.contains("anonymous 0x")).unwrap_or_else(|| panic!("{screen}"));
    let row = |line: &&str| height(line) == height(name) && line.contains(" %</text>");
    let row = screen.lines().find(row).unwrap_or_else(|| panic!("{screen}"));
    // Where it is nearly all, above what is shown: ">99.9 %".
    let figure = |text: &str| text.split('%').next()?.trim().trim_start_matches("&gt;").parse::<f64>().ok();
    let share = row.split('>').nth(1).and_then(figure);
    let share = share.unwrap_or_else(|| panic!("{row}"));
    assert!(share > 80.0, "{share} % in {row}");
}
