//! Lines of Python's functions, from the tables that the interpreter keeps with their code.
//!
//! Three forms: pairs of steps in bytes and lines (up to 3.9, `Objects/lnotab_notes.txt`), pairs for ranges, in which -128 means no line
//! (3.10, the same file), and entries with columns (from 3.11 on, `Objects/locations.md`). Tables are untrusted: what does not fit ends them.

use std::sync::Arc;

use numapilot_host::VirtAddr;

use super::{GeneratedFunction, GeneratedLine};

/// Instructions that one function may have in the numbering of [`python_function`].
const UNITS: u64 = 1 << 20;

/// A function of a Python interpreter, as it was recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct PythonCode<'a> {
    /// Minor version of Python 3.
    pub minor: u16,
    /// Its name.
    pub name: &'a str,
    /// Its source file.
    pub file: &'a str,
    /// Line of its definition; 0 where its table is missing.
    pub first_line: u32,
    /// Its table of lines.
    pub table: &'a [u8],
}

/// The function with its lines. Its instructions, of two bytes each, are numbered from `address` on.
#[must_use]
pub fn python_function(address: VirtAddr, code: &PythonCode<'_>) -> GeneratedFunction {
    let file: Arc<str> = code.file.into();
    let at = |unit: u64| VirtAddr(address.0 + unit.min(UNITS));
    let lines = lines(code).into_iter();
    let lines = lines.map(|(unit, line)| GeneratedLine { address: at(unit), file: file.clone(), line });
    let (name, lines) = (code.name.to_owned(), lines.collect());
    GeneratedFunction { address, bytes: UNITS, name, lines, file: Some(file), since: None }
}

/// From which instruction on each line holds, in ascending order; line 0: none.
fn lines(code: &PythonCode<'_>) -> Vec<(u64, u32)> {
    let first = i64::from(code.first_line);
    match code.minor {
        ..=9 => steps(code.table, first),
        10 => ranges(code.table, first),
        _ => entries(code.table, first).unwrap_or_default(),
    }
}

fn shown(line: i64) -> u32 {
    u32::try_from(line).unwrap_or(0)
}

fn steps(table: &[u8], mut line: i64) -> Vec<(u64, u32)> {
    // A function of one line has no steps.
    let mut found = if line == 0 { Vec::new() } else { vec![(0, shown(line))] };
    let mut byte = 0;
    for pair in table.chunks_exact(2) {
        byte += u64::from(pair[0]);
        line += i64::from(pair[1] as i8);
        found.push((byte / 2, shown(line)));
    }
    found
}

fn ranges(table: &[u8], mut line: i64) -> Vec<(u64, u32)> {
    let (mut found, mut byte) = (Vec::new(), 0);
    for pair in table.chunks_exact(2) {
        let step = pair[1] as i8;
        if step != i8::MIN {
            line += i64::from(step);
        }
        found.push((byte / 2, if step == i8::MIN { 0 } else { shown(line) }));
        byte += u64::from(pair[0]);
    }
    found
}

/// Kinds of entries, in bits 3 to 6 of their first byte; below, the line is the same as before and one byte of columns follows.
const ONE_LINE_0: u8 = 10;
const NO_COLUMNS: u8 = 13;
const LONG: u8 = 14;
const NONE: u8 = 15;

/// `None`: the table is cut, or no entry begins where one should.
fn entries(table: &[u8], mut line: i64) -> Option<Vec<(u64, u32)>> {
    let (mut found, mut unit) = (Vec::new(), 0);
    let mut bytes = table.iter().copied();
    while let Some(first) = bytes.next() {
        if first & 0x80 == 0 {
            return None;
        }
        let kind = first >> 3 & 0xf;
        match kind {
            NONE => {}
            LONG => {
                line += signed(&mut bytes)?;
                for _ in 0..3 {
                    varint(&mut bytes)?;
                }
            }
            NO_COLUMNS => line += signed(&mut bytes)?,
            ONE_LINE_0.. => {
                line += i64::from(kind - ONE_LINE_0);
                bytes.next()?;
                bytes.next()?;
            }
            _ => {
                bytes.next()?;
            }
        }
        found.push((unit, if kind == NONE { 0 } else { shown(line) }));
        unit += u64::from(first & 7) + 1;
    }
    Some(found)
}

