//! Columns in Arrow's layout: an array of values, a validity bitmap, and offsets for texts.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use numapilot_trace::tables::schema::ColumnType;

use crate::abi::ArrowArray;

/// The interface's format string of a type. Texts have 64-bit offsets, so that a batch of them has no limit of 2 GiB.
pub(crate) fn format(kind: ColumnType) -> &'static CStr {
    match kind {
        ColumnType::Bool => c"b",
        ColumnType::U8 => c"C",
        ColumnType::U16 => c"S",
        ColumnType::U32 => c"I",
        ColumnType::U64 => c"L",
        ColumnType::Text => c"U",
    }
}

/// Name and type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the column.
    pub name: &'static str,
    /// Type of its values.
    pub kind: ColumnType,
    /// Whether it may have nulls.
    pub is_nullable: bool,
}

/// Memory that an array points into.
enum Buffer {
    Bits(Vec<u8>),
    Bytes(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
}

impl Buffer {
    fn pointer(&self) -> *const c_void {
        match self {
            Buffer::Bits(values) | Buffer::Bytes(values) => values.as_ptr().cast(),
            Buffer::U16(values) => values.as_ptr().cast(),
            Buffer::U32(values) => values.as_ptr().cast(),
            Buffer::U64(values) => values.as_ptr().cast(),
            Buffer::I64(values) => values.as_ptr().cast(),
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        if let Buffer::Bits(bytes) | Buffer::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Cell<'a> {
    Bool(bool),
    Number(u64),
    Text(&'a str),
}

/// Values of a column, for one batch.
pub struct Column {
    length: usize,
    nulls: usize,
    /// Validity bitmap and values, or validity bitmap, offsets and texts.
    buffers: Vec<Option<Buffer>>,
}

impl Column {
    /// A column of booleans; `None` is null.
    pub fn bools(values: impl ExactSizeIterator<Item = Option<bool>> + Clone) -> Column {
        let (valid, nulls) = bits(values.clone().map(|value| value.is_some()));
        let (values_bits, _) = bits(values.clone().map(|value| value.unwrap_or(false)));
        Column::new(values.len(), nulls, valid, [Buffer::Bits(values_bits)])
    }

    /// A column of 8-bit unsigned integers; `None` is null.
    pub fn u8s(values: impl ExactSizeIterator<Item = Option<u8>> + Clone) -> Column {
        Column::numbers(values, Buffer::Bytes)
    }

    /// A column of 16-bit unsigned integers; `None` is null.
    pub fn u16s(values: impl ExactSizeIterator<Item = Option<u16>> + Clone) -> Column {
        Column::numbers(values, Buffer::U16)
    }

    /// A column of 32-bit unsigned integers; `None` is null.
    pub fn u32s(values: impl ExactSizeIterator<Item = Option<u32>> + Clone) -> Column {
        Column::numbers(values, Buffer::U32)
    }

    /// A column of 64-bit unsigned integers; `None` is null.
    pub fn u64s(values: impl ExactSizeIterator<Item = Option<u64>> + Clone) -> Column {
        Column::numbers(values, Buffer::U64)
    }

    /// A column of UTF-8 texts; `None` is null.
    pub fn texts<'a>(values: impl ExactSizeIterator<Item = Option<&'a Arc<str>>> + Clone) -> Column {
        let (valid, nulls) = bits(values.clone().map(|value| value.is_some()));
        let length = values.len();
        let mut ends = Vec::with_capacity(length + 1);
        let mut bytes = Vec::new();
        ends.push(0);
        for value in values {
            bytes.extend_from_slice(value.map_or(&[][..], |text| text.as_bytes()));
            ends.push(bytes.len() as i64);
        }
        Column::new(length, nulls, valid, [Buffer::I64(ends), Buffer::Bytes(bytes)])
    }

    fn numbers<T: Default>(
        values: impl ExactSizeIterator<Item = Option<T>> + Clone,
        buffer: fn(Vec<T>) -> Buffer,
    ) -> Column {
        let (valid, nulls) = bits(values.clone().map(|value| value.is_some()));
        let length = values.len();
        Column::new(length, nulls, valid, [buffer(values.map(Option::unwrap_or_default).collect())])
    }

    fn new<const BUFFERS: usize>(length: usize, nulls: usize, valid: Vec<u8>, buffers: [Buffer; BUFFERS]) -> Column {
        let valid = (nulls > 0).then_some(Buffer::Bits(valid));
        Column { length, nulls, buffers: std::iter::once(valid).chain(buffers.into_iter().map(Some)).collect() }
    }

    /// The value in a row; `None` if it is null or past the end.
    #[must_use]
    pub fn cell(&self, row: usize) -> Option<Cell<'_>> {
        let bit = |bytes: &[u8]| bytes.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1);
        if row >= self.length || self.buffers.first()?.as_ref().is_some_and(|valid| !valid.bytes().is_some_and(bit)) {
            return None;
        }
        let number = |value: Option<u64>| value.map(Cell::Number);
        match (self.buffers.get(1)?.as_ref()?, self.buffers.get(2)) {
            (Buffer::I64(ends), Some(Some(Buffer::Bytes(bytes)))) => {
                let text = bytes.get(*ends.get(row)? as usize..*ends.get(row + 1)? as usize)?;
                std::str::from_utf8(text).ok().map(Cell::Text)
            }
            (Buffer::Bits(bytes), _) => Some(Cell::Bool(bit(bytes))),
            (Buffer::Bytes(values), _) => number(values.get(row).copied().map(u64::from)),
            (Buffer::U16(values), _) => number(values.get(row).copied().map(u64::from)),
            (Buffer::U32(values), _) => number(values.get(row).copied().map(u64::from)),
            (Buffer::U64(values), _) => number(values.get(row).copied()),
            (Buffer::I64(_), _) => None,
        }
    }

