//! The table of limits for a terminal.

use std::fmt::Write;

use numapilot_insight::check::{Judgement, Verdict};
use numapilot_text::style::wrap;
use numapilot_text::style::{Look, clean};
use numapilot_text::table::{Align, Table};
use numapilot_text::units;

use super::{blame, found, subject, verdict};

/// Renders the judgements. `is_failure` says which verdicts fail the check.
#[must_use]
pub fn render(judgements: &[Judgement], is_failure: impl Fn(Verdict) -> bool, look: Look) -> String {
    let mut table = Table::new()
        .flexible("LIMIT", 20)
        .column("AT MOST", Align::Right)
        .column("FOUND", Align::Right)
        .column("", Align::Left);
    for judged in judgements {
        let greatest = units::percent(judged.limit.greatest());
        table.row([subject(judged), greatest, found(judged), verdict(judged.verdict).to_owned()]);
    }
    let mut reasons = String::new();
    for judged in judgements.iter().filter(|judged| judged.verdict != Verdict::Kept) {
        let reason = match &judged.object {
            _ if !judged.remark.is_empty() => judged.remark.clone(),
            Some(object) => format!("largest contribution: {}", blame(object)),
            None => continue,
        };
        let words = clean(&format!("{}: {reason}", subject(judged)));
        wrap(&words, look.width.saturating_sub(2)).iter().for_each(|line| {
            let _ = writeln!(reasons, "  {line}");
        });
    }
    let gap = if reasons.is_empty() { "" } else { "\n" };
    let failed = judgements.iter().filter(|judged| is_failure(judged.verdict)).count();
    let unknown = judgements.iter().any(|judged| judged.verdict == Verdict::Unknown);
    let doubted = judgements.iter().filter(|judged| judged.verdict == Verdict::InDoubt).count();
    let line = match failed {
        0 if unknown => "not every limit could be judged".to_owned(),
        0 if doubted > 0 => "no limit is exceeded for certain; see those in doubt".to_owned(),
        0 => "within all limits".to_owned(),
        n if doubted > 0 => format!("{n} of the limits exceeded or in doubt"),
        1 => "one limit is exceeded".to_owned(),
        n => format!("{n} limits are exceeded"),
    };
    let line = if failed > 0 || unknown || doubted > 0 { look.warning(&line) } else { look.strong(&line) };
    format!("{line}\n\n{}{gap}{reasons}", table.render(look, 0))
}
