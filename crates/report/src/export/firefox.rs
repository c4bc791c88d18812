//! A profile for the Firefox Profiler: its processed format, version 55, as JSON, one thread after the other.
//!
//! What its views show here: *samples* are memory accesses by weight, and under each call stack hangs one more frame, the object that was
//! reached, in the category `remote` or `local`. So the activity graph is coloured by where the memory was, the call tree ends in objects, and
//! inverted it ranks them. Marks of the program are markers, from each to the next.

use std::io::Write;

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::{AccessRef, LocationId, Process, SiteId, Thread};
use numapilot_trace::ids::{ProcessIndex, StackId, TimeNs};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Export, ExportError, places};

/// Of the processed format; the Firefox Profiler upgrades older ones by itself.
const VERSION: u32 = 55;
/// Categories by number, with colours that the Firefox Profiler knows.
const CATEGORIES: [(&str, &str); 4] =
    [("code", "grey"), ("local", "blue"), ("remote", "orange"), ("home unknown", "purple")];
/// A resource that is a library.
const LIBRARY: u8 = 1;
/// A marker with beginning and end.
const INTERVAL: u8 = 1;

/// Milliseconds, the format's unit of time.
fn ms(time_ns: u64) -> f64 {
    time_ns as f64 / 1e6
}

pub fn write(export: &Export<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let mut out = std::io::BufWriter::with_capacity(256 << 10, out);
    let modules = Modules::new(export);
    out.write_all(b"{\"meta\":")?;
    serde_json::to_writer(&mut out, &meta(export))?;
    out.write_all(b",\"libs\":")?;
    serde_json::to_writer(&mut out, &modules.libs())?;
    out.write_all(b",\"pages\":[],\"profilerOverhead\":[],\"counters\":[],\"threads\":[")?;
    let mut is_first = true;
    for thread in export.trace().threads() {
        let wanted = export.analysis.filter().thread.is_none_or(|wanted| wanted == thread.index);
        if !wanted {
            continue;
        }
        if !is_first {
            out.write_all(b",")?;
        }
        is_first = false;
        serde_json::to_writer(&mut out, &ThreadTables::new(export, thread, &modules))?;
    }
    out.write_all(b"]}\n")?;
    out.flush()?;
    Ok(())
}

fn meta(export: &Export<'_>) -> Value {
    let (heading, trace) = (export.heading, export.trace());
    let categories: Vec<Value> =
        CATEGORIES.map(|(name, color)| json!({"name": name, "color": color, "subcategories": ["Other"]})).to_vec();
    let samples = (trace.accesses().len() as u64 / trace.threads().len().max(1) as u64).max(1);
    let mut notes = vec![heading.provenance()];
    notes.extend(export.part());
    notes.extend(heading.notes.iter().cloned());
    notes.extend(heading.limits());
    let notes: Vec<Value> =
        notes.iter().map(|note| json!({"label": "Note", "format": "string", "value": note})).collect();
    json!({
        "categories": categories,
        "debug": false,
        "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "interval": (ms(heading.program_time_ns) / samples as f64).max(1e-6),
        "preprocessedProfileVersion": VERSION,
        "processType": 0,
        "product": heading.program(),
        "importedFrom": "numapilot",
        "arguments": heading.command.join(" "),
        "startTime": ms(trace.meta().start_unix_ns),
        "symbolicated": true,
        "pausedRanges": [],
        "version": 24,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "markerSchema": [{
            "name": "mark",
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "chartLabel": "{marker.data.text}",
            "tooltipLabel": "{marker.data.text}",
            "tableLabel": "{marker.data.text}",
            "fields": [{"key": "text", "label": "Text", "format": "string", "searchable": true}],
        }],
        "extra": [{"label": "Recording", "entries": notes}],
    })
}

