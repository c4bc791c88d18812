//! Texts for C: every name of a trace once, ended by a zero byte, at an address that stays as long as the trace is open.

use std::collections::HashMap;
use std::ffi::{CString, c_char};

/// Where a text begins in [`Texts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextAt(u32);

/// Grows while a trace is opened, then stays.
#[derive(Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    known: HashMap<Box<str>, TextAt>,
}

impl Texts {
    /// The text's place. A text that does not fit any more (4 GiB of names) becomes the empty one.
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

    /// Ends the growing: addresses are good from now on.
    pub fn finish(mut self) -> Finished {
        if self.bytes.is_empty() {
            self.bytes.push(0);
        }
        Finished(self.bytes.into_boxed_slice())
    }
}

/// Texts that do not move any more.
pub(crate) struct Finished(Box<[u8]>);

impl Finished {
    pub fn pointer(&self, at: TextAt) -> *const c_char {
        self.0.get(at.0 as usize..).unwrap_or(&self.0).as_ptr().cast()
    }
}

/// Zero bytes, which C would take for the end, become U+FFFD.
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
