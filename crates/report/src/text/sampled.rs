//! Objects of Java, of which a sample was recorded: what they add up to in sentences, and a table of classes and lines. Figures are estimates, and say so.

use numapilot_insight::Estimate;
use numapilot_insight::SampledHeap;
use numapilot_insight::SampledRow;
use numapilot_text::style::Look;
use numapilot_text::style::legend;
use numapilot_text::style::more_rows;
use numapilot_text::style::wrap;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;

use super::objects::short_function;

const LEGEND: &str = "SAMPLES: objects that were sampled as they were allocated; ~BYTES and ~OBJECTS: what was allocated, estimated from them, ±%: half \
    of the 95 % interval of ~BYTES; ~AT PEAK: bytes at the moment at which all these objects took most; ~LEFT: bytes at the end, garbage that no \
    collection had found included; THR: threads that allocated samples.";

/// The totals and the first `top` sites.
#[must_use]
pub fn sampled_heap(sampled: &SampledHeap, top: usize, look: Look) -> String {
    let mut text = String::new();
    for line in wrap(&sentences(sampled), look.width.saturating_sub(2)) {
        text.push_str(&format!("  {line}\n"));
    }
    if sampled.sites.is_empty() {
        return text;
    }
    text.push('\n');
    text + &sites(&sampled.sites, top, look)
}

/// What was sampled, and what it stands for.
fn sentences(sampled: &SampledHeap) -> String {
    let total = &sampled.total;
    if total.samples == 0 {
        return "No object was sampled in the selected part of the recording.".to_owned();
    }
    let samples = units::counted(total.samples, "sample", "samples");
    let drawn = match sampled.interval_bytes {
        [0, 0] => format!("Estimated from {samples}: each object that was allocated"),
        [least, most] => {
            let [least, most] = [least, most].map(|bytes| units::bytes(u64::from(bytes)));
            let interval = if least == most { least } else { format!("{least} to {most}") };
            format!("Estimated from {samples}: one for each {interval} that a thread allocated, on average")
        }
    };
    let bytes = |estimate: &Estimate| range(estimate, |value| units::bytes(value as u64));
    format!(
        "{drawn}. They stand for {} in {} objects that were allocated. The most at one moment was {}, at {}; {} were left at the end. \
         Ranges are intervals of 95 %.",
        bytes(&total.allocated_bytes),
        range(&total.allocations, |value| units::count(value.round())),
        bytes(&total.at_peak_bytes),
        units::time_ns(sampled.peak_time.0),
        bytes(&total.left_bytes),
    )
}

/// An interval of 95 %, or one value where both ends read alike.
fn range(estimate: &Estimate, shown: impl Fn(f64) -> String) -> String {
    let (low, high) = (shown(estimate.low), shown(estimate.high));
    if low == high { format!("about {low}") } else { format!("{low} to {high}") }
}

fn sites(rows: &[SampledRow], top: usize, look: Look) -> String {
    let is_wide = look.width >= 96;
    let mut table = Table::new()
        .dense()
        .column("ID", Align::Left)
        .flexible("OBJECT", 6)
        .column("SAMPLES", Align::Right)
        .column("~BYTES", Align::Right)
        .column("±%", Align::Right)
        .column("~OBJECTS", Align::Right)
        .column("~AT PEAK", Align::Right);
    if is_wide {
        table = table.column("~LEFT", Align::Right).column("THR", Align::Right);
    }
    for row in rows.iter().take(top) {
        let usage = &row.usage;
        let bytes = |estimate: &Estimate| units::bytes(estimate.value as u64);
        let mut cells = vec![
            format!("S{}", row.site.0),
            row.name.clone(),
            units::count(usage.samples as f64),
            bytes(&usage.allocated_bytes),
            margin(&usage.allocated_bytes),
            units::count(usage.allocations.value.round()),
            bytes(&usage.at_peak_bytes),
        ];
        if is_wide {
            cells.push(bytes(&usage.left_bytes));
            cells.push(usage.allocating_threads.to_string());
        }
        table.row(cells);
        table.remark(&row.place, &remark(row));
    }
    table.render(look, 0) + &more_rows(rows.len(), top, look) + &legend(LEGEND, look)
}

