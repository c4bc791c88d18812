//! The writer of profiles. Samples are written one by one, then the tables that they refer to, the strings last: the order of fields is free.

use std::io::{BufWriter, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use foldhash::{HashMap, HashMapExt};
use numapilot_flows::LocationId;
use numapilot_text::style::{clean, shorten};

use crate::export::wire::Message;
use crate::export::{Export, ExportError};

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

/// Texts, each once; number 0 is the empty one.
pub(super) struct Strings {
    numbers: HashMap<Arc<str>, u64>,
    texts: Vec<Arc<str>>,
}

impl Strings {
    fn new() -> Strings {
        let mut strings = Strings { numbers: HashMap::new(), texts: Vec::new() };
        strings.number("");
        strings
    }

    pub(super) fn number(&mut self, text: &str) -> u64 {
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

pub(super) struct Writer<'a> {
    pub(super) export: &'a Export<'a>,
    out: BufWriter<GzEncoder<&'a mut dyn Write>>,
    pub(super) strings: Strings,
    /// Whether a sample uses each code address.
    used: Vec<bool>,
    buffer: Message,
    /// A sample and its stack, kept for their room.
    message: Message,
    stack: Vec<u64>,
}

/// Writes a profile. `shown`: the value that is shown unless another one is chosen, and the sampling period in what it counts, if there is one.
pub(super) fn write_profile<'a>(
    export: &'a Export<'a>,
    out: &'a mut dyn Write,
    shown: (&str, Option<u64>),
    samples: impl FnOnce(&mut Writer<'a>) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let out = BufWriter::with_capacity(256 << 10, GzEncoder::new(out, Compression::fast()));
    let used = vec![false; export.trace().locations().len()];
    let (buffer, message) = (Message::default(), Message::default());
    let mut writer = Writer { export, out, strings: Strings::new(), used, buffer, message, stack: Vec::new() };
    samples(&mut writer)?;
    writer.places()?;
    writer.header(shown)?;
    writer.strings()?;
    let encoder = writer.out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    encoder.finish()?.flush()?;
    Ok(())
}

impl Writer<'_> {
    fn put(&mut self, field: u64, message: &Message) -> Result<(), ExportError> {
        self.buffer.clear();
        self.buffer.message(field, message);
        self.out.write_all(self.buffer.as_bytes())?;
        Ok(())
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.strings.number(kind));
        message.number(2, self.strings.number(unit));
        message
    }

    /// The types of the values of each sample: their names and units.
    pub(super) fn value_types(&mut self, types: &[(&str, &str)]) -> Result<(), ExportError> {
        for (kind, unit) in types {
            let message = self.value_type(kind, unit);
            self.put(profile::SAMPLE_TYPE, &message)?;
        }
        Ok(())
    }

    /// A sample: its values, its stack and its labels (key and text, by their numbers).
    pub(super) fn sample(
        &mut self,
        stack: impl Iterator<Item = LocationId>,
        values: &[u64],
        labels: &[(u64, u64)],
    ) -> Result<(), ExportError> {
        self.message.clear();
        self.stack.clear();
        for place in stack {
            let place = if (place.0 as usize) < self.used.len() { place.0 } else { 0 };
            self.used[place as usize] = true;
            self.stack.push(u64::from(place) + 1);
        }
        self.message.numbers(1, &self.stack);
        self.message.numbers(2, values);
        for &(key, text) in labels {
            let mut label = Message::default();
            label.number(1, key);
            label.number(2, text);
            self.message.message(3, &label);
        }
        self.buffer.clear();
        self.buffer.message(profile::SAMPLE, &self.message);
        self.out.write_all(self.buffer.as_bytes())?;
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

    fn header(&mut self, (shown, period): (&str, Option<u64>)) -> Result<(), ExportError> {
        let meta = self.export.trace().meta();
        let mut message = Message::default();
        let analysis = self.export.analysis;
        let from = analysis.filter().time.as_ref().map_or(0, |time| time.start.0);
        message.number(profile::TIME_NANOS, meta.start_unix_ns.saturating_add(from));
        let duration_ns = if analysis.filter().time.is_some() { analysis.duration().0 } else { meta.duration_ns };
        message.number(profile::DURATION_NANOS, duration_ns);
        if let Some(period) = period {
            let kind = self.value_type(shown, "count");
            message.message(profile::PERIOD_TYPE, &kind);
            message.number(profile::PERIOD, period);
        }
        let comments: Vec<u64> = self.comments().iter().map(|text| self.strings.number(text)).collect();
        message.numbers(profile::COMMENT, &comments);
        message.number(profile::DEFAULT_SAMPLE_TYPE, self.strings.number(shown));
        self.out.write_all(message.as_bytes())?;
        Ok(())
    }

    /// What the numbers are, and what limits them.
    fn comments(&self) -> Vec<String> {
        let heading = self.export.heading;
        let mut comments = vec![shorten(&heading.command.join(" "), COMMAND_COLUMNS), heading.provenance()];
        comments.extend(self.export.part());
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
