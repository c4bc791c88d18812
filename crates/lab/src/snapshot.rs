//! Snapshots of a booted guest, one per machine: QEMU migrates to a file, and later guests start from it.
//!
//! A snapshot belongs to one QEMU, one set of arguments, one kernel and one initramfs: all are its key. When any changes, another is made.

use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use numapilot_random::fnv1a;
use serde_json::Value;
use serde_json::json;

use crate::cache::Cache;
use crate::cache::remove;
use crate::error::AtPath;
use crate::error::LabError;
use crate::qmp::Monitor;
use crate::time_limit::TimeLimit;

/// Writing about 120 MB takes a second; this is for a slow disk.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Path of the snapshot with this key, whether or not it exists.
pub(crate) fn path(cache: &Cache, key: &str) -> PathBuf {
    cache.root().join(format!("snapshot-{:016x}", fnv1a(key.as_bytes())))
}

/// Writes the state of a running guest to `path`, whole or not at all. The guest goes on afterwards only in the file.
pub(crate) fn write(cache: &Cache, monitor: &mut Monitor, path: &Path, time_limit: &TimeLimit) -> Result<(), LabError> {
    cache.forget_old_snapshots();
    let unfinished = path.with_extension("new");
    remove(&unfinished)?;
    File::create(&unfinished).at(&unfinished, "cannot make a snapshot's file")?;
    monitor.execute("migrate-set-parameters", json!({ "max-bandwidth": 1u64 << 40, "downtime-limit": 60_000 }))?;
    monitor.execute("migrate", json!({ "uri": format!("file:{}", unfinished.display()) }))?;
    loop {
        let state = monitor.execute("query-migrate", json!({}))?;
        match state.get("status").and_then(Value::as_str) {
            Some("completed") => break,
            Some("failed" | "cancelled") => return Err(LabError::Monitor(format!("the snapshot failed: {state}"))),
            _ if time_limit.left().is_zero() => {
                return Err(LabError::Monitor(format!("the snapshot took too long: {state}")));
            }
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
    fs::rename(&unfinished, path).at(path, "cannot put a snapshot in place")
}

/// Waits until a restored guest runs.
pub(crate) fn wait_restored(monitor: &mut Monitor, time_limit: &TimeLimit) -> Result<(), LabError> {
    loop {
        let state = monitor.execute("query-status", json!({}))?;
        if state.get("running").and_then(Value::as_bool) == Some(true) {
            return Ok(());
        }
        if time_limit.left().is_zero() {
            return Err(LabError::Monitor(format!("the snapshot is not restored: {state}")));
        }
        thread::sleep(Duration::from_millis(10));
    }
}
