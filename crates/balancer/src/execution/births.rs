//! Processes that managed ones have started, by the kernel's records: they join, or are not to keep what they have inherited.

use std::collections::BTreeSet;

use numapilot_host::Pid;
use numapilot_kernel::KernelError;

use crate::event::Target;
use crate::execution::binding;
use crate::system::fault_sampler::News;
use crate::system::targets::LeftOut;
use crate::system::targets::Started;
use crate::system::targets::Targets;

/// A process that has inherited events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heir {
    /// Process id.
    pub pid: Pid,
    /// The process that started it; `None`: this one.
    pub parent: Option<Pid>,
    /// When it started, in clock ticks since boot; `None`: not known.
    pub start_ticks: Option<u64>,
}

/// What records of new processes led to.
#[derive(Debug, Default)]
pub struct Births {
    /// Processes that are managed from now on.
    pub added: Vec<Target>,
    /// Processes that have inherited events, in order of time.
    pub heirs: Vec<Heir>,
    /// Number of processes that could not be managed: a limit was reached, or the kernel refused.
    pub left_out: u64,
    /// Why, each reason once.
    pub troubles: BTreeSet<String>,
}

/// Takes in the processes that managed ones have started. `takes_children`: they are managed; otherwise they only lose what binds them.
pub fn take_in(targets: &mut Targets, news: &[(u64, News)], takes_children: bool) -> Births {
    let mut births = Births::default();
    for (_, news) in news {
        let News::Fork { pid, parent } = news else { continue };
        let started = targets.started(*pid, *parent, takes_children);
        let start_ticks = targets.all.get(pid).map(|managed| managed.target.start_ticks);
        let heir = Heir { pid: *pid, parent: Some(*parent), start_ticks };
        match started {
            Started::Elsewhere => {}
            Started::Joined(target) => {
                births.heirs.push(heir);
                births.added.extend(target);
            }
            // What it has started before it ended inherits from it.
            Started::Ended => births.heirs.push(heir),
            Started::LeftOut { bindings, why } => {
                binding::release_unseen(*pid, |_| false, &bindings);
                births.left_out += u64::from(!matches!(why, LeftOut::Unwanted));
                births.troubles.extend(message(&why));
                if matches!(why, LeftOut::Refused(_)) {
                    births.heirs.push(heir);
                }
            }
        }
    }
    births
}

/// What is said of a reason; none of those that name single processes, which would be as many messages.
fn message(why: &LeftOut) -> Option<String> {
    match why {
        LeftOut::UserIsFull(uid) => Some(format!(
            "user {uid} has reached the limit of managed processes: further ones that these start are not managed"
        )),
        LeftOut::Refused(KernelError::TooMany { limit, .. }) => Some(format!(
            "{limit} processes are managed, which is the limit: further ones that these start are not managed"
        )),
        LeftOut::Refused(error @ KernelError::Call { .. }) => {
            Some(format!("processes that managed ones start are not managed: {error}"))
        }
        LeftOut::Unwanted | LeftOut::Refused(_) => None,
    }
}

#[cfg(test)]
mod tests {
    //! Shells that are bound, and what they start.

    use std::process::Command;

    use numapilot_host::Tid;
    use numapilot_kernel::affinity;
    use numapilot_kernel::affinity::CpuMask;
    use numapilot_machine::Machine;
    use numapilot_machine::NodeIndex;

    use super::*;
    use crate::execution::binding::Binder;
    use crate::execution::binding::Moves;
    use crate::execution::binding::ThreadOrder;
    use crate::execution::binding::tests::Killed;
    use crate::execution::binding::tests::Sleeper;
    use crate::execution::binding::tests::binder;
    use crate::execution::binding::tests::shell;
    use crate::execution::binding::tests::started_by;
    use crate::system::undo_log::tests::Kept;

    /// A managed shell that is bound to one CPU, and what it has started since.
    struct BoundShell {
        shell: Sleeper,
        targets: Targets,
        binder: Binder,
        undo_log: Kept,
        moves: Moves,
        /// The shell's affinity before it was bound.
        all: CpuMask,
        heir: Killed,
    }

