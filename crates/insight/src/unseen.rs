//! Pages that somebody unseen touched first: code that was not compiled with call-outs, or the kernel on its behalf. Their home is unknown where no page-fault
//! event names the thread, and what follows from homes is then not said of their object.

use std::collections::BTreeMap;

use numapilot_flows::{PlacementCause, SiteId};

use crate::context::Analysis;

/// Share of an object's pages from which on nothing is said of its placement.
const MATERIAL_SHARE: f64 = 0.05;
/// Objects that are named one by one.
const NAMED_MAX: usize = 5;

/// A site many of whose pages have an unknown first toucher.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnseenSite {
    pub site: SiteId,
    pub name: String,
    /// Share of the pages that were touched at all, 0 to 1.
    pub share: f64,
}

/// Sites with enough such pages, those with the most first.
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
    sites.sort_by_key(|(unknown, site)| (std::cmp::Reverse(*unknown), site.site));
    sites.into_iter().map(|(_, site)| site).collect()
}

/// The same in whole sentences, with what would make them known.
pub(crate) fn sentences(sites: &[UnseenSite]) -> Vec<String> {
    let mut said: Vec<String> = sites
        .iter()
        .take(NAMED_MAX)
        .map(|site| {
            format!(
                "The first toucher of {:.0} % of the pages of {} is unknown: code without call-outs, or the kernel on its behalf, touched them. Their home \
                 node is unknown too, and no placement of this object is judged. Record as root or with kernel.perf_event_paranoid 1 or less: page-fault \
                 events then name the thread.",
                site.share * 100.0,
                site.name
            )
        })
        .collect();
    if sites.len() > NAMED_MAX {
        said.push(format!("The same holds for {} more objects.", sites.len() - NAMED_MAX));
    }
    said
}
