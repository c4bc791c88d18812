//! Reads `jit-PID.dump`: the functions of a just-in-time compiler with their source lines (tools/perf/Documentation/jitdump-specification.txt).
//!
//! The dump holds the code itself, too, which is passed over. Both byte orders; a record that reaches beyond the end is torn (the program was
//! killed), and what is before it counts.

use std::collections::HashMap;
use std::sync::Arc;

use numapilot_host::VirtAddr;

use super::{GeneratedFile, GeneratedFunction, GeneratedLine};

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
/// Bit of the header's flags: times are ticks of the processor's counter.
const ARCH_TIMESTAMP: u64 = 1;
/// Identifier, length and time of a record.
const PREFIX_BYTES: usize = 16;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const CLOSE: u32 = 3;
const UNWINDING: u32 = 4;
/// Fixed part of a load after the prefix: process, thread, address, code address, length, index.
const LOAD_BYTES: usize = 40;
/// Fixed part of a move: the same, with both addresses.
const MOVE_BYTES: usize = 48;
/// A name of this one byte stands for the name of the entry before.
const SAME_NAME: &[u8] = &[0xff];
const NAME_BYTES_MAX: usize = 4096;
/// Lines of functions that moved, in all; more are no compiler's doing.
const COPIED_MAX: usize = 1 << 22;
/// V8 gives lines the addresses that they have once `perf inject` has put an ELF header of this length before the code
/// (v8/src/diagnostics/perf-jit.cc, `kElfHeaderSize`).
const V8_SHIFT: u64 = 0x40;

#[derive(Clone, Copy)]
struct Reader<'d> {
    bytes: &'d [u8],
    is_big: bool,
}

/// Reads a dump. `None`: the bytes are none, or of another version.
#[must_use]
pub fn read_jitdump(bytes: &[u8]) -> Option<GeneratedFile> {
    let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let is_big = match magic {
        _ if u32::from_le_bytes(magic) == MAGIC => false,
        _ if u32::from_be_bytes(magic) == MAGIC => true,
        _ => return None,
    };
    let header = Reader { bytes, is_big };
    let header_bytes = header.u32(8)? as usize;
    if header.u32(4)? != VERSION || header_bytes < HEADER_BYTES {
        return None;
    }
    let mut dump = Dump::default();
    dump.file.counts_ticks = header.u64(32).is_some_and(|flags| flags & ARCH_TIMESTAMP != 0);
    let mut rest = bytes.get(header_bytes..).unwrap_or_default();
    while !rest.is_empty() {
        let reader = Reader { bytes: rest, is_big };
        let length = reader.u32(4).map_or(0, |length| length as usize);
        let Some(body) = rest.get(PREFIX_BYTES..length) else {
            // A length that is no record's: where the next one begins is not known.
            dump.file.damaged += 1;
            break;
        };
        // A runtime that writes no times writes zeros.
        dump.now = reader.u64(8).filter(|&time| time != 0);
        if dump.record(reader.u32(0)?, Reader { bytes: body, is_big }).is_none() {
            dump.file.damaged += 1;
        }
        rest = &rest[length..];
    }
    Some(dump.finish())
}

#[derive(Default)]
struct Dump {
    file: GeneratedFile,
    /// Time of the record that is being read.
    now: Option<u64>,
    /// Lines that were announced, by the address of the code: they come before it.
    lines: HashMap<VirtAddr, Vec<GeneratedLine>>,
    /// Place of a function in `file`, by its index in the dump.
    places: HashMap<u64, usize>,
    files: HashMap<String, Arc<str>>,
    /// Lines that were copied for functions that moved.
    copied: usize,
    /// The least distance of a line from the beginning of its function.
    nearest_line: Option<u64>,
}

impl Dump {
    /// Takes a record; `None` if it is damaged.
    fn record(&mut self, kind: u32, body: Reader<'_>) -> Option<()> {
        match kind {
            LOAD => self.load(body),
            MOVE => self.moved(body),
            DEBUG_INFO => self.debug_info(body),
            CLOSE | UNWINDING => Some(()),
            // Records of later versions.
            _ => Some(()),
        }
    }

