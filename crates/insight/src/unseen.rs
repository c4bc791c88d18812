//! Pages whose first toucher is unknown: uninstrumented code touched them, or the kernel on its behalf. Without a page-fault event that names the thread, their
//! home node is unknown too, so no placement of their object is judged.

use std::collections::BTreeMap;

use numapilot_flows::{PlacementCause, SiteId};
use numapilot_text::units::short_percent;

use crate::context::Analysis;

/// Share of an object's pages with an unknown first toucher, 0 to 1, from which its placement is not judged.
const MATERIAL_SHARE: f64 = 0.05;
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

/// Sites in which at least [`MATERIAL_SHARE`] of the pages have an unknown first toucher, those with most such pages first.
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

/// The sites in whole sentences, with the remedy.
pub(crate) fn sentences(sites: &[UnseenSite]) -> Vec<String> {
    let mut said: Vec<String> = sites
        .iter()
        .take(NAMED_MAX)
        .map(|site| {
            format!(
                "The first toucher of {} of the pages of {} is unknown: uninstrumented code, or the kernel on its behalf, touched them. Their home \
                 node is unknown too, and no placement of this object is judged. Record as root or with kernel.perf_event_paranoid 1 or less: page-fault \
                 events then name the thread.",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_all_of_the_pages_does_not_read_as_all() {
        let said = |share| sentences(&[UnseenSite { site: SiteId(0), name: "grid".to_owned(), share }]).concat();
        for (share, words) in [(0.996, ">99 %"), (1.0, "100 %"), (0.371, "37 %")] {
            assert!(
                said(share).starts_with(&format!("The first toucher of {words} of the pages of grid")),
                "{}",
                said(share)
            );
        }
    }
}
