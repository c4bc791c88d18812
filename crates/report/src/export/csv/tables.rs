//! The plain tables: objects, the matrix, links, one object's pages, time, accesses, losses.

use numapilot_insight::{PageRow, link_traffic};
use numapilot_machine::Endpoint;

use super::sheet::{Sheet, three};
use crate::export::{Export, ExportError};

/// Number of slices of program time.
const TIME_SLICES: usize = 200;

/// Every object that lived, also those that no sampled access reached.
pub fn objects(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    sheet.header([
        "object",
        "site",
        "kind",
        "name",
        "function",
        "file",
        "line",
        "module",
        "address",
        "bytes",
        "process",
        "thread",
        "cpu",
        "node",
        "birth_ns",
        "death_ns",
        "stack",
        "samples",
        "accesses",
        "remote_accesses",
        "death_thread",
    ])?;
    let mut sums = vec![(0u64, 0u64, 0u64); export.trace().objects().len()];
    for access in export.accesses() {
        if let Some(sum) = access.object.and_then(|object| sums.get_mut(object.0 as usize)) {
            let weight = u64::from(access.weight);
            *sum = (sum.0 + 1, sum.1 + weight, sum.2 + if access.is_remote() == Some(true) { weight } else { 0 });
        }
    }
    let filter = export.analysis.filter();
    for (object, (samples, accesses, remote)) in export.trace().objects().iter().zip(sums) {
        if filter.object.is_some_and(|wanted| wanted != object.id)
            || filter.site.is_some_and(|wanted| wanted != object.site)
        {
            continue;
        }
        let site = export.trace().site(object.site).cloned().unwrap_or_default();
        sheet.plain(object.id);
        sheet.plain(object.site.0);
        sheet.plain(site.kind.word());
        for text in [&site.name, &site.function, &site.file] {
            sheet.text(text);
        }
        sheet.plain(site.line);
        sheet.text(&site.module);
        sheet.plain(object.address);
        sheet.plain(object.bytes);
        sheet.plain(object.process);
        sheet.maybe(object.thread);
        sheet.maybe(object.cpu);
        sheet.maybe(object.node);
        sheet.plain(object.birth);
        sheet.maybe(object.death);
        sheet.plain(object.stack);
        for number in [samples, accesses, remote] {
            sheet.plain(number);
        }
        sheet.maybe(object.death_thread);
        sheet.end()?;
    }
    Ok(())
}

pub fn matrix(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    let matrix = export.analysis.matrix();
    sheet.header(["from".to_owned(), "on".to_owned()].into_iter().chain(three("accesses")))?;
    for (from, row) in matrix.nodes.iter().zip(&matrix.accesses) {
        for (on, accesses) in matrix.nodes.iter().zip(row) {
            sheet.plain(from);
            sheet.plain(on);
            sheet.estimate(accesses);
            sheet.end()?;
        }
    }
    Ok(())
}

pub fn links(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    let machine = export.machine.ok_or(ExportError::NoMachine)?;
    let duration = export.analysis.totals().duration;
    let (links, _) = link_traffic(&export.analysis.matrix(), machine, duration.0);
    let name = |end: Endpoint| match end {
        Endpoint::Node(node) => format!("node {node}"),
        Endpoint::Router(router) => {
            machine.routers().get(usize::from(router.0)).map_or_else(String::new, |router| router.name.clone())
        }
    };
    sheet.header(["link", "from", "to", "accesses", "bytes", "bandwidth_bytes_per_s", "demand"])?;
    for link in links {
        sheet.plain(link.link);
        sheet.text(&name(link.from));
        sheet.text(&name(link.to));
        sheet.plain(link.accesses);
        // How much data page faults move is not known.
        sheet.maybe(Some(link.bytes).filter(|_| !export.counted().is_faults()));
        sheet.maybe(machine.link(link.link).map(|link| link.bandwidth_bytes_per_s));
        sheet.maybe(link.utilisation.filter(|_| !export.counted().is_faults()));
        sheet.end()?;
    }
    Ok(())
}

