//! A profile for pprof: `profile.proto`, gzipped. Field numbers are those of its public definition
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>).
//!
//! A sample stands for all accesses with the same call stack, thread, node, home and object. Samples are written one by one, then the tables
//! that they refer to, the strings last: the order of fields is free.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use foldhash::{HashMap, HashMapExt};
use numapilot_flows::{LocationId, SiteId};
use numapilot_insight::LINE_BYTES;
use numapilot_machine::NodeId;
use numapilot_trace::ids::{StackId, ThreadIndex};

use super::wire::Message;
use super::{Export, ExportError, places};
use crate::text::{clean, shorten};

/// Room for one binary's addresses: places in it are at these multiples plus their offset in the file.
const MODULE_ROOM: u64 = 1 << 40;

/// Room for the program's arguments in the comments.
const COMMAND_COLUMNS: usize = 1000;

/// Fields of `Profile`.
mod profile {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING_TABLE: u64 = 6;
    pub const TIME_NANOS: u64 = 9;
    pub const DURATION_NANOS: u64 = 10;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
    pub const COMMENT: u64 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

/// The key by which accesses are summed to one sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    stack: StackId,
    location: LocationId,
    thread: ThreadIndex,
    node: Option<NodeId>,
    home: Option<NodeId>,
    site: Option<SiteId>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    accesses: u64,
    latency_cycles: u64,
}

/// Texts, each once; number 0 is the empty one.
struct Strings {
    numbers: HashMap<Arc<str>, u64>,
    texts: Vec<Arc<str>>,
}

impl Strings {
    fn new() -> Strings {
        let mut strings = Strings { numbers: HashMap::new(), texts: Vec::new() };
        strings.number("");
        strings
    }

    fn number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let text: Arc<str> = text.into();
        let number = self.texts.len() as u64;
        self.numbers.insert(text.clone(), number);
        self.texts.push(text);
        number
    }
}

struct Writer<'a, W: Write> {
    export: &'a Export<'a>,
    out: W,
    strings: Strings,
    /// Whether a sample uses each code address.
    used: Vec<bool>,
    buffer: Message,
}

pub fn write(export: &Export<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let out = std::io::BufWriter::with_capacity(256 << 10, GzEncoder::new(out, Compression::fast()));
    let used = vec![false; export.trace().locations().len()];
    let mut writer = Writer { export, out, strings: Strings::new(), used, buffer: Message::default() };
    writer.samples()?;
    writer.places()?;
    writer.header()?;
    writer.strings()?;
    let encoder = writer.out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    encoder.finish()?.flush()?;
    Ok(())
}

