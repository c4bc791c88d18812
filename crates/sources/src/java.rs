//! The agent that Java virtual machines load, so that their objects are recorded: the variable that makes them load it, and what it could not follow.

use std::ffi::OsString;
use std::path::Path;

use numapilot_kernel::inherited;
use numapilot_trace::wire::layout as wire;

use crate::arena::ArenaJava;

/// Options that every Java virtual machine of a process tree takes.
const VARIABLE: &str = "JAVA_TOOL_OPTIONS";

/// The variable with the agent, behind what the user has set in it. `interval_bytes`: mean distance of sampled allocations.
pub fn environment(agent: &Path, interval_bytes: u32, added: &[(OsString, OsString)]) -> (OsString, OsString) {
    let theirs = added.iter().rev().find(|(name, _)| name == VARIABLE).map(|(_, value)| value.clone());
    let mut value = theirs.or_else(|| inherited::variable(VARIABLE)).unwrap_or_default();
    if !value.is_empty() {
        value.push(" ");
    }
    value.push("-agentpath:");
    value.push(agent);
    value.push(format!("=interval={interval_bytes}"));
    (VARIABLE.into(), value)
}

/// What is missing of Java's objects, in whole sentences.
pub fn notes(has_tracker: bool, java: ArenaJava) -> Vec<String> {
    if !has_tracker {
        return vec!["Java objects were not recorded: no library can be loaded into this program".to_owned()];
    }
    if java.machines == 0 {
        let note = "Java objects were not recorded, because no Java virtual machine loaded the agent: the program started none, or its start script clears \
                    JAVA_TOOL_OPTIONS (name the `java` command itself), or it writes an archive of classes, which a virtual machine with an agent refuses \
                    (leave -XX:ArchiveClassesAtExit and -XX:+AutoCreateSharedArchive out)";
        return vec![note.to_owned()];
    }
    let dropped = format!(
        "{} sampled Java objects were not followed, because too many were already; sample fewer with a larger interval, such as `--java=4M`",
        java.dropped
    );
    let troubles = [
        (
            wire::JAVA_NO_EVENTS,
            "objects of a Java virtual machine were not recorded, because it cannot sample them: run it with Java 11 or later, and without another agent \
             that samples allocations",
        ),
        (
            wire::JAVA_OTHER,
            "objects of a Java virtual machine were not recorded, because it is no HotSpot: run the program with OpenJDK",
        ),
        (
            wire::JAVA_COLLECTOR,
            "objects of a Java virtual machine were not recorded, because its garbage collector moves them while the program runs, or is not known: run it \
             with -XX:+UseG1GC, -XX:+UseParallelGC or -XX:+UseSerialGC",
        ),
        (
            wire::JAVA_LAYOUT,
            "objects of a Java virtual machine were not recorded, because its references are not laid out as numapilot knows them: run the program with \
             another version of OpenJDK",
        ),
        (
            wire::JAVA_FULL,
            "very many Java objects were alive at a time: from then on they were sampled less often, so that fewer small ones were recorded",
        ),
    ];
    let found = troubles.into_iter().filter(|(bit, _)| java.troubles & bit != 0);
    let mut notes: Vec<String> = found.map(|(_, note)| note.to_owned()).collect();
    notes.extend((java.dropped > 0).then_some(dropped));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_stands_behind_the_users_own_options() {
        let set = |value: &str| [(OsString::from(VARIABLE), OsString::from(value))];
        let agent = Path::new("/cache/agent.so");
        let (name, value) = environment(agent, 4096, &set("-Xmx1g"));
        assert_eq!((name, value), (VARIABLE.into(), "-Xmx1g -agentpath:/cache/agent.so=interval=4096".into()));
        assert_eq!(environment(agent, 0, &set("")).1, "-agentpath:/cache/agent.so=interval=0");
    }

    #[test]
    fn what_is_missing_is_told_with_a_remedy() {
        let told = |machines, troubles, dropped| notes(true, ArenaJava { machines, troubles, dropped });
        assert!(told(1, 0, 0).is_empty());
        assert!(
            told(0, 0, 0)[0].contains("JAVA_TOOL_OPTIONS") && told(0, 0, 0)[0].contains("-XX:ArchiveClassesAtExit")
        );
        assert!(notes(false, ArenaJava::default())[0].contains("no library"));
        let both = told(2, wire::JAVA_COLLECTOR | wire::JAVA_FULL, 7);
        assert_eq!(both.len(), 3, "{both:?}");
        assert!(both[0].contains("-XX:+UseG1GC") && both[2].contains("7 sampled"), "{both:?}");
    }
}
