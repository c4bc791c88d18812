//! Call stacks from the outermost function down: as wide as the amount under them (accesses, bytes of the heap), the darker the larger a part of it (remote
//! accesses, bytes never freed).

use std::collections::BTreeMap;

use numapilot_flows::{LocationId, Trace};
use numapilot_text::style::{clean, shorten};
use numapilot_text::units;
use numapilot_text::units::short_percent;
use unicode_width::UnicodeWidthChar;

use crate::estimates;
use crate::estimates::found;
use crate::export::{Export, places};
use crate::svg_writer::{SvgWriter, Type, text_width};
use crate::traffic::scale;

use super::palette::FAINT;
use super::sheet::{MARGIN, TOP, WIDTH, begin, no_access, nothing};

const ROW: f64 = 19.0;
/// Height of a line of the notes.
const LINE: f64 = 16.0;
/// Deeper frames are left out, and counted.
const DEPTH: usize = 32;
/// Width of the narrowest box that is drawn, in pixels.
const NARROWEST: f64 = 0.7;
const SIZE: f64 = 11.0;

/// A function called from its parent, with everything under it.
#[derive(Default)]
pub(super) struct Call<'a> {
    amount: f64,
    /// The part of it of which is known whether it is dark.
    known: f64,
    dark: f64,
    /// By name, so that the picture does not depend on the order of samples.
    callees: BTreeMap<&'a str, Call<'a>>,
}

impl<'a> Call<'a> {
    fn add(&mut self, amount: f64, is_dark: Option<bool>) {
        self.amount += amount;
        if let Some(is_dark) = is_dark {
            self.known += amount;
            self.dark += if is_dark { amount } else { 0.0 };
        }
    }

    fn dark_share(&self) -> f64 {
        if self.known > 0.0 { self.dark / self.known } else { 0.0 }
    }

    fn depth(&self) -> usize {
        1 + self.callees.values().map(Call::depth).max().unwrap_or(0)
    }

    fn descend(&mut self, name: &'a str) -> &mut Call<'a> {
        self.callees.entry(name).or_default()
    }
}

/// Call stacks, with amounts under them.
#[derive(Default)]
pub(super) struct Flame<'a> {
    root: Call<'a>,
    /// The amount under stacks that are deeper than is drawn.
    cut: f64,
}

impl<'a> Flame<'a> {
    /// Adds amounts under the functions of a stack, given innermost first; each with whether it is dark, where that is known.
    pub(super) fn add(
        &mut self,
        trace: &'a Trace,
        stack: impl DoubleEndedIterator<Item = LocationId>,
        amounts: &[(f64, Option<bool>)],
    ) {
        let frames: Vec<&str> = stack
            .rev()
            .flat_map(|place| trace.location(place).frames.iter().rev())
            .map(|frame| if frame.function.is_empty() { "(unknown)" } else { &*frame.function })
            .collect();
        let count = |call: &mut Call<'a>| {
            for &(amount, is_dark) in amounts {
                call.add(amount, is_dark);
            }
        };
        if frames.len() > DEPTH {
            self.cut += amounts.iter().map(|(amount, _)| amount).sum::<f64>();
        }
        let mut call = &mut self.root;
        count(call);
        for name in frames.into_iter().take(DEPTH) {
            call = call.descend(name);
            count(call);
        }
    }

    /// The dark part of all amounts.
    pub(super) fn dark(&self) -> f64 {
        self.root.dark
    }

    pub(super) fn is_empty(&self) -> bool {
        self.root.amount <= 0.0
    }
}

/// What widths and colours stand for, in words.
pub(super) struct Meaning {
    /// `Code that accesses memory: app`.
    pub title: String,
    /// The line below the title.
    pub finding: String,
    /// What amounts are of: `accesses`.
    pub what: &'static str,
    /// What a width is: `accesses made by a function and what it calls`.
    pub width: &'static str,
    /// What light colours stand for: `local`.
    pub light: &'static str,
    /// What dark colours stand for: `remote`.
    pub dark: &'static str,
}

/// Accesses by the code that makes them.
pub fn svg(export: &Export<'_>) -> String {
    let counted = export.counted();
    let what = counted.or_faults("Code that accesses memory", "Code that has page faults");
    let title = format!("{what}: {}", export.heading.program());
    let flame = of_accesses(export);
    if flame.is_empty() {
        return nothing(export, &title, no_access(export));
    }
    let totals = export.analysis.totals();
    let finding = format!(
        "{} of {} remote, {}",
        estimates::remote_share(&totals),
        estimates::remote_base(&totals, counted.in_full()),
        found(totals.source)
    );
    let width = counted
        .or_faults("accesses made by a function and what it calls", "page faults of a function and what it calls");
    let what = counted.many();
    picture(export, &flame, &Meaning { title, finding, what, width, light: "local", dark: "remote" })
}

/// Draws call stacks from the outermost function down.
pub(super) fn picture(export: &Export<'_>, flame: &Flame<'_>, meaning: &Meaning) -> String {
    let root = &flame.root;
    let rows = root.depth();
    let mut writer = begin(export, &meaning.title, &meaning.finding, ROW * rows as f64 + 62.0);
    let width = WIDTH - 2.0 * MARGIN;
    let mut drawing = Drawing { writer: &mut writer, meaning, all: root.amount, hidden: 0 };
    drawing.draw(("all", root), (MARGIN, width), 0);
    let hidden = drawing.hidden;
    let y = TOP + ROW * rows as f64 + 26.0;
    let x = legend(&mut writer, meaning, y);
    writer.text((x, y + 9.0), Type::new(SIZE, FAINT), &format!("width: {}", meaning.width));
    // On a line of their own: beside that, they would not fit.
    let mut notes = Vec::new();
    if hidden > 0 {
        notes.push(format!("{} too narrow to draw", units::counted(hidden as u64, "box", "boxes")));
    }
    if flame.cut > 0.0 {
        notes.push(format!(
            "{} of {} go deeper than {DEPTH} calls",
            short_percent(flame.cut / root.amount),
            meaning.what
        ));
    }
    if !notes.is_empty() {
        writer.text((x, y + 9.0 + LINE), Type::new(SIZE, FAINT), &notes.join("; "));
    }
    writer.finish()
}

