//! Finds the allocations of a trace that a plan's rule matches, and the rule that matches those of one site and no others. Reads
//! nothing but links to libraries, where a rule and the trace may name one differently.
//!
//! The planner in the program decides by the call stack alone. So this works on pairs of site and stack, not on single objects.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use numapilot_flows::{LocationId, ObjectKind, Site, SiteId, Trace};
use numapilot_plan::{Frame, ObjectMatch, glob_matches};
use numapilot_symbols::{PYTHON, is_module_named, path_ends_with, spellings};
use numapilot_trace::ids::StackId;

/// The allocations of a trace: the bytes that each call stack allocated for each site, and its smallest allocation.
pub struct Allocations<'t> {
    trace: &'t Trace,
    by_stack: BTreeMap<(SiteId, StackId), u64>,
    smallest: BTreeMap<(SiteId, StackId), u64>,
    modules: NamedModules,
}

/// Which modules of a trace the rules name, as in a program that runs by them ([`is_module_named`]). The file system is asked
/// once about each name and module.
#[derive(Debug, Default)]
pub struct NamedModules {
    /// By the name in a rule, then by the path in the trace.
    known: RefCell<HashMap<String, HashMap<String, bool>>>,
}

impl NamedModules {
    /// Whether `end`, which a rule has, names the module of this path.
    pub fn is_named(&self, module: &str, end: &str) -> bool {
        if path_ends_with(module, end) {
            return true;
        }
        let known = self.known.borrow().get(end).and_then(|of_end| of_end.get(module)).copied();
        known.unwrap_or_else(|| {
            let is_named = is_module_named(Path::new(module), end);
            self.known.borrow_mut().entry(end.to_owned()).or_default().insert(module.to_owned(), is_named);
            is_named
        })
    }
}

