//! One daemon's record of changed settings, with its claims: translates the loop's calls into settings, files and locks.

use std::path::Path;
use std::path::PathBuf;

use numapilot_balancer::system::undo_log::Binding;
use numapilot_balancer::system::undo_log::ThreadId;
use numapilot_host::Pid;
use numapilot_machine::format_cpu_list;

use super::Claims;
use super::Done;
use super::Live;
use super::Setting;
use super::SettingsGuard;
use super::folders;
use crate::error::ServiceError;
use crate::places::Places;

/// The record and the claims of a daemon.
#[derive(Debug)]
pub struct Record {
    claims: Claims,
    guard: SettingsGuard<Live>,
    machine: PathBuf,
}

impl Record {
    /// Takes a state folder (one beside it, if another process uses it and `is_needed` is false), after restoring what killed daemons have left changed.
    ///
    /// # Errors
    /// Another process uses it, or it cannot be written.
    pub fn take(folder: &Path, is_needed: bool) -> Result<(Record, Vec<Done>), ServiceError> {
        // SAFETY: has no preconditions.
        let machine = Places::machine(unsafe { libc::geteuid() });
        let claims = Claims::open()?;
        let absolute = std::path::absolute(folder).map_err(|source| ServiceError::file(folder, "find it", source))?;
        let (guard, done) = folders::take(&machine, &absolute, !is_needed, &Live)?;
        Ok((Record { claims, guard, machine }, done))
    }

    /// Records a setting's file that is about to change. Returns the settings of killed daemons that were restored before that.
    ///
    /// # Errors
    /// Another daemon changes settings, or the value cannot be recorded; the message gives the reason.
    pub fn will_change(&mut self, file: &str, was: &str, now: &str) -> Result<Vec<Done>, String> {
        let mut restored = Vec::new();
        // A cgroup's files need no claim: its processes are claimed one by one.
        if !file.starts_with("/sys/fs/cgroup/") && self.claims.settings()? {
            // Their previous holder may have been killed since this daemon started.
            restored = folders::put_back(&self.machine, &Live).map_err(|error| error.to_string())?;
            if restored.iter().any(|done| done.setting == setting_of(file)) {
                return Err(
                    "a value that an earlier numapilot left was just restored; the setting is changed at the next attempt".to_owned()
                );
            }
        }
        let change = (setting_of(file), was.to_owned(), now.to_owned());
        self.guard.intend(&[change]).map_err(|error| error.to_string())?;
        Ok(restored)
    }

    /// Registers that a setting's file has its previous value again, or another program's.
    ///
    /// # Errors
    /// The record cannot be written; the message gives the reason.
    pub fn restored(&mut self, file: &str) -> Result<(), String> {
        self.guard.settled(&[setting_of(file)]).map_err(|error| error.to_string())
    }

    /// Records threads that are about to be bound.
    ///
    /// # Errors
    /// They cannot be recorded: the threads must not be bound. The message gives the reason.
    pub fn will_bind(&mut self, bindings: &[Binding]) -> Result<(), String> {
        let list = |mask: &numapilot_kernel::affinity::CpuMask| format_cpu_list(mask.cpus().iter().map(|cpu| cpu.0));
        let change = |one: &Binding| (affinity_of(&one.thread), list(&one.was), list(&one.now));
        let changes: Vec<(Setting, String, String)> = bindings.iter().map(change).collect();
        self.guard.intend(&changes).map_err(|error| error.to_string())
    }

    /// Registers threads whose affinities are restored.
    ///
    /// # Errors
    /// The record cannot be written; the message gives the reason.
    pub fn unbound(&mut self, threads: &[ThreadId]) -> Result<(), String> {
        let settings: Vec<Setting> = threads.iter().map(affinity_of).collect();
        self.guard.settled(&settings).map_err(|error| error.to_string())
    }

    /// Claims a process (`None`: all processes). Affinities that a killed daemon had changed are restored first.
    ///
    /// # Errors
    /// Another daemon manages it; the message names that one.
    pub fn claim(&mut self, pid: Option<Pid>) -> Result<Vec<Done>, String> {
        self.claims.claim(pid)?;
        folders::put_back(&self.machine, &Live).map_err(|error| error.to_string())
    }

    /// Releases the claim on a process.
    pub fn unclaim(&mut self, pid: Pid) {
        self.claims.unclaim(pid);
    }

    /// Restores all settings that are still changed.
    ///
    /// # Errors
    /// The record cannot be written; the settings that could be restored were.
    pub fn put_back(&mut self) -> Result<Vec<Done>, ServiceError> {
        self.guard.restore()
    }
}

/// Converts a path to a setting; files under /proc/sys become sysctl names.
fn setting_of(file: &str) -> Setting {
    match file.strip_prefix("/proc/sys/") {
        Some(name) => Setting::Sysctl { name: name.replace('/', ".") },
        None => Setting::File { file: file.to_owned() },
    }
}

fn affinity_of(thread: &ThreadId) -> Setting {
    Setting::Affinity { pid: thread.pid, tid: thread.tid, start_ticks: thread.start_ticks }
}
