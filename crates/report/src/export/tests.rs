//! The exports against what the trace holds, read back by decoders that share no code with the writers, and the Firefox profile against the
//! shape that its own people's library writes. `tools/check-exports` runs the real pprof.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use fxprof_processed_profile as reference;
use numapilot_fixtures::Kind;
use numapilot_flows::{Filter, Object};
use numapilot_machine::NodeId;
use numapilot_trace::ids::{ObjectId, ThreadIndex, TimeNs};
use serde_json::Value;

use super::{Export, ExportError, Table};
use crate::fixture::{Opened, of_faults, of_unknown_homes, open};

/// Fields of a message in Protocol Buffers' wire format.
#[derive(Debug)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes");
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

fn number(message: &[u8], field: u64) -> u64 {
    let found = fields(message).into_iter().find(|(number, _)| *number == field);
    found.map_or(0, |(_, value)| if let Field::Number(value) = value { value } else { panic!("not a number") })
}

fn all(message: &[u8], field: u64) -> Vec<&[u8]> {
    let inner = |(number, value)| match value {
        Field::Bytes(bytes) if number == field => Some(bytes),
        _ => None,
    };
    fields(message).into_iter().filter_map(inner).collect()
}

fn packed(message: &[u8], field: u64) -> Vec<u64> {
    let mut values = Vec::new();
    for mut bytes in all(message, field) {
        while !bytes.is_empty() {
            values.push(varint(&mut bytes));
        }
    }
    values
}

