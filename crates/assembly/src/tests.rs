//! Whole files: where call-outs stand, and what is left alone.

use super::*;

const HEAD: &str = "\t.text\n\t.type f, @function\nf:\n";

fn checks(body: &str) -> Vec<String> {
    let text = format!("{HEAD}{body}\tret\n");
    let items = parse(&text);
    plan::plan(&items)
        .checks
        .iter()
        .map(|check| match check.what {
            plan::What::Span { memory, low, high, is_write, in_line } => {
                let kind = if is_write { "write" } else { "read" };
                let lines = if in_line { "" } else { " in two lines" };
                format!(
                    "{}: {kind} {} to {}{lines} x{}",
                    items[check.at].line - 3,
                    memory.at(low),
                    memory.at(high),
                    check.count
                )
            }
            plan::What::Atomic { memory, bytes } => {
                format!("{}: atomic {} {bytes}", items[check.at].line - 3, memory.at(memory.displacement))
            }
            plan::What::Block { element, is_write } => {
                format!("{}: block {element} {is_write}", items[check.at].line - 3)
            }
        })
        .collect()
}

#[test]
fn accesses_to_a_line_share_a_call_out() {
    assert_eq!(
        checks("\tmovl (%rdi), %eax\n\taddl 4(%rdi), %eax\n\tmovl 8(%rdi), %ecx\n"),
        ["0: read (%rdi) to 12(%rdi) in two lines x3"]
    );
    assert_eq!(
        checks("\tmovl (%rdi), %eax\n\tmovl %eax, (%rdi)\n"),
        ["0: read (%rdi) to 4(%rdi) x2", "1: write (%rdi) to 4(%rdi) x0"]
    );
    assert_eq!(checks("\taddl $1, (%rdi)\n"), ["0: write (%rdi) to 4(%rdi) x2"]);
    assert_eq!(checks("\tmovq 8(%rdi), %rax\n\tmovq 8(%rdi), %rcx\n"), ["0: read 8(%rdi) to 16(%rdi) x2"]);
}

#[test]
fn what_lies_between_keeps_call_outs_apart() {
    for between in
        ["\taddq $8, %rdi\n", "\tcall g\n", "\tjne .L3\n", "\tmfence\n", "\tfoo %eax\n", "#APP\n\tnop\n#NO_APP\n"]
    {
        let found = checks(&format!("\tmovl (%rdi), %eax\n{between}\taddl 4(%rdi), %eax\n"));
        assert_eq!(found.len(), 2, "{between}: {found:?}");
    }
    assert_eq!(checks("\tmovl (%rdi), %eax\n\tmovl 64(%rdi), %ecx\n").len(), 2, "two lines");
    assert_eq!(checks("\tmovl (%rdi), %eax\n\tmovl 4(%rsi), %ecx\n").len(), 2, "two places");
    // A label that only debug information names is none that control comes to.
    assert_eq!(checks("\tmovl (%rdi), %eax\n.LVL3:\n\taddl (%rdi), %eax\n").len(), 1);
}

#[test]
fn a_call_out_goes_before_the_flags_that_live_over_its_access() {
    assert_eq!(checks("\tcmpl %esi, %edx\n\tmovl (%rdi), %eax\n\tjne .L2\n.L2:\n"), ["0: read (%rdi) to 4(%rdi) x1"]);
    let text = format!("{HEAD}\tcmpl %esi, %edx\n\tmovq %rsi, %rdi\n\tmovl (%rdi), %eax\n\tsete %al\n\tret\n");
    let found = instrument(&text).text;
    assert!(
        found.contains("movq %rsi, %rdi\n\tleaq\t(%rdi), %rcx\n") && !found.contains("testq"),
        "no first stage, which needs the flags: {found}"
    );
}

#[test]
fn only_dead_registers_are_used_as_they_are() {
    let text = format!(
        "{HEAD}\tmovl (%rdi), %eax\n\taddq %rcx, %rdx\n\taddq %rdx, %rsi\n\taddq %rsi, %rax\n\taddq %r8, %rax\n\taddq %r9, %rax\n\tret\n"
    );
    let found = instrument(&text).text;
    let saved: Vec<&str> =
        found.lines().filter(|line| line.contains(", -120(%rsp)") || line.contains(", -112(%rsp)")).collect();
    // r10, r11 and rax are dead; one more is saved.
    assert_eq!(saved, ["\tmovq\t%rcx, -120(%rsp)"], "{found}");
    assert!(found.contains("\tmovq\t-120(%rsp), %rcx\n"));
}

#[test]
fn what_is_left_alone_is_said_in_the_object() {
    let text = format!(
        "{HEAD}\tmovl (%rdi), %eax\n\tvgatherdpd %ymm1, (%rax,%xmm2,8), %ymm0\n#APP\n\tmovl (%rsi), %eax\n#NO_APP\n\tret\n"
    );
    let found = instrument(&text);
    assert_eq!((found.counts.seen, found.counts.left.values().sum::<u64>()), (1, 2));
    let words =
        "1 with call-outs; left alone, gathers, scatters and masked vectors: 1; left alone, the user's assembly: 1";
    assert!(found.text.contains(words), "{}", found.text);
    assert!(found.text.contains("np_after_wide") && !found.text.contains("np_after_few"));
}

#[test]
fn only_compilers_are_taken_for_compilers() {
    assert!(
        is_compiled("\t.ident\t\"GCC: (Debian 12.2.0-14+deb12u1) 12.2.0\"\n")
            && is_compiled("\t.ident\t\"Debian clang version 14.0.6\"\n")
    );
    assert!(!is_compiled("\t.globl f\nf:\tret\n"));
}