    fn load(&mut self, body: Reader<'_>) -> Option<()> {
        let (address, bytes, index) = (body.address(16)?, body.u64(24)?, body.u64(32)?);
        let name = text(body.string(LOAD_BYTES)?);
        let lines = self.lines.remove(&address).unwrap_or_default();
        self.places.insert(index, self.file.functions.len());
        self.add(GeneratedFunction { address, bytes, name, file: None, lines, since: self.now })
    }

    /// The same code at another address: from then on, beside where it was.
    fn moved(&mut self, body: Reader<'_>) -> Option<()> {
        if body.bytes.len() < MOVE_BYTES {
            return None;
        }
        let (address, bytes, index) = (body.address(24)?, body.u64(32)?, body.u64(40)?);
        let old = self.file.functions.get(*self.places.get(&index)?)?.clone();
        let by = address.0.wrapping_sub(old.address.0);
        let moved = |line: GeneratedLine| GeneratedLine { address: VirtAddr(line.address.0.wrapping_add(by)), ..line };
        self.copied += old.lines.len();
        if self.copied > COPIED_MAX {
            return None;
        }
        let lines = old.lines.into_iter().map(moved).collect();
        self.places.insert(index, self.file.functions.len());
        self.add(GeneratedFunction { address, bytes, name: old.name, file: None, lines, since: self.now })
    }

    fn add(&mut self, function: GeneratedFunction) -> Option<()> {
        let is_sound = function.bytes > 0 && function.address.0.checked_add(function.bytes).is_some();
        self.file.functions.push(function);
        if !is_sound {
            self.file.functions.pop();
        }
        is_sound.then_some(())
    }

    fn debug_info(&mut self, body: Reader<'_>) -> Option<()> {
        let (code, count) = (body.address(0)?, body.u64(8)?);
        let mut lines = Vec::new();
        let mut file: Arc<str> = Arc::from("");
        let mut at = 16;
        for _ in 0..count {
            let (address, line) = (body.address(at)?, body.u32(at + 8)?);
            let name = body.string(at + 16)?;
            at += 16 + name.len() + 1;
            if name != SAME_NAME {
                file = self.share(name)?;
            }
            lines.push(GeneratedLine { address, file: file.clone(), line });
        }
        // Zeros pad it. V8 of Node 20 writes names that it has freed: what follows a zero in one is taken for the next entry.
        if body.bytes.get(at..)?.iter().any(|&byte| byte != 0) {
            return None;
        }
        let nearest = lines.iter().filter_map(|line| line.address.0.checked_sub(code.0)).min();
        self.nearest_line = self.nearest_line.into_iter().chain(nearest).min();
        self.lines.insert(code, lines);
        Some(())
    }

    /// Sorts the lines, and drops those that are not in the code.
    fn finish(mut self) -> GeneratedFile {
        // Others have a line at the beginning of some function.
        let shift = if self.nearest_line >= Some(V8_SHIFT) { V8_SHIFT } else { 0 };
        for function in &mut self.file.functions {
            let (begin, bytes) = (function.address, function.bytes);
            function.lines.iter_mut().for_each(|line| line.address.0 = line.address.0.wrapping_sub(shift));
            function.lines.retain(|line| line.address.0.wrapping_sub(begin.0) < bytes);
            function.lines.sort_by_key(|line| line.address);
        }
        self.file
    }

    /// The name of a source file; `None` if it cannot be one.
    fn share(&mut self, name: &[u8]) -> Option<Arc<str>> {
        let name = std::str::from_utf8(name).ok().filter(|name| !name.contains(char::is_control))?;
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        if let Some(shared) = self.files.get(name) {
            return Some(shared.clone());
        }
        let shared: Arc<str> = name.into();
        self.files.insert(name.to_owned(), shared.clone());
        Some(shared)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(NAME_BYTES_MAX)]).into_owned()
}

