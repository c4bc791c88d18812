//! Whether KVM works here. A machine may have /dev/kvm and still fail to run a stock kernel under it (as with nested virtualisation). The lab tries KVM
//! once and stores the result for this CPU, host kernel and QEMU.

use std::fs;
use std::fs::File;
use std::time::Duration;
use std::time::Instant;

use numapilot_random::fnv1a;

use crate::accelerator::Accelerator;
use crate::cache::Cache;
use crate::error::AtPath;
use crate::error::LabError;
use crate::guest::Guest;
use crate::guest::READY;
use crate::guest::Waited;
use crate::machine::Machine;

/// A kernel that runs in KVM is up in one or two seconds.
const PATIENCE: Duration = Duration::from_secs(12);

/// Whether KVM boots this machine's kernel here.
pub(crate) fn kvm_works(cache: &Cache, machine: &Machine) -> Result<bool, LabError> {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(false);
    }
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find(|l| l.starts_with("model name")).unwrap_or("").to_owned();
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let key = format!("{cpu}\n{host}\n{}\n{}", machine.qemu.version, machine.kernel.release);
    let verdict = cache.once(&format!("kvm-{:016x}", fnv1a(key.as_bytes())), |path| {
        let text = match try_kvm(machine)? {
            (Waited::Seen, seconds) => format!("works: booted in {seconds:.1} s\n"),
            (end, seconds) => format!("fails: {end:?} after {seconds:.1} s\n"),
        };
        fs::write(path, text + &key).at(path, "cannot write")
    })?;
    Ok(fs::read_to_string(&verdict).at(&verdict, "cannot read")?.starts_with("works"))
}

fn try_kvm(machine: &Machine) -> Result<(Waited, f64), LabError> {
    let started = Instant::now();
    let folder = tempfile::tempdir().at(&std::env::temp_dir(), "cannot make a folder")?;
    let command = machine.command(Accelerator::Kvm, folder.path(), folder.path());
    let end = match Guest::start(command) {
        Ok(mut guest) => wait_or_crash(&mut guest),
        Err(_) => Waited::Ended,
    };
    Ok((end, started.elapsed().as_secs_f64()))
}

/// QEMU stays, stopped, when KVM cannot continue: its state shows that.
fn wait_or_crash(guest: &mut Guest) -> Waited {
    let end = Instant::now() + PATIENCE;
    loop {
        let waited = guest.wait_for(READY, Duration::from_millis(200));
        if waited != Waited::TimedOut || Instant::now() > end {
            return waited;
        }
        match guest.monitor.execute("query-status", serde_json::json!({})) {
            Ok(state) if state.get("running").and_then(serde_json::Value::as_bool) == Some(true) => {}
            _ => return Waited::Ended,
        }
    }
}
