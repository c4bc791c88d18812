//! The top of every report: three lines with the main figures, then what was recorded and which records were lost.

use numapilot_insight::DecisionRow;
use numapilot_insight::Headline;
use numapilot_insight::Source;
use numapilot_insight::Totals;
use numapilot_insight::Verdict;
use numapilot_insight::WithoutCpus;
use numapilot_machine::NodeId;
use numapilot_text::style::Look;
use numapilot_text::style::clean;
use numapilot_text::style::shorten;
use numapilot_text::style::wrap;
use numapilot_text::units;
use numapilot_trace::engine::Engine;
use unicode_width::UnicodeWidthStr;

use super::objects::usage;
use crate::estimates;
use crate::heading::Heading;

/// Columns of the labels on the left.
const LABEL: usize = 22;
/// Approximate number of lines that a program's arguments may take.
const COMMAND_LINES: usize = 4;

/// The three lines: share of remote accesses, controller imbalance, and the object with most accesses. A fourth one says what nodes without CPUs serve, where
/// the machine has such.
#[must_use]
pub fn headline(headline: &Headline, nodes: &[NodeId], look: Look) -> String {
    let totals = &headline.totals;
    if let Some(blindness) = &headline.blindness {
        let lines = wrap(&clean(&blindness.says()), look.width);
        return lines.iter().map(|line| look.warning(line) + "\n").collect();
    }
    if headline.verdict == Verdict::NotSampled {
        return "Remote accesses       unknown: no event of memory accesses was sampled (the notes say what was)\n\
                Controller imbalance  unknown\n\
                Top object            unknown\n"
            .to_owned();
    }
    let none = match headline.verdict {
        Verdict::NothingSeen => Some("this recording holds no memory accesses"),
        Verdict::NothingPasses => Some("no memory access passes the filters"),
        _ => None,
    };
    if let Some(why) = none {
        return format!("Remote accesses       none: {why}\nController imbalance  -\nTop object            -\n");
    }
    let top = headline.top.as_ref().map_or_else(|| "-".to_owned(), |row| top_object(row, look));
    if headline.verdict == Verdict::HomesUnknown {
        let accesses = units::count(totals.accesses.value);
        return format!(
            "Remote accesses       unknown: most of {accesses} memory accesses have no known home node\n\
             Controller imbalance  unknown\n\
             Top object            {top}\n"
        );
    }
    let how = match totals.source {
        Source::Counted => "counted".to_owned(),
        Source::Sampled => format!("{} samples", units::count(totals.samples as f64)),
    };
    let room = look.width.saturating_sub(LABEL);
    let remote = remote(totals, &how, room, look);
    let busiest = totals.served.iter().zip(nodes).max_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let all: f64 = totals.served.iter().map(|served| served.value).sum();
    let busiest = busiest.filter(|_| all > 0.0).map_or_else(String::new, |(served, node)| {
        format!("; node {node} serves {}", units::part_percent(served.value / all))
    });
    let value = estimates::whole(&totals.imbalance.population);
    let sample = format!("{} by the sample definition", units::whole_percent(totals.imbalance.sample.value));
    let imbalance = format!("{} (population; {sample}){busiest}", look.strong(&value));
    let imbalance = if value.width() + sample.width() + busiest.width() + 15 > room {
        look.strong(&value) + &busiest
    } else {
        imbalance
    };
    let apart = headline
        .without_cpus
        .as_ref()
        .map_or_else(String::new, |apart| format!("Without CPUs          {}\n", without_cpus(apart, room)));
    format!("Remote accesses       {remote}\n{apart}Controller imbalance  {imbalance}\nTop object            {top}\n")
}

/// What stands before the three lines: what is missing of the program itself. Empty where nothing is.
#[must_use]
pub fn missing(heading: &Heading, look: Look) -> String {
    let lines = heading.missing().into_iter().flat_map(|says| wrap(&clean(&says), look.width));
    lines.map(|line| look.warning(&line) + "\n").collect()
}

/// The share of accesses that nodes without CPUs serve, and as far as that fits on the line, what that means.
fn without_cpus(apart: &WithoutCpus, room: usize) -> String {
    let list = numapilot_machine::format_cpu_list(apart.nodes.iter().map(|node| u32::from(node.0)));
    let plural = if apart.nodes.len() > 1 { "s" } else { "" };
    let share = format!("{} to node{plural} {list}", units::part_percent(apart.share));
    let whole = format!("{share}, where no thread can run: remote from everywhere");
    if whole.width() <= room { whole } else { share }
}

