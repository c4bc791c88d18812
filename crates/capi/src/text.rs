//! Strings for C: each name of a trace is stored once, NUL-terminated, at an address that is valid while the trace is open.

use std::collections::HashMap;
use std::ffi::{CString, c_char};

/// Offset of a text in [`Texts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextAt(u32);

/// Collects the strings while a trace is being opened.
#[derive(Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    known: HashMap<Box<str>, TextAt>,
}

impl Texts {
    /// Adds a text, and returns its offset. A text beyond 4 GiB of names becomes the empty text.
    pub fn add(&mut self, text: &str) -> TextAt {
        if self.bytes.is_empty() {
            self.bytes.push(0);
        }
        if text.is_empty() {
            return TextAt(0);
        }
        if let Some(&at) = self.known.get(text) {
            return at;
        }
        let Ok(start) = u32::try_from(self.bytes.len()) else { return TextAt(0) };
        self.bytes.extend_from_slice(c_string(text).as_bytes_with_nul());
        self.known.insert(text.into(), TextAt(start));
        TextAt(start)
    }

    /// Ends the collection; the addresses are fixed from now on.
    pub fn finish(mut self) -> Finished {
        if self.bytes.is_empty() {
            self.bytes.push(0);
        }
        Finished(self.bytes.into_boxed_slice())
    }
}

/// The collected strings, at fixed addresses.
pub(crate) struct Finished(Box<[u8]>);

impl Finished {
    pub fn pointer(&self, at: TextAt) -> *const c_char {
        self.0.get(at.0 as usize..).unwrap_or(&self.0).as_ptr().cast()
    }
}

/// The text as a C string; NUL bytes in it become U+FFFD.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_else(|_| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn each_text_is_there_once_and_whole() {
        let mut texts = Texts::default();
        let (block, empty, hostile) = (texts.add("block"), texts.add(""), texts.add("a\0b"));
        assert_eq!(texts.add("block"), block);
        let texts = texts.finish();
        // SAFETY: the texts live, and each ends with a zero byte.
        let read = |at| unsafe { CStr::from_ptr(texts.pointer(at)) }.to_str().expect("UTF-8");
        assert_eq!((read(block), read(empty), read(hostile)), ("block", "", "a\u{fffd}b"));
    }
}