fn written(
    opened: &Opened,
    filter: Filter,
    write: impl Fn(&Export<'_>, &mut Vec<u8>) -> Result<(), ExportError>,
) -> Vec<u8> {
    opened.with(filter, |export| {
        let mut out = Vec::new();
        write(export, &mut out).expect("memory takes everything");
        out
    })
}

fn pprof(opened: &Opened, filter: Filter) -> Vec<u8> {
    let gzipped = written(opened, filter, |export, out| export.pprof(out));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(gzipped.as_slice()).read_to_end(&mut bytes).expect("gzip");
    bytes
}

/// The rates of page faults measure no accesses, and whoever asks for statistics may not look at what the trace is of.
#[test]
fn statistics_of_page_faults_claim_nothing_about_accesses() {
    let found = numapilot_insight::Statistics::of(&of_faults().trace, &Filter::default());
    assert!(found.samples > 0 && found.remote_samples > 0);
    let unknown = [found.accesses, found.remote, found.writes, found.share];
    assert!(unknown.iter().all(|estimate| estimate.value.is_nan() && estimate.low.is_nan() && estimate.high.is_nan()));
    let counted = numapilot_insight::Statistics::of(&open(Kind::Latency, 500, 20, 4).trace, &Filter::default());
    assert!(counted.remote.value > 0.0 && counted.accesses.value > 0.0);
}

/// pprof shows the last type of sample where it does not find the default one among them: that of the remote faults.
#[test]
fn a_pprof_profile_shows_first_what_the_trace_counts() {
    for (opened, expected) in [(open(Kind::Latency, 500, 20, 4), "accesses"), (of_faults(), "page_faults")] {
        let profile = pprof(&opened, Filter::default());
        let strings = all(&profile, 6);
        let types: Vec<&[u8]> = all(&profile, 1).into_iter().map(|kind| strings[number(kind, 1) as usize]).collect();
        assert_eq!((types[0], strings[number(&profile, 14) as usize]), (expected.as_bytes(), expected.as_bytes()));
        let period = all(&profile, 11);
        assert_eq!(strings[number(period[0], 1) as usize], expected.as_bytes(), "what the period counts");
    }
}

#[test]
fn a_pprof_profile_holds_every_access_with_its_stack_and_labels() {
    let opened = open(Kind::Latency, 5000, 500, 16);
    let profile = pprof(&opened, Filter::default());
    let strings: Vec<&str> =
        all(&profile, 6).into_iter().map(|text| std::str::from_utf8(text).expect("UTF-8")).collect();
    assert_eq!(strings[0], "");
    let types: Vec<&str> = all(&profile, 1).into_iter().map(|kind| strings[number(kind, 1) as usize]).collect();
    assert_eq!(types, ["accesses", "remote_accesses", "bytes", "latency"]);
    let functions: HashMap<u64, &str> = all(&profile, 5)
        .into_iter()
        .map(|function| (number(function, 1), strings[number(function, 2) as usize]))
        .collect();
    let mappings: Vec<u64> = all(&profile, 3).into_iter().map(|mapping| number(mapping, 1)).collect();
    let mut locations: HashMap<u64, Vec<(&str, u64)>> = HashMap::new();
    for location in all(&profile, 4) {
        let mapping = number(location, 2);
        assert!(mapping == 0 || mappings.contains(&mapping));
        let lines = all(location, 4).into_iter().map(|line| (functions[&number(line, 1)], number(line, 2))).collect();
        assert!(locations.insert(number(location, 1), lines).is_none(), "a location twice");
    }
    // The same sums from the trace: by node, home, site, thread, and innermost function.
    let mut expected: BTreeMap<Vec<String>, [u64; 3]> = BTreeMap::new();
    opened.with(Filter::default(), |export| {
        for access in opened.trace.accesses() {
            let node = |node: Option<NodeId>| node.map_or_else(|| "unknown".to_owned(), |node| node.to_string());
            let frames =
                opened.trace.stack(access.stack).iter().flat_map(|&place| &opened.trace.location(place).frames);
            let mut key = vec![
                node(access.node),
                node(access.home),
                export.site_name(export.site_of(&access)),
                export.thread_name(access.thread),
            ];
            key.extend(frames.map(|frame| format!("{}:{}", frame.function, frame.line)));
            let sums = expected.entry(key).or_default();
            let weight = u64::from(access.weight);
            sums[0] += weight;
            sums[1] += if access.is_remote() == Some(true) { weight } else { 0 };
            sums[2] += weight * u64::from(access.latency_cycles.unwrap_or(0));
        }
    });
    let mut found: BTreeMap<Vec<String>, [u64; 3]> = BTreeMap::new();
    for sample in all(&profile, 2) {
        let values = packed(sample, 2);
        assert_eq!(values[2], values[0] * 64);
        let labels: Vec<(&str, &str)> = all(sample, 3)
            .into_iter()
            .map(|label| (strings[number(label, 1) as usize], strings[number(label, 2) as usize]))
            .collect();
        let names: Vec<&str> = labels.iter().map(|(key, _)| *key).collect();
        assert_eq!(names, ["node", "home", "object", "thread"]);
        let mut key: Vec<String> = labels.iter().map(|(_, text)| (*text).to_owned()).collect();
        key.extend(
            packed(sample, 1).iter().flat_map(|id| &locations[id]).map(|(function, line)| format!("{function}:{line}")),
        );
        let sums = found.entry(key).or_default();
        // 2 GHz: two cycles are a nanosecond, rounded down per sample.
        for (sum, value) in sums.iter_mut().zip([values[0], values[1], values[3]]) {
            *sum += value;
        }
    }
    assert_eq!(found.len(), expected.len());
    for (key, [accesses, remote, cycles]) in &expected {
        let sums = found[key];
        assert_eq!([sums[0], sums[1]], [*accesses, *remote], "{key:?}");
        assert!(cycles / 2 - sums[2] <= 4, "{key:?}: {cycles} cycles, {} ns", sums[2]);
    }
}

#[test]
fn pprof_profiles_keep_to_the_filter_and_know_no_latency_where_none_was_measured() {
    let opened = open(Kind::OneThread, 3000, 100, 1);
    let filter =
        Filter { is_remote: Some(true), time: Some(TimeNs(1_000_000)..TimeNs(30_000_000)), ..Filter::default() };
    let weight: u64 = opened.trace.filtered(&filter).map(|access| u64::from(access.weight)).sum();
    let profile = pprof(&opened, filter);
    assert_eq!(all(&profile, 1).len(), 3);
    let values: Vec<Vec<u64>> = all(&profile, 2).into_iter().map(|sample| packed(sample, 2)).collect();
    assert!(weight > 0 && values.iter().all(|values| values[0] == values[1]));
    assert_eq!(values.iter().map(|values| values[0]).sum::<u64>(), weight);
}

/// Whoever gets a profile has not seen the command that wrote it.
#[test]
fn profiles_of_a_part_say_which_and_how_long_it_is() {
    let opened = open(Kind::OneThread, 3000, 100, 1);
    let filter = Filter { time: Some(TimeNs(1_000_000)..TimeNs(30_000_000)), ..Filter::default() };
    let part = |export: &Export<'_>, scope, out: &mut Vec<u8>| Export { scope, ..*export }.pprof(out);
    let header = |filter: &Filter, scope| {
        let gzipped = written(&opened, filter.clone(), |export, out| part(export, scope, out));
        let mut profile = Vec::new();
        flate2::read::GzDecoder::new(gzipped.as_slice()).read_to_end(&mut profile).expect("gzip");
        let strings = all(&profile, 6);
        let comments =
            packed(&profile, 13).into_iter().map(|text| String::from_utf8_lossy(strings[text as usize]).into());
        (number(&profile, 9), number(&profile, 10), comments.collect::<Vec<String>>())
    };
    let meta = opened.trace.meta();
    let scope = "0.001 s to 0.03 s, remote accesses";
    let (start, duration, comments) = header(&filter, scope);
    assert_eq!((start, duration), (meta.start_unix_ns + 1_000_000, 29_000_000));
    let line = format!("only {scope}");
    assert!(comments.contains(&line), "{comments:?}");
    let (start, duration, comments) = header(&Filter::default(), "");
    assert_eq!((start, duration), (meta.start_unix_ns, meta.duration_ns));
    assert!(!comments.iter().any(|comment| comment.starts_with("only ")), "{comments:?}");
    let profile = written(&opened, filter, |export, out| Export { scope, ..*export }.firefox(out));
    let profile: Value = serde_json::from_slice(&profile).expect("JSON");
    let notes = list(&profile["meta"]["extra"][0], "entries");
    assert!(notes.iter().any(|note| note["value"] == line), "{notes:?}");
}

fn firefox(opened: &Opened, filter: Filter) -> Value {
    serde_json::from_slice(&written(opened, filter, |export, out| export.firefox(out))).expect("JSON")
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no list {name} in {value}"))
}

/// Columns are as long as the table says, and what points elsewhere points to something.
fn check_thread(thread: &Value, libs: usize) {
    let length = |table: &str| thread[table]["length"].as_u64().expect("a length") as usize;
    let tables = ["samples", "markers", "stackTable", "frameTable", "funcTable", "resourceTable", "nativeSymbols"];
    for table in tables {
        for (name, column) in thread[table].as_object().expect("a table") {
            assert!(column.as_array().is_none_or(|column| column.len() == length(table)), "{table}.{name}");
        }
    }
    let points = |table: &str, column: &str, to: usize| {
        for value in list(&thread[table], column).iter().filter_map(Value::as_u64) {
            assert!((value as usize) < to, "{table}.{column}: {value} of {to}");
        }
    };
    let strings = list(thread, "stringArray").len();
    points("samples", "stack", length("stackTable"));
    points("stackTable", "frame", length("frameTable"));
    points("frameTable", "func", length("funcTable"));
    points("frameTable", "category", 4);
    points("funcTable", "name", strings);
    points("funcTable", "fileName", strings);
    points("funcTable", "resource", length("resourceTable"));
    points("resourceTable", "name", strings);
    points("resourceTable", "lib", libs);
    points("markers", "name", strings);
    for (index, prefix) in list(&thread["stackTable"], "prefix").iter().enumerate() {
        assert!(prefix.as_u64().is_none_or(|prefix| prefix < index as u64), "a stack before what it is called by");
    }
    assert!(
        list(&thread["samples"], "timeDeltas").iter().all(|delta| delta.as_f64().is_some_and(|delta| delta >= 0.0))
    );
}

/// The names from the outermost function to the object, of one sample.
fn firefox_stack(thread: &Value, sample: usize) -> Vec<String> {
    let at = |table: &str, column: &str, index: u64| thread[table][column][index as usize].as_u64();
    let mut names = Vec::new();
    let mut next = at("samples", "stack", sample as u64);
    while let Some(stack) = next {
        let func = at("frameTable", "func", at("stackTable", "frame", stack).expect("a frame")).expect("a function");
        let name = at("funcTable", "name", func).expect("a name");
        names.push(thread["stringArray"][name as usize].as_str().expect("text").to_owned());
        next = at("stackTable", "prefix", stack);
    }
    names.reverse();
    names
}

#[test]
fn a_firefox_profile_holds_every_access_in_its_thread() {
    let opened = open(Kind::Big, 4000, 500, 8);
    let profile = firefox(&opened, Filter::default());
    let libs = list(&profile, "libs").len();
    let threads = list(&profile, "threads");
    assert_eq!(threads.len(), opened.trace.threads().len());
    for (index, thread) in threads.iter().enumerate() {
        check_thread(thread, libs);
        let flow: Vec<_> = opened.trace.tef(ThreadIndex(index as u32)).collect();
        assert_eq!(thread["samples"]["length"], flow.len());
        let mut time_ms = 0.0;
        for (sample, access) in flow.iter().enumerate() {
            time_ms += thread["samples"]["timeDeltas"][sample].as_f64().expect("a time");
            assert!((time_ms - access.time.0 as f64 / 1e6).abs() < 1e-6);
            assert_eq!(thread["samples"]["weight"][sample], access.weight);
            let names = firefox_stack(thread, sample);
            let frames = opened.trace.stack(access.stack).iter().rev();
            let mut expected: Vec<String> = frames
                .flat_map(|&place| opened.trace.location(place).frames.iter().rev())
                .map(|frame| frame.function.to_string())
                .collect();
            opened.with(Filter::default(), |export| expected.push(export.site_name(export.site_of(access))));
            assert_eq!(names, expected);
        }
    }
    let marks = &threads[0]["markers"];
    assert_eq!(marks["length"], opened.trace.marks().len());
    assert_eq!(marks["data"][2]["text"], "solve");
    assert_eq!(marks["endTime"][1], marks["startTime"][2]);
}

/// The type of every field, lists by their first element's.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect::<serde_json::Map<_, _>>().into()
        }
        Value::Array(_) => "list".into(),
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
    }
}

