//! Lines of Java methods, from the tables that the virtual machine keeps with their bytecode (`LineNumberTable`, JVM specification 4.7.12).
//!
//! Tables are untrusted; their entries may be in any order.

use std::sync::Arc;

use numapilot_host::VirtAddr;

use super::{GeneratedFunction, GeneratedLine};

/// Indices of bytecode that one method may have in the numbering of [`java_method`].
const UNITS: u64 = 1 << 20;

/// A Java method with its lines. Its bytecode is numbered from `address` on. `table`: pairs of 16 bits in little-endian order, an index of bytecode and the
/// line from there on.
#[must_use]
pub fn java_method(address: VirtAddr, name: &str, file: &str, table: &[u8]) -> GeneratedFunction {
    let file: Arc<str> = file.into();
    let pair = |bytes: &[u8]| (u16::from_le_bytes([bytes[0], bytes[1]]), u16::from_le_bytes([bytes[2], bytes[3]]));
    let mut pairs: Vec<(u16, u16)> = table.chunks_exact(4).map(pair).collect();
    pairs.sort_by_key(|(index, _)| *index);
    let line = |(index, line)| GeneratedLine {
        address: VirtAddr(address.0 + u64::from(index)),
        file: file.clone(),
        line: u32::from(line),
    };
    let lines = pairs.into_iter().map(line).collect();
    GeneratedFunction { address, bytes: UNITS, name: name.to_owned(), lines, file: Some(file), since: None }
}

#[cfg(test)]
mod tests {
    use super::super::GeneratedCode;
    use super::*;

    const ADDRESS: VirtAddr = VirtAddr(0x7f8e << 48 | 3 << 20);

    fn table(pairs: &[(u16, u16)]) -> Vec<u8> {
        pairs.iter().flat_map(|(index, line)| [index.to_le_bytes(), line.to_le_bytes()].concat()).collect()
    }

    #[test]
    fn each_index_has_the_line_that_holds_there() {
        let method = java_method(ADDRESS, "a.B.fill", "a/B.java", &table(&[(9, 14), (0, 12), (300, 13)]));
        let code = GeneratedCode::new(vec![method]);
        let at = |index| code.find(VirtAddr(ADDRESS.0 + index)).map(|frame| (frame.function, frame.file, frame.line));
        for (index, line) in [(0, 12), (8, 12), (9, 14), (299, 14), (300, 13), (65_535, 13)] {
            assert_eq!(at(index), Some(("a.B.fill".to_owned(), "a/B.java".to_owned(), line)), "{index}");
        }
        assert_eq!(at(UNITS), None);
    }

    #[test]
    fn a_method_without_lines_has_its_file() {
        let code = GeneratedCode::new(vec![java_method(ADDRESS, "a.B.<init>", "a/B.java", &[1, 2, 3])]);
        let frame = code.find(ADDRESS).expect("a frame");
        assert_eq!((&*frame.function, &*frame.file, frame.line), ("a.B.<init>", "a/B.java", 0));
    }
}
