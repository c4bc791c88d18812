//! The numbers of a compiled plan, as `crates/runtime/c/plan_wire.h` has them: sizes of its arrays, kinds and policies of rules, flags. A test compiles that
//! header and compares all of them; the test of `image.rs` does so with sizes and offsets.

pub(crate) const MAGIC: u64 = 0x314e_414c_5041_554e;
pub(crate) const VERSION: u32 = 1;
/// Bits of a node mask.
pub(crate) const NODES: usize = 64;
/// Words of a CPU mask.
pub(crate) const CPU_WORDS: usize = 16;
/// Ranges of instances, or of the order of threads, in a rule.
pub(crate) const RANGES: usize = 8;
pub(crate) const NAME_BYTES: usize = 128;
pub(crate) const TEXT_BYTES: usize = 512;
/// Processes that can be numbered.
pub(crate) const NUMBERED: usize = 4096;

pub(crate) const KIND_DYNAMIC: u32 = 0;
pub(crate) const KIND_STATIC: u32 = 1;
pub(crate) const KIND_FILE: u32 = 2;

pub(crate) const POLICY_NODE: u32 = 1;
pub(crate) const POLICY_INTERLEAVE: u32 = 2;
pub(crate) const POLICY_WEIGHTED: u32 = 3;
pub(crate) const POLICY_LOCAL: u32 = 4;
pub(crate) const POLICY_FIRST_USE: u32 = 5;
pub(crate) const POLICY_SPLIT: u32 = 6;
pub(crate) const POLICY_REPLICATE: u32 = 7;
pub(crate) const POLICY_HAND_OVER: u32 = 8;

pub(crate) const FLAG_STRICT: u32 = 1;
pub(crate) const FLAG_HUGE: u32 = 2;
pub(crate) const FLAG_NO_HUGE: u32 = 4;
pub(crate) const FLAG_OWN_WEIGHTS: u32 = 8;

/// Flag of the whole image: blocks lie within pages and cache sets as those of the program's own allocator.
pub(crate) const IMAGE_TWINS: u32 = 1;
/// Flag of the whole image: the program is emulated, so reserved addresses cost memory.
pub(crate) const IMAGE_EMULATED: u32 = 2;

/// In place of the number of a frame pattern: none.
pub(crate) const NO_PATTERN: u32 = u32::MAX;
/// Layout of a rule for threads or processes: one after the other, each to the next node or CPU.
pub(crate) const SPREAD: u32 = 1;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Each number of the header by its name there.
    const NUMBERS: &[(&str, u64)] = &[
        ("NP_PLAN_MAGIC", MAGIC),
        ("NP_PLAN_VERSION", VERSION as u64),
        ("NP_PLAN_NODES", NODES as u64),
        ("NP_PLAN_CPU_WORDS", CPU_WORDS as u64),
        ("NP_PLAN_RANGES", RANGES as u64),
        ("NP_PLAN_NAME", NAME_BYTES as u64),
        ("NP_PLAN_TEXT", TEXT_BYTES as u64),
        ("NP_PLAN_NUMBERED", NUMBERED as u64),
        ("NP_PLAN_DYNAMIC", KIND_DYNAMIC as u64),
        ("NP_PLAN_STATIC", KIND_STATIC as u64),
        ("NP_PLAN_FILE", KIND_FILE as u64),
        ("NP_PLAN_NODE", POLICY_NODE as u64),
        ("NP_PLAN_INTERLEAVE", POLICY_INTERLEAVE as u64),
        ("NP_PLAN_WEIGHTED", POLICY_WEIGHTED as u64),
        ("NP_PLAN_LOCAL", POLICY_LOCAL as u64),
        ("NP_PLAN_FIRST_USE", POLICY_FIRST_USE as u64),
        ("NP_PLAN_SPLIT", POLICY_SPLIT as u64),
        ("NP_PLAN_REPLICATE", POLICY_REPLICATE as u64),
        ("NP_PLAN_HAND_OVER", POLICY_HAND_OVER as u64),
        ("NP_PLAN_STRICT", FLAG_STRICT as u64),
        ("NP_PLAN_HUGE", FLAG_HUGE as u64),
        ("NP_PLAN_NO_HUGE", FLAG_NO_HUGE as u64),
        ("NP_PLAN_OWN_WEIGHTS", FLAG_OWN_WEIGHTS as u64),
        ("NP_PLAN_TWINS", IMAGE_TWINS as u64),
        ("NP_PLAN_EMULATED", IMAGE_EMULATED as u64),
        ("NP_PLAN_NO_PATTERN", NO_PATTERN as u64),
        ("NP_PLAN_SPREAD", SPREAD as u64),
    ];

    /// Names to which the header gives a value: `#define NP_PLAN_X value`, and enumerators.
    fn names_of(header: &str) -> BTreeSet<&str> {
        let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let defined = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
        let enumerators = header.split(['{', ',', '\n']).filter_map(|part| part.split_once('='));
        let names = defined.map(|(name, _)| name).chain(enumerators.map(|(name, _)| name.trim()));
        names.filter(|name| name.starts_with("NP_PLAN_") && name.chars().all(is_part)).collect()
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/c");
        let header = std::fs::read_to_string(include.join("plan_wire.h")).unwrap();
        let ours: BTreeSet<&str> = NUMBERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names_of(&header), ours, "names of the header (left) and of NUMBERS (right)");
        let mut program = String::from("#include <stdio.h>\n#include \"plan_wire.h\"\nint main(void) {\n");
        for (name, _) in NUMBERS {
            writeln!(program, "    printf(\"%llu\\n\", (unsigned long long)({name}));").unwrap();
        }
        program.push_str("    return 0;\n}\n");
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("numbers.c"), folder.path().join("numbers"));
        std::fs::write(&source, program).unwrap();
        let status = Command::new("cc").arg("-I").arg(include).arg(&source).arg("-o").arg(&binary).status().unwrap();
        assert!(status.success(), "plan_wire.h does not compile");
        let printed = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
        let values: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(values.len(), NUMBERS.len());
        for ((name, ours), value) in NUMBERS.iter().zip(values) {
            assert_eq!(*ours, value, "{name}");
        }
    }
}
