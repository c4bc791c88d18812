//! `numapilot top`: shows the machine live on the terminal, or writes a picture of the screen.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_kernel::task::why_absent;
use numapilot_machine::Machine;
use numapilot_watch::live::Live;
use numapilot_watch::live::LiveOptions;
use numapilot_watch::live::counters::Scope;
use numapilot_watch::live::samples::Sampling;
use numapilot_watch::replay;
use numapilot_watch::replay::ReplayOptions;
use numapilot_watch::top;
use numapilot_watch::top::Input;
use numapilot_watch::top::LiveSource;
use numapilot_watch::top::Palette;
use numapilot_watch::top::ReplaySource;
use numapilot_watch::top::Source;
use numapilot_watch::top::TopOptions;

use super::ctl::default_socket;
use super::group::group;
use super::group::require_memory;
use crate::args::Colour;
use crate::args::TopArgs;
use crate::output;

/// Updates before a snapshot: the first has no earlier reading to compare with.
const SNAPSHOT_UPDATES: u64 = 3;

/// Shows the screen, or a picture of it.
pub fn run(arguments: &TopArgs) -> Result<ExitCode> {
    if arguments.snapshot.is_none()
        && let Some(why) = no_screen(std::io::stdout().is_terminal(), std::env::var_os("TERM").as_deref())
    {
        bail!("{why}; `numapilot stat -I 1` prints lines, `top --snapshot FILE` a picture");
    }
    let mut source: Box<dyn Source> = match &arguments.replay {
        Some(trace) => Box::new(ReplaySource::new(replayed(arguments, trace)?)),
        None => {
            let socket = arguments.socket.clone().unwrap_or_else(default_socket);
            let group = group(&Root::default(), &arguments.pid, &arguments.group, false)?;
            require_memory(&Root::default(), &arguments.pid)?;
            let is_shown = |pid: Pid| Root::default().text(&format!("proc/{pid}/stat")).is_some();
            if let Some(pid) = arguments.pid.iter().copied().find(|pid| !is_shown(*pid)) {
                return Err(anyhow!(why_absent(pid)));
            }
            Box::new(LiveSource::new(live()?, socket).with_group(group))
        }
    };
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let palette = match arguments.color {
        Colour::Never => Palette::Plain,
        Colour::Auto if is_plain => Palette::Plain,
        _ => Palette::Colour,
    };
    if let Some(path) = &arguments.snapshot {
        let picture = snapshot(source.as_mut(), arguments, palette);
        return output::write_file(path, &picture).map(|()| ExitCode::SUCCESS);
    }
    let options = TopOptions { interval: arguments.interval, palette, count: arguments.count };
    let signal = top::run(source.as_mut(), &options).context("the terminal")?;
    Ok(signal.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))))
}

/// Why the screen cannot be shown; `None`: it can.
fn no_screen(is_terminal: bool, kind: Option<&OsStr>) -> Option<&'static str> {
    match is_terminal {
        false => Some("top needs a terminal"),
        true if output::is_dumb(kind) => {
            Some("top needs a terminal that places text, and TERM says that this one is dumb")
        }
        true => None,
    }
}

fn live() -> Result<Live> {
    // The checks of `doctor` take too long for the start of `top`.
    let options = LiveOptions {
        scope: Some(Scope::System),
        sampling: Sampling::Accesses,
        no_pmu: None,
        no_latency: "no counter measures latencies here; `numapilot record --engine pmu` samples them".to_owned(),
    };
    Ok(Live::open(Root::default(), Machine::live()?, &options))
}

fn replayed(arguments: &TopArgs, trace: &std::path::Path) -> Result<replay::Replay> {
    let machine = arguments.machine.as_deref().map(Machine::load).transpose().context("--machine")?;
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let options = ReplayOptions {
        policy: arguments.policy.clone(),
        interval_ns: nanoseconds(arguments.interval),
        length_ns: arguments.run_for.map(nanoseconds),
        seed: 1,
    };
    Ok(replay::replay(trace, machine, &options)?)
}

fn snapshot(source: &mut dyn Source, arguments: &TopArgs, palette: Palette) -> String {
    let mut app = top::App::new(source.machine().clone(), source.label(), source.notes());
    let updates = arguments.count.unwrap_or(SNAPSHOT_UPDATES);
    let is_live = arguments.replay.is_none();
    let mut update = |app: &mut top::App, pause: bool| {
        if pause && is_live {
            std::thread::sleep(arguments.interval);
        }
        if let Some(frame) = source.next(app.detail()) {
            app.update(frame);
        }
    };
    (0..updates).for_each(|index| update(&mut app, index > 0));
    for key in arguments.keys.chars() {
        app.input(if key == '\r' || key == '\n' { Input::Enter } else { Input::Key(key) });
    }
    // A view that the keys opened has no readings yet, and its evidence providers need several updates.
    let more = if app.detail().is_none() {
        0
    } else if is_live {
        SNAPSHOT_UPDATES + 1
    } else {
        1
    };
    (0..more).for_each(|_| update(&mut app, true));
    let (columns, rows) = arguments.size;
    top::picture(&mut app, palette, columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal of an editor was filled with control sequences.
    #[test]
    fn a_terminal_that_cannot_place_text_is_refused() {
        let of = |is_terminal, kind: &str| no_screen(is_terminal, Some(OsStr::new(kind)));
        assert!(of(true, "dumb").is_some_and(|why| why.contains("TERM")));
        assert_eq!((of(true, "xterm-256color"), no_screen(true, None)), (None, None));
        assert_eq!([of(false, "xterm"), of(false, "dumb")], [Some("top needs a terminal"); 2]);
    }
}