/// Each page of one object that was accessed.
pub fn pages(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    let rows = page_rows(export)?;
    let nodes = export.analysis.nodes();
    let mut header: Vec<String> = ["address", "pages", "samples"].map(str::to_owned).to_vec();
    for name in ["share", "remote", "writes"] {
        header.extend(three(name));
    }
    header.extend(nodes.iter().map(|node| format!("from_node_{node}")));
    header.extend(nodes.iter().map(|node| format!("on_node_{node}")));
    header.push("threads".to_owned());
    sheet.header(header)?;
    for row in rows {
        sheet.plain(row.address);
        sheet.plain(row.pages);
        sheet.plain(row.samples);
        sheet.estimate(&row.share);
        sheet.share(&row.remote);
        sheet.estimate(&row.writes);
        for &accesses in row.from_node.iter().chain(&row.on_node) {
            sheet.plain(accesses);
        }
        let threads: Vec<String> = row.threads.iter().map(ToString::to_string).collect();
        sheet.text(&threads.join(" "));
        sheet.end()?;
    }
    Ok(())
}

fn page_rows(export: &Export<'_>) -> Result<Vec<PageRow>, ExportError> {
    let filter = export.analysis.filter();
    let detail = match (filter.object, filter.site) {
        (Some(object), _) => export.analysis.object_detail(object, 1, usize::MAX),
        (None, Some(site)) => {
            export.analysis.site_detail(site, 1, usize::MAX).filter(|detail| detail.objects.len() == 1)
        }
        (None, None) => None,
    };
    Ok(detail.ok_or(ExportError::NeedsObject("pages"))?.pages)
}

pub fn series(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    let nodes = export.analysis.nodes();
    let mut header: Vec<String> = ["start_ns", "end_ns", "samples"].map(str::to_owned).to_vec();
    for name in ["accesses", "remote", "writes"] {
        header.extend(three(name));
    }
    header.extend(nodes.iter().map(|node| format!("from_node_{node}")));
    header.extend(nodes.iter().map(|node| format!("on_node_{node}")));
    sheet.header(header)?;
    let series = export.analysis.series(TIME_SLICES);
    for bin in &series.bins {
        sheet.plain(bin.start);
        sheet.plain(bin.start.0 + series.bin_ns);
        sheet.plain(bin.samples);
        sheet.estimate(&bin.accesses);
        sheet.share(&bin.remote);
        sheet.estimate(&bin.writes);
        for &accesses in bin.from_node.iter().chain(&bin.on_node) {
            sheet.plain(accesses);
        }
        sheet.end()?;
    }
    Ok(())
}

/// Every sample, with its names: as many lines as samples.
pub fn accesses(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    sheet.header([
        "time_ns",
        "thread",
        "cpu",
        "node",
        "home",
        "address",
        "object",
        "site",
        "name",
        "is_write",
        "is_atomic",
        "is_range",
        "level",
        "latency_cycles",
        "weight",
        "function",
        "file",
        "line",
        "stack",
    ])?;
    let trace = export.trace();
    for access in export.samples() {
        let site = export.site_of(&access);
        sheet.plain(access.time);
        sheet.plain(access.thread);
        sheet.maybe(access.cpu);
        sheet.maybe(access.node);
        sheet.maybe(access.home);
        sheet.plain(access.address);
        sheet.maybe(access.object);
        sheet.maybe(site.map(|site| site.0));
        sheet.text(site.and_then(|site| trace.site(site)).map_or("", |site| &*site.name));
        for flag in [access.is_write, access.is_atomic, access.is_range] {
            sheet.plain(u8::from(flag));
        }
        sheet.plain(access.level as u8);
        sheet.maybe(access.latency_cycles);
        sheet.plain(access.weight);
        let frame = trace.location(access.location).frames.first();
        sheet.text(frame.map_or("", |frame| &*frame.function));
        sheet.text(frame.map_or("", |frame| &*frame.file));
        sheet.plain(frame.map_or(0, |frame| frame.line));
        sheet.plain(access.stack);
        sheet.end()?;
    }
    Ok(())
}

/// What got lost or stayed unknown in the whole recording; zeros too, so that nothing lost can be told from nothing known.
pub fn losses(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    sheet.header(["loss", "count"])?;
    let losses = serde_json::to_value(&export.heading.losses)?;
    for (name, count) in losses.as_object().into_iter().flatten() {
        sheet.plain(name);
        sheet.plain(count);
        sheet.end()?;
    }
    Ok(())
}
