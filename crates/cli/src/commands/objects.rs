//! Objects by the names that people give them on the command line: a site's number (S3), an instance's number, or a name.

use anyhow::{Context, Result, bail};
use numapilot_flows::{Filter, SiteId, Trace};
use numapilot_trace::ids::ObjectId;

/// What a name stands for.
pub enum Chosen {
    /// All instances of a site.
    Site(SiteId),
    /// One instance.
    Object(ObjectId),
}

/// Everything accessed that `name` stands for; `option` is the option that it was given to.
pub fn choose_objects(trace: &Trace, option: &str, name: &str) -> Result<Vec<Chosen>> {
    if let Some(site) = name.strip_prefix(['S', 's']).and_then(|rest| rest.parse().ok()).map(SiteId) {
        trace.site(site).with_context(|| format!("{option} {name}: the trace has no such site"))?;
        return Ok(vec![Chosen::Site(site)]);
    }
    if let Ok(object) = name.parse().map(ObjectId) {
        let last = trace.objects().len().saturating_sub(1);
        trace.object(object).with_context(|| format!("{option} {name}: the trace has objects 0 to {last}"))?;
        return Ok(vec![Chosen::Object(object)]);
    }
    let sites = trace.sites().iter().enumerate();
    let named: Vec<SiteId> =
        sites.filter(|(_, site)| &*site.name == name).map(|(index, _)| SiteId(index as u32)).collect();
    let is_accessed =
        |site: &&SiteId| trace.filtered(&Filter { site: Some(**site), ..Filter::default() }).next().is_some();
    let accessed: Vec<Chosen> = named.iter().filter(is_accessed).map(|&site| Chosen::Site(site)).collect();
    match (named.is_empty(), accessed.is_empty()) {
        (true, _) => bail!(
            "{option} {name}: no object has that name; the names and numbers (S3) of `numapilot report` can be used"
        ),
        (false, true) => bail!("{option} {name}: there is one, but no sampled access reached it"),
        (false, false) => Ok(accessed),
    }
}
