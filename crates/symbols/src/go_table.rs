//! Function names and lines of Go's own table, `.gopclntab`, which `-ldflags "-s -w"` and `strip` leave: the runtime needs it.
//!
//! Layouts of Go 1.2, 1.16, 1.18 and 1.20 and later, by Go's sources (`debug/gosym/pclntab.go`, `internal/abi/symtab.go`). The table names the function
//! whose code it is; calls inlined into it are not told apart, and their lines are those of the inlined code. A damaged table gives no names beyond the damage.

/// Sections of the table, the second in position-independent programs of older versions.
pub(crate) const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// Most functions of one binary; a table that claims more is damaged.
const FUNCTIONS_MAX: u64 = 4 << 20;
/// Most steps that are read in one function's line table.
const STEPS_MAX: usize = 1 << 20;
const NAME_BYTES_MAX: usize = 4096;
/// Prefix of the name of a program's entry function.
const START: &str = "_rt0_";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layout {
    Go12,
    Go116,
    Go118,
}

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoFunction {
    /// Name in Go's notation: `main.(*Grid).fill`.
    pub name: String,
    /// Source file, or empty.
    pub file: String,
    /// Line, or 0.
    pub line: u32,
    /// Address of its first instruction.
    pub entry: u64,
}

/// The function table of one binary.
#[derive(Clone, Debug)]
pub struct GoTable<'d> {
    layout: Layout,
    is_big: bool,
    quantum: u64,
    pointer_bytes: usize,
    text: u64,
    names: &'d [u8],
    units: &'d [u8],
    files: &'d [u8],
    values: &'d [u8],
    functions: &'d [u8],
    /// The index at the beginning of `functions`, or of the table.
    index: &'d [u8],
    count: u64,
}

impl<'d> GoTable<'d> {
    /// The table in `data`, of a binary whose code section begins at `text` and which starts at `start`. `None` where it is none of the known ones, or does
    /// not tell where the code that it describes begins.
    #[must_use]
    pub fn read(data: &'d [u8], text: u64, start: u64) -> Option<GoTable<'d>> {
        GoTable::parse(data)?.placed(text, start)
    }

    /// The table in `data`, of a binary that tells elsewhere that the code which the table describes begins at `text`. `None` where it is none of the known
    /// ones.
    #[must_use]
    pub fn read_at(data: &'d [u8], text: u64) -> Option<GoTable<'d>> {
        let mut table = GoTable::parse(data)?;
        if table.layout == Layout::Go118 {
            table.text = text;
        }
        Some(table)
    }

    /// Whether `data` begins as the tables of Go 1.18 and later do, of programs whose functions have their arguments in registers (on x86-64).
    pub(crate) fn is_recent(data: &'d [u8]) -> bool {
        GoTable::parse(data).is_some_and(|table| table.layout == Layout::Go118)
    }

    fn parse(data: &'d [u8]) -> Option<GoTable<'d>> {
        let magic = u32::from_le_bytes(data.get(..4)?.try_into().ok()?);
        let known = |magic| match magic {
            0xffff_fffb_u32 => Some(Layout::Go12),
            0xffff_fffa => Some(Layout::Go116),
            0xffff_fff0 | 0xffff_fff1 => Some(Layout::Go118),
            _ => None,
        };
        let (layout, is_big) =
            known(magic).map(|layout| (layout, false)).or_else(|| Some((known(magic.swap_bytes())?, true)))?;
        let (quantum, pointer_bytes) = (*data.get(6)?, usize::from(*data.get(7)?));
        if data[4..6] != [0, 0] || ![1, 2, 4].contains(&quantum) || ![4, 8].contains(&pointer_bytes) {
            return None;
        }
        let empty = GoTable {
            layout,
            is_big,
            quantum: quantum.into(),
            pointer_bytes,
            text: 0,
            names: data,
            units: &[],
            files: data,
            values: data,
            functions: data,
            index: &[],
            count: 0,
        };
        let word = |number: usize| empty.unsigned(data, 8 + number * pointer_bytes, pointer_bytes);
        let part = |number| data.get(usize::try_from(word(number)?).ok()?..);
        let count = word(0).filter(|&count| count <= FUNCTIONS_MAX)?;
        Some(match layout {
            Layout::Go12 => {
                let index = data.get(8 + pointer_bytes..)?;
                let end = (2 * count as usize + 1) * pointer_bytes;
                let files = data.get(empty.unsigned(index, end, 4)? as usize..)?;
                GoTable { units: files, index, count, ..empty.clone() }
            }
            Layout::Go116 | Layout::Go118 => {
                // Go 1.18 put the code's address before the offsets of the parts.
                let (first, text) = if layout == Layout::Go118 { (3, word(2)?) } else { (2, 0) };
                GoTable {
                    names: part(first)?,
                    units: part(first + 1)?,
                    files: part(first + 2)?,
                    values: part(first + 3)?,
                    functions: part(first + 4)?,
                    index: part(first + 4)?,
                    text,
                    count,
                    ..empty.clone()
                }
            }
        })
    }

    /// Since Go 1.18 functions are told by their distance from the first one, whose address newer linkers leave out, or leave to the loader. It is the code
    /// section's where Go's own linker made the binary, which then starts in Go's function; otherwise other code may lie before it.
    fn placed(mut self, text: u64, start: u64) -> Option<GoTable<'d>> {
        if self.layout == Layout::Go118 && self.text == 0 {
            self.text = text;
            let first = self.find(start)?;
            if first.entry != start || !first.name.starts_with(START) {
                return None;
            }
        }
        Some(self)
    }

    fn unsigned(&self, data: &[u8], at: usize, bytes: usize) -> Option<u64> {
        let field = data.get(at..at.checked_add(bytes)?)?;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(if self.is_big { field.iter().fold(0, add) } else { field.iter().rev().fold(0, add) })
    }

    fn index_bytes(&self) -> usize {
        if self.layout >= Layout::Go118 { 4 } else { self.pointer_bytes }
    }

    /// The first address of function `number`; of the one past the last, where the code ends.
    fn entry(&self, number: u64) -> Option<u64> {
        let bytes = self.index_bytes();
        Some(self.text.wrapping_add(self.unsigned(self.index, usize::try_from(number).ok()? * 2 * bytes, bytes)?))
    }

    /// The function whose code holds `address`.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<GoFunction> {
        if address < self.entry(0)? || address >= self.entry(self.count)? {
            return None;
        }
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.entry(middle)? <= address { low = middle } else { high = middle }
        }
        let (entry, bytes) = (self.entry(low)?, self.index_bytes());
        let at = self.unsigned(self.index, low as usize * 2 * bytes + bytes, bytes)?;
        let function = self.functions.get(usize::try_from(at).ok()?..)?;
        // Its address comes first, then words: name, arguments, deferred return, tables of stack, file and line, their number, compile unit.
        let first = if self.layout >= Layout::Go118 { 4 } else { self.pointer_bytes };
        let field = |number: usize| self.unsigned(function, first + 4 * (number - 1), 4);
        let name = text_at(self.names, field(1)?)?;
        let value = |number| self.value(field(number)?, entry, address);
        let line = value(6).and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        let file = value(5).and_then(|file| self.file(u64::try_from(file).ok()?, field(8))).unwrap_or_default();
        Some(GoFunction { name, file, line, entry })
    }

