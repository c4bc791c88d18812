//! `numapilot demo`: from nothing to a report, and what it says where it cannot work.

use crate::common::*;

#[test]
fn the_demonstration_ends_with_a_report_of_its_own_program() {
    let folder = scratch();
    let place = folder.path().join("demo");
    let demo = || finish(numapilot(&["demo"]).arg(&place));
    let shown = demo().succeeded().stdout;
    assert!(shown.contains("131072 points counted\n"), "{shown}");
    let top = shown.lines().find(|line| line.starts_with("Top object")).unwrap_or_default();
    assert!(top.contains(" points (demo.c:"), "{shown}");
    for words in
        ["$ numapilot cc -O2 -g -pthread -o ", "$ numapilot record --machine opteron-8385 ", "$ numapilot report "]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(place.join("demo.html").is_file() && place.join("demo.numatrace").is_dir());
    demo().succeeded();

    let source = place.join("demo.c");
    std::fs::write(&source, "int main(void) { return 0; }").expect("a program of the user's");
    let refused = demo();
    assert!(refused.code == 1 && refused.stderr.contains("name another folder"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&source).expect("it is still there"), "int main(void) { return 0; }");
}

#[test]
fn without_a_compiler_the_demonstration_says_how_to_get_one() {
    let folder = scratch();
    let place = folder.path().join("demo");
    let mut command = numapilot(&["demo"]);
    command.arg(&place).env("PATH", folder.path()).env_remove("CC").env_remove("CXX").env_remove("FC");
    let refused = finish(&mut command);
    assert!(refused.code == 1 && refused.stderr.contains("numapilot doctor --install"), "{refused:?}");
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    assert!(!place.exists());
}