impl<'d> Reader<'d> {
    fn u32(self, at: usize) -> Option<u32> {
        let bytes: [u8; 4] = self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u64(self, at: usize) -> Option<u64> {
        let bytes: [u8; 8] = self.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        Some(if self.is_big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    fn address(self, at: usize) -> Option<VirtAddr> {
        self.u64(at).map(VirtAddr)
    }

    /// The bytes up to the next 0.
    fn string(self, at: usize) -> Option<&'d [u8]> {
        let rest = self.bytes.get(at..)?;
        rest.iter().position(|&byte| byte == 0).map(|end| &rest[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte order, what was written, and the time of the next records.
    struct Writer(bool, Vec<u8>, u64);

    impl Writer {
        fn new(is_big: bool) -> Writer {
            let mut writer = Writer(is_big, Vec::new(), 0);
            for word in [MAGIC, VERSION, HEADER_BYTES as u32, 62, 0, 4711] {
                writer.u32(word);
            }
            writer.u64(0);
            writer.u64(0);
            writer
        }

        fn u32(&mut self, value: u32) {
            let bytes = if self.0 { value.to_be_bytes() } else { value.to_le_bytes() };
            self.1.extend(bytes);
        }

        fn u64(&mut self, value: u64) {
            let bytes = if self.0 { value.to_be_bytes() } else { value.to_le_bytes() };
            self.1.extend(bytes);
        }

        fn record(&mut self, kind: u32, numbers: &[u64], tail: &[u8]) {
            self.u32(kind);
            self.u32((PREFIX_BYTES + 8 * numbers.len() + tail.len()) as u32);
            self.u64(self.2);
            numbers.iter().for_each(|&number| self.u64(number));
            self.1.extend(tail);
        }

        fn load(&mut self, address: u64, bytes: u64, index: u64, name: &str) {
            let code = vec![0x90; bytes as usize];
            self.record(LOAD, &[0, address, address, bytes, index], &[name.as_bytes(), &[0], &code].concat());
        }

        fn lines(&mut self, code: u64, lines: &[(u64, u32, &[u8])]) {
            let mut tail = Writer(self.0, Vec::new(), 0);
            for (address, line, name) in lines {
                tail.u64(*address);
                tail.u32(*line);
                tail.u32(0);
                tail.1.extend([name, &[0][..]].concat());
            }
            self.record(DEBUG_INFO, &[code, lines.len() as u64], &tail.1);
        }
    }

    fn sample(is_big: bool) -> Vec<u8> {
        let mut writer = Writer::new(is_big);
        writer.lines(0x1000, &[(0x1000, 7, b"/srv/a.js"), (0x1008, 9, SAME_NAME), (0x9000, 1, b"elsewhere")]);
        writer.load(0x1000, 16, 1, "sum");
        writer.record(UNWINDING, &[0, 0, 0], &[]);
        writer.record(MOVE, &[0, 0x1000, 0x1000, 0x2000, 16, 1], &[]);
        writer.load(0x1000, 4, 2, "other");
        writer.record(99, &[1], &[]);
        writer.record(CLOSE, &[], &[]);
        writer.1
    }

    #[test]
    fn functions_with_lines_and_moves_are_read_in_both_byte_orders() {
        for is_big in [false, true] {
            let file = read_jitdump(&sample(is_big)).expect("a dump");
            let line = |address, line| GeneratedLine { address: VirtAddr(address), file: "/srv/a.js".into(), line };
            let function = |address, bytes, name: &str, lines| GeneratedFunction {
                address: VirtAddr(address),
                bytes,
                name: name.to_owned(),
                file: None,
                lines,
                since: None,
            };
            let expected = [
                function(0x1000, 16, "sum", vec![line(0x1000, 7), line(0x1008, 9)]),
                function(0x2000, 16, "sum", vec![line(0x2000, 7), line(0x2008, 9)]),
                function(0x1000, 4, "other", Vec::new()),
            ];
            assert_eq!(file, GeneratedFile { functions: expected.into(), damaged: 0, counts_ticks: false });
        }
    }

    #[test]
    fn functions_are_there_from_the_time_of_their_record_on() {
        for is_big in [false, true] {
            let mut writer = Writer::new(is_big);
            writer.load(0x1000, 16, 1, "undated");
            writer.2 = 7_000;
            writer.load(0x1000, 16, 2, "sum");
            writer.2 = 9_000;
            writer.record(MOVE, &[0, 0x1000, 0x1000, 0x2000, 16, 2], &[]);
            let file = read_jitdump(&writer.1).expect("a dump");
            let times: Vec<_> = file.functions.iter().map(|function| (function.address.0, function.since)).collect();
            assert_eq!(times, [(0x1000, None), (0x1000, Some(7_000)), (0x2000, Some(9_000))]);
            assert!(!file.counts_ticks);
            // The flags are the header's last eight bytes.
            writer.1[if is_big { 39 } else { 32 }] = 1;
            assert!(read_jitdump(&writer.1).expect("a dump").counts_ticks);
        }
    }

    #[test]
    fn lines_that_count_from_an_elf_header_are_put_back() {
        let mut writer = Writer::new(false);
        writer.lines(0x1000, &[(0x1040, 7, b"a.js"), (0x1048, 8, b"a.js"), (0x1050, 9, b"a.js")]);
        writer.load(0x1000, 16, 1, "f");
        writer.lines(0x2000, &[(0x2044, 5, b"a.js")]);
        writer.load(0x2000, 16, 2, "g");
        let lines = |dump: &Writer| -> Vec<Vec<(u64, u32)>> {
            let file = read_jitdump(&dump.1).expect("a dump");
            assert_eq!(file.damaged, 0);
            let of = |lines: &[GeneratedLine]| lines.iter().map(|line| (line.address.0, line.line)).collect();
            file.functions.iter().map(|function| of(&function.lines)).collect()
        };
        assert_eq!(lines(&writer), [vec![(0x1000, 7), (0x1008, 8)], vec![(0x2004, 5)]]);
        // Not if any function has a line before.
        writer.lines(0x3000, &[(0x3000, 1, b"b.js"), (0x3050, 2, b"b.js")]);
        writer.load(0x3000, 0x80, 3, "h");
        assert_eq!(lines(&writer), [vec![], vec![], vec![(0x3000, 1), (0x3050, 2)]]);
    }

    #[test]
    fn lines_with_names_that_cannot_be_are_left_out() {
        // A zero within a name makes its rest look like an entry.
        for name in [&b"\xa3?\x04\0\0\0\0\0\x1f\xca~\xd4\0RI\xa8"[..], b"a\nb", b"\xff\xff", b"/srv/\0.js"] {
            let mut writer = Writer::new(false);
            writer.lines(0x1000, &[(0x1000, 1, name), (0x1004, 2, name), (0x1008, 3, name)]);
            writer.load(0x1000, 16, 1, "f");
            let file = read_jitdump(&writer.1).expect("a dump");
            assert_eq!((file.functions.len(), file.functions[0].lines.len(), file.damaged), (1, 0, 1), "{name:?}");
        }
    }

    #[test]
    fn a_torn_dump_is_read_up_to_its_end() {
        let whole = sample(false);
        for length in 0..whole.len() {
            match read_jitdump(&whole[..length]) {
                None => assert!(length < 12, "{length}"),
                Some(file) => assert!(file.functions.len() <= 3 && file.damaged <= 1, "{length}"),
            }
        }
    }

    #[test]
    fn damaged_records_are_counted_and_others_kept() {
        let mut writer = Writer::new(false);
        writer.record(LOAD, &[0, 1, 1], &[]);
        writer.record(MOVE, &[0, 1, 1, 2, 3, 77], &[]);
        writer.record(DEBUG_INFO, &[1, u64::MAX], &[]);
        writer.load(u64::MAX - 1, 4, 1, "wraps");
        writer.load(0x10, 4, 2, "good");
        let file = read_jitdump(&writer.1).expect("a dump");
        assert_eq!((file.functions.len(), file.damaged), (1, 4));
        writer.record(LOAD, &[0, 1, 1, 2, 5], b"no end");
        assert_eq!(read_jitdump(&writer.1).map(|file| file.damaged), Some(5));
        // No length leads anywhere.
        writer.u32(LOAD);
        writer.u32(3);
        assert_eq!(read_jitdump(&writer.1).map(|file| file.damaged), Some(6));
    }

    #[test]
    fn other_files_are_no_dumps() {
        assert_eq!(read_jitdump(b""), None);
        assert_eq!(read_jitdump(b"\x7fELF, and more bytes than a header has in it"), None);
        let mut later = sample(false);
        later[4] = 2;
        assert_eq!(read_jitdump(&later), None);
    }
}