    fn file(&self, number: u64, unit: Option<u64>) -> Option<String> {
        let number = match self.layout {
            Layout::Go12 => number,
            _ => number + unit?,
        };
        let at = self.unsigned(self.units, usize::try_from(number).ok()?.checked_mul(4)?, 4)?;
        if at == u64::from(u32::MAX) { None } else { text_at(self.files, at) }
    }

    /// What the table at `at` says of `address`: pairs of differences, of the value and of the address up to which it holds.
    fn value(&self, at: u64, entry: u64, address: u64) -> Option<i64> {
        let mut rest = self.values.get(usize::try_from(at).ok()?..)?;
        let (mut value, mut end) = (-1_i64, entry);
        for step in 0..STEPS_MAX {
            let change = varint(&mut rest)?;
            if change == 0 && step > 0 {
                return None;
            }
            value += if change & 1 == 1 { !i64::from(change >> 1) } else { i64::from(change >> 1) };
            end = end.checked_add(u64::from(varint(&mut rest)?) * self.quantum)?;
            if address < end {
                return Some(value);
            }
        }
        None
    }
}

fn varint(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u32;
    for shift in (0..32).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn text_at(data: &[u8], at: u64) -> Option<String> {
    let text = data.get(usize::try_from(at).ok()?..)?;
    let text = &text[..text.len().min(NAME_BYTES_MAX)];
    let end = text.iter().position(|&byte| byte == 0).filter(|&end| end > 0)?;
    Some(String::from_utf8_lossy(&text[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two functions, `_rt0_x` at 0x1000 and `main.fill` at 0x1010 to 0x1020 (lines 7 and then, from 0x1018, 9), in `g.go`.
    fn table(layout: Layout, is_big: bool, text: u64) -> Vec<u8> {
        let put = |out: &mut Vec<u8>, value: u64, bytes: usize| {
            let all = value.to_be_bytes();
            let field = &all[8 - bytes..];
            if is_big { out.extend(field) } else { out.extend(field.iter().rev()) }
        };
        let magic = match layout {
            Layout::Go12 => 0xffff_fffb,
            Layout::Go116 => 0xffff_fffa,
            Layout::Go118 => 0xffff_fff1,
        };
        let (names, files, values) = (b"\0_rt0_x\0main.fill\0", b"\0g.go\0", [0, 4, 16, 0, 16, 8, 4, 8, 0]);
        let (old, first) = (layout == Layout::Go12, if layout == Layout::Go118 { 4 } else { 8 });
        let header = 8 + 8 * match layout {
            Layout::Go12 => 1,
            Layout::Go116 => 7,
            Layout::Go118 => 8,
        };
        // Old tables have their index first; its end names the files.
        let index = if old { 5 * 8 + 4 } else { 5 * first };
        let function = first + 8 * 4;
        let places =
            |base: usize| [base, base + names.len(), base + names.len() + 8, base + names.len() + 8 + files.len()];
        let [name_at, unit_at, file_at, value_at] = places(if old { header + index + 2 * function } else { header });
        let functions_at = value_at + values.len();
        let mut out = Vec::new();
        put(&mut out, magic, 4);
        out.extend([0, 0, 1, 8]);
        put(&mut out, 2, 8);
        let words: &[usize] = match layout {
            Layout::Go12 => &[],
            Layout::Go116 => &[1, name_at, unit_at, file_at, value_at, functions_at],
            Layout::Go118 => &[1, text as usize, name_at, unit_at, file_at, value_at, functions_at],
        };
        words.iter().for_each(|&word| put(&mut out, word as u64, 8));
        let (zero, base) = if layout == Layout::Go118 { (0, 0) } else { (0x1000, if old { header } else { 0 }) };
        let mut body = Vec::new();
        for (entry, number) in [(zero, 0), (zero + 0x10, 1)] {
            put(&mut body, entry, first);
            put(&mut body, (base + index + number * function) as u64, first);
        }
        put(&mut body, zero + 0x20, first);
        if old {
            put(&mut body, unit_at as u64, 4);
        }
        let shift = |at: usize| if old { at } else { 0 };
        for (entry, name, lines) in [(zero, 1, 1), (zero + 0x10, 8, 4)] {
            put(&mut body, entry, first);
            let fields = [shift(name_at) + name, 0, 0, 0, shift(value_at) + 1, shift(value_at) + lines, 0, 0];
            fields.iter().for_each(|&field| put(&mut body, field as u64, 4));
        }
        let mut tables = names.to_vec();
        // Files: none, then the one.
        put(&mut tables, 0xffff_ffff, 4);
        put(&mut tables, (shift(file_at) + 1) as u64, 4);
        tables.extend(files);
        tables.extend(values);
        if old {
            out.extend([body, tables].concat());
        } else {
            out.extend([tables, body].concat());
        }
        out
    }

    const LAYOUTS: [Layout; 3] = [Layout::Go12, Layout::Go116, Layout::Go118];

    #[test]
    fn functions_and_lines_of_every_layout() {
        for (layout, is_big, text) in LAYOUTS.iter().flat_map(|&l| [(l, false, 0), (l, true, 0), (l, false, 0x1000)]) {
            let data = table(layout, is_big, text);
            let table = GoTable::read(&data, 0x1000, 0x1000).unwrap_or_else(|| panic!("{layout:?} {is_big}"));
            let at = |address| table.find(address).map(|found| (found.name, found.file, found.line, found.entry));
            let fill = |line| Some(("main.fill".to_owned(), "g.go".to_owned(), line, 0x1010));
            assert_eq!((at(0x1012), at(0x101f)), (fill(7), fill(9)), "{layout:?} {is_big} {text}");
            assert_eq!(at(0x1000).map(|found| found.0).as_deref(), Some("_rt0_x"));
            assert_eq!((at(0xfff), at(0x1020), at(u64::MAX)), (None, None, None));
        }
    }

    #[test]
    fn a_table_that_does_not_tell_where_its_code_lies_gives_no_names() {
        let data = table(Layout::Go118, false, 0);
        assert!(GoTable::read(&data, 0xf00, 0xf00 + 0x10).is_none(), "starts in another function");
        assert!(GoTable::read(&data, 0xf00, 0x5000).is_none(), "starts outside of Go's code");
    }

    #[test]
    fn where_the_code_lies_may_be_told_elsewhere() {
        let name = |data: &[u8]| GoTable::read_at(data, 0x1000)?.find(0x1012).map(|found| found.name);
        assert_eq!(name(&table(Layout::Go118, false, 0)).as_deref(), Some("main.fill"));
        for layout in LAYOUTS {
            assert_eq!(name(&table(layout, false, 0x1000)).as_deref(), Some("main.fill"), "{layout:?}");
        }
        assert!(GoTable::read_at(&[0; 64], 0x1000).is_none());
    }

    #[test]
    fn damaged_tables_never_panic() {
        for layout in LAYOUTS {
            let whole = table(layout, false, 0x1000);
            let try_all = |data: &[u8]| {
                if let Some(table) = GoTable::read(data, 0x1000, 0x1000) {
                    for address in [0, 0x1000, 0x1012, 0x101f, u64::MAX] {
                        let _ = table.find(address);
                    }
                }
            };
            for at in 0..whole.len() {
                try_all(&whole[..at]);
                for value in [0, 0x7f, 0x80, 0xff] {
                    let mut data = whole.clone();
                    data[at] = value;
                    try_all(&data);
                }
            }
        }
    }
}