/// Every field that the reference has is here, of the same type or null in one of them. (Ours may be more.)
fn assert_covers(ours: &Value, reference: &Value, place: &str) {
    let Some(fields) = reference.as_object() else {
        assert!(ours == reference || ours == "null" || reference == "null", "{place}: {ours}, not {reference}");
        return;
    };
    // CPU use was not measured: the column and its unit are optional.
    for (name, field) in fields.iter().filter(|(name, _)| !["threadCPUDelta", "sampleUnits"].contains(&name.as_str())) {
        let found = ours.get(name).unwrap_or_else(|| panic!("{place} has no {name}"));
        assert_covers(found, field, &format!("{place}.{name}"));
    }
}

#[test]
fn the_firefox_profile_has_the_shape_that_its_own_writer_gives() {
    let start = reference::ReferenceTimestamp::from_millis_since_unix_epoch(1.0);
    let mut profile = reference::Profile::new("program", start, reference::SamplingInterval::from_millis(1));
    let zero = reference::Timestamp::from_nanos_since_reference(0);
    let process = profile.add_process("program", 1, zero);
    let thread = profile.add_thread(process, 1, zero, true);
    let label = reference::Frame::Label(profile.intern_string("main"));
    let category_pair = reference::CategoryHandle::OTHER.into();
    let frame = reference::FrameInfo { frame: label, category_pair, flags: reference::FrameFlags::empty() };
    let stack = profile.intern_stack_frames(thread, std::iter::once(frame));
    profile.add_sample(thread, zero, stack, reference::CpuDelta::ZERO, 1);
    let expected = serde_json::to_value(&profile).expect("JSON");
    let ours = firefox(&open(Kind::OneThread, 100, 10, 1), Filter::default());
    assert_eq!(ours["meta"]["preprocessedProfileVersion"], expected["meta"]["preprocessedProfileVersion"]);
    assert_covers(&shape(&ours), &shape(&expected), "profile");
    assert_covers(&shape(&ours["threads"][0]), &shape(&expected["threads"][0]), "thread");
}

