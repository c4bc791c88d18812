//! Reads `perf-PID.map`: a line `START SIZE NAME` for each function, the numbers in hexadecimal (tools/perf/Documentation/jit-interface.txt).

use numapilot_host::VirtAddr;

use super::{GeneratedFile, GeneratedFunction};

/// Longest name that is kept, bytes.
const NAME_BYTES_MAX: usize = 4096;

/// Reads a map. Lines that are none of a function (also of one without a size, which covers no address) are counted as damaged.
#[must_use]
pub fn read_perf_map(bytes: &[u8]) -> GeneratedFile {
    let mut file = GeneratedFile::default();
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match function(line) {
            Some(function) => file.functions.push(function),
            None => file.damaged += 1,
        }
    }
    file
}

fn function(line: &[u8]) -> Option<GeneratedFunction> {
    let (address, rest) = number(line)?;
    let (bytes, name) = number(rest)?;
    let end = address.checked_add(bytes)?;
    let name = &name[..name.len().min(NAME_BYTES_MAX)];
    let name = String::from_utf8_lossy(name).into_owned();
    (end > address && !name.is_empty()).then_some(GeneratedFunction {
        address: VirtAddr(address),
        bytes,
        name,
        file: None,
        lines: Vec::new(),
        since: None,
    })
}

/// The hexadecimal number at the beginning, with or without `0x`, and what follows on the blanks after it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(u8::is_ascii_whitespace)?;
    let digits = std::str::from_utf8(&text[..end]).ok()?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| is_number)?;
    Some((number, text[end..].trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_real_runtimes_are_read() {
        let map = b"7f00a0 1c0 LazyCompile:*hash /srv/app.js:12:14\n0x00007f0000001000 0x00000020 java.lang.String.hashCode()\n\n\
                    7f00c0 8 py::sum of it:/a b.py\r\n";
        let file = read_perf_map(map);
        let rows: Vec<(u64, u64, &str)> =
            file.functions.iter().map(|function| (function.address.0, function.bytes, &*function.name)).collect();
        assert_eq!(
            rows,
            [
                (0x7f_00a0, 0x1c0, "LazyCompile:*hash /srv/app.js:12:14"),
                (0x7f00_0000_1000, 0x20, "java.lang.String.hashCode()"),
                (0x7f_00c0, 8, "py::sum of it:/a b.py"),
            ]
        );
        assert_eq!(file.damaged, 0);
    }

    #[test]
    fn what_is_no_function_is_counted() {
        let map = b"nonsense\n10 0 empty\n10 5\nffffffffffffffff 8 wraps\n+10 8 sign\n123456789abcdef01 8 long\n20 8 good\n30 8 t";
        let file = read_perf_map(map);
        assert_eq!(file.functions.iter().map(|function| &*function.name).collect::<Vec<_>>(), ["good", "t"]);
        assert_eq!(file.damaged, 6);
        assert_eq!(read_perf_map(b""), GeneratedFile::default());
        assert_eq!(read_perf_map(&[0xff; 4096]).damaged, 1);
    }
}
