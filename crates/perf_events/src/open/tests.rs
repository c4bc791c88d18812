//! Events on this machine, where the kernel allows any.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::fd::RawFd;
use std::process::Command;
use std::process::Stdio;

use numapilot_perf::Record;
use numapilot_perf::SideBand;

use super::*;
use crate::ring::Records;

const SIZE: RingSize = RingSize { bytes: 256 << 10 };

/// Samples with an address, names by exec, and bytes that are no records.
fn read(set: &mut EventSet) -> (usize, usize, usize) {
    let (mut samples, mut execs, mut bad) = (0, 0, 0);
    for ring in &mut set.rings {
        let mut bytes = Vec::new();
        bad += usize::try_from(ring.ring.take(&mut bytes)).unwrap();
        let mut records = Records::new(&bytes);
        for (header, body) in records.by_ref() {
            match set.session.decode(header, body, 0).unwrap() {
                Record::Sample(event, sample) => {
                    assert_eq!(EventSet::request_of(event), Some(0));
                    samples += usize::from(sample.addr.unwrap() != 0);
                    // Where another program, or another test, has an event of the same page fault, both samples may have that one's id (`Doubles`).
                    let Some(origin) = set.origins.get(&sample.identifier.unwrap()) else { continue };
                    assert_eq!((origin.request, Some(origin.cpu)), (1, sample.cpu));
                }
                Record::SideBand(SideBand::Comm { by_exec, .. }, _) => execs += usize::from(by_exec),
                Record::SideBand(..) => {}
            }
        }
        bad += records.rest();
    }
    (samples, execs, bad)
}

#[test]
fn a_started_program_is_seen_from_its_exec_on() {
    let request = EventRequest::page_faults(true, 16);
    let mut set = match EventSet::open(&[request], &Scope::Children, SIZE) {
        Ok(set) => set,
        Err(error) => return numapilot_not_run::not_run!(PageFaultEvents, "{error}"),
    };
    assert!(Command::new("true").status().unwrap().success());
    let (samples, execs, bad) = read(&mut set);
    assert_eq!((execs, bad), (1, 0));
    // The loader alone has dozens.
    assert!(samples > 20, "{samples} faults");
}

#[test]
fn a_running_process_is_seen_once_it_is_looked_at() {
    let script = "read x; for i in 1 2 3 4; do /bin/true; done";
    let mut child = Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let request = EventRequest::page_faults(true, 16);
    let mut set = match EventSet::open(&[request], &Scope::Processes(vec![Pid::of_child(&child)]), SIZE) {
        Ok(set) => set,
        Err(error) => {
            drop(child.stdin.take());
            child.wait().unwrap();
            return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
        }
    };
    assert!(set.tasks.contains(&Tid::first_of(Pid::of_child(&child))));
    set.enable();
    drop(child.stdin.take());
    child.wait().unwrap();
    let (samples, execs, bad) = read(&mut set);
    assert!(samples > 20 && execs > 0 && bad == 0, "{samples} faults, {execs} programs, {bad} bad bytes");
}

#[test]
fn the_side_band_can_be_on_alone() {
    let script = "read x; /bin/true; read x";
    let mut child = Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let request = EventRequest::page_faults(true, 16);
    let mut set = match EventSet::open(&[request], &Scope::Processes(vec![Pid::of_child(&child)]), SIZE) {
        Ok(set) => set,
        Err(error) => {
            child.kill().unwrap();
            child.wait().unwrap();
            return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
        }
    };
    set.enable_side_band();
    drop(child.stdin.take());
    child.wait().unwrap();
    let (samples, execs, bad) = read(&mut set);
    assert!(samples == 0 && execs > 0 && bad == 0, "{samples} faults, {execs} programs, {bad} bad bytes");
}

