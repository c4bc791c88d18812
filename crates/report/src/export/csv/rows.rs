//! The rankings: sites, instances, threads, functions, stacks. Most accesses first; shares are of what the filter lets pass.

use numapilot_insight::{DecisionRow, Estimate, RowKey};
use serde_json::Value;

use super::sheet::{Sheet, three};
use crate::export::{Export, ExportError};

/// The word that the JSON report has for it.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn per_node(export: &Export<'_>, prefix: &str) -> Vec<String> {
    export.analysis.nodes().iter().map(|node| format!("{prefix}{node}")).collect()
}

/// Shares by node; empty cells where they are shares of nothing.
fn values(sheet: &mut Sheet<'_>, estimates: &[Estimate]) {
    for estimate in estimates {
        sheet.maybe(Some(estimate.value).filter(|_| !estimate.is_share_of_nothing()));
    }
}

/// The columns of a decision row.
fn decision_header(export: &Export<'_>) -> Vec<String> {
    let mut header: Vec<String> =
        ["site", "object", "kind", "name", "place", "function", "instances", "bytes", "samples"]
            .map(str::to_owned)
            .to_vec();
    for name in [
        "accesses",
        "share",
        "share_of_remote",
        "remote",
        "writes",
        "avoidable_by_pinning",
        "avoidable_by_allocating_elsewhere",
    ] {
        header.extend(three(name));
    }
    header.push("best_node".to_owned());
    header.extend(per_node(export, "from_node_"));
    header.extend(per_node(export, "on_node_"));
    let last = [
        "by_allocator",
        "before_others",
        "first_thread",
        "allocating_thread",
        "threads",
        "nodes",
        "mean_latency_cycles",
        "pattern",
        "peak_live_bytes",
        "peak_live_instances",
        "total_allocated_bytes",
        "allocated_instances",
    ];
    header.extend(last.map(str::to_owned));
    header
}

pub fn decisions(export: &Export<'_>, rows: &[DecisionRow], sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    sheet.header(decision_header(export))?;
    for row in rows {
        let (site, object) = match row.key {
            RowKey::Site(site) => (Some(site.0), None),
            RowKey::Object(object) => (export.trace().object(object).map(|object| object.site.0), Some(object)),
            RowKey::Unknown => (None, None),
        };
        sheet.maybe(site);
        sheet.maybe(object);
        sheet.plain(row.kind.word());
        for text in [&row.name, &row.place, &row.function] {
            sheet.text(text);
        }
        for number in [row.instances, row.bytes, row.samples] {
            sheet.plain(number);
        }
        let if_known = |share| Some(share).filter(|_| row.knows_homes());
        sheet.estimate(&row.accesses);
        sheet.estimate(&row.share);
        sheet.maybe_estimate(if_known(&row.share_of_remote));
        sheet.maybe_estimate(if_known(&row.remote));
        sheet.estimate(&row.writes);
        sheet.maybe_estimate(row.avoidable_by_pinning.as_ref().and_then(if_known));
        sheet.maybe_estimate(if_known(&row.avoidable_by_allocating_elsewhere));
        sheet.maybe(row.best_node);
        values(sheet, &row.from_node);
        for share in &row.on_node {
            sheet.maybe(if_known(share).map(|share| share.value));
        }
        sheet.maybe(row.by_allocator.map(|share| share.value));
        sheet.maybe(row.before_others.map(|share| share.value));
        sheet.maybe(row.first_thread);
        sheet.maybe(row.allocating_thread);
        sheet.plain(row.threads);
        sheet.plain(row.nodes);
        sheet.maybe(row.mean_latency_cycles);
        sheet.plain(word(&row.pattern));
        let size = &row.size;
        for number in
            [size.peak_live_bytes, size.peak_live_instances, size.total_allocated_bytes, size.allocated_instances]
        {
            sheet.plain(number);
        }
        sheet.end()?;
    }
    Ok(())
}

pub fn threads(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    let mut header: Vec<String> =
        ["thread", "process", "tid", "name", "start_function", "cpu", "node", "start_ns", "end_ns", "samples"]
            .map(str::to_owned)
            .to_vec();
    for name in ["accesses", "share", "remote", "writes"] {
        header.extend(three(name));
    }
    header.extend(per_node(export, "on_node_"));
    header.extend(["wait_cycles", "top_site", "top_site_name"].map(str::to_owned));
    sheet.header(header)?;
    for row in export.analysis.threads() {
        sheet.plain(row.thread);
        sheet.plain(row.process);
        sheet.plain(row.tid);
        sheet.text(&row.name);
        sheet.text(&row.start_function);
        sheet.maybe(row.cpu);
        sheet.maybe(row.node);
        sheet.plain(row.start);
        sheet.maybe(row.end);
        sheet.plain(row.samples);
        for estimate in [&row.accesses, &row.share] {
            sheet.estimate(estimate);
        }
        sheet.share(&row.remote);
        sheet.share(&row.writes);
        // A thread without samples has none.
        let mut on_node = row.on_node.clone();
        on_node.resize(export.analysis.nodes().len(), Estimate { value: 0.0, low: 0.0, high: 1.0 });
        values(sheet, &on_node);
        sheet.maybe(row.wait_cycles);
        top_site(export, row.top_site, sheet);
        sheet.end()?;
    }
    Ok(())
}

fn top_site(export: &Export<'_>, site: Option<numapilot_flows::SiteId>, sheet: &mut Sheet<'_>) {
    sheet.maybe(site.map(|site| site.0));
    sheet.text(&site.and_then(|site| export.trace().site(site)).map_or_else(String::new, |site| site.name.to_string()));
}

pub fn functions(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    let mut header: Vec<String> = ["function", "module", "file", "line", "samples"].map(str::to_owned).to_vec();
    for name in ["accesses", "share", "remote", "writes"] {
        header.extend(three(name));
    }
    header.extend(["top_site", "top_site_name"].map(str::to_owned));
    sheet.header(header)?;
    for row in export.analysis.functions() {
        for text in [&row.function, &row.module, &row.file] {
            sheet.text(text);
        }
        sheet.plain(row.line);
        sheet.plain(row.samples);
        for estimate in [&row.accesses, &row.share] {
            sheet.estimate(estimate);
        }
        sheet.share(&row.remote);
        sheet.estimate(&row.writes);
        top_site(export, row.top_site, sheet);
        sheet.end()?;
    }
    Ok(())
}

pub fn stacks(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    let mut header: Vec<String> = ["stack", "samples"].map(str::to_owned).to_vec();
    for name in ["accesses", "share", "remote"] {
        header.extend(three(name));
    }
    header.extend(["top_site", "top_site_name", "frames"].map(str::to_owned));
    sheet.header(header)?;
    for row in export.analysis.stacks() {
        sheet.plain(row.stack);
        sheet.plain(row.samples);
        for estimate in [&row.accesses, &row.share] {
            sheet.estimate(estimate);
        }
        sheet.share(&row.remote);
        top_site(export, row.top_site, sheet);
        // A list in a cell: JSON, because names may hold any separator.
        let places = export.trace().stack(row.stack).iter().map(|&place| export.trace().location(place));
        let frames: Value =
            places.flat_map(|place| place.frames.iter().map(|frame| Value::from(&*frame.function))).collect();
        sheet.text(&frames.to_string());
        sheet.end()?;
    }
    Ok(())
}
