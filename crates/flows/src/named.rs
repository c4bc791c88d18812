//! Looks objects up as the command line names them: by a site's number (S3), an instance's number (17), or a name.

use std::collections::HashSet;

use numapilot_trace::ids::ObjectId;

use crate::filter::Filter;
use crate::model::ObjectKind;
use crate::model::SiteId;
use crate::trace::Trace;

/// The objects that a name denotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// All instances of a site.
    Site(SiteId),
    /// One object instance.
    Object(ObjectId),
}

/// Why a name denotes no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No site has this number.
    #[error("the trace has no such site")]
    NoSite,
    /// No instance has this number.
    #[error("the trace has objects 0 to {0}")]
    NoObject(usize),
    /// No site has this name.
    #[error("no object has that name; give a name or number (S3) that `numapilot report` shows")]
    NoName,
    /// Sites have this name, but no sampled access reached them.
    #[error("an object of that name exists, but no sampled access reached it")]
    NotAccessed,
    /// Sites have this name, but allocate no heap blocks.
    #[error("an object of that name exists, but it is no heap block")]
    NoBlock,
}

impl Trace {
    /// The objects that `name` denotes. A plain name gives every site of that name that a sampled access reached; a number gives that site or instance.
    ///
    /// # Errors
    /// No site or instance has that number or name, or none of that name was accessed.
    pub fn objects_named(&self, name: &str) -> Result<Vec<Named>, NameError> {
        let is_accessed = |site| self.filtered(&Filter { site: Some(site), ..Filter::default() }).next().is_some();
        self.named(name, is_accessed, NameError::NotAccessed)
    }

    /// The heap blocks, and sampled objects of Java, that `name` denotes, whether accessed or not: a plain name gives every site of that name that allocates
    /// some.
    ///
    /// # Errors
    /// No site or instance has that number or name, or none of that name allocates blocks.
    pub fn blocks_named(&self, name: &str) -> Result<Vec<Named>, NameError> {
        let sampled: HashSet<SiteId> =
            self.objects().iter().filter(|object| object.sample.is_some()).map(|object| object.site).collect();
        let is_heap = |site| self.site(site).is_some_and(|site| site.kind == ObjectKind::Heap);
        self.named(name, |site| is_heap(site) || sampled.contains(&site), NameError::NoBlock)
    }

    fn named(
        &self,
        name: &str,
        is_wanted: impl Fn(SiteId) -> bool,
        otherwise: NameError,
    ) -> Result<Vec<Named>, NameError> {
        if let Some(site) = name.strip_prefix(['S', 's']).and_then(|rest| rest.parse().ok()).map(SiteId) {
            self.site(site).ok_or(NameError::NoSite)?;
            return Ok(vec![Named::Site(site)]);
        }
        if let Ok(object) = name.parse().map(ObjectId) {
            self.object(object).ok_or(NameError::NoObject(self.objects().len().saturating_sub(1)))?;
            return Ok(vec![Named::Object(object)]);
        }
        let sites = self.sites().iter().enumerate();
        let named: Vec<SiteId> =
            sites.filter(|(_, site)| &*site.name == name).map(|(index, _)| SiteId(index as u32)).collect();
        let wanted: Vec<Named> = named.iter().filter(|&&site| is_wanted(site)).map(|&site| Named::Site(site)).collect();
        match (named.is_empty(), wanted.is_empty()) {
            (true, _) => Err(NameError::NoName),
            (false, true) => Err(otherwise),
            (false, false) => Ok(wanted),
        }
    }
}