/// Half of the interval in percent of the estimate.
fn margin(estimate: &Estimate) -> String {
    let percent = if estimate.value > 0.0 { estimate.margin() / estimate.value * 100.0 } else { 0.0 };
    match percent {
        p if p > 99.0 => ">99".to_owned(),
        p if p > 0.0 && p < 0.5 => "<1".to_owned(),
        p => format!("{p:.0}"),
    }
}

/// The method, and how large its objects are.
fn remark(row: &SampledRow) -> String {
    let method = match (row.place.is_empty(), row.function.is_empty()) {
        (false, false) => format!(" in {}(), ", short_function(&row.function)),
        (true, false) => format!("{}(), ", short_function(&row.function)),
        (false, true) => ", ".to_owned(),
        (true, true) => String::new(),
    };
    let mean = row.usage.allocated_bytes.value / row.usage.allocations.value.max(1.0);
    format!("{method}about {} an object", units::bytes(mean.round() as u64))
}

#[cfg(test)]
mod tests {
    use numapilot_flows::SiteId;
    use numapilot_insight::SampledUse;
    use numapilot_trace::ids::TimeNs;

    use super::*;

    fn usage(samples: u64, bytes: f64) -> SampledUse {
        let about = |value: f64| Estimate { value, low: value * 0.75, high: value * 1.25 };
        SampledUse {
            samples,
            allocations: about(bytes / 1000.0),
            allocated_bytes: about(bytes),
            at_peak_bytes: about(bytes / 4.0),
            left_bytes: Estimate::exact(0.0),
            allocating_threads: 3,
        }
    }

    fn made(interval_bytes: [u32; 2]) -> SampledHeap {
        let row = SampledRow {
            site: SiteId(7),
            name: "double[]".to_owned(),
            place: "Grid.java:12".to_owned(),
            function: "acme.Grid.fill".to_owned(),
            usage: usage(64, f64::from(4 << 20)),
        };
        SampledHeap {
            interval_bytes,
            total: usage(64, f64::from(4 << 20)),
            peak_time: TimeNs(1_500_000),
            sites: vec![row],
        }
    }

    /// Make sure that no estimate reads as a count.
    #[test]
    fn estimates_are_told_as_such_with_what_they_come_from() {
        for width in [80, 140] {
            let text = sampled_heap(&made([65_536, 65_536]), 9, Look { width, colour: false });
            let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for needed in [
                "Estimated from 64 samples: one for each 64.0 KiB that a thread allocated, on average.",
                "They stand for 3.00 MiB to 5.00 MiB in 3146 to 5243 objects that were allocated.",
                "The most at one moment was 768 KiB to 1.25 MiB, at 1.50 ms; about 0 B were left at the end.",
                "~BYTES ±% ~OBJECTS",
                "S7 double[] 64 4.00 MiB 25 4194 1.00 MiB",
                "Grid.java:12 in acme.Grid.fill(), about 1000 B an object",
            ] {
                assert!(one_line.contains(needed), "no `{needed}` in\n{text}");
            }
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
    }

    #[test]
    fn distances_that_changed_and_none_are_told() {
        let says = |interval| sentences(&made(interval));
        assert!(says([65_536, 131_072]).contains("one for each 64.0 KiB to 128 KiB that a thread allocated"));
        assert!(says([0, 0]).contains("64 samples: each object that was allocated."), "{}", says([0, 0]));
        let nothing =
            SampledHeap { total: SampledUse { samples: 0, ..usage(0, 0.0) }, sites: Vec::new(), ..made([1, 1]) };
        assert_eq!(
            sampled_heap(&nothing, 9, Look::default()),
            "  No object was sampled in the selected part of the recording.\n"
        );
    }

    #[test]
    fn a_margin_is_half_the_interval_in_percent() {
        assert_eq!(margin(&Estimate { value: 200.0, low: 150.0, high: 260.0 }), "28");
        assert_eq!(margin(&Estimate { value: 1.0, low: 0.0, high: 5.0 }), ">99");
        assert_eq!(margin(&Estimate { value: 1000.0, low: 999.0, high: 1001.0 }), "<1");
        assert_eq!((margin(&Estimate::exact(7.0)), margin(&Estimate::exact(0.0))), ("0".to_owned(), "0".to_owned()));
    }
}