#[test]
fn of_several_processes_one_that_is_gone_is_left_out_and_one_that_joins_is_added() {
    let script = "read x; for i in 1 2 3 4; do /bin/true; done";
    let start = || Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let (mut first, mut second) = (start(), start());
    let request = EventRequest::page_faults(true, 16);
    let scope = Scope::Processes([&gone, &first].map(Pid::of_child).to_vec());
    let mut set = match EventSet::open(&[request], &scope, SIZE) {
        Ok(set) => set,
        Err(error) => {
            for child in [&mut first, &mut second] {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
        }
    };
    assert!(set.tasks.contains(&Tid::first_of(Pid::of_child(&first))) && set.refused.is_empty());
    set.enable();
    assert!(set.add(Pid::of_child(&second)).unwrap() && !set.add(Pid::of_child(&gone)).unwrap());
    drop(second.stdin.take());
    second.wait().unwrap();
    let (samples, execs, bad) = read(&mut set);
    assert!(samples > 20 && execs > 0 && bad == 0, "{samples} faults, {execs} programs, {bad} bad bytes");
    drop(first.stdin.take());
    first.wait().unwrap();
    assert!(read(&mut set).0 > 20);
}

/// The kernel turns an event off whose AUX area is full; here it was turned off by hand.
#[test]
fn an_event_that_had_stopped_goes_on() {
    let request = EventRequest::page_faults(true, 16);
    // A process of its own, which starts a program for each line that it is sent: threads of other tests come and go.
    let mut shell = Command::new("sh")
        .args(["-c", "while read line; do env true; echo; done"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut keyboard = shell.stdin.take().unwrap();
    let scope = Scope::Processes(vec![Pid::of_child(&shell)]);
    let mut set = match EventSet::open(&[request], &scope, SIZE) {
        Ok(set) => set,
        Err(error) => {
            drop(keyboard);
            shell.wait().unwrap();
            return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
        }
    };
    let mut fresh = |set: &mut EventSet| {
        read(set);
        keyboard.write_all(b"\n").unwrap();
        lines.next().unwrap().unwrap();
        read(set).0
    };
    set.enable();
    assert!(fresh(&mut set) > 0);
    set.disable();
    assert_eq!(fresh(&mut set), 0);
    let cpus: Vec<CpuId> = set.rings.iter().map(|ring| ring.cpu).collect();
    set.restart_aux(cpus[0]);
    assert_eq!(fresh(&mut set), 0, "none has an area");
    let fds = set.rings.iter().map(|ring| &ring.fd).chain(&set.others).map(AsRawFd::as_raw_fd);
    let fds: Vec<RawFd> = fds.collect();
    set.with_aux = cpus.iter().flat_map(|&cpu| fds.iter().map(move |&fd| (cpu, fd))).collect();
    set.restart_aux(cpus[0]);
    assert!(fresh(&mut set) > 0);
    drop(keyboard);
    shell.wait().unwrap();
}

#[test]
fn a_process_that_is_gone_is_an_error_with_its_number() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let error = EventSet::open(&[], &Scope::Processes(vec![Pid::of_child(&child)]), SIZE).unwrap_err();
    assert!(error.to_string().contains(&format!("no process {}", child.id())), "{error}");
}

/// Nothing was recorded on a CPU any more that had been offline for a while.
#[test]
fn events_of_a_cpu_that_were_opened_anew_record_on() {
    let request = EventRequest::page_faults(true, 16);
    let mut set = match EventSet::open(&[request], &Scope::System, SIZE) {
        Ok(set) => set,
        Err(error) => return numapilot_not_run::not_run!(PageFaultEvents, "{error}"),
    };
    set.enable();
    set.watch_cpus();
    let sizes = |set: &EventSet| (set.count(), set.side_band.len(), set.rings.len());
    let before = sizes(&set);
    assert!(set.follow_cpus().is_empty(), "there is nothing to compare with");
    let cpus: Vec<CpuId> = set.rings.iter().map(|ring| ring.cpu).collect();
    for cpu in cpus {
        set.reopen(cpu).unwrap();
        assert_eq!(sizes(&set), before, "the old ones are closed");
    }
    assert!(set.returned_cpus().is_empty(), "they run");
    assert!(Command::new("true").status().unwrap().success());
    let (samples, execs, bad) = read(&mut set);
    assert!(samples > 20 && execs > 0 && bad == 0, "{samples} faults, {execs} programs, {bad} bad bytes");
}

/// The time before all events were on was taken off the times of new ones, which begin at 0.
#[test]
fn events_of_a_cpu_that_are_opened_anew_have_no_time_before() {
    let (gone, kept) = ((SIDE_BAND, CpuId(0)), (SIDE_BAND, CpuId(1)));
    let mut set = EventSet { before: [(gone, 5), (kept, 7)].into(), ..EventSet::default() };
    set.close_cpu(CpuId(0));
    let before: Vec<_> = set.before.into_iter().collect();
    assert_eq!(before, [(kept, 7)]);
}
