//! What ran without the tracker: how many programs and why, and whether one of them did most of the work.

use std::path::Path;

use numapilot_launch::Binary;
use numapilot_launch::BinaryKind;
use numapilot_launch::Program;
use numapilot_launch::preload_obstacle;
use numapilot_text::units;
use numapilot_trace::unrecorded::UnrecordedProgram;
use numapilot_trace::wire;

use crate::arena::Arena;
use crate::engine::Engine;

/// Share of the processor time, 0 to 1, from which on a program has done most of the work.
const MOST: f64 = 0.5;
/// Why programs run without the tracker.
const REASONS: [usize; 3] =
    [wire::layout::UNRECORDED_STATIC, wire::layout::UNRECORDED_FOREIGN, wire::layout::UNRECORDED_CLOSED];

/// Whether a program was started without the tracker.
pub(crate) fn is_any(arena: &Arena) -> bool {
    REASONS.into_iter().any(|reason| arena.unrecorded_programs(reason).0 > 0)
}

/// The program that used most of the processor time, if the tracker could see nothing of it, in a recording that has nothing but what the tracker tells.
pub(crate) fn busiest(arena: &Arena, engine: Engine, program: &Program) -> Option<UnrecordedProgram> {
    if engine != Engine::Track {
        return None;
    }
    let (path, share) = program.busiest().filter(|&(path, share)| share > MOST && !is_loader(path))?;
    let (kind, (reason, remedy)) = obstacle(path)?;
    // Only into a program without a C library is the tracker loaded all the same.
    if kind != BinaryKind::Bare && !is_any(arena) {
        return None;
    }
    Some(UnrecordedProgram { path: path.display().to_string(), share, reason, remedy })
}

/// Whether it is a dynamic loader that was started by its name, with the program as an argument: it loads the tracker, static as it is.
fn is_loader(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-"))
}

/// How the program at `path` is linked, and what keeps the tracker out of it in every process. Privileges of the file do not: processes that get no new ones
/// (`setpriv --no-new-privs`, containers) are recorded.
fn obstacle(path: &Path) -> Option<(BinaryKind, (String, String))> {
    let binary = Binary::inspect(path).ok().flatten()?;
    let told = preload_obstacle(&Binary { privileged: None, ..binary.clone() })?;
    Some((binary.kind, told))
}

/// What ran without the tracker, in whole sentences.
pub(crate) fn notes(arena: &Arena, engine: Engine) -> Vec<String> {
    let mut notes = Vec::new();
    let by_kernel = matches!(engine, Engine::Fault | Engine::Pmu);
    let missed = match by_kernel {
        true => [
            "program, and what it started, was recorded by the kernel alone, without heap blocks",
            "programs, and what they started, were recorded by the kernel alone, without heap blocks",
        ],
        false => [
            "program could not be recorded, nor what it started",
            "programs could not be recorded, nor what they started",
        ],
    };
    let reasons = [
        (
            wire::layout::UNRECORDED_FOREIGN,
            missed,
            "linked to another C library than the tracker, or to a sanitizer of addresses or threads, so it was not loaded",
        ),
        (
            wire::layout::UNRECORDED_CLOSED,
            missed,
            "set-user-ID programs, or programs whose user or root folder has no access to the tracker's file, or that were started by one which had \
             restricted its own system calls (seccomp); start numapilot as that user (`runuser -u USER -- numapilot record ...`), or inside that root folder",
        ),
        (
            wire::layout::UNRECORDED_STATIC,
            match by_kernel {
                true => [
                    "statically linked program was recorded by the kernel alone, without heap blocks",
                    "statically linked programs were recorded by the kernel alone, without heap blocks",
                ],
                false => ["statically linked program was not recorded", "statically linked programs were not recorded"],
            },
            "the tracker cannot be loaded there; dynamically linked programs that were started from there are recorded",
        ),
    ];
    for (reason, [one, many], why) in reasons {
        if let (count @ 1.., name) = arena.unrecorded_programs(reason) {
            let first = name.map(|name| format!(", {name} first")).unwrap_or_default();
            notes.push(format!("{}{first}: {why}", units::counted(u64::from(count), one, many)));
        }
    }
    if let limited @ 1.. = arena.limited_processes() {
        notes.push(format!(
            "{} not recorded, because the recording would take more than a quarter of the limit on address space (`ulimit -v`); give a smaller \
             `--max-threads` or `--ring-size`",
            units::counted(u64::from(limited), "process was", "processes were")
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_may_be_recorded_all_the_same_is_not_told_as_missing() {
        for (path, is_one) in [("/lib64/ld-linux-x86-64.so.2", true), ("/usr/bin/ld", false), ("/srv/table", false)] {
            assert_eq!(is_loader(Path::new(path)), is_one, "{path}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let copy = folder.path().join("privileged");
        std::fs::copy("/bin/sh", &copy).expect("a copy");
        // Of another user, where that is allowed: one's own programs have no privileges.
        drop(std::os::unix::fs::chown(&copy, Some(65534), None));
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).expect("set-user-ID");
        assert_eq!(obstacle(&copy), None, "in a process that gets no new privileges it is recorded");
        assert_eq!(obstacle(Path::new("/proc/self/status")), None, "no binary");
    }
}