/// A reader of CSV as RFC 4180 has it.
fn read_csv(text: &str) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = rows.last_mut().expect("a row");
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                last.last_mut().expect("a cell").push(chars.next().expect("it"));
            }
            '"' => quoted = !quoted,
            ',' if !quoted => last.push(String::new()),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {
                chars.next();
                rows.push(vec![String::new()]);
            }
            c => last.last_mut().expect("a cell").push(c),
        }
    }
    assert_eq!(rows.pop(), Some(vec![String::new()]), "the last line ends");
    rows
}

fn csv(opened: &Opened, filter: Filter, table: Table) -> Vec<Vec<String>> {
    let bytes = written(opened, filter, |export, out| export.csv(table, out));
    read_csv(&String::from_utf8(bytes).expect("UTF-8"))
}

#[test]
fn every_table_of_every_kind_is_even_and_has_no_formulas() {
    for kind in Kind::ALL {
        let opened = open(kind, 400, 2000, 1024);
        for table in Table::ALL {
            let what = format!("{} {}", kind.word(), table.word());
            if opened.trace.objects().is_empty() && table == Table::Pages {
                continue;
            }
            if opened.trace.heap_peak().object.is_none() && table == Table::Heap {
                let write = |export: &Export<'_>| export.csv(table, &mut Vec::new()).map_err(|error| error.to_string());
                assert_eq!(opened.with(Filter::default(), write), Err(ExportError::NoHeap.to_string()), "{what}");
                continue;
            }
            let object = Some(ObjectId(0)).filter(|_| table == Table::Pages);
            let rows = csv(&opened, Filter { object, ..Filter::default() }, table);
            assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{what}");
            let is_number = |cell: &str| cell.parse::<f64>().is_ok();
            let is_formula = |cell: &&String| cell.starts_with(['=', '+', '-', '@']) && !is_number(cell);
            assert_eq!(rows.iter().flatten().find(is_formula), None, "{what}");
            assert!(rows[0].iter().all(|name| !name.is_empty()), "{what}");
        }
    }
}

