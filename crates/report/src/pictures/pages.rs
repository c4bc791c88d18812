//! One object's memory from its first page to its last: where the pages are, and how much each node reaches them.

use numapilot_flows::{Filter, Trace};
use numapilot_insight::{Analysis, ObjectDetail, PAGE_BYTES};
use numapilot_text::units;
use numapilot_text::units::short_percent;
use numapilot_trace::ids::ObjectId;

use crate::counted::Counted;
use crate::estimates;
use crate::export::{Export, ExportError};
use crate::svg_writer::{SvgWriter, Type};
use crate::traffic::scale;

use super::palette::{self, FAINT, INK, OTHERS};
use super::sheet::{MARGIN, TOP, WIDTH, begin, key, no_access, nothing};

/// Largest number of stretches of pages.
const STRETCHES: usize = 128;
const NAMES: f64 = 90.0;
/// Height of the strip of homes.
const HOMES: f64 = 20.0;
/// Heights of all rows together, and of one at most.
const ROWS: f64 = 300.0;
const ROW: f64 = 40.0;

pub fn svg(export: &Export<'_>) -> Result<String, ExportError> {
    let Some(object) = chosen(export) else {
        let why = if export.analysis.totals().samples > 0 { "no object is known" } else { no_access(export) };
        return Ok(nothing(export, &format!("Pages of an object of {}", export.heading.program()), why));
    };
    // Its share is that of all objects' accesses, whatever object was asked for.
    let (analysis, filter) = (export.analysis, export.analysis.filter().clone());
    let filter = Filter { object: None, site: None, ..filter };
    let wide = Analysis::new(export.trace(), analysis.nodes(), analysis.memory_nodes(), filter);
    let detail = wide.object_detail(object, 1, STRETCHES).ok_or(ExportError::NeedsObject("pages"))?;
    let (trace, row) = (export.trace(), &detail.row);
    let place = if row.place.is_empty() { String::new() } else { format!(" ({})", row.place) };
    let title = format!("Pages of {}{place}", row.name);
    let bytes = trace.object(object).map_or(0, |object| object.bytes);
    let finding = format!(
        "object {object}, {}: {} of the {}, {} of its own remote",
        units::bytes(bytes),
        estimates::share(&row.share),
        export.counted().in_full(),
        if row.knows_homes() { estimates::share(&row.remote) } else { "an unknown share".to_owned() }
    );
    let count = export.analysis.nodes().len();
    let height = (ROWS / count as f64).min(ROW);
    let mut writer = begin(export, &title, &finding, 40.0 + HOMES + 16.0 + height * count as f64 + 78.0);
    let stretches = Stretches::of(&detail, trace, object);
    homes(&mut writer, export, &stretches, TOP + 34.0);
    let top = TOP + 34.0 + HOMES + 16.0;
    reaches(&mut writer, export, &stretches, top, height);
    foot(&mut writer, &stretches, (bytes, export.counted()), top + height * count as f64);
    Ok(writer.finish())
}

/// The filter's object, or the instance that receives most accesses.
fn chosen(export: &Export<'_>) -> Option<ObjectId> {
    if let Some(object) = export.analysis.filter().object {
        return Some(object);
    }
    match export.analysis.objects(export.analysis.filter().site, 1).first()?.key {
        numapilot_insight::RowKey::Object(object) => Some(object),
        _ => None,
    }
}

/// The rows of the detail, with their place in the object.
struct Stretches<'a> {
    rows: Vec<(usize, &'a numapilot_insight::PageRow)>,
    count: usize,
    pages_each: u64,
    all: f64,
}

