//! One daemon's record of what it has changed, with its claims on the machine: what the loop's words come to in settings, files and locks.

use std::path::Path;
use std::path::PathBuf;

use numapilot_balancer::system::undo_log::Binding;
use numapilot_balancer::system::undo_log::ThreadId;
use numapilot_machine::format_cpu_list;

use super::Claims;
use super::Done;
use super::Live;
use super::Setting;
use super::SettingsGuard;
use super::folders;
use crate::error::ServiceError;
use crate::places::Places;

/// See the module.
#[derive(Debug)]
pub struct Record {
    claims: Claims,
    guard: SettingsGuard<Live>,
    machine: PathBuf,
}

impl Record {
    /// Takes a folder of state (one beside it, where another process has it and it need not be this one), after putting back what killed daemons have left
    /// changed.
    ///
    /// # Errors
    /// It is another's, or cannot be written.
    pub fn take(folder: &Path, is_needed: bool) -> Result<(Record, Vec<Done>), ServiceError> {
        // SAFETY: has no preconditions.
        let machine = Places::machine(unsafe { libc::geteuid() });
        let claims = Claims::open()?;
        let absolute = std::path::absolute(folder).map_err(|source| ServiceError::file(folder, "find it", source))?;
        let (guard, done) = folders::take(&machine, &absolute, !is_needed, &Live)?;
        Ok((Record { claims, guard, machine }, done))
    }

    /// A setting's file is about to be changed. What a killed daemon had left changed and was put back before that.
    ///
    /// # Errors
    /// Another daemon changes settings, or it cannot be kept; in words.
    pub fn will_change(&mut self, file: &str, was: &str, now: &str) -> Result<Vec<Done>, String> {
        let mut restored = Vec::new();
        // A cgroup's files belong to its processes, which are claimed one by one.
        if !file.starts_with("/sys/fs/cgroup/") && self.claims.settings()? {
            // Whoever had them may have been killed since we began.
            restored = folders::put_back(&self.machine, &Live).map_err(|error| error.to_string())?;
            if restored.iter().any(|done| done.setting == setting_of(file)) {
                return Err(
                    "an earlier numapilot's value was put back just now; it will be changed the next time".to_owned()
                );
            }
        }
        let change = (setting_of(file), was.to_owned(), now.to_owned());
        self.guard.intend(&[change]).map_err(|error| error.to_string())?;
        Ok(restored)
    }

    /// A setting's file is as it was, or somebody else's.
    ///
    /// # Errors
    /// The record cannot be written; in words.
    pub fn restored(&mut self, file: &str) -> Result<(), String> {
        self.guard.settled(&[setting_of(file)]).map_err(|error| error.to_string())
    }

    /// Threads are about to be bound.
    ///
    /// # Errors
    /// That cannot be kept: they must be left as they are. In words.
    pub fn will_bind(&mut self, bindings: &[Binding]) -> Result<(), String> {
        let list = |mask: &numapilot_kernel::affinity::CpuMask| format_cpu_list(mask.cpus().iter().map(|cpu| cpu.0));
        let change = |one: &Binding| (affinity_of(&one.thread), list(&one.was), list(&one.now));
        let changes: Vec<(Setting, String, String)> = bindings.iter().map(change).collect();
        self.guard.intend(&changes).map_err(|error| error.to_string())
    }

    /// Threads may run where they might before.
    ///
    /// # Errors
    /// The record cannot be written; in words.
    pub fn unbound(&mut self, threads: &[ThreadId]) -> Result<(), String> {
        let settings: Vec<Setting> = threads.iter().map(affinity_of).collect();
        self.guard.settled(&settings).map_err(|error| error.to_string())
    }

    /// A process (`None`: every one) is ours to place. What a killed daemon had done to processes is put back first.
    ///
    /// # Errors
    /// It is another daemon's; in words that name that one.
    pub fn claim(&mut self, pid: Option<u32>) -> Result<Vec<Done>, String> {
        self.claims.claim(pid)?;
        folders::put_back(&self.machine, &Live).map_err(|error| error.to_string())
    }

    /// A process is no longer ours.
    pub fn unclaim(&mut self, pid: u32) {
        self.claims.unclaim(pid);
    }

    /// Puts back whatever is still changed.
    ///
    /// # Errors
    /// The record cannot be written; what could be put back was.
    pub fn put_back(&mut self) -> Result<Vec<Done>, ServiceError> {
        self.guard.restore()
    }
}

/// Files under /proc/sys go by their names as sysctls.
fn setting_of(file: &str) -> Setting {
    match file.strip_prefix("/proc/sys/") {
        Some(name) => Setting::Sysctl { name: name.replace('/', ".") },
        None => Setting::File { file: file.to_owned() },
    }
}

fn affinity_of(thread: &ThreadId) -> Setting {
    Setting::Affinity { pid: thread.pid, tid: thread.tid, start_ticks: thread.start_ticks }
}
