//! Call stacks from the outermost function down: as wide as the accesses under them, the darker the more of these are remote.

use std::collections::BTreeMap;

use numapilot_flows::Trace;

use crate::export::{Export, places};
use crate::svg_writer::{SvgWriter, Type, text_width};
use crate::text::{clean, shorten};
use crate::traffic::scale;
use crate::units;
use crate::units::found;
use crate::units::short_percent;

use super::palette::FAINT;
use super::sheet::{MARGIN, TOP, WIDTH, begin, nothing};

const ROW: f64 = 19.0;
/// Deeper frames are left out, and counted.
const DEPTH: usize = 32;
/// Width of the narrowest box that is drawn, in pixels.
const NARROWEST: f64 = 0.7;
const SIZE: f64 = 11.0;

/// A function called from its parent, with everything under it.
#[derive(Default)]
struct Call<'a> {
    accesses: f64,
    /// Number of accesses with a known home node.
    known: f64,
    remote: f64,
    /// By name, so that the picture does not depend on the order of samples.
    callees: BTreeMap<&'a str, Call<'a>>,
}

impl<'a> Call<'a> {
    fn add(&mut self, weight: f64, is_remote: Option<bool>) {
        self.accesses += weight;
        if let Some(is_remote) = is_remote {
            self.known += weight;
            self.remote += if is_remote { weight } else { 0.0 };
        }
    }

    fn remote_share(&self) -> f64 {
        if self.known > 0.0 { self.remote / self.known } else { 0.0 }
    }

    fn depth(&self) -> usize {
        1 + self.callees.values().map(Call::depth).max().unwrap_or(0)
    }

    fn descend(&mut self, name: &'a str) -> &mut Call<'a> {
        self.callees.entry(name).or_default()
    }
}

pub fn svg(export: &Export<'_>, scope: &str) -> String {
    let title = format!("Code that accesses memory: {}", export.heading.program());
    let (root, cut) = tree(export);
    if root.accesses <= 0.0 {
        return nothing(export, scope, &title);
    }
    let totals = export.analysis.totals();
    let finding = format!(
        "{} of {} memory accesses remote, {}",
        units::share(&totals.remote_share),
        units::count(totals.accesses.value),
        found(totals.source)
    );
    let rows = root.depth();
    let mut writer = begin(export, scope, &title, &finding, ROW * rows as f64 + 62.0);
    let width = WIDTH - 2.0 * MARGIN;
    let mut hidden = 0;
    draw(&mut writer, ("all", &root), (MARGIN, width), 0, root.accesses, &mut hidden);
    let y = TOP + ROW * rows as f64 + 26.0;
    legend(&mut writer, y);
    let mut notes = vec!["width: accesses made by a function and what it calls".to_owned()];
    if hidden > 0 {
        notes.push(format!("{hidden} boxes too narrow to draw"));
    }
    if cut > 0.0 {
        notes.push(format!("{} of accesses go deeper than {DEPTH} calls", short_percent(cut / root.accesses)));
    }
    writer.text((MARGIN + 250.0, y + 9.0), Type::new(SIZE, FAINT), &notes.join("; "));
    writer.finish()
}

/// The calls, and the accesses whose stacks are deeper than is drawn.
fn tree<'a>(export: &'a Export<'a>) -> (Call<'a>, f64) {
    let trace: &Trace = export.trace();
    // Stacks are few, accesses are many: sums per stack first.
    let mut sums: BTreeMap<_, [f64; 3]> = BTreeMap::new();
    for access in export.accesses() {
        let sum = sums.entry((access.stack, access.location)).or_default();
        let kind = access.is_remote().map_or(2, usize::from);
        sum[kind] += f64::from(access.weight);
    }
    let mut root = Call::default();
    let mut cut = 0.0;
    for ((stack, location), sums) in sums {
        let frames: Vec<&str> = places(trace, stack, location)
            .rev()
            .flat_map(|place| trace.location(place).frames.iter().rev())
            .map(|frame| if frame.function.is_empty() { "(unknown)" } else { &*frame.function })
            .collect();
        let count = |call: &mut Call<'a>| {
            for (weight, is_remote) in sums.into_iter().zip([Some(false), Some(true), None]) {
                call.add(weight, is_remote);
            }
        };
        if frames.len() > DEPTH {
            cut += sums.iter().sum::<f64>();
        }
        let mut call = &mut root;
        count(call);
        for name in frames.into_iter().take(DEPTH) {
            call = call.descend(name);
            count(call);
        }
    }
    (root, cut)
}

fn draw(
    writer: &mut SvgWriter,
    (name, call): (&str, &Call<'_>),
    (x, width): (f64, f64),
    depth: usize,
    all: f64,
    hidden: &mut usize,
) {
    let y = TOP + ROW * depth as f64;
    let remote = call.remote_share();
    let style = format!(r##"fill="{}" stroke="#ffffff" stroke-width="0.6""##, scale::colour(0.06 + 0.8 * remote));
    let story = format!(
        "{}: {} of accesses, {} remote",
        shorten(name, 200),
        short_percent(call.accesses / all),
        short_percent(remote)
    );
    writer.titled_rect((x, y), (width, ROW - 1.0), &style, &clean(&story));
    let name = clean(name);
    if width > 24.0 {
        let kind = Type::new(SIZE, scale::ink_on(0.06 + 0.8 * remote));
        writer.text((x + 3.5, y + 13.0), kind, &label(&name, width - 6.0));
    }
    let mut next = x;
    for (callee, inner) in &call.callees {
        let part = inner.accesses / call.accesses * width;
        if part >= NARROWEST {
            draw(writer, (callee, inner), (next, part), depth + 1, all, hidden);
        } else {
            *hidden += 1;
        }
        next += part;
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
    let beginning =
        || tails.last().map_or("", |tail| tail).chars().take(columns.saturating_sub(1)).collect::<String>() + "…";
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

fn legend(writer: &mut SvgWriter, y: f64) {
    const STEPS: usize = 40;
    let bar = 110.0;
    writer.text((MARGIN, y + 9.0), Type::new(SIZE, FAINT), "local");
    for step in 0..STEPS {
        let share = step as f64 / (STEPS - 1) as f64;
        let x = MARGIN + 34.0 + bar * step as f64 / STEPS as f64;
        writer.rect(
            (x, y),
            (bar / STEPS as f64 + 0.4, 11.0),
            0.0,
            &format!(r#"fill="{}""#, scale::colour(0.06 + 0.8 * share)),
        );
    }
    writer.text((MARGIN + 34.0 + bar + 6.0, y + 9.0), Type::new(SIZE, FAINT), "remote");
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
    }
}
