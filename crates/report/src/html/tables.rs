//! What the page's columns hold: rows of the cube, objects, sites, call stacks and code addresses, each in a dense numbering of its own.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::LocationId;
use numapilot_flows::SiteId;
use numapilot_flows::Trace;
use numapilot_insight::cube::CodeKey;
use numapilot_insight::cube::Cube;
use numapilot_insight::cube::Grain;
use numapilot_insight::cube::InstanceRow;
use numapilot_insight::cube::NONE;
use numapilot_insight::cube::ObjectKey;
use numapilot_insight::cube::Rows;
use numapilot_trace::ids::ObjectId;
use numapilot_trace::ids::StackId;

use super::pack::Columns;

/// Largest number of instances that are listed one by one, which bounds the browser's table and the size of the file.
pub const INSTANCES_MAX: usize = 200_000;

/// Numbers values from 0 in the order in which they first occur.
struct Dense<K> {
    of: HashMap<K, u32>,
    values: Vec<K>,
}

impl<K: Clone + Eq + std::hash::Hash> Dense<K> {
    fn new() -> Dense<K> {
        Dense { of: HashMap::new(), values: Vec::new() }
    }

    fn number(&mut self, value: &K) -> u32 {
        if let Some(&number) = self.of.get(value) {
            return number;
        }
        let number = self.values.len() as u32;
        self.of.insert(value.clone(), number);
        self.values.push(value.clone());
        number
    }
}

/// The columns, and the values that they refer to by number.
pub struct Tables<'t> {
    trace: &'t Trace,
    pub columns: Columns,
    strings: Dense<Arc<str>>,
    sites: Dense<SiteId>,
    stacks: Dense<StackId>,
    locations: Dense<LocationId>,
}