    impl BoundShell {
        /// `None`: this machine has one CPU.
        fn by(words: &str) -> Option<BoundShell> {
            let (mut shell, mut targets, all, thread) = shell(words)?;
            let (cpus, mut undo_log) = (all.cpus(), Kept::default());
            let binder = binder(&[&cpus[..1]]);
            let moves = binder.carry_out(&[ThreadOrder { thread, to: NodeIndex(0) }], &mut targets, &mut undo_log);
            let heir = Killed(started_by(&mut shell));
            assert_eq!(affinity::of_thread(Tid::first_of(heir.0)).unwrap().cpus(), cpus[..1], "the kernel's rule");
            Some(BoundShell { shell, targets, binder, undo_log, moves, all, heir })
        }

        fn pid(&self) -> Pid {
            Pid::of_child(&self.shell.0)
        }

        fn heir_may_run_on(&self) -> CpuMask {
            affinity::of_thread(Tid::first_of(self.heir.0)).unwrap()
        }

        fn look(&mut self) {
            self.targets.look(&Machine::live().unwrap());
            assert_eq!(binding::adopt(&mut self.targets, &mut self.undo_log), Vec::<String>::new());
        }
    }

    /// The id of a process that has ended.
    fn ended() -> Pid {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        Pid::of_child(&child)
    }

    fn forks(forks: &[(Pid, Pid)]) -> Vec<(u64, News)> {
        forks.iter().map(|(pid, parent)| (0, News::Fork { pid: *pid, parent: *parent })).collect()
    }

    /// Daemons start so, and commands behind a shell's ampersand: the process between has ended before it is heard of. What it had started was not managed,
    /// and stayed bound for good.
    #[test]
    fn what_a_short_lived_process_has_started_is_managed_and_released_with_its_ancestor() {
        let Some(mut bound) = BoundShell::by("read x; (sleep 100 & echo $!); read y") else { return };
        let (heir, between, parent) = (bound.heir.0, ended(), bound.pid());
        let births = take_in(&mut bound.targets, &forks(&[(between, parent), (heir, between)]), true);
        let added: Vec<Pid> = births.added.iter().map(|target| target.pid).collect();
        let heirs: Vec<(Pid, Option<Pid>)> = births.heirs.iter().map(|one| (one.pid, one.parent)).collect();
        assert_eq!((added, heirs), (vec![heir], vec![(between, Some(parent)), (heir, Some(between))]));
        let started = births.heirs.iter().map(|one| one.start_ticks).collect::<Vec<_>>();
        assert!(started[0].is_none() && started[1].is_some(), "{started:?}");
        bound.look();
        assert_eq!(bound.undo_log.threads.len(), 2, "it would get back its affinity after a kill, too");
        bound.binder.take_back(&bound.moves.moved, &mut bound.targets, &mut bound.undo_log);
        assert_eq!((bound.heir_may_run_on(), bound.undo_log.threads.len()), (bound.all.clone(), 0));
    }

    /// Its child was told of at the next look, when the parent was managed no longer.
    #[test]
    fn what_a_process_starts_before_it_ends_is_managed_and_not_bound_for_longer() {
        let Some(mut bound) = BoundShell::by("read x; sleep 100 & echo $!") else { return };
        let (heir, parent) = (bound.heir.0, bound.pid());
        bound.shell.0.wait().unwrap();
        bound.look();
        assert!(bound.targets.all.is_empty() && bound.targets.has_bindings());
        let births = take_in(&mut bound.targets, &forks(&[(heir, parent)]), true);
        assert_eq!(births.added.len(), 1);
        bound.look();
        assert_eq!(bound.heir_may_run_on(), bound.all, "nothing is bound so any more");
        assert!(bound.targets.all.contains_key(&heir));
    }

