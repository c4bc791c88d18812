//! A panic while the screen is shown: the terminal is given back first, so that the message can be read. The test runs itself again on a pseudo-terminal,
//! with a source that panics.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use numapilot_machine::Machine;
use numapilot_watch::replay::Frame;
use numapilot_watch::top::Palette;
use numapilot_watch::top::Source;
use numapilot_watch::top::TopOptions;
use numapilot_watch::top::run;

const VARIABLE: &str = "NUMAPILOT_TEST_PANICS";
const WORDS: &str = "a source that panics";

struct Panics(Machine, u32);

impl Source for Panics {
    fn machine(&self) -> &Machine {
        &self.0
    }

    fn label(&self) -> String {
        "before the panic".to_owned()
    }

    fn next(&mut self, _: Option<u32>) -> Option<Frame> {
        self.1 += 1;
        assert!(self.1 < 3, "{WORDS}");
        Some(Frame::default())
    }
}

/// Does nothing unless the other test starts it, on a terminal of its own.
#[test]
fn child() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let mut source = Panics(Machine::load("opteron-8385").unwrap(), 0);
    let options = TopOptions { interval: Duration::from_millis(20), palette: Palette::Plain, count: None };
    let _ = run(&mut source, &options);
}

fn settings(terminal: &OwnedFd) -> (libc::tcflag_t, libc::tcflag_t) {
    // SAFETY: an all-zero termios is a valid value, which the call fills.
    let termios = unsafe {
        let mut termios: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut termios), 0);
        termios
    };
    (termios.c_lflag, termios.c_iflag)
}

#[test]
fn a_panic_gives_the_terminal_back_before_its_message() {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: two places for descriptors; no name, settings or size.
    let made =
        unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), std::ptr::null()) };
    assert_eq!(made, 0, "openpty: {}", std::io::Error::last_os_error());
    // SAFETY: both are open and ours alone.
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let before = settings(&theirs);
    let side = || Stdio::from(theirs.try_clone().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["child", "--exact", "--nocapture"]).env(VARIABLE, "1").env("TERM", "xterm-256color");
    let mut child = child.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
    let mut reader = File::from(ours);
    let output = std::thread::spawn(move || {
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            all.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8_lossy(&all).into_owned()
    });
    assert!(!child.wait().unwrap().success(), "it panicked");
    assert_eq!(settings(&theirs), before, "the line discipline is as it was");
    drop(theirs);
    let output = output.join().unwrap();
    let at = |what: &str| output.find(what).unwrap_or_else(|| panic!("no {what:?} in {output:?}"));
    let (taken, left, shown, told) = (at("\x1b[?1049h"), at("\x1b[?1049l"), at("\x1b[?25h"), at(WORDS));
    assert!(taken < left && left < told && shown < told, "{output:?}");
}