impl<'t> Tables<'t> {
    pub fn new(trace: &'t Trace) -> Tables<'t> {
        Tables {
            trace,
            columns: Columns::default(),
            strings: Dense::new(),
            sites: Dense::new(),
            stacks: Dense::new(),
            locations: Dense::new(),
        }
    }

    /// The strings that columns refer to by number.
    pub fn strings(&self) -> Vec<&str> {
        self.strings.values.iter().map(|text| &**text).collect()
    }

    /// Adds everything that the cube holds.
    pub fn cube(&mut self, cube: &Cube) {
        self.rows(&cube.rows, cube);
        let kept = &cube.instances[..cube.instances.len().min(INSTANCES_MAX)];
        let place: HashMap<ObjectId, u32> = kept.iter().map(|row| row.object).zip(0..).collect();
        self.instances(kept);
        self.keys(cube, &place);
        self.side(cube, &place);
        self.site_table();
        self.stack_table();
        self.location_table();
    }

    fn rows(&mut self, rows: &Rows, cube: &Cube) {
        let columns = &mut self.columns;
        match cube.grain {
            // In order of time: differences are small numbers.
            Grain::Samples => {
                let before = std::iter::once(cube.start).chain(rows.time.iter().copied());
                let steps: Vec<f64> =
                    rows.time.iter().zip(before).map(|(time, last)| (time.0 - last.0) as f64).collect();
                columns.numbers("row_step", &steps);
            }
            Grain::Cells(_) => {
                let bin = |time: &numapilot_trace::ids::TimeNs| (time.0 - cube.start.0) / cube.bin_ns;
                let bins: Vec<u32> = rows.time.iter().map(|time| bin(time) as u32).collect();
                columns.whole("row_bin", &bins);
            }
        }
        columns.whole("row_thread", &rows.thread);
        columns.whole("row_object", &rows.object);
        columns.whole("row_code", &rows.code);
        columns.whole("row_from", &rows.from);
        columns.whole("row_home", &rows.home);
        columns.whole("row_flags", &rows.flags.iter().map(|&flags| u32::from(flags)).collect::<Vec<_>>());
        columns.whole("row_samples", &rows.samples);
        columns.numbers("row_weight", &rows.weight);
        columns.numbers("row_variance", &rows.variance);
        columns.whole("row_page", &rows.page);
        columns.whole("row_latency", &rows.latency_cycles);
    }

    fn instances(&mut self, rows: &[InstanceRow]) {
        let objects: Vec<_> = rows.iter().filter_map(|row| self.trace.object(row.object)).collect();
        let sites: Vec<u32> = objects.iter().map(|object| self.sites.number(&object.site)).collect();
        let stacks: Vec<u32> = objects.iter().map(|object| self.stacks.number(&object.stack)).collect();
        let columns = &mut self.columns;
        let mut whole = |name: &str, values: Vec<u32>| columns.whole(name, &values);
        whole("instance_id", objects.iter().map(|object| object.id.0).collect());
        whole("instance_site", sites);
        whole("instance_stack", stacks);
        whole("instance_address_high", objects.iter().map(|object| (object.address.0 >> 32) as u32).collect());
        whole("instance_thread", objects.iter().map(|object| object.thread.map_or(NONE, |thread| thread.0)).collect());
        whole("instance_node", objects.iter().map(|o| o.node.map_or(NONE, |node| u32::from(node.0))).collect());
        whole(
            "instance_samples",
            rows.iter().map(|row| u32::try_from(row.tally.samples).unwrap_or(NONE - 1)).collect(),
        );
        let mut numbers = |name: &str, values: Vec<f64>| columns.numbers(name, &values);
        numbers("instance_address_low", objects.iter().map(|object| f64::from(object.address.0 as u32)).collect());
        numbers("instance_bytes", objects.iter().map(|object| object.bytes as f64).collect());
        numbers("instance_birth", objects.iter().map(|object| object.birth.0 as f64).collect());
        numbers("instance_death", objects.iter().map(|o| o.death.map_or(f64::NAN, |death| death.0 as f64)).collect());
        numbers("instance_weight", rows.iter().map(|row| row.tally.weight).collect());
        numbers("instance_variance", rows.iter().map(|row| row.tally.variance).collect());
        numbers("instance_known", rows.iter().map(|row| row.known).collect());
        numbers("instance_remote", rows.iter().map(|row| row.remote).collect());
        numbers("instance_writes", rows.iter().map(|row| row.writes).collect());
    }

    /// What the numbers in `row_object` and `row_code` mean.
    fn keys(&mut self, cube: &Cube, place: &HashMap<ObjectId, u32>) {
        let site_of = |key: &ObjectKey| match key {
            ObjectKey::Instance(id) => self.trace.object(*id).map(|object| object.site),
            ObjectKey::RestOfSite(site) => Some(*site),
            ObjectKey::Others | ObjectKey::Unknown => None,
        };
        let sites: Vec<Option<SiteId>> = cube.objects.iter().map(site_of).collect();
        let sites: Vec<u32> = sites.iter().map(|site| site.map_or(NONE, |site| self.sites.number(&site))).collect();
        let instance = |key: &ObjectKey| match key {
            ObjectKey::Instance(id) => place.get(id).copied().unwrap_or(NONE),
            _ => NONE,
        };
        let kind = |key: &ObjectKey| match key {
            ObjectKey::Instance(_) => 0,
            ObjectKey::RestOfSite(_) => 1,
            ObjectKey::Others => 2,
            ObjectKey::Unknown => 3,
        };
        self.columns.whole("key_site", &sites);
        self.columns.whole("key_instance", &cube.objects.iter().map(instance).collect::<Vec<_>>());
        self.columns.whole("key_kind", &cube.objects.iter().map(kind).collect::<Vec<_>>());
        let (mut locations, mut stacks) = (Vec::new(), Vec::new());
        for code in &cube.codes {
            let (location, stack) = match code {
                CodeKey::Stack(location, stack) => (Some(location), Some(stack)),
                CodeKey::RestOfLocation(location) => (Some(location), None),
                CodeKey::Others => (None, None),
            };
            locations.push(location.map_or(NONE, |location| self.locations.number(location)));
            stacks.push(stack.map_or(NONE, |stack| self.stacks.number(stack)));
        }
        self.columns.whole("code_location", &locations);
        self.columns.whole("code_stack", &stacks);
    }

    fn side(&mut self, cube: &Cube, place: &HashMap<ObjectId, u32>) {
        let columns = &mut self.columns;
        let bin = |time: numapilot_trace::ids::TimeNs| ((time.0 - cube.start.0) / cube.bin_ns) as u32;
        let mut pages = |name: &str, value: &dyn Fn(&numapilot_insight::cube::PageCell) -> u32| {
            columns.whole(name, &cube.pages.iter().map(value).collect::<Vec<_>>());
        };
        pages("page_instance", &|cell| place.get(&cell.object).copied().unwrap_or(NONE));
        pages("page_first", &|cell| cell.page);
        pages("page_count", &|cell| cell.pages);
        pages("page_bin", &|cell| bin(cell.time));
        pages("page_from", &|cell| cell.from);
        pages("page_home", &|cell| cell.home);
        columns.numbers("page_weight", &cube.pages.iter().map(|cell| cell.weight).collect::<Vec<_>>());
        let mut latencies = |name: &str, value: &dyn Fn(&numapilot_insight::cube::LatencyCell) -> u32| {
            columns.whole(name, &cube.latencies.iter().map(value).collect::<Vec<_>>());
        };
        latencies("latency_bin", &|cell| bin(cell.time));
        latencies("latency_from", &|cell| cell.from);
        latencies("latency_home", &|cell| cell.home);
        latencies("latency_bucket", &|cell| u32::from(cell.bucket));
        columns.numbers("latency_weight", &cube.latencies.iter().map(|cell| cell.weight).collect::<Vec<_>>());
    }

    fn site_table(&mut self) {
        let ids = self.sites.values.clone();
        let sites: Vec<_> = ids.iter().map(|&id| self.trace.site(id).cloned().unwrap_or_default()).collect();
        let mut texts = |text: &dyn Fn(&numapilot_flows::Site) -> Arc<str>| -> Vec<u32> {
            sites.iter().map(|site| self.strings.number(&text(site))).collect()
        };
        let name = texts(&|site| site.name.clone());
        let kind = texts(&|site| site.kind.word().into());
        let function = texts(&|site| site.function.clone());
        let file = texts(&|site| site.file.clone());
        let module = texts(&|site| site.module.clone());
        self.columns.whole("site_id", &ids.iter().map(|id| id.0).collect::<Vec<_>>());
        self.columns.whole("site_name", &name);
        self.columns.whole("site_kind", &kind);
        self.columns.whole("site_function", &function);
        self.columns.whole("site_file", &file);
        self.columns.whole("site_module", &module);
        self.columns.whole("site_line", &sites.iter().map(|site| site.line).collect::<Vec<_>>());
    }

    /// Stacks as stretches of code addresses, innermost first. One more start than stacks.
    fn stack_table(&mut self) {
        let (mut starts, mut all) = (vec![0u32], Vec::new());
        for stack in self.stacks.values.clone() {
            all.extend(self.trace.stack(stack).iter().map(|location| self.locations.number(location)));
            starts.push(all.len() as u32);
        }
        self.columns.whole("stack_start", &starts);
        self.columns.whole("stack_location", &all);
    }

    /// Code addresses as stretches of frames, innermost inlined one first. One more start than code addresses.
    fn location_table(&mut self) {
        let (mut starts, mut modules) = (vec![0u32], Vec::new());
        let (mut functions, mut files, mut lines, mut inlined) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for &id in &self.locations.values {
            let location = self.trace.location(id);
            modules.push(self.strings.number(&location.module));
            for frame in &location.frames {
                functions.push(self.strings.number(&frame.function));
                files.push(self.strings.number(&frame.file));
                lines.push(frame.line);
                inlined.push(u32::from(frame.inlined));
            }
            starts.push(functions.len() as u32);
        }
        self.columns.whole("location_start", &starts);
        self.columns.whole("location_module", &modules);
        self.columns.whole("frame_function", &functions);
        self.columns.whole("frame_file", &files);
        self.columns.whole("frame_line", &lines);
        self.columns.whole("frame_inlined", &inlined);
    }
}
