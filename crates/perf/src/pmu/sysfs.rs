//! Reads PMUs from sysfs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::PmuError;
use super::format::Field;
use crate::attr::EventAttr;

const FOLDER: &str = "sys/bus/event_source/devices";
/// The kernel's files hold a page at most.
const FILE_MAX: u64 = 4096;
/// More entries than any kernel has.
const ENTRIES_MAX: usize = 10_000;

/// A PMU, as sysfs describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// Name of its folder in sysfs.
    pub name: String,
    /// Type number for `perf_event_attr.type`.
    pub kind: u32,
    /// Fields of an event's configuration by name (folder `format`), as far as their form is known.
    pub format: BTreeMap<String, Field>,
    /// Fields of another form than that, as they stand there: a newer kernel may have words that are unknown here. They matter only to events that use them.
    pub unknown: BTreeMap<String, String>,
    /// Named events and their terms (folder `events`).
    pub events: BTreeMap<String, String>,
    /// Capabilities by name (folder `caps`).
    pub caps: BTreeMap<String, String>,
    /// CPUs on which it counts (of hybrid processors), or on which to open it (of uncore PMUs); `None`: all.
    pub cpus: Option<String>,
}

/// Reads every PMU under `root`, in the order of their names; none where the folder is not there.
///
/// # Errors
/// If an existing file is malformed.
pub fn read(root: &Path) -> Result<Vec<Pmu>, PmuError> {
    names(&root.join(FOLDER)).into_iter().map(|name| Pmu::read(&root.join(FOLDER).join(&name), name)).collect()
}

impl Pmu {
    fn read(folder: &Path, name: String) -> Result<Pmu, PmuError> {
        let nonsense = |path: PathBuf, what: String| PmuError::Nonsense { path, what };
        let kind = text(&folder.join("type")).unwrap_or_default();
        let kind =
            kind.parse().map_err(|_| nonsense(folder.join("type"), format!("{kind:?} is not a PMU's type number")))?;
        let (mut format, mut unknown) = (BTreeMap::new(), BTreeMap::new());
        for field in names(&folder.join("format")) {
            let content = text(&folder.join("format").join(&field)).unwrap_or_default();
            match Field::parse(&content) {
                Some(parsed) => drop(format.insert(field, parsed)),
                None => drop(unknown.insert(field, content)),
            }
        }
        let all = |sub: &str| {
            let entries = names(&folder.join(sub)).into_iter();
            entries.filter_map(|entry| Some((entry.clone(), text(&folder.join(sub).join(entry))?))).collect()
        };
        let cpus = text(&folder.join("cpus")).or_else(|| text(&folder.join("cpumask")));
        Ok(Pmu { name, kind, format, unknown, events: all("events"), caps: all("caps"), cpus })
    }

    /// The description of an event given by terms (`event=0xcd,umask=0x1,ldlat=3`), or by the name of one in [`Pmu::events`].
    ///
    /// # Errors
    /// If a term names no field, or its value does not fit.
    pub fn event(&self, event: &str) -> Result<EventAttr, PmuError> {
        let terms = self.events.get(event).map_or(event, String::as_str);
        let mut attr = EventAttr { kind: self.kind, ..EventAttr::default() };
        for term in terms.split(',').map(str::trim).filter(|term| !term.is_empty()) {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            self.set(&mut attr, name, value, terms)?;
        }
        Ok(attr)
    }

    fn set(&self, attr: &mut EventAttr, name: &str, value: &str, event: &str) -> Result<(), PmuError> {
        let fail = |what: String| PmuError::Event { pmu: self.name.clone(), event: event.to_owned(), what };
        let number = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => value.parse(),
        };
        let number = number.map_err(|_| fail(format!("the value of {name}={value} is not a number")))?;
        let no_field = || match self.unknown.get(name) {
            Some(form) => fail(format!("the PMU's field {name} has a form that this version does not know ({form})")),
            None => fail(format!("the PMU has no field {name}")),
        };
        let field = self.format.get(name).ok_or_else(no_field)?;
        if field.set(attr, number) {
            Ok(())
        } else {
            Err(fail(format!("the value does not fit the {} bits of field {name}", field.width())))
        }
    }
}

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// A file's text, trimmed; `None` if it is not there or may not be read.
fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(FILE_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}