/// Six bits at a time, the lowest first; bit 6 says that more follow.
fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..60).step_by(6) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x3f) << shift;
        if byte & 0x40 == 0 {
            return Some(value);
        }
    }
    None
}

/// The sign is in the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = varint(bytes)?;
    let size = i64::try_from(value >> 1).ok()?;
    // No file has as many lines: a damaged table must not add up to more than a number holds.
    (size < 1 << 32).then_some(if value & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(minor: u16, table: &[u8]) -> Vec<(u64, u32)> {
        lines(&PythonCode { minor, name: "f", file: "a.py", first_line: 10, table })
    }

    #[test]
    fn tables_of_every_form() {
        // Lines 11 from byte 0, 13 from byte 6, 12 from byte 10.
        assert_eq!(of(9, &[0, 1, 6, 2, 4, 0xff]), [(0, 10), (0, 11), (3, 13), (5, 12)]);
        // Line 11 for 6 bytes, none for 4, 13 for 2.
        assert_eq!(of(10, &[6, 1, 4, 0x80, 2, 2]), [(0, 11), (3, 0), (5, 13)]);
        // RESUME on line 10 without columns; two units on line 11 with columns; a short form; none; a long step back.
        let table =
            [0x80 | 13 << 3, 0, 0x80 | 11 << 3 | 1, 4, 9, 0x80, 0x12, 0x80 | 15 << 3, 0x80 | 14 << 3, 3, 0, 1, 2];
        assert_eq!(of(11, &table), [(0, 10), (1, 11), (3, 11), (4, 0), (5, 10)]);
    }

    #[test]
    fn a_place_has_its_function_file_and_line() {
        let code = PythonCode { minor: 9, name: "C.fill", file: "/srv/a.py", first_line: 3, table: &[0, 1, 8, 1] };
        let code = super::super::GeneratedCode::new(vec![python_function(VirtAddr(0x7f8d << 48 | 7 << 20), &code)]);
        let frame = code.find(VirtAddr(0x7f8d << 48 | 7 << 20 | 4)).expect("a frame");
        assert_eq!((frame.function.as_str(), frame.file.as_str(), frame.line), ("C.fill", "/srv/a.py", 5));
        // Code that is compiled under a name of its own may have any, without lines too.
        let odd = PythonCode { minor: 12, name: "JS:a b:c", file: "<cell 3>", first_line: 0, table: &[] };
        let frame = super::super::GeneratedCode::new(vec![python_function(VirtAddr(0x1000), &odd)])
            .find(VirtAddr(0x1000))
            .expect("a frame");
        assert_eq!((frame.function.as_str(), frame.file.as_str(), frame.line), ("JS:a b:c", "<cell 3>", 0));
        assert_eq!(code.find(VirtAddr(0x7f8d << 48 | 8 << 20)), None);
    }

    #[test]
    fn a_table_that_was_left_out_or_cut_gives_no_lines() {
        for minor in 10..=13 {
            assert_eq!(of(minor, &[]), []);
        }
        assert_eq!(of(9, &[]), [(0, 10)], "a function of one line");
        assert_eq!(lines(&PythonCode { minor: 9, ..PythonCode::default() }), []);
        assert_eq!(of(11, &[0x80 | 14 << 3, 3]), []);
        assert_eq!(of(12, &[0x12]), []);
    }

    proptest! {
        #[test]
        fn any_table_is_borne(minor in 0..20_u16, first_line: u32, table in proptest::collection::vec(any::<u8>(), 0..300)) {
            let code = PythonCode { minor, name: "f", file: "", first_line, table: &table };
            let function = python_function(VirtAddr(0x7f8d << 48), &code);
            prop_assert!(function.lines.windows(2).all(|pair| pair[0].address <= pair[1].address));
        }
    }
}
