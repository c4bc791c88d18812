//! Pages whose first toucher is unknown: uninstrumented code touched them, or the kernel on its behalf. Without a page-fault event that names the thread, their
//! home node is unknown too, so no placement of their object is judged. So it is with pages of files that the page cache had before.

use std::collections::BTreeMap;

use numapilot_flows::{ObjectKind, PlacementCause, SiteId, Trace};
use numapilot_text::units::short_percent;
use numapilot_trace::engine::Engine;

use crate::context::Analysis;

/// Share of an object's pages with an unknown first toucher, 0 to 1, from which its placement is not judged.
const MATERIAL_SHARE: f64 = 0.05;
/// Share of all accesses, 0 to 1, that an object must receive: others have nothing that could be misplaced, wherever their pages are.
const MATERIAL_ACCESSES: f64 = 0.005;
/// Largest number of objects that are named one by one.
const NAMED_MAX: usize = 5;

/// A site many of whose pages have an unknown first toucher.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnseenSite {
    pub site: SiteId,
    pub name: String,
    /// Share of the pages that were touched at all, 0 to 1.
    pub share: f64,
}

/// Sites with at least [`MATERIAL_ACCESSES`] of the accesses in which at least [`MATERIAL_SHARE`] of the pages have an unknown first toucher, those with most
/// such pages first.
pub(crate) fn unseen_sites(analysis: &Analysis<'_>) -> Vec<UnseenSite> {
    let trace = analysis.trace();
    let mut pages: BTreeMap<SiteId, (u64, u64)> = BTreeMap::new();
    for placed in trace.placements() {
        let Some(object) = placed.object.and_then(|object| trace.object(object)) else { continue };
        let (unknown, all) = pages.entry(object.site).or_default();
        match placed.cause {
            PlacementCause::Moved => {}
            PlacementCause::UnknownToucher => {
                *unknown += u64::from(placed.pages);
                *all += u64::from(placed.pages);
            }
            _ => *all += u64::from(placed.pages),
        }
    }
    let mut sites: Vec<(u64, UnseenSite)> = pages
        .into_iter()
        .map(|(site, (unknown, all))| (site, unknown, unknown as f64 / all.max(1) as f64))
        .filter(|(_, _, share)| *share >= MATERIAL_SHARE)
        .map(|(site, unknown, share)| {
            let name = trace.site(site).map_or_else(|| "an object".to_owned(), |site| site.name.to_string());
            (unknown, UnseenSite { site, name, share })
        })
        .collect();
    keep_accessed(analysis, &mut sites);
    sites.sort_by_key(|(unknown, site)| (std::cmp::Reverse(*unknown), site.site));
    sites.into_iter().map(|(_, site)| site).collect()
}

/// Removes sites that hardly any access concerns.
fn keep_accessed(analysis: &Analysis<'_>, sites: &mut Vec<(u64, UnseenSite)>) {
    if sites.is_empty() {
        return;
    }
    let trace = analysis.trace();
    let mut by_site: BTreeMap<SiteId, f64> = BTreeMap::new();
    let mut all = 0.0;
    for access in analysis.accesses() {
        let weight = f64::from(access.weight);
        all += weight;
        if let Some(object) = access.object.and_then(|id| trace.object(id)) {
            *by_site.entry(object.site).or_default() += weight;
        }
    }
    sites.retain(|(_, site)| by_site.get(&site.site).copied().unwrap_or(0.0) >= MATERIAL_ACCESSES * all);
}

/// The sites in whole sentences, with the remedy.
pub(crate) fn sentences(trace: &Trace, sites: &[UnseenSite]) -> Vec<String> {
    let events = "ecord as root or with kernel.perf_event_paranoid 1 or less: page-fault events then name the thread.";
    let (why, remedy) = if trace.meta().engine == Engine::Emulate && trace.processes().len() > 1 {
        let why = "engine emulate cannot always tell, for instance which writes after a fork make copies of pages";
        (why, format!("Record with engine instrument; if it is unknown there, too, r{events}"))
    } else {
        ("uninstrumented code, or the kernel on its behalf, touched them", format!("R{events}"))
    };
    let mut said: Vec<String> = sites
        .iter()
        .take(NAMED_MAX)
        .map(|site| {
            if trace.site(site.site).is_some_and(|known| known.kind == ObjectKind::File) {
                return in_page_cache(site);
            }
            format!(
                "The first toucher of {} of the pages of {} is unknown: {why}. Their home node is unknown too, and no placement of this object is judged. \
                 {remedy}",
                short_percent(site.share),
                site.name
            )
        })
        .collect();
    if sites.len() > NAMED_MAX {
        let more = sites.len() - NAMED_MAX;
        said.push(format!("The same holds for {more} more {}.", if more == 1 { "object" } else { "objects" }));
    }
    said
}

