//! Names for what the join found: code locations, allocation sites, static objects, stacks.
//!
//! Each code address is looked up once, per binary, on as many threads as there are CPUs to use. Meanwhile one more reads where static objects are declared.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use numapilot_host::{VirtAddr, workers};
use numapilot_symbols::{
    Declaration, Declarations, ElfSymbolizer, ModuleLayout, Resolved, SiteFrame, SiteName, SiteNamer, Symbolizer,
    Unresolved,
};
use numapilot_trace::ids::StackId;

use crate::join::{Binary, Joined, Layouts, SiteKey, segments};
use crate::model::{Frame, Location, LocationId, ObjectKind, Site, SiteId};

/// Number of code addresses from which several threads resolve them.
const PARALLEL_FROM: usize = 500;
const WORKERS_MAX: usize = 4;

/// Names of a whole recording.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Resolved code addresses, indexed by location id.
    pub locations: Vec<Location>,
    /// Distinct sites, indexed by site id.
    pub sites: Vec<Site>,
    /// Maps the join's site keys to `sites`.
    pub site_of_key: Vec<SiteId>,
    /// Number of locations without a function name, by binary and reason.
    pub unresolved: BTreeMap<(Arc<str>, Unresolved), u64>,
    /// Source files that named no objects, because they were changed after a binary was compiled from them.
    pub changed_sources: Vec<String>,
}

/// Layouts read from the binaries on this machine, each once.
#[derive(Debug, Default)]
pub(crate) struct ElfLayouts {
    read: HashMap<(String, Vec<u8>), Arc<ModuleLayout>>,
}

impl Layouts for ElfLayouts {
    fn layout(&mut self, path: &str, build_id: &[u8]) -> Arc<ModuleLayout> {
        let key = (path.to_owned(), build_id.to_vec());
        let read = || Arc::new(ModuleLayout::read(path, build_id).unwrap_or_default());
        self.read.entry(key).or_insert_with(read).clone()
    }
}

/// Interns strings: equal strings share one allocation.
#[derive(Default)]
struct Strings(HashMap<String, Arc<str>>);

impl Strings {
    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.0.get(text) {
            return shared.clone();
        }
        let shared: Arc<str> = text.into();
        self.0.insert(text.to_owned(), shared.clone());
        shared
    }
}

/// Resolves all code addresses, sites and static objects of a joined recording. `wrappers`: regular expressions of functions that allocate for others.
pub(crate) fn resolve(joined: &Joined, wrappers: &[String]) -> Names {
    let mut strings = Strings::default();
    let mut names = Names::default();
    // Of the debug information of large binaries, either takes as long as the other.
    let (resolved, declarations) = workers::both(|| resolve_locations(joined), || declarations(joined));
    for (address, resolved) in joined.locations.iter().zip(resolved) {
        let mut module = joined.binaries[address.binary as usize].path.clone();
        if resolved == Err(Unresolved::NotCode) {
            module = data_of(&module);
        }
        let frames = match resolved {
            Ok(frames) => frames
                .iter()
                .map(|frame| Frame {
                    function: strings.share(&frame.function),
                    file: strings.share(&frame.file),
                    line: frame.line,
                    column: frame.column,
                    inlined: frame.inlined,
                })
                .collect(),
            Err(why) => {
                // Location 0 is "unknown".
                if !names.locations.is_empty() {
                    *names.unresolved.entry((module.clone(), why)).or_default() += 1;
                }
                vec![Frame { function: placeholder(&module, address.offset).into(), ..Frame::default() }]
            }
        };
        names.locations.push(Location { module, offset: address.offset, frames });
    }
    if let Some(unknown) = names.locations.first_mut() {
        *unknown = Location { frames: vec![Frame::default()], ..Location::default() };
    }
    let namer = Namer { sites: SiteNamer::with_wrappers(wrappers), declarations };
    name_sites(joined, &mut names, namer);
    names
}

/// What the module of a location is called that is no code: like other memory without a function, it is in brackets.
fn data_of(path: &str) -> Arc<str> {
    format!("[data of {}]", path.rsplit('/').next().unwrap_or_default()).into()
}

/// The name of an address without a symbol: `libfoo.so+0x1234`.
fn placeholder(module: &str, offset: u64) -> String {
    let base = module.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or("unknown");
    let base = numapilot_symbols::tidy(base);
    if base.starts_with('[') && offset == 0 { base } else { format!("{base}+{offset:#x}") }
}