fn of_accesses<'a>(export: &'a Export<'a>) -> Flame<'a> {
    let trace: &Trace = export.trace();
    // Stacks are few, accesses are many: sums per stack first.
    let mut sums: BTreeMap<_, [f64; 3]> = BTreeMap::new();
    for access in export.accesses() {
        let sum = sums.entry((access.stack, access.location)).or_default();
        let kind = access.is_remote().map_or(2, usize::from);
        sum[kind] += f64::from(access.weight);
    }
    let mut flame = Flame::default();
    for ((stack, location), [local, remote, unknown]) in sums {
        let amounts = [(local, Some(false)), (remote, Some(true)), (unknown, None)];
        flame.add(trace, places(trace, stack, location), &amounts);
    }
    flame
}

/// A picture while its boxes are drawn.
struct Drawing<'a> {
    writer: &'a mut SvgWriter,
    meaning: &'a Meaning,
    all: f64,
    hidden: usize,
}

impl Drawing<'_> {
    fn draw(&mut self, (name, call): (&str, &Call<'_>), (x, width): (f64, f64), depth: usize) {
        let y = TOP + ROW * depth as f64;
        let dark = call.dark_share();
        let style = format!(r##"fill="{}" stroke="#ffffff" stroke-width="0.6""##, scale::colour(0.06 + 0.8 * dark));
        let story = format!(
            "{}: {} of {}, {} {}",
            shorten(name, 200),
            short_percent(call.amount / self.all),
            self.meaning.what,
            short_percent(dark),
            self.meaning.dark
        );
        self.writer.titled_rect((x, y), (width, ROW - 1.0), &style, &clean(&story));
        let name = clean(name);
        if width > 24.0 {
            let kind = Type::new(SIZE, scale::ink_on(0.06 + 0.8 * dark));
            self.writer.text((x + 3.5, y + 13.0), kind, &label(&name, width - 6.0));
        }
        let mut next = x;
        for (callee, inner) in &call.callees {
            let part = inner.amount / call.amount * width;
            if part >= NARROWEST {
                self.draw((callee, inner), (next, part), depth + 1);
            } else {
                self.hidden += 1;
            }
            next += part;
        }
    }
}

/// As much of a name as fits: without arguments, then without namespaces, then its beginning.
fn label(name: &str, width: f64) -> String {
    let short = short_name(name);
    // Colons within template arguments separate nothing.
    let outside = short.find('<').unwrap_or(short.len());
    let mut tails = vec![short];
    tails.extend(short[..outside].match_indices("::").map(|(at, _)| &short[at + 2..]));
    let fitting = tails.iter().find(|tail| text_width(tail, SIZE) <= width);
    let columns = (width / (SIZE * 0.58)) as usize;
    let beginning = || {
        let mut used = 0;
        let fits = |c: &char| {
            used += c.width().unwrap_or(0);
            used < columns
        };
        tails.last().map_or("", |tail| tail).chars().take_while(fits).collect::<String>() + "…"
    };
    fitting.map_or_else(beginning, |tail| (*tail).to_owned())
}

/// The name without its arguments.
fn short_name(name: &str) -> &str {
    let end = name
        .char_indices()
        .find(|&(index, c)| c == '(' && index > 0 && !name[..index].ends_with("operator"))
        .map(|(index, _)| index);
    end.map_or(name, |end| &name[..end])
}

/// Draws the scale of colours; returns where the next text goes.
fn legend(writer: &mut SvgWriter, meaning: &Meaning, y: f64) -> f64 {
    const STEPS: usize = 40;
    let bar = 110.0;
    let from = MARGIN + text_width(meaning.light, SIZE).ceil() + 8.0;
    writer.text((MARGIN, y + 9.0), Type::new(SIZE, FAINT), meaning.light);
    for step in 0..STEPS {
        let share = step as f64 / (STEPS - 1) as f64;
        let x = from + bar * step as f64 / STEPS as f64;
        writer.rect(
            (x, y),
            (bar / STEPS as f64 + 0.4, 11.0),
            0.0,
            &format!(r#"fill="{}""#, scale::colour(0.06 + 0.8 * share)),
        );
    }
    writer.text((from + bar + 6.0, y + 9.0), Type::new(SIZE, FAINT), meaning.dark);
    from + bar + 6.0 + text_width(meaning.dark, SIZE).ceil() + 24.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_arguments_only() {
        assert_eq!(short_name("fluid::Mesh::gather(int, double*)"), "fluid::Mesh::gather");
        assert_eq!(short_name("operator()(int)"), "operator()");
        assert_eq!(short_name("(unknown)"), "(unknown)");
        assert_eq!(short_name("main"), "main");
        assert_eq!(label("a::Bee::see(int)", 200.0), "a::Bee::see");
        assert_eq!(label("a::Bee::see(int)", 60.0), "Bee::see");
        assert_eq!(label("a::Bee::see(int)", 30.0), "see");
        assert_eq!(label("a::Bee::see_the_sea(int)", 40.0), "see_t…");
        // As wide as the type is high: seven would take 77 pixels.
        assert_eq!(label("流体解析計算部", 60.0), "流体解析…");
    }
}
