//! The result for people: a table per part, the reasons below it, and one summary line.

use std::fmt::Write;

use numapilot_text::style::{Look, clean, wrap};
use numapilot_text::table::{Align, Table};
use numapilot_text::units;

use crate::contention::{Contention, Member, Row};
use crate::outcome::{Check, Part, PartResult, SelfTest, Verdict};

/// Renders the result as text.
#[must_use]
pub fn render(all: &SelfTest, look: Look) -> String {
    let mut out = String::new();
    for (label, text) in &all.host {
        let _ = writeln!(out, "{label:<15}{}", clean(text));
    }
    for part in &all.parts {
        out.push('\n');
        self::part(&mut out, part, look);
    }
    let _ = writeln!(out, "\n{}", summary(all, look));
    out
}

/// One line: how many checks passed, failed, and could not be judged.
fn summary(all: &SelfTest, look: Look) -> String {
    let [passed, failed, open] = [Verdict::Pass, Verdict::Fail, Verdict::NotJudged].map(|verdict| all.count(verdict));
    let line = format!("{passed} passed, {failed} failed, {open} not judged");
    match all.verdict {
        Verdict::Pass => look.strong(&line),
        Verdict::Fail => {
            look.warning(&format!("{line}: attach the output of `numapilot selftest --json` to a bug report"))
        }
        Verdict::NotJudged => line,
    }
}

fn title(part: Part) -> &'static str {
    match part {
        Part::Contention => "CONTENTION: slow-down of programs that run side by side, predicted against measured",
        Part::Placement => "PLACEMENT: pages where policies put them",
        Part::Engines => "ENGINES: recordings of a program whose accesses are known",
        Part::LatencyOrder => "LATENCY ORDER: idle latencies against the firmware's distances",
    }
}

fn part(out: &mut String, part: &PartResult, look: Look) {
    let _ = writeln!(out, "{}", look.heading(title(part.part)));
    if let Some(contention) = &part.contention {
        rows(out, contention, look);
    }
    for check in &part.checks {
        self::check(out, check, look);
    }
}

fn check(out: &mut String, check: &Check, look: Look) {
    let word = format!("{:<11}", check.verdict.words());
    let word = match check.verdict {
        Verdict::Pass => look.strong(&word),
        Verdict::Fail => look.warning(&word),
        Verdict::NotJudged => look.faint(&word),
    };
    let _ = writeln!(out, "  {word}{}", clean(&check.name));
    indented(out, &check.reason, look);
    if let (Some(expected), Some(found), true) = (&check.expected, &check.found, check.verdict == Verdict::Fail) {
        indented(out, &format!("Expected: {expected}"), look);
        indented(out, &format!("Found: {found}"), look);
    }
}

fn indented(out: &mut String, text: &str, look: Look) {
    for line in wrap(&clean(text), look.width.saturating_sub(13)) {
        let _ = writeln!(out, "             {line}");
    }
}

/// Each program of each row with its slow-down, scene by scene.
fn rows(out: &mut String, contention: &Contention, look: Look) {
    let mut at = 0;
    while let Some(first) = contention.rows.get(at) {
        let same = |row: &&Row| row.scene == first.scene && row.members.len() == first.members.len();
        let of_scene: Vec<&Row> = contention.rows[at..].iter().take_while(same).collect();
        at += of_scene.len();
        let threads: Vec<String> = first.members.iter().map(|member| member.threads.to_string()).collect();
        let _ = writeln!(out, "  {}; threads of each program: {}", clean(&first.scene), threads.join(", "));
        out.push_str(&table(&of_scene).render(look, 2));
    }
    for note in &contention.notes {
        for line in wrap(&clean(&format!("Note: {note}")), look.width.saturating_sub(2)) {
            let _ = writeln!(out, "  {}", look.faint(&line));
        }
    }
    for line in left_out(contention).iter().flat_map(|words| wrap(words, look.width.saturating_sub(2))) {
        let _ = writeln!(out, "  {line}");
    }
    if let Some(medians) = &contention.medians {
        let words = format!(
            "Median error: {} predicted, {} by \"no slow-down\"; median effect {}, median spread {} over {} rounds.",
            units::percent(medians.error),
            units::percent(medians.baseline_error),
            units::percent(medians.effect),
            units::percent(medians.spread),
            contention.rounds
        );
        for line in wrap(&words, look.width.saturating_sub(2)) {
            let _ = writeln!(out, "  {line}");
        }
    }
}