fn resolve_locations(joined: &Joined) -> Vec<Resolved> {
    let mut by_binary: Vec<Vec<u32>> = vec![Vec::new(); joined.binaries.len()];
    for (index, address) in joined.locations.iter().enumerate() {
        by_binary[address.binary as usize].push(index as u32);
    }
    let mut jobs: Vec<(u32, Vec<u32>)> = (0..).zip(by_binary).filter(|(_, addresses)| !addresses.is_empty()).collect();
    jobs.sort_by_key(|(_, addresses)| std::cmp::Reverse(addresses.len()));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
    let threads = if joined.locations.len() < PARALLEL_FROM { 1 } else { cpus.min(jobs.len()).max(1) };
    let mut shares: Vec<Vec<(u32, Vec<u32>)>> = vec![Vec::new(); threads];
    let mut loads = vec![0; threads];
    for job in jobs {
        let least = (0..threads).min_by_key(|&thread| loads[thread]).unwrap_or(0);
        loads[least] += job.1.len();
        shares[least].push(job);
    }
    let mut resolved: Vec<Resolved> = vec![Err(Unresolved::NoFile); joined.locations.len()];
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        // One share for each thread, and more for those that there are where the system refuses some.
        while let Some(share) = shares.get(next.fetch_add(1, Ordering::Relaxed)) {
            results.extend(resolve_share(joined, share));
        }
        results
    };
    // A thread that panicked leaves its addresses unresolved.
    for (index, result) in workers::together(threads, work).into_iter().flat_map(Result::unwrap_or_default) {
        resolved[index as usize] = result;
    }
    resolved
}

fn resolve_share(joined: &Joined, share: &[(u32, Vec<u32>)]) -> Vec<(u32, Resolved)> {
    let mut symbolizer = ElfSymbolizer::new();
    let mut results = Vec::new();
    for (binary, indices) in share {
        let Binary { path, build_id, generated_by, span } = &joined.binaries[*binary as usize];
        let offsets: Vec<u64> = indices.iter().map(|&index| joined.locations[index as usize].offset).collect();
        let generated = match generated_by {
            Some(pid) => joined.generated.get(pid),
            None => [Location::PYTHON, Location::JAVA].contains(&&**path).then_some(&joined.interpreted),
        };
        let resolved = match generated {
            Some(code) => {
                let find = |at: u64| code.find_within(VirtAddr(at), *span).ok_or(Unresolved::NoSymbol);
                offsets.iter().map(|&at| find(at).map(|frame| vec![frame])).collect()
            }
            None => symbolizer.resolve(path, build_id, &offsets),
        };
        results.extend(indices.iter().copied().zip(resolved));
    }
    results
}

/// Where static objects are declared, by the number of their binary.
fn declarations(joined: &Joined) -> HashMap<u32, Declarations> {
    let mut found = HashMap::new();
    for key in &joined.sites {
        if let SiteKey::Symbol { binary, .. } = key {
            let path = &joined.binaries[*binary as usize].path;
            found.entry(*binary).or_insert_with(|| Declarations::read(Path::new(&**path)).unwrap_or_default());
        }
    }
    found
}

/// Names sites, and caches the sources that it has read.
struct Namer {
    sites: SiteNamer,
    declarations: HashMap<u32, Declarations>,
}

impl Namer {
    /// Where the symbol at `offset` is declared; `None` without debug information, or where the binary is not the recorded one (its symbols have no names
    /// then either, because the layout checks).
    fn declared(&self, binary: u32, offset: u64) -> Option<&Declaration> {
        self.declarations.get(&binary)?.find(offset)
    }
}

fn name_sites(joined: &Joined, names: &mut Names, mut namer: Namer) {
    let mut strings = Strings::default();
    let mut ids: HashMap<Site, SiteId> = HashMap::new();
    for key in &joined.sites {
        let site = name_site_of(key, joined, &names.locations, &mut namer, &mut strings);
        let next = SiteId(names.sites.len() as u32);
        let id = *ids.entry(site.clone()).or_insert(next);
        if id == next {
            names.sites.push(site);
        }
        names.site_of_key.push(id);
    }
    names.changed_sources = namer.sites.changed_sources().iter().cloned().collect();
}