#[test]
fn call_outs_have_the_line_of_their_access() {
    let text = format!(
        "{HEAD}\t.loc 1 7 3 view .LVU2\n\tcmpl %esi, %edx\n\t.loc 1 8 5 is_stmt 0\n\tmovl (%rdi), %eax\n\tjne .L2\n.L2:\n\tret\n"
    );
    let found = instrument(&text).text;
    let lines: Vec<&str> = found
        .lines()
        .filter(|line| line.contains(".loc") || line.contains("call\t") || line.contains("cmpl %"))
        .collect();
    assert_eq!(
        lines,
        [
            "\t.loc 1 7 3 view .LVU2",
            "\t.loc\t1 8 5",
            "\tcall\tnp_after_few",
            "\t.loc\t1 7 3",
            "\tcmpl %esi, %edx",
            "\t.loc 1 8 5 is_stmt 0"
        ],
        "{found}"
    );
}

/// Streams of the loops of a body, as at their labels, with bytes a turn; and accesses a turn.
fn turns(body: &str) -> Vec<(Vec<String>, u32)> {
    let text = format!("{HEAD}{body}\tret\n");
    let items = parse(&text);
    let streams = |turns: &plan::Turns<'_>| {
        let texts = turns.streams.iter().map(|(check, advance)| match check.what {
            plan::What::Span { memory, low, high, .. } => {
                format!("{} to {} by {advance}", memory.at(low), memory.at(high))
            }
            _ => String::new(),
        });
        (texts.collect(), turns.count)
    };
    plan::plan(&items).turns.iter().map(streams).collect()
}

const TWO_STREAMS: &str =
    ".L2:\n\tmovl (%rdi,%rax,4), %ecx\n\taddq $1, %rax\n\tmovsd -8(%rsi,%rax,8), %xmm0\n\tcmpq %rax, %r8\n\tjne .L2\n";

#[test]
fn what_advances_is_looked_for_at_the_head_of_its_loop() {
    let both = ["(%rdi,%rax,4) to 4(%rdi,%rax,4) by 4", "(%rsi,%rax,8) to 8(%rsi,%rax,8) by 8"];
    // The second index has advanced before its access, in the same turn.
    assert_eq!(turns(TWO_STREAMS), [(both.map(str::to_owned).to_vec(), 2)]);
    assert!(checks(TWO_STREAMS).is_empty());
    let down = ".L2:\n\tsubq $24, %rdi\n\tmovl 8(%rdi), %eax\n\tmovl %eax, 8(%rdi)\n\tcmpq %rdi, %rsi\n\tjne .L2\n";
    let streams = ["-16(%rdi) to -12(%rdi) by -24", "-16(%rdi) to -12(%rdi) by -24"];
    assert_eq!(turns(down), [(streams.map(str::to_owned).to_vec(), 2)], "a read and a write");
}

#[test]
fn what_data_tells_is_looked_for_each_turn_and_counted_with_the_others() {
    let body = ".L2:\n\tmovslq (%rdi,%rax,4), %rcx\n\taddsd (%rsi,%rcx,8), %xmm0\n\taddq $1, %rax\n\tcmpq %rax, %r8\n\tjne .L2\n";
    assert_eq!(turns(body), [(vec!["(%rdi,%rax,4) to 4(%rdi,%rax,4) by 4".to_owned()], 2)]);
    assert_eq!(checks(body), ["2: read (%rsi,%rcx,8) to 8(%rsi,%rcx,8) x0"]);
}

#[test]
fn loops_whose_flags_live_on_look_each_turn() {
    let behind = format!("{TWO_STREAMS}\tsete %al\n");
    let before = format!("\tcmpq %rax, %rdx\n{}", TWO_STREAMS.replace("\taddq", "\tsete %dl\n\taddq"));
    for body in [behind, before, TWO_STREAMS.replace(".L2:\n", ".L2: ")] {
        assert!(turns(&body).is_empty(), "{body}");
        assert_eq!(checks(&body).len(), 2, "{body}");
    }
}

#[test]
fn streams_leave_registers_for_the_look() {
    let registers = ["rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10"];
    let accesses = registers.map(|name| format!("\taddl (%{name}), %eax\n\taddq $4, %{name}\n")).concat();
    let found = turns(&format!(".L2:\n{accesses}\tcmpq %r10, %r11\n\tjne .L2\n"));
    assert_eq!(found.iter().map(|(streams, count)| (streams.len(), *count)).collect::<Vec<_>>(), [(5, 7)]);
    assert_eq!(checks(&format!(".L2:\n{accesses}\tcmpq %r10, %r11\n\tjne .L2\n")).len(), 2);
}

#[test]
fn places_of_files_that_come_later_are_not_named_before() {
    let body = TWO_STREAMS.replacen(".L2:\n", ".L2:\n\t.file 3 \"late.h\"\n\t.loc 3 5 1\n", 1);
    let found = instrument(&format!("{HEAD}\t.loc 1 2 3\n{body}\tret\n")).text;
    let before = found.split(".file").next().unwrap_or_default();
    assert!(before.contains(".Lnp_turn") && !before.contains(".loc\t3"), "{found}");
}

proptest::proptest! {
    /// Nothing of the file is lost or changed.
    #[test]
    fn lines_stay(body in "((movl|addq|vmovups|call|jne|lock addl|foo)( \\$1,)? (8)?\\(%r(di|ax|sp)\\)(, %eax)?\n|\\.L[0-9]:\n){0,20}") {
        let text = format!("{HEAD}{body}\tret\n");
        let found = instrument(&text).text;
        let mut rest = found.lines();
        for line in text.lines() {
            proptest::prop_assert!(rest.any(|other| other == line), "{line:?} of\n{found}");
        }
    }
}
