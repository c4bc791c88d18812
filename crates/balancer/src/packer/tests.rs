//! A step that is told to stop.

use super::*;
use crate::control_port::tests::Desk;

#[test]
fn a_stop_within_a_step_ends_its_work_and_what_is_left_is_done_by_the_next() {
    let pid = Pid::own();
    let who = Who::Group(Group::Processes(vec![pid]));
    let mut packer =
        Packer::new(Machine::live().unwrap(), Options { who, dry_run: true, ..Options::default() }).unwrap();
    let mut desk = Desk::default();
    packer.watched.insert(pid, Watched::new(pid).unwrap());
    packer.pressure = crate::system::pressure::tests::high();
    packer.publish(&mut desk);
    let status = desk.status.take().unwrap();
    assert!(status.is_put_off && status.pressure.len() == 1);
    let target = &status.targets[0];
    let unknown = [status.pages_known, target.threads, target.samples, target.moved_bytes];
    assert_eq!(unknown, [None; 4], "what the packer does not count is no 0");
    assert!(packer.look_at_memory(&[pid], &mut desk) && desk.alive == 1);
    let unit = Unit::Process(pid);
    // On all nodes: nothing of this process is bound or moved.
    let mut held = Held::default();
    held.nodes = NodeSet::all(64);
    packer.held.insert(unit.clone(), held);
    desk.tell(Command::Stop);
    let placed = packer.place(&unit, &[pid], &mut desk);
    assert!(placed.is_ended && placed.threads == 0 && packer.held[&unit].is_unfinished);
    assert!(!packer.look_at_memory(&[pid], &mut desk), "the stop is not lost");
    assert_eq!(packer.wait(&mut desk), Some("a signal".to_owned()));
    let placed = packer.place(&unit, &[pid], &mut desk);
    assert!(!placed.is_ended && !packer.held[&unit].is_unfinished);
    packer.end("the test is over".to_owned(), &mut desk);
}

/// Only the processes of the last step were counted.
#[test]
fn a_user_adds_no_more_processes_than_are_allowed() {
    let (own, stranger) = (Pid::own(), u32::MAX - 7);
    let who = Who::Group(Group::Processes(vec![own]));
    let mut packer =
        Packer::new(Machine::live().unwrap(), Options { who, dry_run: true, ..Options::default() }).unwrap();
    for number in 0..TARGETS_PER_USER as u32 {
        let mut one = Watched::new(own).unwrap();
        one.target.uid = stranger;
        packer.watched.insert(Pid(u32::MAX - number), one);
    }
    let target = Watched::new(own).unwrap().target;
    let [of_stranger, of_signal] = [Some(stranger), None].map(|who| packer.add_for(who, &target, &mut Desk::default()));
    assert!(of_stranger.is_err_and(|why| why.contains("64 of your processes")));
    assert_eq!(of_signal.as_deref(), Ok("added"));
}

/// A shell that starts a child when it is told to, so that there is time to bind it before. Both end with this.
pub(super) struct Shell {
    shell: std::process::Child,
    child: Option<Pid>,
}

impl Shell {
    pub(super) fn start() -> Shell {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "read x; sleep 100 & echo $!; wait"]);
        shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        Shell { shell: shell.spawn().unwrap(), child: None }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::of_child(&self.shell)
    }

    pub(super) fn start_child(&mut self) -> Pid {
        std::io::Write::write_all(self.shell.stdin.as_mut().unwrap(), b"\n").unwrap();
        let mut line = String::new();
        let told = self.shell.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(told), &mut line).unwrap();
        let child = line.trim().parse().unwrap();
        self.child = Some(child);
        child
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(child) = self.child {
            // SAFETY: a signal to the shell's child, which nobody has waited for: the shell waits in vain.
            unsafe { libc::kill(child.0.cast_signed(), libc::SIGKILL) };
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn an_idle_child_gets_back_what_its_placed_parent_had() {
    use numapilot_host::Tid;

    use crate::execution::binding;
    let all = affinity::of_thread(Tid::first_of(Pid::own())).unwrap();
    if all.cpus().len() < 2 {
        return numapilot_not_run::not_run!(TwoCpus, "one CPU leaves nothing to bind");
    }
    let mut shell = Shell::start();
    let pid = shell.pid();
    let mut desk = Desk::default();
    let first = all.cpus().into_iter().take(1).collect();
    let start_ticks = task::stat(pid).unwrap().start_ticks;
    let id = crate::system::undo_log::ThreadId { pid, tid: Tid::first_of(pid), start_ticks };
    let bound = binding::planned(id, None, &first, None, &mut Vec::new()).unwrap();
    let mut held = Held::default();
    held.bind(bound, &mut desk);
    let child = shell.start_child();
    assert_eq!(affinity::of_thread(Tid::first_of(child)).unwrap(), first, "inherited");
    let who = Who::Group(Group::Processes(vec![pid]));
    let mut packer =
        Packer::new(Machine::live().unwrap(), Options { who, dry_run: true, ..Options::default() }).unwrap();
    packer.held.insert(Unit::Process(pid), held);
    packer.end("the test is over".to_owned(), &mut desk);
    let now = [pid, child].map(|pid| affinity::of_thread(Tid::first_of(pid)).unwrap());
    assert_eq!(now, [all.clone(), all]);
}