fn name_site_of(
    key: &SiteKey,
    joined: &Joined,
    locations: &[Location],
    namer: &mut Namer,
    strings: &mut Strings,
) -> Site {
    let named = |kind, name: Arc<str>| Site { kind, name, ..Site::default() };
    match key {
        // The recording does not have the call that mapped it.
        SiteKey::Allocation(kind @ ObjectKind::Anonymous, StackId(0)) => {
            named(*kind, strings.share("anonymous memory"))
        }
        SiteKey::Allocation(kind, stack) => {
            let frames = frames_of(*stack, joined, locations);
            if *kind == ObjectKind::Anonymous && numapilot_symbols::is_python_arena(&frames) {
                return named(*kind, strings.share(Site::PYTHON_ARENAS));
            }
            at_call(*kind, namer.sites.name(&frames), strings)
        }
        SiteKey::Pool { pool, stack } => {
            let frames = frames_of(*stack, joined, locations);
            let mut site = namer.sites.name_pooled(&frames);
            if !pool.is_empty() {
                // Of Java's objects the pool is their class.
                let is_whole_name = frames.is_empty() || site.module == Location::JAVA;
                site.name = if is_whole_name { pool.to_string() } else { format!("{} in {pool}", site.name) };
            }
            at_call(ObjectKind::Pool, site, strings)
        }
        SiteKey::Symbol { binary, name, offset } => {
            let module = joined.binaries[*binary as usize].path.clone();
            let site = named(ObjectKind::Static, name.clone());
            match namer.declared(*binary, *offset) {
                Some(at) => Site { module, file: strings.share(&at.file), line: at.line, ..site },
                None => Site { module, ..site },
            }
        }
        SiteKey::Section { binary, name } => {
            Site { module: joined.binaries[*binary as usize].path.clone(), ..named(ObjectKind::Section, name.clone()) }
        }
        SiteKey::File(path) if path.starts_with('[') => named(ObjectKind::Section, path.clone()),
        SiteKey::File(path) => named(ObjectKind::File, strings.share(&numapilot_symbols::tidy(path))),
        SiteKey::Stacks(location) => named(ObjectKind::Stack, strings.share(&stack_name(*location, locations))),
        SiteKey::Named(kind, name) => named(*kind, strings.share(name)),
        SiteKey::Mapping(ObjectKind::Shared, path) => named(ObjectKind::Shared, strings.share(&segments::title(path))),
        SiteKey::Mapping(kind, path) => named(*kind, strings.share(path.trim_start_matches('[').trim_end_matches(']'))),
    }
}

/// The site of a call that allocates.
fn at_call(kind: ObjectKind, site: SiteName, strings: &mut Strings) -> Site {
    Site {
        kind,
        name: strings.share(&site.name),
        function: strings.share(&site.function),
        file: strings.share(&site.file),
        line: site.line,
        module: strings.share(&site.module),
    }
}

/// The frames of a stack, innermost first with inlined ones expanded.
fn frames_of<'a>(stack: StackId, joined: &Joined, locations: &'a [Location]) -> Vec<SiteFrame<'a>> {
    let frames = joined.stacks.get(stack.0 as usize).map_or(&[][..], |stack| &stack.frames);
    frames.iter().filter_map(|(_, at)| locations.get(at.0 as usize)).flat_map(site_frames).collect()
}

fn stack_name(location: LocationId, locations: &[Location]) -> String {
    let function = locations.get(location.0 as usize).and_then(|at| at.frames.last()).map(|frame| &*frame.function);
    match function.filter(|_| location.0 != 0) {
        Some(function) => format!("stack of {function}"),
        None => "stack of the main thread".to_owned(),
    }
}

fn site_frames(location: &Location) -> impl Iterator<Item = SiteFrame<'_>> {
    location.frames.iter().map(|frame| SiteFrame {
        function: &frame.function,
        file: &frame.file,
        line: frame.line,
        column: frame.column,
        module: &location.module,
        offset: location.offset,
    })
}

#[cfg(test)]
mod tests {
    use numapilot_symbols::CodeSpan;

    use super::*;

    #[test]
    fn declarations_are_read_of_each_binary_that_has_static_objects() {
        let binary =
            |path: &str| Binary { path: path.into(), build_id: vec![], generated_by: None, span: CodeSpan::ALL };
        let symbol = |binary: u32| SiteKey::Symbol { binary, name: "table".into(), offset: 16 };
        let joined = Joined {
            binaries: vec![binary(""), binary("/srv/absent"), binary("/srv/gone")],
            sites: vec![symbol(2), SiteKey::File("/srv/a".into()), symbol(1), symbol(2)],
            ..Joined::default()
        };
        let found = declarations(&joined);
        let mut binaries: Vec<u32> = found.keys().copied().collect();
        binaries.sort_unstable();
        assert_eq!(binaries, [1, 2], "the first has no name for anything");
        assert!(found.values().all(|none| *none == Declarations::default()));
    }
}