impl<'t> Allocations<'t> {
    /// All allocations of a trace: heap blocks and anonymous mappings, those that processes share included.
    pub fn of(trace: &'t Trace) -> Allocations<'t> {
        let (mut by_stack, mut smallest) = (BTreeMap::new(), BTreeMap::new());
        for object in trace.objects() {
            if trace.site(object.site).is_some_and(|site| is_allocated(site.kind)) {
                let bytes: &mut u64 = by_stack.entry((object.site, object.stack)).or_default();
                *bytes = bytes.saturating_add(object.bytes);
                let least: &mut u64 = smallest.entry((object.site, object.stack)).or_insert(u64::MAX);
                *least = object.bytes.min(*least);
            }
        }
        Allocations { trace, by_stack, smallest, modules: NamedModules::default() }
    }

    /// The trace that the allocations are from.
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// Which of the trace's modules rules name.
    pub fn modules(&self) -> &NamedModules {
        &self.modules
    }

    /// Bytes of the smallest allocation whose call stack a rule matches; `None` if there is none.
    pub fn smallest(&self, matches: &ObjectMatch) -> Option<u64> {
        let taken = self.smallest.iter().filter(|((_, stack), _)| self.takes(matches, *stack));
        taken.map(|(_, bytes)| *bytes).min()
    }

    fn stacks_of(&self, site: SiteId) -> impl Iterator<Item = (StackId, u64)> {
        let all = self.by_stack.range((site, StackId(0))..=(site, StackId(u32::MAX)));
        all.map(|(&(_, stack), &bytes)| (stack, bytes))
    }

    /// Whether a rule's conditions on code match a call stack; conditions on sizes and instances are not checked.
    pub fn takes(&self, matches: &ObjectMatch, stack: StackId) -> bool {
        let frames = std::iter::once(&matches.frame).filter(|frame| !frame.is_empty()).chain(&matches.called_from);
        let locations = self.trace.stack(stack);
        matches.is_dynamic() && frames.into_iter().all(|frame| locations.iter().any(|at| self.is_at(frame, *at)))
    }

    /// Other sites than `site` with a call stack that a rule matches; a site may come more than once.
    pub fn others<'a>(&'a self, matches: &'a ObjectMatch, site: SiteId) -> impl Iterator<Item = SiteId> + 'a {
        let others = self.by_stack.keys().filter(move |(other, _)| *other != site);
        others.filter(|(_, stack)| self.takes(matches, *stack)).map(|(other, _)| *other)
    }

    /// For each rule, in order, whether it is the first that matches some call stack.
    pub fn effective(&self, rules: &[&ObjectMatch]) -> Vec<bool> {
        let mut is_effective = vec![false; rules.len()];
        for (_, stack) in self.by_stack.keys() {
            if let Some(first) = rules.iter().position(|rule| self.takes(rule, *stack)) {
                is_effective[first] = true;
            }
        }
        is_effective
    }

    fn is_at(&self, frame: &Frame, at: LocationId) -> bool {
        let location = self.trace.location(at);
        // The planner in the program walks native frames.
        if location.is_interpreted() {
            return false;
        }
        let is_in = frame.module.as_ref().is_none_or(|end| self.modules.is_named(&location.module, end));
        // A trace holds the offset of the call's last byte; a plan holds that or the return address, which follows it.
        let is_there = frame.offset.is_none_or(|offset| location.offset == offset || location.offset + 1 == offset);
        let names_source = frame.function.is_some() || frame.file.is_some();
        let is_named = |code: &numapilot_flows::Frame| {
            let names = |pattern: &String| spellings(&code.function).iter().any(|name| glob_matches(pattern, name));
            frame.function.as_ref().is_none_or(names)
                && frame.file.as_ref().is_none_or(|end| path_ends_with(&code.file, end))
                && frame.lines.is_none_or(|(first, last)| (first..=last).contains(&code.line))
        };
        is_in && is_there && (!names_source || location.frames.iter().any(is_named))
    }

    /// The calls in a site's own frame that allocate its objects: name of the binary, offset of the return address in it, and bytes; most bytes first.
    pub fn calls(&self, site: SiteId) -> Vec<(String, u64, u64)> {
        let Some(named) = self.trace.site(site) else { return Vec::new() };
        let mut calls: BTreeMap<(String, u64), u64> = BTreeMap::new();
        for (stack, bytes) in self.stacks_of(site) {
            let is_own = |frame: &numapilot_flows::Frame| {
                frame.function == named.function && frame.file == named.file && frame.line == named.line
            };
            let own = self.trace.stack(stack).iter().map(|at| self.trace.location(*at));
            let own = own.into_iter().find(|location| location.frames.iter().any(is_own));
            if let Some(location) = own.filter(|location| !location.module.is_empty()) {
                *calls.entry((base(&location.module).to_owned(), location.offset + 1)).or_default() += bytes;
            }
        }
        let mut calls: Vec<_> = calls.into_iter().map(|((module, offset), bytes)| (module, offset, bytes)).collect();
        calls.sort_by_key(|&(_, offset, bytes)| (std::cmp::Reverse(bytes), offset));
        calls
    }

    /// Conditions that match this site's objects and, as far as possible, no others: the source line alone if that suffices, because it survives a rebuild;
    /// else the line with the function; else each call by its offset. Empty if no condition can name the site.
    pub fn conditions(&self, id: SiteId) -> Vec<ObjectMatch> {
        let Some(site) = self.trace.site(id) else { return Vec::new() };
        let Some(plain) = plain_conditions(site) else { return Vec::new() };
        if !plain.is_dynamic() || self.others(&plain, id).next().is_none() {
            return vec![plain];
        }
        let function = function_pattern(site);
        let with_function = ObjectMatch { frame: Frame { function, ..plain.frame.clone() }, ..ObjectMatch::default() };
        if self.others(&with_function, id).next().is_none() {
            return vec![with_function];
        }
        let at = |(module, offset, _): (String, u64, u64)| ObjectMatch {
            frame: Frame { module: Some(module), offset: Some(offset), ..plain.frame.clone() },
            ..ObjectMatch::default()
        };
        let calls: Vec<ObjectMatch> = self.calls(id).into_iter().map(at).collect();
        if calls.is_empty() { vec![plain] } else { calls }
    }
}

/// Whether objects of this kind come from a call that allocates or maps memory, of those that the planner in the program sees: it has no part in `shmat`.
pub fn is_allocated(kind: ObjectKind) -> bool {
    matches!(kind, ObjectKind::Heap | ObjectKind::Anonymous)
}

/// The paths that shared memory of this name may have while a program maps it, which `mapped_file` is about; the likeliest first. Empty for what is no file to
/// the program: segments of System V, and shared memory without a name.
pub fn shared_paths(name: &str) -> Vec<String> {
    let is_offset = |at: &str| !at.is_empty() && at.bytes().all(|byte| byte.is_ascii_hexdigit());
    let whole = name.rsplit_once(" at 0x").filter(|(_, at)| is_offset(at)).map_or(name, |(whole, _)| whole);
    // Of several of one name, all but the first have a number.
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let first = whole.rsplit_once(' ').filter(|(_, number)| is_number(number)).map(|(first, _)| first);
    let paths = |name: &str| match name.strip_prefix("memfd ") {
        Some(title) => vec![format!("/memfd:{title} (deleted)")],
        None if name.starts_with("/dev/shm/") => vec![name.to_owned(), format!("{name} (deleted)")],
        None => Vec::new(),
    };
    first.into_iter().chain([whole]).flat_map(paths).collect()
}

/// The last part of a path.
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn function_pattern(site: &Site) -> Option<String> {
    let name = site.function.split(['(', '[']).next().unwrap_or_default();
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// The simplest condition that matches a site's objects, without regard to other sites; `None` for stacks, unknown memory, blocks of the program's own
/// pools and lines of Python, which the planner does not see.
pub fn plain_conditions(site: &Site) -> Option<ObjectMatch> {
    let module = || Some(base(&site.module).to_owned()).filter(|module| !module.is_empty());
    let named = ObjectMatch { frame: Frame { module: module(), ..Frame::default() }, ..ObjectMatch::default() };
    let by_code = |frame: Frame| ObjectMatch { frame, ..ObjectMatch::default() };
    match site.kind {
        _ if &*site.module == PYTHON => None,
        kind if is_allocated(kind) && site.line > 0 => Some(by_code(Frame {
            file: Some(base(&site.file).to_owned()),
            lines: Some((site.line, site.line)),
            ..Frame::default()
        })),
        ObjectKind::Heap | ObjectKind::Anonymous if !site.function.is_empty() => {
            Some(by_code(Frame { function: function_pattern(site), ..Frame::default() }))
        }
        ObjectKind::Static => Some(ObjectMatch { symbol: Some(site.name.to_string()), ..named }),
        ObjectKind::Section => Some(ObjectMatch { section: Some(site.name.to_string()), ..named }),
        ObjectKind::File => Some(ObjectMatch { mapped_file: Some(site.name.to_string()), ..ObjectMatch::default() }),
        ObjectKind::Shared => {
            let path = shared_paths(&site.name).into_iter().next()?;
            Some(ObjectMatch { mapped_file: Some(path), ..ObjectMatch::default() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numapilot_flows::{Location, Object, Tables};

    fn site(name: &str, line: u32) -> Site {
        let of = |text: &str| std::sync::Arc::from(text);
        Site {
            kind: ObjectKind::Heap,
            name: of(name),
            function: of("main"),
            file: of("/src/a.f90"),
            line,
            module: of("/bin/app"),
        }
    }

    /// Three calls at `0x100`, `0x120` and `0x140` of line 7, for sites `u`, `v` and `r`; one of line 9.
    fn trace() -> Trace {
        let at = |offset: u64, line: u32| Location {
            module: "/bin/app".into(),
            offset,
            frames: vec![numapilot_flows::Frame {
                function: "main".into(),
                file: "/src/a.f90".into(),
                line,
                column: 0,
                inlined: false,
            }],
        };
        let object = |number: u32| Object {
            id: numapilot_trace::ids::ObjectId(number),
            site: SiteId(number),
            bytes: 1 << 20,
            stack: StackId(number + 1),
            ..Object::default()
        };
        Trace::from_tables(Tables {
            sites: vec![site("u", 7), site("v", 7), site("r", 7), site("w", 9)],
            objects: (0..4).map(object).collect(),
            locations: vec![Location::default(), at(0x100, 7), at(0x120, 7), at(0x140, 7), at(0x180, 9)],
            stacks: vec![vec![], vec![LocationId(1)], vec![LocationId(2)], vec![LocationId(3)], vec![LocationId(4)]],
            ..Tables::default()
        })
    }

    #[test]
    fn sites_of_one_line_are_told_apart_by_their_calls() {
        let trace = trace();
        let all = Allocations::of(&trace);
        let conditions: Vec<ObjectMatch> = (0..4).flat_map(|number| all.conditions(SiteId(number))).collect();
        let offsets: Vec<Option<u64>> = conditions.iter().map(|found| found.frame.offset).collect();
        assert_eq!(offsets, [Some(0x101), Some(0x121), Some(0x141), None], "return addresses; line 9 needs none");
        assert_eq!(all.effective(&conditions.iter().collect::<Vec<_>>()), [true; 4]);
        for (number, found) in (0..4).zip(&conditions) {
            assert!(all.takes(found, StackId(number + 1)) && all.others(found, SiteId(number)).next().is_none());
        }
        // The address that a report shows is taken as well as the return address.
        let shown = Frame { module: Some("app".to_owned()), offset: Some(0x120), ..Frame::default() };
        assert!(all.takes(&ObjectMatch { frame: shown, ..ObjectMatch::default() }, StackId(2)));
    }

    /// A rule that `run` carried out matched nothing in the recording, whose engine has the library's other name.
    #[test]
    fn a_library_is_named_as_in_a_program_that_runs_by_the_plan() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("libx.so.1.2.3"), "").expect("a library");
        std::os::unix::fs::symlink("libx.so.1.2.3", folder.path().join("libx.so.1")).expect("a link");
        for recorded in ["libx.so.1", "libx.so.1.2.3"] {
            let module = folder.path().join(recorded).to_string_lossy().into_owned();
            let object = Object { site: SiteId(0), stack: StackId(1), ..Object::default() };
            let trace = Trace::from_tables(Tables {
                sites: vec![site("u", 7)],
                objects: vec![object],
                locations: vec![
                    Location::default(),
                    Location { module: module.into(), offset: 0x100, ..Location::default() },
                ],
                stacks: vec![vec![], vec![LocationId(1)]],
                ..Tables::default()
            });
            let all = Allocations::of(&trace);
            let takes = |end: &str| {
                let frame = Frame { module: Some(end.to_owned()), offset: Some(0x100), ..Frame::default() };
                all.takes(&ObjectMatch { frame, ..ObjectMatch::default() }, StackId(1))
            };
            for _ in 0..2 {
                assert!(takes("libx.so.1") && takes("libx.so.1.2.3"), "{recorded}");
                assert!(!takes("libx.so") && !takes("liby.so.1"), "{recorded}");
            }
        }
    }

    #[test]
    fn a_rule_behind_an_equal_one_takes_nothing() {
        let trace = trace();
        let all = Allocations::of(&trace);
        let line = plain_conditions(&site("u", 7)).expect("a line");
        let other = plain_conditions(&site("x", 8)).expect("a line");
        assert_eq!(all.effective(&[&line, &line, &other]), [true, false, false]);
    }

    #[test]
    fn a_line_or_else_a_function_names_a_heap_site() {
        let named = site("x", 7);
        let frame = plain_conditions(&named).expect("it can be named").frame;
        assert_eq!((frame.file.as_deref(), frame.lines, frame.function), (Some("a.f90"), Some((7, 7)), None));
        let frame = plain_conditions(&Site { line: 0, function: "f()".into(), ..named.clone() }).expect("named").frame;
        assert_eq!(frame.function.as_deref(), Some("f"));
        assert_eq!(plain_conditions(&Site { module: PYTHON.into(), ..site("grid", 7) }), None);
        assert_eq!(plain_conditions(&Site { kind: ObjectKind::Pool, ..named.clone() }), None);
        // A rule on the line of a `shmat` was written, and the planner never saw that call.
        assert_eq!(plain_conditions(&Site { kind: ObjectKind::Shared, ..named.clone() }), None);
        assert_eq!(plain_conditions(&Site { kind: ObjectKind::Stack, ..named }), None);
    }

    /// As `flows` calls shared memory, and as a program has it mapped.
    #[test]
    fn shared_memory_is_named_by_its_path() {
        let path = |name: &str| plain_conditions(&Site { kind: ObjectKind::Shared, ..site(name, 0) })?.mapped_file;
        for (name, expected) in [
            ("/dev/shm/pool", Some("/dev/shm/pool")),
            ("/dev/shm/pool at 0x200000", Some("/dev/shm/pool")),
            ("memfd ring", Some("/memfd:ring (deleted)")),
            ("memfd ring 2 at 0x1000", Some("/memfd:ring (deleted)")),
            ("memfd 2", Some("/memfd:2 (deleted)")),
            // Removed and made anew.
            ("/dev/shm/pool 2", Some("/dev/shm/pool")),
            ("System V segment id 3", None),
            ("anonymous shared memory", None),
        ] {
            assert_eq!(path(name).as_deref(), expected, "{name}");
        }
    }
}