/// The share of remote accesses, and what it is of, as far as that fits on the line.
fn remote(totals: &Totals, how: &str, room: usize, look: Look) -> String {
    let share = estimates::share(&totals.remote_share);
    let in_all = match totals.knows_all_homes() {
        true => String::new(),
        false => format!("{} in all; ", units::count(totals.accesses.value)),
    };
    let whole = format!(" of {} ({in_all}{how})", estimates::remote_base(totals, "memory accesses"));
    if share.width() + whole.width() <= room || totals.knows_all_homes() {
        return look.strong(&share) + &whole;
    }
    look.strong(&share) + &format!(" of {}", estimates::remote_base(totals, "accesses"))
}

/// Name, place, share and use of the top object, as far as they fit on the line. The share is of all accesses, whatever is known of their homes.
fn top_object(row: &DecisionRow, look: Look) -> String {
    let room = look.width.saturating_sub(LABEL);
    let receives = format!(": {} of all accesses", estimates::share(&row.share));
    let place = if row.place.is_empty() { String::new() } else { format!(" ({})", row.place) };
    let name = shorten(&clean(&row.name), room.saturating_sub(receives.width()));
    let mut left = room.saturating_sub(name.width() + receives.width());
    let mut fitting = |text: String| {
        let fits = text.width() <= left;
        left -= if fits { text.width() } else { 0 };
        if fits { text } else { String::new() }
    };
    let remote = match row.knows_homes() {
        true => fitting(format!(", {} remote", units::part_percent(row.remote.value))),
        false => String::new(),
    };
    let place = fitting(clean(&place));
    let usage = fitting(format!("; {}", usage(row)));
    format!("{}{receives}{remote}{usage}", look.strong(&format!("{name}{place}")))
}

/// What was recorded, how, and what limits the figures.
#[must_use]
pub fn heading(heading: &Heading, look: Look) -> String {
    let block = |title: &str, text: &str, paint: &dyn Fn(&str) -> String| {
        let lines = wrap(&clean(text), look.width.saturating_sub(LABEL));
        let titled = lines.iter().enumerate().map(|(index, line)| {
            let title = if index == 0 { title } else { "" };
            format!("{}{}\n", look.faint(&format!("{title:<LABEL$}")), paint(line))
        });
        titled.collect::<String>()
    };
    let line = |title: &str, text: &str| block(title, text, &str::to_owned);
    let mut text = String::new();
    if !heading.command.is_empty() {
        // A command line of thousands of arguments is shortened in the middle.
        let command = shorten(&clean(&heading.command.join(" ")), COMMAND_LINES * look.width);
        text.push_str(&line("Program", &command));
    }
    let kind = heading.origin.words();
    let nodes = units::counted(heading.node_count as u64, "node", "nodes");
    let placement = if heading.placement.is_empty() { String::new() } else { format!("; {}", heading.placement) };
    // Of a machine without a name, only those nodes are known that were seen.
    let alone = heading.node_count == 1 && !heading.machine.is_empty() && heading.engine != Engine::Track;
    let alone = if alone { "; all memory is local where there is one node, so nothing can be remote" } else { "" };
    text.push_str(&line("Machine", &format!("{} ({nodes}, {kind}){placement}{alone}", heading.machine)));
    let seen = format!(
        "engine {}; {} of program time, {}, {}, {}",
        heading.engine,
        units::time_ns(heading.program_time_ns),
        units::counted(heading.thread_count as u64, "thread", "threads"),
        units::counted(heading.process_count as u64, "process", "processes"),
        units::counted(heading.object_count as u64, "object", "objects")
    );
    text.push_str(&line("Recorded", &seen));
    if !heading.instrumented.is_empty() {
        text.push_str(&line("Instrumented", &heading.instrumented.join("; ")));
    }
    for note in &heading.notes {
        text.push_str(&line("Note", note));
    }
    for limit in heading.limits() {
        text.push_str(&block("Limits", &limit, &|line| look.warning(line)));
    }
    text
}