/// A file whose pages were in memory before a recorded thread reached them, with the remedy.
fn in_page_cache(site: &UnseenSite) -> String {
    format!(
        "{} of the pages of {} were in the page cache before a thread of the program reached them. Their home node is unknown, and no placement of this file \
         is judged. Where real runs find it on the disk, empty the page cache before the recording (`echo 1 > /proc/sys/vm/drop_caches` as root).",
        short_percent(site.share),
        site.name
    )
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{AccessRef, Filter, Object, Placement, Process, Site, Tables, Thread};
    use numapilot_host::VirtAddr;
    use numapilot_trace::ids::ObjectId;
    use numapilot_trace::meta::Meta;

    use super::*;

    /// Two processes, an array with nearly all accesses and a section with hardly any; no page's first toucher is known.
    fn recorded(engine: Engine) -> Trace {
        let mut tables = Tables::default();
        tables.threads.push(Thread::default());
        tables.processes.extend([Process::default(), Process::default()]);
        for (at, (name, weight)) in [("grid", 9990), (".got.plt", 10)].into_iter().enumerate() {
            let (id, address) = (at as u32, 0x10_0000 * (at as u64 + 1));
            let (object, site) = (ObjectId(id), SiteId(id));
            tables.sites.push(Site { name: name.into(), ..Site::default() });
            let address_of = VirtAddr(address);
            tables.objects.push(Object { id: object, site, address: address_of, bytes: 4096, ..Object::default() });
            tables.placements.push(Placement {
                address: address_of,
                pages: 1,
                cause: PlacementCause::UnknownToucher,
                object: Some(object),
                ..Placement::default()
            });
            tables.accesses.push(&AccessRef { object: Some(object), weight, ..AccessRef::at(address) });
        }
        Trace::from_tables(tables).with_meta(Meta { engine: engine.into(), ..Meta::default() })
    }

    #[test]
    fn objects_without_accesses_are_not_named_and_the_remedy_is_the_engines() {
        for (engine, remedy) in
            [(Engine::Instrument, "Record as root"), (Engine::Emulate, "Record with engine instrument;")]
        {
            let trace = recorded(engine);
            let sites = unseen_sites(&Analysis::on(&trace, None, Filter::default()));
            let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
            assert_eq!(names, ["grid"]);
            let said = sentences(&trace, &sites).concat();
            assert!(said.contains(remedy), "{said}");
        }
    }

    /// The remedy was that of uninstrumented code.
    #[test]
    fn a_file_that_the_page_cache_has_is_named_as_such() {
        let sites = vec![Site { kind: ObjectKind::File, ..Site::default() }];
        let trace = Trace::from_tables(Tables { sites, ..Tables::default() });
        let site = UnseenSite { site: SiteId(0), name: "/data/index".to_owned(), share: 0.5 };
        let said = sentences(&trace, &[site]).concat();
        assert!(said.starts_with("50 % of the pages of /data/index were in the page cache"), "{said}");
    }

    #[test]
    fn what_is_not_all_of_the_pages_does_not_read_as_all() {
        let said = |share| {
            sentences(&Trace::default(), &[UnseenSite { site: SiteId(0), name: "grid".to_owned(), share }]).concat()
        };
        for (share, words) in [(0.996, ">99 %"), (1.0, "100 %"), (0.371, "37 %")] {
            assert!(
                said(share).starts_with(&format!("The first toucher of {words} of the pages of grid")),
                "{}",
                said(share)
            );
        }
    }
}