/// The binaries, numbered by path.
struct Modules {
    paths: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Modules {
    fn new(export: &Export<'_>) -> Modules {
        let mut modules = Modules { paths: Vec::new(), numbers: HashMap::new() };
        for location in export.trace().locations().iter().filter(|location| !location.module.is_empty()) {
            let path = location.module.to_string();
            if !modules.numbers.contains_key(&path) {
                modules.numbers.insert(path.clone(), modules.paths.len());
                modules.paths.push(path);
            }
        }
        modules
    }

    fn libs(&self) -> Vec<Value> {
        let lib = |path: &String| {
            let name = path.rsplit('/').next().unwrap_or(path);
            json!({
                "name": name, "path": path, "debugName": name, "debugPath": path,
                "breakpadId": "000000000000000000000000000000000", "codeId": null, "arch": null,
            })
        };
        self.paths.iter().map(lib).collect()
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FrameTable {
    length: usize,
    address: Vec<i64>,
    inline_depth: Vec<u32>,
    category: Vec<u8>,
    subcategory: Vec<u8>,
    func: Vec<usize>,
    native_symbol: Vec<Option<usize>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u8>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FuncTable {
    length: usize,
    name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    file_name: Vec<Option<usize>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
struct StackTable {
    length: usize,
    prefix: Vec<Option<usize>>,
    frame: Vec<usize>,
}

#[derive(Default, Serialize)]
struct ResourceTable {
    length: usize,
    lib: Vec<usize>,
    name: Vec<usize>,
    host: Vec<Option<usize>>,
    #[serde(rename = "type")]
    kind: Vec<u8>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NativeSymbols {
    length: usize,
    address: Vec<u64>,
    function_size: Vec<Option<u64>>,
    lib_index: Vec<usize>,
    name: Vec<usize>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    length: usize,
    weight_type: &'static str,
    stack: Vec<usize>,
    time_deltas: Vec<f64>,
    weight: Vec<u32>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Markers {
    length: usize,
    category: Vec<u8>,
    data: Vec<Value>,
    start_time: Vec<f64>,
    end_time: Vec<f64>,
    name: Vec<usize>,
    phase: Vec<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThreadTables {
    process_type: &'static str,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    register_time: f64,
    unregister_time: Option<f64>,
    paused_ranges: [u8; 0],
    process_name: String,
    name: String,
    is_main_thread: bool,
    show_markers_in_timeline: bool,
    pid: String,
    tid: String,
    samples: Samples,
    markers: Markers,
    stack_table: StackTable,
    frame_table: FrameTable,
    func_table: FuncTable,
    resource_table: ResourceTable,
    native_symbols: NativeSymbols,
    string_array: Vec<String>,
}

impl ThreadTables {
    fn new(export: &Export<'_>, thread: &Thread, modules: &Modules) -> ThreadTables {
        let mut builder = Builder::over(export, modules);
        let mut filter = export.analysis.filter().clone();
        filter.thread = Some(thread.index);
        let mut last = TimeNs(0);
        for access in export.trace().filtered(&filter).filter(AccessRef::is_memory_access) {
            let stack = builder.stack_of(&access);
            let samples = &mut builder.samples;
            samples.stack.push(stack);
            samples.time_deltas.push(ms(access.time.0.saturating_sub(last.0)));
            samples.weight.push(access.weight);
            last = access.time;
        }
        builder.samples.length = builder.samples.stack.len();
        builder.samples.weight_type = "samples";
        let is_main = export
            .trace()
            .threads()
            .iter()
            .find(|other| other.process == thread.process)
            .is_some_and(|first| first.index == thread.index);
        if is_main {
            builder.marks();
        }
        builder.finish(thread, is_main)
    }
}

/// The process's number, of its own for each program that ran under it: the Profiler shows one main thread for each.
fn pid(processes: &[Process], index: ProcessIndex) -> String {
    let Some(process) = processes.get(index.0 as usize) else { return "0".to_owned() };
    match processes[..index.0 as usize].iter().filter(|earlier| earlier.pid == process.pid).count() {
        0 => process.pid.to_string(),
        nth => format!("{}.{}", process.pid, nth + 1),
    }
}

/// Tables of one thread while they grow.
struct Builder<'a> {
    export: &'a Export<'a>,
    modules: &'a Modules,
    strings: HashMap<String, usize>,
    string_array: Vec<String>,
    samples: Samples,
    markers: Markers,
    frame_table: FrameTable,
    func_table: FuncTable,
    stack_table: StackTable,
    resource_table: ResourceTable,
    frames: HashMap<(LocationId, usize), usize>,
    functions: HashMap<(usize, i64, Option<usize>), usize>,
    resources: HashMap<usize, usize>,
    objects: HashMap<(Option<SiteId>, u8), usize>,
    /// By frame and what it is called by.
    stacks: HashMap<(Option<usize>, usize), usize>,
    known: HashMap<(StackId, LocationId, Option<SiteId>, u8), usize>,
}

impl<'a> Builder<'a> {
    fn over(export: &'a Export<'a>, modules: &'a Modules) -> Builder<'a> {
        Builder {
            export,
            modules,
            strings: HashMap::new(),
            string_array: Vec::new(),
            samples: Samples::default(),
            markers: Markers::default(),
            frame_table: FrameTable::default(),
            func_table: FuncTable::default(),
            stack_table: StackTable::default(),
            resource_table: ResourceTable::default(),
            frames: HashMap::new(),
            functions: HashMap::new(),
            resources: HashMap::new(),
            objects: HashMap::new(),
            stacks: HashMap::new(),
            known: HashMap::new(),
        }
    }

    fn string(&mut self, text: &str) -> usize {
        if let Some(&number) = self.strings.get(text) {
            return number;
        }
        let number = self.string_array.len();
        self.strings.insert(text.to_owned(), number);
        self.string_array.push(text.to_owned());
        number
    }

    /// Code from the outside in, then the object.
    fn stack_of(&mut self, access: &AccessRef) -> usize {
        let site = self.export.site_of(access);
        let category = match access.is_remote() {
            Some(false) => 1,
            Some(true) => 2,
            None => 3,
        };
        let key = (access.stack, access.location, site, category);
        if let Some(&stack) = self.known.get(&key) {
            return stack;
        }
        let export = self.export;
        let mut stack = None;
        for place in places(export.trace(), access.stack, access.location).rev() {
            // Within a place, the function that has the code comes first, what was inlined into it after.
            for depth in (0..export.trace().location(place).frames.len()).rev() {
                let frame = self.frame(place, depth);
                stack = Some(self.stack(stack, frame));
            }
        }
        let frame = self.object_frame(site, category);
        let stack = self.stack(stack, frame);
        self.known.insert(key, stack);
        stack
    }

    fn stack(&mut self, prefix: Option<usize>, frame: usize) -> usize {
        let table = &mut self.stack_table;
        *self.stacks.entry((prefix, frame)).or_insert_with(|| {
            table.prefix.push(prefix);
            table.frame.push(frame);
            table.length += 1;
            table.length - 1
        })
    }

    fn frame(&mut self, place: LocationId, depth: usize) -> usize {
        if let Some(&frame) = self.frames.get(&(place, depth)) {
            return frame;
        }
        let export = self.export;
        let location = export.trace().location(place);
        let frame = &location.frames[depth];
        let name = self.string(if frame.function.is_empty() { "(unknown)" } else { &frame.function });
        let resource = self.resource(&location.module);
        let file = (!frame.file.is_empty()).then(|| self.string(&frame.file));
        let function = self.function(name, resource, file);
        let inline_depth = (location.frames.len() - 1 - depth) as u32;
        let address = if location.module.is_empty() { -1 } else { location.offset as i64 };
        let number = self.push_frame(function, 0, address, inline_depth, Some(frame.line).filter(|&line| line > 0));
        self.frames.insert((place, depth), number);
        number
    }

    fn object_frame(&mut self, site: Option<SiteId>, category: u8) -> usize {
        if let Some(&frame) = self.objects.get(&(site, category)) {
            return frame;
        }
        let name = self.string(&self.export.site_name(site));
        let function = self.function(name, -1, None);
        let number = self.push_frame(function, category, -1, 0, None);
        self.objects.insert((site, category), number);
        number
    }

    fn push_frame(
        &mut self,
        function: usize,
        category: u8,
        address: i64,
        inline_depth: u32,
        line: Option<u32>,
    ) -> usize {
        let table = &mut self.frame_table;
        table.address.push(address);
        table.inline_depth.push(inline_depth);
        table.category.push(category);
        table.subcategory.push(0);
        table.func.push(function);
        table.native_symbol.push(None);
        table.inner_window_id.push(0);
        table.line.push(line);
        table.column.push(None);
        table.length += 1;
        table.length - 1
    }

    fn function(&mut self, name: usize, resource: i64, file: Option<usize>) -> usize {
        let table = &mut self.func_table;
        *self.functions.entry((name, resource, file)).or_insert_with(|| {
            table.name.push(name);
            table.is_js.push(false);
            table.relevant_for_js.push(false);
            table.resource.push(resource);
            table.file_name.push(file);
            table.line_number.push(None);
            table.column_number.push(None);
            table.length += 1;
            table.length - 1
        })
    }

    /// -1 where the binary is not known.
    fn resource(&mut self, module: &str) -> i64 {
        let Some(&lib) = self.modules.numbers.get(module) else { return -1 };
        if let Some(&resource) = self.resources.get(&lib) {
            return resource as i64;
        }
        let name = self.string(module.rsplit('/').next().unwrap_or(module));
        let table = &mut self.resource_table;
        table.lib.push(lib);
        table.name.push(name);
        table.host.push(None);
        table.kind.push(LIBRARY);
        table.length += 1;
        self.resources.insert(lib, table.length - 1);
        table.length as i64 - 1
    }

    /// The program's marks, each until the next; as far as the filter's time reaches.
    fn marks(&mut self) {
        let export = self.export;
        let end = export.trace().end();
        let window = export.analysis.filter().time.clone().unwrap_or(TimeNs(0)..TimeNs(u64::MAX));
        let marks = export.trace().marks();
        for (index, (begin, text)) in marks.iter().enumerate() {
            let next = marks.get(index + 1).map_or(end, |mark| mark.0);
            let (from, to) = ((*begin).max(window.start), next.min(window.end));
            if from >= to {
                continue;
            }
            let name = self.string("mark");
            let markers = &mut self.markers;
            markers.category.push(0);
            markers.data.push(json!({"type": "mark", "text": text}));
            markers.start_time.push(ms(from.0));
            markers.end_time.push(ms(to.0));
            markers.name.push(name);
            markers.phase.push(INTERVAL);
            markers.length += 1;
        }
    }

    fn finish(self, thread: &Thread, is_main: bool) -> ThreadTables {
        let process = self.export.trace().process(thread.process);
        ThreadTables {
            process_type: "default",
            process_startup_time: process.map_or(0.0, |process| ms(process.start.0)),
            process_shutdown_time: process.and_then(|process| process.end).map(|end| ms(end.0)),
            register_time: ms(thread.start.0),
            unregister_time: thread.end.map(|end| ms(end.0)),
            paused_ranges: [],
            process_name: process.map_or("", |process| process.command()).to_owned(),
            name: self.export.thread_name(thread.index),
            is_main_thread: is_main,
            show_markers_in_timeline: is_main,
            pid: pid(self.export.trace().processes(), thread.process),
            tid: thread.tid.to_string(),
            samples: self.samples,
            markers: self.markers,
            stack_table: self.stack_table,
            frame_table: self.frame_table,
            func_table: self.func_table,
            resource_table: self.resource_table,
            native_symbols: NativeSymbols::default(),
            string_array: self.string_array,
        }
    }
}