#[cfg(test)]
mod tests {
    use numapilot_flows::Filter;
    use numapilot_flows::SiteId;
    use numapilot_insight::Analysis;
    use numapilot_machine::Machine;
    use numapilot_trace::ids::TimeNs;
    use numapilot_trace::unrecorded::UnrecordedProgram;

    use super::super::matrix;
    use super::*;
    use crate::counted::Counted;
    use crate::fixture::of_unknown_homes;

    /// A laptop's or a virtual machine's report was read for remote accesses that it cannot have.
    #[test]
    fn a_machine_of_one_node_is_said_to_have_nothing_remote() {
        let of = |node_count: usize, machine: &str| {
            let told = Heading { node_count, machine: machine.to_owned(), ..Heading::default() };
            heading(&told, Look::default()).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(of(1, "live").contains("so nothing can be remote"), "{}", of(1, "live"));
        for (node_count, machine) in [(2, "live"), (1, "")] {
            assert!(!of(node_count, machine).contains("remote"), "{}", of(node_count, machine));
        }
    }

    /// A report named the objects of the shell that had started a program of Go.
    #[test]
    fn a_program_of_which_nothing_was_recorded_is_told_first() {
        let program = UnrecordedProgram { path: "/srv/table".to_owned(), share: 0.9, ..UnrecordedProgram::default() };
        let told = Heading { unrecorded_program: Some(program), ..Heading::default() };
        assert!(missing(&told, Look::default()).starts_with("table used 90 % of the processor time"));
        assert_eq!(missing(&Heading::default(), Look::default()), "");
    }

    /// Accesses to a CXL expander were remote ones like any, as if threads could run beside them.
    #[test]
    fn what_nodes_without_cpus_serve_has_a_line_of_its_own() {
        let opened = of_unknown_homes();
        let expanded = Machine::load("xeon-2s-cxl").expect("a model");
        let top = |machine: &Machine| {
            let analysis = Analysis::on(&opened.trace, Some(machine), Filter::default());
            headline(&analysis.headline(), analysis.nodes(), Look::default())
        };
        let line = "\nWithout CPUs          0.0 % to node 2, where no thread can run: remote from everywhere\nController imbalance";
        assert!(top(&expanded).contains(line), "{}", top(&expanded));
        assert!(!top(&Machine::load("opteron-8385").expect("a model")).contains("Without CPUs"));
        let apart = WithoutCpus { nodes: vec![NodeId(2), NodeId(3)], share: 0.25 };
        assert_eq!(without_cpus(&apart, 30), "25.0 % to nodes 2-3");
    }

    #[test]
    fn shares_say_what_they_are_of_where_some_homes_are_unknown() {
        let opened = of_unknown_homes();
        let say = |filter: Filter, width: usize| {
            opened.with(filter, |export| {
                let look = Look { width, ..Look::default() };
                let top = headline(&export.analysis.headline(), export.analysis.nodes(), look);
                top + &matrix(&export.analysis.matrix(), look, Counted::Accesses)
            })
        };
        let some = say(Filter::default(), 110);
        assert!(some.contains(" of 44 memory accesses with known home (80 in all; 80 samples)\n"), "{some}");
        assert!(some.contains(": 50.0 % of all accesses"), "{some}");
        assert!(
            some.contains("% of 44 memory accesses with known home, estimated from samples; [local]; 36 more"),
            "{some}"
        );
        let narrow = say(Filter::default(), 70);
        assert!(narrow.contains(" of 44 accesses with known home\n"), "{narrow}");
        assert!(narrow.lines().all(|line| line.width() <= 80), "{narrow}");
        let all = say(Filter { site: Some(SiteId(0)), ..Filter::default() }, 110);
        assert!(
            all.contains(" of 40 memory accesses (40 samples)\n")
                && all.contains(" % of all accesses")
                && !all.contains("of them"),
            "{all}"
        );
        assert!(!all.contains("known home"), "{all}");
    }

    #[test]
    fn a_filter_that_nothing_passes_says_nothing_of_the_recording() {
        let late = Filter { time: Some(TimeNs(5000)..TimeNs(6000)), ..Filter::default() };
        let says = of_unknown_homes()
            .with(late, |export| headline(&export.analysis.headline(), export.analysis.nodes(), Look::default()));
        assert!(says.starts_with("Remote accesses       none: no memory access passes the filters\n"), "{says}");
    }
}