#[test]
fn tables_agree_with_the_trace() {
    let opened = open(Kind::Big, 4000, 500, 8);
    let everything = Filter::default;
    let sum = |rows: &[Vec<String>], name: &str| -> f64 {
        let column = rows[0].iter().position(|other| other == name).unwrap_or_else(|| panic!("no column {name}"));
        rows[1..].iter().filter_map(|row| row[column].parse::<f64>().ok()).sum()
    };
    let weight: u64 = opened.trace.accesses().map(|access| u64::from(access.weight)).sum();
    let accesses = csv(&opened, everything(), Table::Accesses);
    assert_eq!((accesses.len() - 1, sum(&accesses, "weight")), (4000, weight as f64));
    let column = accesses[0].iter().position(|name| name == "address").expect("addresses");
    for (row, access) in accesses[1..].iter().zip(opened.trace.accesses()) {
        assert_eq!(row[column], access.address.to_string());
    }
    assert_eq!(csv(&opened, everything(), Table::Objects).len(), 501);
    assert_eq!(csv(&opened, everything(), Table::Threads).len(), 9);
    assert_eq!(csv(&opened, everything(), Table::Matrix).len(), 17);
    for table in [Table::Sites, Table::Instances, Table::Threads, Table::Functions, Table::Stacks, Table::Series] {
        let rows = csv(&opened, everything(), table);
        // Sites have a row for accesses without an object; instances have none.
        let samples = if table == Table::Instances {
            4000.0 - opened.trace.losses().accesses_without_object as f64
        } else {
            4000.0
        };
        assert_eq!(sum(&rows, "samples"), samples, "{}", table.word());
    }
    let losses = csv(&opened, everything(), Table::Losses);
    assert!(losses.len() > 10 && sum(&losses, "count") > 0.0);
    let thread = Filter { thread: Some(ThreadIndex(3)), ..Filter::default() };
    assert_eq!(csv(&opened, thread, Table::Accesses).len() - 1, opened.trace.tef(ThreadIndex(3)).len());
}