/// How many rounds and rows do not count because the machine was another one; `None` where all do.
fn left_out(contention: &Contention) -> Option<String> {
    let rounds = units::counted(contention.rounds_left_out as u64, "round", "rounds");
    let changed = contention.rows.iter().filter(|row| !row.is_judged).count();
    (contention.rounds_left_out > 0).then(|| {
        format!(
            "Left out: {rounds}, before or after which the CPUs read clearly more or less together than when the model was measured; rows that are \
             not judged for that reason: {changed} of {}.",
            contention.rows.len()
        )
    })
}

fn table(rows: &[&Row]) -> Table {
    let mut table = Table::new()
        .flexible("PROGRAMS", 12)
        .column("MEASURED", Align::Left)
        .column("± %", Align::Left)
        .column("PREDICTED", Align::Left)
        .column("ERROR %", Align::Left)
        .column("BASELINE %", Align::Left)
        .column("ROUNDS", Align::Right)
        .column("BUSY", Align::Right);
    for row in rows {
        let each = |value: &dyn Fn(&Member) -> String| row.members.iter().map(value).collect::<Vec<_>>().join(" ");
        // Columns under a `%`.
        let percent = |share: f64| format!("{:.0}", share * 100.0);
        let names: Vec<&str> = row.members.iter().map(|member| member.program.as_str()).collect();
        let ran = row.rounds + row.rounds_left_out;
        table.row([
            names.join(" + "),
            each(&|member| format!("{:.2}", member.measured)),
            each(&|member| percent(member.spread)),
            each(&|member| format!("{:.2}", member.predicted)),
            each(&|member| percent(member.error())),
            each(&|member| percent(member.baseline_error())),
            if row.rounds_left_out == 0 { ran.to_string() } else { format!("{} of {ran}", row.rounds) },
            units::whole_percent(row.disturbed_share),
        ]);
        if !row.is_judged {
            table.remark("", "not judged: the machine changed");
        }
    }
    table
}

#[cfg(test)]
mod tests {
    //! Rows with rounds that do not count.

    use numapilot_machine::NodeId;

    use super::*;

    fn row(rounds: usize, rounds_left_out: usize, is_judged: bool) -> Row {
        let member = Member {
            program: "read".to_owned(),
            threads: 1,
            cpu_node: NodeId(0),
            memory_node: NodeId(0),
            alone_per_s: 2e8,
            together_per_s: 1e8,
            measured: 2.0,
            spread: 0.01,
            predicted: 1.9,
        };
        let members = vec![member.clone(), member];
        Row { scene: "all on node 0".to_owned(), members, disturbed_share: 0.0, rounds, rounds_left_out, is_judged }
    }

    /// The text of these rows, with one blank between words.
    fn shown(of: Vec<Row>, width: usize) -> String {
        let rounds_left_out = of.iter().map(|row| row.rounds_left_out).sum();
        let contention = Contention { rounds: 9, rounds_left_out, rows: of, ..Contention::default() };
        let mut out = String::new();
        rows(&mut out, &contention, Look { width, colour: false });
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rounds_and_rows_that_do_not_count_are_told() {
        let steady = shown(vec![row(9, 0, true)], 100);
        assert!(!steady.contains("Left out") && !steady.contains("not judged"), "{steady}");
        for width in [80, 140] {
            let changed = shown(vec![row(9, 2, true), row(2, 25, false)], width);
            assert!(changed.contains(" 9 of 11 ") && changed.contains(" 2 of 27 "), "{changed}");
            assert_eq!(changed.matches("read + read").count(), 2, "{changed}");
            assert_eq!(changed.matches("not judged: the machine changed").count(), 1, "{changed}");
            assert!(
                changed.contains("Left out: 27 rounds") && changed.contains("for that reason: 1 of 2."),
                "{changed}"
            );
        }
    }
}
