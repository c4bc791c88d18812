//! The top of every report: three lines that say what matters, then what was recorded and what got lost.

use numapilot_insight::Headline;
use numapilot_insight::RowKey;
use numapilot_insight::Source;
use numapilot_insight::Verdict;
use numapilot_machine::NodeId;

use super::objects::usage;
use super::style::Look;
use super::style::clean;
use super::style::shorten;
use crate::heading::Heading;
use crate::units;

/// The three lines: share of remote accesses, controller imbalance, the object that draws most.
#[must_use]
pub fn headline(headline: &Headline, nodes: &[NodeId], look: Look) -> String {
    let totals = &headline.totals;
    if headline.verdict == Verdict::NothingSeen {
        return "Remote accesses       none seen: this recording holds no memory accesses\n\
                Controller imbalance  -\n\
                Top object            -\n"
            .to_owned();
    }
    let how = match totals.source {
        Source::Counted => "counted".to_owned(),
        Source::Sampled => format!("from {} samples", units::count(totals.samples as f64)),
    };
    let remote = format!(
        "{} of {} memory accesses ({how})",
        look.strong(&units::share(&totals.remote_share)),
        units::count(totals.accesses.value)
    );
    let busiest = totals.served.iter().zip(nodes).max_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let all: f64 = totals.served.iter().map(|served| served.value).sum();
    let busiest = busiest.filter(|_| all > 0.0).map_or_else(String::new, |(served, node)| {
        format!("; node {node} serves {} of them", units::percent(served.value / all))
    });
    let imbalance = format!(
        "{} (population; {:.0} % by the sample definition){busiest}",
        look.strong(&whole_percent(totals.imbalance.population.value)),
        totals.imbalance.sample.value * 100.0
    );
    let top = headline.top.as_ref().map_or_else(
        || "-".to_owned(),
        |row| {
            let place = if row.place.is_empty() { String::new() } else { format!(" ({})", row.place) };
            let id = if let RowKey::Site(site) = row.key { format!("S{}: ", site.0) } else { String::new() };
            let text = clean(&format!(
                "{}{place} draws {} of them, {} remote; {}",
                row.name,
                units::share(&row.share),
                units::percent(row.remote.value),
                usage(row)
            ));
            format!("{id}{}", look.strong(&shorten(&text, look.width.saturating_sub(22 + id.len()))))
        },
    );
    format!("Remote accesses       {remote}\nController imbalance  {imbalance}\nTop object            {top}\n")
}

fn whole_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// What was recorded, how, and what limits the figures.
#[must_use]
pub fn heading(heading: &Heading, look: Look) -> String {
    let line = |title: &str, text: &str| {
        let text = shorten(&clean(text), look.width.saturating_sub(22));
        format!("{}{text}\n", look.faint(&format!("{title:<22}")))
    };
    let mut text = String::new();
    if !heading.command.is_empty() {
        text.push_str(&line("Program", &heading.command.join(" ")));
    }
    let kind = if heading.is_simulated { "simulated" } else { "this is real hardware" };
    let nodes = if heading.node_count == 1 { "1 node".to_owned() } else { format!("{} nodes", heading.node_count) };
    let placement = if heading.placement.is_empty() { String::new() } else { format!("; {}", heading.placement) };
    text.push_str(&line("Machine", &format!("{} ({nodes}, {kind}){placement}", heading.machine)));
    let seen = format!(
        "engine {}; {} of program time, {} threads, {} processes, {} objects",
        heading.engine,
        units::time_ns(heading.program_time_ns),
        heading.thread_count,
        heading.process_count,
        units::count(heading.object_count as f64)
    );
    text.push_str(&line("Recorded", &seen));
    for note in &heading.notes {
        text.push_str(&line("Note", note));
    }
    for limit in heading.limits() {
        let limit = shorten(&clean(&limit), look.width.saturating_sub(22));
        text.push_str(&format!("{}{}\n", look.faint(&format!("{:<22}", "Limits")), look.warning(&limit)));
    }
    text
}
