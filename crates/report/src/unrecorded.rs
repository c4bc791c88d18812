//! Words on a program that did most of a recording's work, and of which nothing was recorded: what a report shows then is not of it.

use numapilot_text::units;
use numapilot_trace::unrecorded::UnrecordedProgram;

/// What is missing, why, and which engine sees it, in whole sentences.
#[must_use]
pub fn unrecorded(program: &UnrecordedProgram) -> String {
    format!(
        "{name} used {share} of the processor time that was seen, and nothing of it was recorded: {reason}. What was recorded is of other programs, such as \
         what started it. `--engine fault` records its page faults, by mapping; for its heap blocks, {remedy}. Those of an allocator of its own, as Go's heap \
         is, are then recorded by `--engine emulate`.",
        name = program.name(),
        share = units::whole_percent(program.share),
        reason = program.reason,
        remedy = program.remedy,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_whose_objects_these_are_not_and_who_sees_them() {
        let program = UnrecordedProgram {
            path: "/srv/table".to_owned(),
            share: 0.97,
            reason: "it is statically linked, so no library can be loaded into it".to_owned(),
            remedy: "link it dynamically".to_owned(),
        };
        let says = unrecorded(&program);
        assert!(says.starts_with("table used 97 % of the processor time that was seen, and nothing of it"), "{says}");
        assert!(says.contains("it is statically linked") && says.contains("is of other programs"), "{says}");
        assert!(says.contains("`--engine fault` records") && says.contains("blocks, link it dynamically."), "{says}");
        assert!(says.ends_with("as Go's heap is, are then recorded by `--engine emulate`."), "{says}");
    }
}