impl<W: Write> Writer<'_, W> {
    fn put(&mut self, field: u64, message: &Message) -> Result<(), ExportError> {
        self.buffer.clear();
        self.buffer.message(field, message);
        self.out.write_all(self.buffer.as_bytes())?;
        Ok(())
    }

    fn sums(&self) -> Vec<(Key, Sums)> {
        let mut sums: HashMap<Key, Sums> = HashMap::new();
        for access in self.export.accesses() {
            let key = Key {
                stack: access.stack,
                location: access.location,
                thread: access.thread,
                node: access.node,
                home: access.home,
                site: self.export.site_of(&access),
            };
            let sum = sums.entry(key).or_default();
            sum.accesses += u64::from(access.weight);
            let latency = u64::from(access.latency_cycles.unwrap_or(0));
            sum.latency_cycles = sum.latency_cycles.saturating_add(latency * u64::from(access.weight));
        }
        let mut sums: Vec<(Key, Sums)> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|(key, _)| *key);
        sums
    }

    fn samples(&mut self) -> Result<(), ExportError> {
        let export = self.export;
        let sums = self.sums();
        let khz = u128::from(export.trace().meta().clock.khz);
        let has_latency = khz > 0 && sums.iter().any(|(_, sums)| sums.latency_cycles > 0);
        self.value_types(has_latency)?;
        let mut threads: HashMap<ThreadIndex, u64> = HashMap::new();
        let mut sites: HashMap<Option<SiteId>, u64> = HashMap::new();
        let keys = ["node", "home", "object", "thread"].map(|key| self.strings.number(key));
        let mut message = Message::default();
        let mut stack = Vec::new();
        for (key, sums) in &sums {
            message.clear();
            stack.clear();
            for place in places(export.trace(), key.stack, key.location) {
                let place = if (place.0 as usize) < self.used.len() { place.0 } else { 0 };
                self.used[place as usize] = true;
                stack.push(u64::from(place) + 1);
            }
            message.numbers(1, &stack);
            let is_remote = matches!((key.node, key.home), (Some(node), Some(home)) if node != home);
            let remote = if is_remote { sums.accesses } else { 0 };
            let bytes = sums.accesses * LINE_BYTES as u64;
            let latency_ns = (u128::from(sums.latency_cycles) * 1_000_000 / khz.max(1)) as u64;
            let values = [sums.accesses, remote, bytes, latency_ns];
            message.numbers(2, if has_latency { &values } else { &values[..3] });
            let thread =
                *threads.entry(key.thread).or_insert_with(|| self.strings.number(&export.thread_name(key.thread)));
            let site = *sites.entry(key.site).or_insert_with(|| self.strings.number(&export.site_name(key.site)));
            let mut node = |node: Option<NodeId>| match node {
                Some(node) => self.strings.number(&node.to_string()),
                None => self.strings.number("unknown"),
            };
            for (key, text) in keys.into_iter().zip([node(key.node), node(key.home), site, thread]) {
                let mut label = Message::default();
                label.number(1, key);
                label.number(2, text);
                message.message(3, &label);
            }
            self.put(profile::SAMPLE, &message)?;
        }
        Ok(())
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.strings.number(kind));
        message.number(2, self.strings.number(unit));
        message
    }

    fn value_types(&mut self, has_latency: bool) -> Result<(), ExportError> {
        let all = [("accesses", "count"), ("remote_accesses", "count"), ("bytes", "bytes"), ("latency", "nanoseconds")];
        for (kind, unit) in &all[..if has_latency { 4 } else { 3 }] {
            let message = self.value_type(kind, unit);
            self.put(profile::SAMPLE_TYPE, &message)?;
        }
        Ok(())
    }

    /// The places that samples use, their functions and binaries. Place n has the number n + 1: 0 is none.
    fn places(&mut self) -> Result<(), ExportError> {
        let export = self.export;
        let mut modules: HashMap<Arc<str>, u64> = HashMap::new();
        let mut functions: HashMap<(Arc<str>, Arc<str>), u64> = HashMap::new();
        let used = std::mem::take(&mut self.used);
        for (index, location) in export.trace().locations().iter().enumerate().filter(|(index, _)| used[*index]) {
            let mut message = Message::default();
            message.number(1, index as u64 + 1);
            if !location.module.is_empty() {
                let next = modules.len() as u64 + 1;
                let module = *modules.entry(location.module.clone()).or_insert(next);
                message.number(2, module);
                message.number(3, module * MODULE_ROOM + location.offset % MODULE_ROOM);
            }
            for frame in &location.frames {
                let next = functions.len() as u64 + 1;
                let function = *functions.entry((frame.function.clone(), frame.file.clone())).or_insert(next);
                let mut line = Message::default();
                line.number(1, function);
                line.number(2, u64::from(frame.line));
                message.message(4, &line);
            }
            self.put(profile::LOCATION, &message)?;
        }
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_unstable_by_key(|&(_, number)| number);
        for ((function, file), number) in functions {
            let mut message = Message::default();
            let name = self.strings.number(if function.is_empty() { "(unknown)" } else { &function });
            message.number(1, number);
            message.number(2, name);
            message.number(3, name);
            message.number(4, self.strings.number(&file));
            self.put(profile::FUNCTION, &message)?;
        }
        self.mappings(modules)
    }

    fn mappings(&mut self, modules: HashMap<Arc<str>, u64>) -> Result<(), ExportError> {
        // pprof takes the first one for the program itself.
        let mut modules: Vec<_> = modules.into_iter().collect();
        let program = self.export.heading.command.first().map_or("", String::as_str);
        modules.sort_unstable_by_key(|(path, number)| (&**path != program, *number));
        for (path, number) in modules {
            let mut message = Message::default();
            message.number(1, number);
            message.number(2, number * MODULE_ROOM);
            message.number(3, (number + 1) * MODULE_ROOM);
            message.number(5, self.strings.number(&path));
            for known in 7..=10 {
                // Functions, files, lines and inlined functions were looked up.
                message.number(known, 1);
            }
            self.put(profile::MAPPING, &message)?;
        }
        Ok(())
    }

    fn header(&mut self) -> Result<(), ExportError> {
        let meta = self.export.trace().meta();
        let mut message = Message::default();
        message.number(profile::TIME_NANOS, meta.start_unix_ns);
        message.number(profile::DURATION_NANOS, meta.duration_ns);
        if let Some(period) = meta.sampling.as_ref().map(|sampling| sampling.period).filter(|&period| period > 0) {
            let kind = self.value_type("accesses", "count");
            message.message(profile::PERIOD_TYPE, &kind);
            message.number(profile::PERIOD, period);
        }
        let comments: Vec<u64> = self.comments().iter().map(|text| self.strings.number(text)).collect();
        message.numbers(profile::COMMENT, &comments);
        message.number(profile::DEFAULT_SAMPLE_TYPE, self.strings.number("accesses"));
        self.out.write_all(message.as_bytes())?;
        Ok(())
    }

    /// What the numbers are, and what limits them.
    fn comments(&self) -> Vec<String> {
        let heading = self.export.heading;
        let mut comments = vec![shorten(&heading.command.join(" "), COMMAND_COLUMNS), heading.provenance()];
        comments.extend(heading.notes.iter().cloned());
        comments.extend(heading.limits());
        comments
    }

    fn strings(&mut self) -> Result<(), ExportError> {
        let texts = std::mem::take(&mut self.strings.texts);
        for text in texts {
            self.buffer.clear();
            // pprof prints names to terminals as they are.
            self.buffer.text(profile::STRING_TABLE, &clean(&text));
            self.out.write_all(self.buffer.as_bytes())?;
        }
        Ok(())
    }
}