#[test]
fn what_follows_from_homes_is_empty_where_these_are_unknown() {
    let rows = csv(&of_unknown_homes(), Filter::default(), Table::Sites);
    let cells = |name: &str, prefix: &str| -> Vec<String> {
        let row = rows.iter().find(|row| row.contains(&name.to_owned())).expect("a row");
        rows[0].iter().zip(row).filter(|(title, _)| title.starts_with(prefix)).map(|(_, cell)| cell.clone()).collect()
    };
    for prefix in ["share_of_remote", "remote", "avoidable_by_allocating_elsewhere", "on_node_"] {
        assert!(cells("known", prefix).iter().all(|cell| !cell.is_empty()), "{prefix}: {rows:?}");
        assert!(cells("unknown", prefix).iter().all(String::is_empty), "{prefix}: {rows:?}");
    }
    assert_eq!(cells("known", "remote")[0], "0.5");
    assert_eq!(cells("unknown", "from_node_1"), ["0.5"], "where the accesses come from is known");
    // Of these accesses none has a known home.
    let filter = Filter { object: Some(ObjectId(1)), time: Some(TimeNs(2)..TimeNs(20)), ..Filter::default() };
    let threads = csv(&of_unknown_homes(), filter, Table::Threads);
    let remote = threads[0].iter().position(|title| title == "remote").expect("a column");
    let first_node = threads[0].iter().position(|title| title == "on_node_0").expect("a column");
    assert!(threads[1..].iter().all(|row| row[first_node..first_node + 4].iter().all(String::is_empty)), "{threads:?}");
    // A thread that makes none of the accesses has no share of writes, either.
    let none = Filter { thread: Some(ThreadIndex(0)), ..Filter::default() };
    let threads_of_one = csv(&of_unknown_homes(), none, Table::Threads);
    let writes = threads_of_one[0].iter().position(|title| title == "writes").expect("a column");
    assert_eq!(
        (threads_of_one[1][writes].as_str(), threads_of_one[2][writes].as_str()),
        ("0", ""),
        "{threads_of_one:?}"
    );
    let samples = threads[0].iter().position(|title| title == "samples").expect("a column");
    assert!(
        threads[1..].iter().all(|row| row[samples] != "0" && row[remote..remote + 3].iter().all(String::is_empty)),
        "{threads:?}"
    );
}

#[test]
fn a_table_that_needs_an_object_says_so() {
    let opened = open(Kind::Big, 500, 100, 4);
    let error = opened.with(Filter::default(), |export| export.csv(Table::Pages, &mut Vec::new())).unwrap_err();
    assert!(error.to_string().contains("--object"), "{error}");
    let pages = csv(&opened, Filter { object: Some(ObjectId(30)), ..Filter::default() }, Table::Pages);
    assert!(pages.len() > 1);
}

#[test]
fn heap_profiles_sum_up_to_the_blocks_of_the_trace() {
    let opened = open(Kind::Big, 4000, 500, 8);
    let gzipped = written(&opened, Filter::default(), |export, out| export.pprof_heap(out));
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(gzipped.as_slice()).read_to_end(&mut profile).expect("gzip");
    let strings: Vec<&str> =
        all(&profile, 6).into_iter().map(|text| std::str::from_utf8(text).expect("UTF-8")).collect();
    let types: Vec<&str> = all(&profile, 1).into_iter().map(|kind| strings[number(kind, 1) as usize]).collect();
    assert_eq!(types, ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "left_objects", "left_space"]);
    let mut sums = vec![0; types.len()];
    for sample in all(&profile, 2) {
        for (sum, value) in sums.iter_mut().zip(packed(sample, 2)) {
            *sum += value;
        }
    }
    let trace = &opened.trace;
    let blocks: Vec<_> = trace.objects().iter().filter(|object| object.alloc_kind.is_some()).collect();
    let total = |kept: &dyn Fn(&&&Object) -> bool| -> [u64; 2] {
        let kept: Vec<_> = blocks.iter().filter(kept).collect();
        [kept.len() as u64, kept.iter().map(|block| block.bytes).sum()]
    };
    let [allocated, left] = [total(&|_| true), total(&|block| block.death.is_none())];
    // The most that was live at once, counted anew at every allocation.
    let live = |at: TimeNs| total(&move |block| block.birth <= at && block.death.is_none_or(|death| death > at));
    let peak = blocks.iter().map(|block| live(block.birth)).max_by_key(|[_, bytes]| *bytes).expect("blocks");
    assert_eq!(sums, [allocated, peak, left].concat());

    let rows = csv(&opened, Filter::default(), Table::Heap);
    let sum = |name: &str| -> u64 {
        let column = rows[0].iter().position(|other| other == name).unwrap_or_else(|| panic!("no column {name}"));
        rows[1..].iter().map(|row| row[column].parse::<u64>().expect("a number")).sum()
    };
    assert_eq!(
        ["allocations", "allocated_bytes", "left_blocks", "left_bytes"].map(sum),
        [allocated, left].concat()[..]
    );
    assert_eq!(sum("at_peak_bytes"), peak[1]);
}