impl<'a> Stretches<'a> {
    fn of(detail: &'a ObjectDetail, trace: &Trace, object: ObjectId) -> Stretches<'a> {
        let (address, bytes) = trace.object(object).map_or((0, 0), |object| (object.address.0, object.bytes));
        let first = address / PAGE_BYTES;
        let pages = (address.saturating_add(bytes.max(1) - 1) / PAGE_BYTES).saturating_sub(first) + 1;
        let pages_each = pages.div_ceil(STRETCHES as u64);
        let count = pages.div_ceil(pages_each) as usize;
        let place = |row: &numapilot_insight::PageRow| {
            ((row.address.0 / PAGE_BYTES).saturating_sub(first) / pages_each) as usize
        };
        let rows = detail.pages.iter().map(|row| (place(row).min(count - 1), row)).collect();
        let all = detail.pages.iter().flat_map(|row| &row.from_node).sum();
        Stretches { rows, count, pages_each, all }
    }

    fn column(&self) -> f64 {
        (WIDTH - 2.0 * MARGIN - NAMES) / self.count as f64
    }

    fn x(&self, place: usize) -> f64 {
        MARGIN + NAMES + place as f64 * self.column()
    }
}

/// The strip on top: each stretch in its home's colour, or in two of them where its pages have several.
fn homes(writer: &mut SvgWriter, export: &Export<'_>, stretches: &Stretches<'_>, y: f64) {
    let nodes = export.analysis.nodes();
    let served = |node: usize| stretches.rows.iter().map(|(_, row)| row.on_node[node]).sum::<f64>();
    let mut shown: Vec<usize> = (0..nodes.len()).filter(|&node| served(node) > 0.0).collect();
    shown.sort_by(|&a, &b| served(b).total_cmp(&served(a)).then(a.cmp(&b)));
    shown.truncate(palette::NODE_COLOURS);
    shown.sort_unstable();
    let colour = |node: usize| shown.iter().position(|&other| other == node).map_or(OTHERS, palette::node);
    writer.text((MARGIN, y + 14.0), Type::new(11.5, INK), "pages on");
    for (place, row) in &stretches.rows {
        let all: f64 = row.on_node.iter().sum();
        let mut x = stretches.x(*place);
        for (node, part) in row.on_node.iter().enumerate().filter(|(_, part)| **part > 0.0) {
            let width = part / all * stretches.column();
            writer.rect((x, y), (width + 0.1, HOMES), 0.0, &format!(r#"fill="{}""#, colour(node)));
            x += width;
        }
    }
    let mut entries: Vec<(&str, String)> =
        shown.iter().map(|&node| (colour(node), format!("node {}", nodes[node]))).collect();
    if (0..nodes.len()).any(|node| served(node) > 0.0 && !shown.contains(&node)) {
        entries.push((OTHERS, "other nodes".to_owned()));
    }
    key(writer, MARGIN + NAMES, y - 12.0, &entries);
}

/// A row for each node: the darker, the more its threads reach that stretch.
fn reaches(writer: &mut SvgWriter, export: &Export<'_>, stretches: &Stretches<'_>, top: f64, height: f64) {
    let nodes = export.analysis.nodes();
    let most = stretches.rows.iter().flat_map(|(_, row)| &row.from_node).copied().fold(0.0, f64::max).max(1e-9);
    let gap = if height > 8.0 { 2.0 } else { 0.0 };
    let every = (13.0 / height).ceil().max(1.0) as usize;
    for (index, node) in nodes.iter().enumerate() {
        let y = top + index as f64 * height;
        let width = stretches.column() * stretches.count as f64;
        writer.rect((stretches.x(0), y), (width, height - gap), 0.0, r##"fill="#f1f1ec""##);
        if index % every == 0 {
            let made: f64 = stretches.rows.iter().map(|(_, row)| row.from_node[index]).sum();
            writer.text((MARGIN, y + height / 2.0 + 3.0), Type::new(11.5, INK), &format!("node {node}"));
            let share = short_percent(made / stretches.all.max(1e-9));
            let at = (MARGIN + NAMES - 8.0, y + height / 2.0 + 3.0);
            writer.text(at, Type::new(10.5, FAINT).anchored("end"), &share);
        }
        for (place, row) in stretches.rows.iter().filter(|(_, row)| row.from_node[index] > 0.0) {
            let colour = scale::colour(0.08 + 0.92 * row.from_node[index] / most);
            let at = (stretches.x(*place), y);
            writer.rect(at, (stretches.column() + 0.1, height - gap), 0.0, &format!(r#"fill="{colour}""#));
        }
    }
}

fn foot(writer: &mut SvgWriter, stretches: &Stretches<'_>, (bytes, counted): (u64, Counted), y: f64) {
    const STEPS: usize = 40;
    let (left, right) = (stretches.x(0), stretches.x(stretches.count));
    writer.line((left, y + 4.0), (right, y + 4.0), &format!(r#"stroke="{INK}""#));
    for part in 0..=4u64 {
        let x = left + (right - left) * part as f64 / 4.0;
        writer.line((x, y + 4.0), (x, y + 9.0), &format!(r#"stroke="{INK}""#));
        let anchor = ["start", "middle", "middle", "middle", "end"][part as usize];
        writer.text((x, y + 22.0), Type::new(11.0, FAINT).anchored(anchor), &units::bytes(bytes / 4 * part));
    }
    let pages = stretches.pages_each;
    let each =
        if pages == 1 { "one column per page".to_owned() } else { format!("one column per {pages} pages of 4 KiB") };
    writer.text(
        (left, y + 46.0),
        Type::new(11.0, FAINT),
        &format!("offset in the object; {each}; empty: no {}", counted.or_faults("sampled access", "page fault")),
    );
    for step in 0..STEPS {
        let x = right - 212.0 + 80.0 * step as f64 / STEPS as f64;
        let colour = scale::colour(0.08 + 0.92 * step as f64 / (STEPS - 1) as f64);
        writer.rect((x, y + 37.0), (80.0 / STEPS as f64 + 0.4, 10.0), 0.0, &format!(r#"fill="{colour}""#));
    }
    writer.text((right, y + 46.0), Type::new(11.0, FAINT).anchored("end"), &format!("few to most {}", counted.many()));
}