    #[test]
    fn where_children_are_not_managed_they_and_theirs_lose_what_binds_them() {
        let Some(mut bound) = BoundShell::by("read x; (sleep 100 & echo $!); read y") else { return };
        let (heir, between, parent) = (bound.heir.0, ended(), bound.pid());
        let births = take_in(&mut bound.targets, &forks(&[(between, parent), (heir, between)]), false);
        assert!(births.added.is_empty() && births.heirs.is_empty() && births.left_out == 0);
        assert_eq!((bound.heir_may_run_on(), bound.targets.all.len()), (bound.all.clone(), 1));
    }

    /// One that a user has added before the record of its start was read was taken from its node again.
    #[test]
    fn what_is_managed_already_stays_bound_whether_or_not_children_are_managed() {
        let Some(mut bound) = BoundShell::by("read x; sleep 100 & echo $!; read y") else { return };
        let (heir, parent) = (bound.heir.0, bound.pid());
        bound.targets.add(heir).unwrap();
        let births = take_in(&mut bound.targets, &forks(&[(heir, parent)]), false);
        assert_eq!((births.added.len(), births.heirs.len()), (0, 1));
        assert_eq!(bound.heir_may_run_on().cpus(), bound.all.cpus()[..1]);
        bound.look();
        bound.binder.take_back(&bound.moves.moved, &mut bound.targets, &mut bound.undo_log);
        assert_eq!(bound.heir_may_run_on(), bound.all);
    }

    /// Nobody knew its parent any more when it was told, so it stayed bound for good.
    #[test]
    fn what_a_process_has_started_before_a_user_removes_it_loses_what_binds_it() {
        let Some(mut bound) = BoundShell::by("read x; sleep 100 & echo $!; read y") else { return };
        let (heir, parent) = (bound.heir.0, bound.pid());
        let bindings = bound.targets.all[&parent].bindings.clone();
        bound.binder.release(Some(parent), &mut bound.targets, &mut bound.undo_log);
        bound.targets.let_go(parent, bindings);
        let births = take_in(&mut bound.targets, &forks(&[(heir, parent)]), true);
        assert!(births.added.is_empty() && births.left_out == 0 && bound.targets.all.is_empty());
        assert_eq!(bound.heir_may_run_on(), bound.all);
    }

    /// A listing shows another parent by then. Such a process was taken for one that has chosen its CPUs.
    #[test]
    fn what_is_found_before_it_is_told_of_inherits_from_its_ancestor_afterwards() {
        let Some(mut bound) = BoundShell::by("read x; (sleep 100 & echo $!); read y") else { return };
        let (heir, between, parent) = (bound.heir.0, ended(), bound.pid());
        bound.targets.add(heir).unwrap();
        bound.look();
        assert_eq!(bound.undo_log.threads.len(), 1);
        take_in(&mut bound.targets, &forks(&[(between, parent), (heir, between)]), true);
        bound.look();
        assert_eq!(bound.undo_log.threads.len(), 2);
        bound.binder.take_back(&bound.moves.moved, &mut bound.targets, &mut bound.undo_log);
        assert_eq!((bound.heir_may_run_on(), bound.undo_log.threads.len()), (bound.all.clone(), 0));
    }

    /// It kept its parent's CPUs for good, and nothing said that it is not managed.
    #[test]
    fn what_there_is_no_room_for_is_counted_and_loses_what_binds_it() {
        let Some(mut bound) = BoundShell::by("read x; sleep 100 & echo $!; read y") else { return };
        let (heir, parent) = (bound.heir.0, bound.pid());
        bound.targets.slots.limit = 1;
        let births = take_in(&mut bound.targets, &forks(&[(heir, parent)]), true);
        assert_eq!((births.added.len(), births.heirs.len(), births.left_out), (0, 1, 1));
        let told: Vec<&String> = births.troubles.iter().collect();
        assert!(told.len() == 1 && told[0].starts_with("1 processes are managed"), "{told:?}");
        assert_eq!((bound.heir_may_run_on(), bound.targets.all.len()), (bound.all.clone(), 1));
    }
}