    fn into_array(self) -> ArrowArray {
        array(self.length, self.nulls, self.buffers, Vec::new())
    }
}

/// A bitmap, least significant bit first, and the number of bits that are not set.
fn bits(values: impl ExactSizeIterator<Item = bool>) -> (Vec<u8>, usize) {
    let mut bytes = vec![0u8; values.len().div_ceil(8)];
    let mut unset = 0;
    for (at, value) in values.enumerate() {
        bytes[at / 8] |= u8::from(value) << (at % 8);
        unset += usize::from(!value);
    }
    (bytes, unset)
}

/// What an array owns; freed by its `release`.
struct Owned {
    _buffers: Vec<Option<Buffer>>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

/// A struct array of these columns: a batch of `length` rows.
pub(crate) fn batch(length: usize, columns: Vec<Column>) -> ArrowArray {
    let children = columns.into_iter().map(|column| Box::into_raw(Box::new(column.into_array()))).collect();
    array(length, 0, vec![None], children)
}

/// A released array: the end of a stream.
pub(crate) fn no_batch() -> ArrowArray {
    ArrowArray {
        length: 0,
        null_count: 0,
        offset: 0,
        n_buffers: 0,
        n_children: 0,
        buffers: ptr::null_mut(),
        children: ptr::null_mut(),
        dictionary: ptr::null_mut(),
        release: None,
        private_data: ptr::null_mut(),
    }
}

fn array(length: usize, nulls: usize, buffers: Vec<Option<Buffer>>, children: Vec<*mut ArrowArray>) -> ArrowArray {
    let pointers = buffers.iter().map(|buffer| buffer.as_ref().map_or(ptr::null(), Buffer::pointer)).collect();
    let mut owned = Box::new(Owned { _buffers: buffers, pointers, children });
    ArrowArray {
        length: length as i64,
        null_count: nulls as i64,
        n_buffers: owned.pointers.len() as i64,
        n_children: owned.children.len() as i64,
        buffers: owned.pointers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        release: Some(release_array),
        private_data: Box::into_raw(owned).cast(),
        ..no_batch()
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the interface calls this once, with an array that we made; children that were moved out have no `release` any more.
    unsafe {
        let owned = Box::from_raw((*array).private_data.cast::<Owned>());
        for &child in &owned.children {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*array).release = None;
    }
}
