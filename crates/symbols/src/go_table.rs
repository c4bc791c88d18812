//! Function names and lines of Go's own table, `.gopclntab`, which `-ldflags "-s -w"` and `strip` leave: the runtime needs it.
//!
//! Layouts of Go 1.2, 1.16, 1.18 and 1.20 and later, by Go's sources (`debug/gosym/pclntab.go`, `internal/abi/symtab.go`). The table names the function
//! whose code it is. What was inlined into it is in a tree of its own (`FUNCDATA_InlTree`, `runtime/symtabinl.go`), which lies elsewhere in the binary; without
//! it (before Go 1.16, or where it is not found) the function has the line of the inlined code. A damaged table gives no names beyond the damage.

/// Sections of the table, the second in position-independent programs of older versions.
pub(crate) const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// Most functions of one binary; a table that claims more is damaged.
const FUNCTIONS_MAX: u64 = 4 << 20;
/// Most steps that are read in one function's line table.
const STEPS_MAX: usize = 1 << 20;
const NAME_BYTES_MAX: usize = 4096;
/// Most calls that are inlined into each other at one place; more are a damaged tree's.
const INLINED_MAX: usize = 64;
/// Which of a function's tables says what is inlined at an address (`PCDATA_InlTreeIndex`), and which of its data is the tree (`FUNCDATA_InlTree`).
const INLINED_INDEX: usize = 2;
const INLINED_TREE: usize = 3;
/// What stands for data that a function does not have, since Go 1.18.
const NO_DATA: u64 = 0xffff_ffff;
/// Prefix of the name of a program's entry function.
const START: &str = "_rt0_";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layout {
    Go12,
    Go116,
    Go118,
    Go120,
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
        if table.layout >= Layout::Go118 {
            table.text = text;
        }
        Some(table)
    }

    /// Whether `data` begins as the tables of Go 1.18 and later do, of programs whose functions have their arguments in registers (on x86-64).
    pub(crate) fn is_recent(data: &'d [u8]) -> bool {
        GoTable::parse(data).is_some_and(|table| table.layout >= Layout::Go118)
    }

    /// Where the code begins that the table describes, and whether Go 1.20 or later wrote it. `None`: before Go 1.18, whose tables have addresses.
    pub(crate) fn code(&self) -> Option<(u64, bool)> {
        (self.layout >= Layout::Go118).then_some((self.text, self.layout >= Layout::Go120))
    }

    fn parse(data: &'d [u8]) -> Option<GoTable<'d>> {
        let magic = u32::from_le_bytes(data.get(..4)?.try_into().ok()?);
        let known = |magic| match magic {
            0xffff_fffb_u32 => Some(Layout::Go12),
            0xffff_fffa => Some(Layout::Go116),
            0xffff_fff0 => Some(Layout::Go118),
            0xffff_fff1 => Some(Layout::Go120),
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
            Layout::Go116 | Layout::Go118 | Layout::Go120 => {
                // Go 1.18 put the code's address before the offsets of the parts.
                let (first, text) = if layout >= Layout::Go118 { (3, word(2)?) } else { (2, 0) };
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
        if self.layout >= Layout::Go118 && self.text == 0 {
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

    /// The function whose code holds `address`, with the line of what may be inlined there.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<GoFunction> {
        let (function, entry) = self.function_at(address)?;
        Some(self.place(function, self.name(function)?, (entry, address)))
    }

    /// The functions at an address: those that are inlined there, innermost first, each with the place of its call, and then the one whose code it is. Empty
    /// where there is none. `data`: the address to which offsets of functions' data count, since Go 1.18; without it nothing is inlined. `memory`: so many of
    /// the binary's bytes at an address.
    #[must_use]
    pub fn frames<'m>(
        &self,
        address: u64,
        data: Option<u64>,
        memory: impl Fn(u64, u64) -> Option<&'m [u8]>,
    ) -> Vec<GoFunction> {
        let Some(physical) = self.find(address) else { return Vec::new() };
        self.inlined_at(address, data, memory).unwrap_or_else(|| vec![physical])
    }

    /// The same; `None` where nothing is inlined, or the tree is damaged.
    fn inlined_at<'m>(
        &self,
        address: u64,
        data: Option<u64>,
        memory: impl Fn(u64, u64) -> Option<&'m [u8]>,
    ) -> Option<Vec<GoFunction>> {
        let (function, entry) = self.function_at(address)?;
        let index = self.table_of_inlined(function)?;
        let tree = self.tree(function, data)?;
        let (mut frames, mut at) = (Vec::new(), address);
        while let Ok(call) = u64::try_from(self.value(index, entry, at)?) {
            if frames.len() == INLINED_MAX {
                return None;
            }
            let (name, parent) = self.call(tree, call, &memory)?;
            frames.push(self.place(function, name, (entry, at)));
            // An instruction of the caller, whose line is that of the call.
            at = entry.checked_add(parent)?;
        }
        frames.push(self.place(function, self.name(function)?, (entry, at)));
        Some(frames)
    }

    /// The record of the function whose code holds `address`, and its first address.
    fn function_at(&self, address: u64) -> Option<(&'d [u8], u64)> {
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
        Some((self.functions.get(usize::try_from(at).ok()?..)?, entry))
    }

    /// A word of a function's record: 1 name, 2 arguments, 3 deferred return, 4 to 6 tables of stack, file and line, 7 number of further tables, 8 compile
    /// unit. Its address comes before them.
    fn field(&self, function: &[u8], number: usize) -> Option<u64> {
        self.unsigned(function, self.index_bytes() + 4 * (number - 1), 4)
    }

    /// The length of a function's record without the lists at its end: behind the words the first line, since Go 1.20, and four bytes.
    fn record_bytes(&self) -> usize {
        let first_line = if self.layout >= Layout::Go120 { 4 } else { 0 };
        self.index_bytes() + 4 * 8 + first_line + 4
    }

    fn name(&self, function: &[u8]) -> Option<String> {
        text_at(self.names, self.field(function, 1)?)
    }

    /// A function at an address of the code of one that begins at `entry`.
    fn place(&self, function: &[u8], name: String, (entry, address): (u64, u64)) -> GoFunction {
        let value = |number| self.value(self.field(function, number)?, entry, address);
        let line = value(6).and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        let unit = self.field(function, 8);
        let file = value(5).and_then(|file| self.file(u64::try_from(file).ok()?, unit)).unwrap_or_default();
        GoFunction { name, file, line, entry }
    }

    /// The table that says which call is inlined at an address.
    fn table_of_inlined(&self, function: &[u8]) -> Option<u64> {
        let count = usize::try_from(self.field(function, 7)?).ok()?;
        let at = self.record_bytes() + 4 * INLINED_INDEX;
        self.unsigned(function, at, 4).filter(|&table| count > INLINED_INDEX && table != 0)
    }

    /// The address of the tree of calls that are inlined into a function.
    fn tree(&self, function: &[u8], data: Option<u64>) -> Option<u64> {
        let record = self.record_bytes();
        let count = usize::from(*function.get(record - 1)?);
        let lists = record + 4 * usize::try_from(self.field(function, 7)?).ok()?;
        if self.layout < Layout::Go116 || count <= INLINED_TREE {
            return None;
        }
        if self.layout >= Layout::Go118 {
            let offset = self.unsigned(function, lists + 4 * INLINED_TREE, 4).filter(|&offset| offset != NO_DATA)?;
            return data?.checked_add(offset);
        }
        // These are pointers, which are aligned. A loader that moves the program fills them in: then they are none here.
        let at = lists.next_multiple_of(self.pointer_bytes) + self.pointer_bytes * INLINED_TREE;
        self.unsigned(function, at, self.pointer_bytes).filter(|&address| address != 0)
    }

    /// A call of a tree: the name of the called function, and how far behind the entry an instruction has the line of the call.
    fn call<'m>(
        &self,
        tree: u64,
        number: u64,
        memory: &impl Fn(u64, u64) -> Option<&'m [u8]>,
    ) -> Option<(String, u64)> {
        let (bytes, name, parent) = if self.layout >= Layout::Go120 { (16, 4, 8) } else { (20, 12, 16) };
        let call = memory(tree.checked_add(number.checked_mul(bytes)?)?, bytes)?;
        Some((text_at(self.names, self.unsigned(call, name, 4)?)?, self.unsigned(call, parent, 4)?))
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

    fn magic(layout: Layout) -> u64 {
        match layout {
            Layout::Go12 => 0xffff_fffb,
            Layout::Go116 => 0xffff_fffa,
            Layout::Go118 => 0xffff_fff0,
            Layout::Go120 => 0xffff_fff1,
        }
    }

    /// Two functions, `_rt0_x` at 0x1000 and `main.fill` at 0x1010 to 0x1020 (lines 7 and then, from 0x1018, 9), in `g.go`.
    fn table(layout: Layout, is_big: bool, text: u64) -> Vec<u8> {
        let put = |out: &mut Vec<u8>, value: u64, bytes: usize| {
            let all = value.to_be_bytes();
            let field = &all[8 - bytes..];
            if is_big { out.extend(field) } else { out.extend(field.iter().rev()) }
        };
        let magic = magic(layout);
        let (names, files, values) = (b"\0_rt0_x\0main.fill\0", b"\0g.go\0", [0, 4, 16, 0, 16, 8, 4, 8, 0]);
        let (old, first) = (layout == Layout::Go12, if layout >= Layout::Go118 { 4 } else { 8 });
        let header = 8 + 8 * match layout {
            Layout::Go12 => 1,
            Layout::Go116 => 7,
            Layout::Go118 | Layout::Go120 => 8,
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
            _ => &[1, text as usize, name_at, unit_at, file_at, value_at, functions_at],
        };
        words.iter().for_each(|&word| put(&mut out, word as u64, 8));
        let (zero, base) = if layout >= Layout::Go118 { (0, 0) } else { (0x1000, if old { header } else { 0 }) };
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

    const LAYOUTS: [Layout; 4] = [Layout::Go12, Layout::Go116, Layout::Go118, Layout::Go120];

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

    /// Where the tree of `inlining` lies, and the address to which offsets of data count.
    const TREE: u64 = 0x9000;
    const DATA: u64 = 0x8f00;

    /// Steps of a table: a value, and the bytes of code of which it holds.
    fn steps(out: &mut Vec<u8>, steps: &[(i64, u8)]) -> u64 {
        let (at, mut before) = (out.len() as u64, -1);
        for &(value, bytes) in steps {
            let change: i64 = value - before;
            out.extend([((change << 1) ^ (change >> 63)) as u8, bytes]);
            before = value;
        }
        out.push(0);
        at
    }

    /// A function `main.outer` at 0x1000 to 0x1040, into which `main.mid` (from 0x1010 to 0x1020) is inlined, and into that `main.leaf` (from 0x1018): the
    /// table and the tree.
    fn inlining(layout: Layout, is_big: bool) -> (Vec<u8>, Vec<u8>) {
        let put = |out: &mut Vec<u8>, values: &[u64], bytes: usize| {
            for value in values {
                let all = value.to_be_bytes();
                let field = &all[8 - bytes..];
                if is_big { out.extend(field) } else { out.extend(field.iter().rev()) }
            }
        };
        let (is_118, is_120) = (layout >= Layout::Go118, layout >= Layout::Go120);
        let (names, files) = (b"\0main.outer\0main.mid\0main.leaf\0", b"\0a.go\0b.go\0");
        let mut values = vec![0];
        let lines = steps(&mut values, &[(5, 8), (6, 8), (20, 8), (31, 8), (7, 32)]);
        let sources = steps(&mut values, &[(0, 24), (1, 8), (0, 32)]);
        let inlined = steps(&mut values, &[(-1, 16), (0, 8), (1, 8), (-1, 32)]);
        let first = if is_118 { 4 } else { 8 };
        let mut body = Vec::new();
        let entry = if is_118 { 0 } else { 0x1000 };
        put(&mut body, &[entry, 3 * first as u64, entry + 0x40, entry], first);
        // The function's record begins with its entry, the last word before.
        put(&mut body, &[1, 0, 0, 0, sources, lines, 4, 0], 4);
        put(&mut body, &[4][..usize::from(is_120)], 4);
        body.extend([0, 0, 0, 4]);
        put(&mut body, &[0, 0, inlined, 0], 4);
        if is_118 {
            put(&mut body, &[NO_DATA, NO_DATA, NO_DATA, TREE - DATA], 4);
        } else {
            // 60 bytes of the record, which are filled up to a multiple of pointers.
            put(&mut body, &[0], 4);
            put(&mut body, &[0, 0, 0, TREE], 8);
        }
        let header = 8 + 8 * if is_118 { 8 } else { 7 };
        let places = [0, names.len(), names.len() + 8, names.len() + 8 + files.len()].map(|at| header + at as u64);
        let mut out = Vec::new();
        put(&mut out, &[magic(layout)], 4);
        out.extend([0, 0, 1, 8]);
        put(&mut out, &[1, 2], 8);
        put(&mut out, &[0x1000][..usize::from(is_118)], 8);
        put(&mut out, &places, 8);
        put(&mut out, &[places[3] + values.len() as u64], 8);
        out.extend(names);
        put(&mut out, &[1, 6], 4);
        out.extend([&files[..], &values[..], &body[..]].concat());
        let mut tree = Vec::new();
        // Function, and where it is called: in `outer`, and in `mid`.
        for (parent, name, place) in [(0xffff, 12, 8), (0, 21, 0x10)] {
            if is_120 {
                put(&mut tree, &[0, name, place, 1], 4);
            } else {
                put(&mut tree, &[parent, 0], 2);
                put(&mut tree, &[0, 99, name, place], 4);
            }
        }
        (out, tree)
    }

    /// Inlined code had its line in the function into which it was inlined.
    #[test]
    fn inlined_functions_and_their_callers_are_named_with_the_places_of_calls() {
        for (layout, is_big) in LAYOUTS[1..].iter().flat_map(|&layout| [(layout, false), (layout, true)]) {
            let (data, tree) = inlining(layout, is_big);
            let table = GoTable::read_at(&data, 0x1000).unwrap_or_else(|| panic!("{layout:?} {is_big}"));
            let named = |tree: &[u8], address: u64| -> Vec<String> {
                let frames = table.frames(address, Some(DATA), |at, bytes| {
                    let begin = at.checked_sub(TREE)? as usize;
                    tree.get(begin..begin + bytes as usize)
                });
                frames.iter().map(|found| format!("{} {}:{}", found.name, found.file, found.line)).collect()
            };
            let outer = "main.outer a.go:6";
            assert_eq!(named(&tree, 0x101a), ["main.leaf b.go:31", "main.mid a.go:20", outer], "{layout:?} {is_big}");
            assert_eq!(named(&tree, 0x1012), ["main.mid a.go:20", outer], "{layout:?} {is_big}");
            assert_eq!(named(&tree, 0x1002), ["main.outer a.go:5"]);
            assert_eq!(named(&tree, 0x1030), ["main.outer a.go:7"]);
            // Without the tree the function has the line of what is inlined there.
            assert_eq!(named(&[], 0x101a), ["main.outer b.go:31"]);
            let mut circle = tree.clone();
            let place = if is_big { tree.len() / 2 - 1 } else { tree.len() / 2 - 4 };
            circle[if layout >= Layout::Go120 { place - 4 } else { place }] = 0x10;
            assert_eq!(named(&circle, 0x1012), ["main.outer a.go:20"], "{layout:?} {is_big}: it calls itself");
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
                        let _ = table.frames(address, Some(0), |_, bytes| data.get(..bytes as usize));
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
