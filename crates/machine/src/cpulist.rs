//! The kernel's list format for CPUs and nodes: `0-3,8,10-11`, also with strides (`0-31:2/8`: the first 2 of every 8).

use thiserror::Error;

/// Lists that name more ids than this are refused, so that `0-4294967295` costs no memory.
const MAX_IDS: usize = 65_536;

/// Why a list could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a list of CPU or node numbers: {why}; write it like 0-3,8,10-11")]
pub struct CpuListError {
    /// The text of the list, shortened.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

/// Reads a list; the ids come back ascending and without repeats. An empty or blank list is valid and empty.
pub fn parse_cpu_list(text: &str) -> Result<Vec<u32>, CpuListError> {
    let error = |why: String| CpuListError { text: text.chars().take(60).collect(), why };
    let number = |s: &str| {
        let valid = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        valid.then(|| s.parse::<u32>().ok()).flatten().ok_or_else(|| error(format!("{s:?} is not a number below 2^32")))
    };
    let mut ids = Vec::new();
    if text.trim().is_empty() {
        return Ok(ids);
    }
    for piece in text.trim().split(',').map(str::trim) {
        let (range, stride) = match piece.split_once(':') {
            Some((range, stride)) => (range, Some(stride)),
            None => (piece, None),
        };
        let (first, last) = match range.split_once('-') {
            Some((a, b)) => (number(a.trim())?, number(b.trim())?),
            None => (number(range)?, number(range)?),
        };
        if last < first {
            return Err(error(format!("the range {range} runs backwards: its end is below its start")));
        }
        let (used, group) = match stride.map(|s| s.split_once('/')) {
            None => (1, 1),
            Some(Some((used, group))) => (number(used)?, number(group)?),
            Some(None) => return Err(error(format!("{piece:?} has a ':' but no '/'"))),
        };
        if used == 0 || group == 0 || used > group {
            return Err(error(format!("the stride of {piece:?} must take 1 to all of each group")));
        }
        if (last - first) as usize >= MAX_IDS || ids.len() + (last - first) as usize >= MAX_IDS {
            return Err(error(format!("it names more than {MAX_IDS} ids")));
        }
        ids.extend((first..=last).filter(|id| (id - first) % group < used));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Writes ascending ids in the same format, with ranges.
pub fn format_cpu_list(ids: impl IntoIterator<Item = u32>) -> String {
    let mut out = String::new();
    let mut range: Option<(u32, u32)> = None;
    let mut flush = |range: (u32, u32)| {
        if !out.is_empty() {
            out.push(',');
        }
        match range {
            (a, b) if a == b => out.push_str(&a.to_string()),
            (a, b) => out.push_str(&format!("{a}-{b}")),
        }
    };
    for id in ids {
        range = Some(match range {
            Some((first, last)) if last.checked_add(1) == Some(id) => (first, id),
            Some(whole) => {
                flush(whole);
                (id, id)
            }
            None => (id, id),
        });
    }
    if let Some(whole) = range {
        flush(whole);
    }
    out
}

/// Writes a set of ids as the kernel's mask up to id `last`: hexadecimal words of 32 bits, the highest first and as short as `last` allows.
pub fn format_cpu_mask(ids: &[u32], last: u32) -> String {
    let words: Vec<String> = (0..=last / 32)
        .rev()
        .map(|word| {
            let bits = ids.iter().filter(|id| **id / 32 == word).fold(0u32, |bits, id| bits | 1 << (id % 32));
            let width = if word == last / 32 { (last % 32 / 4 + 1) as usize } else { 8 };
            format!("{bits:0width$x}")
        })
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(parse_cpu_list("0-3,8,10-11\n").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_cpu_list("\n").unwrap(), Vec::<u32>::new());
        assert_eq!(parse_cpu_list("0-15:2/8").unwrap(), [0, 1, 8, 9]);
        assert_eq!(parse_cpu_list("5").unwrap(), [5]);
    }

    #[test]
    fn refuses_the_rest_and_says_why() {
        for (text, part) in [
            ("3-1", "backwards"),
            ("a", "not a number"),
            ("1,,2", "not a number"),
            ("-1", "not a number"),
            ("0-4294967295", "more than"),
            ("99999999999", "below 2^32"),
            ("0-3:2", "no '/'"),
            ("0-3:0/2", "stride"),
            ("0-3:1/0", "stride"),
            ("+3", "not a number"),
        ] {
            let message = parse_cpu_list(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn masks_are_as_wide_as_the_machine() {
        assert_eq!(format_cpu_mask(&[0, 1, 5], 15), "0023");
        assert_eq!(format_cpu_mask(&[0, 32, 33], 33), "3,00000001");
        assert_eq!(format_cpu_mask(&[], 63), "00000000,00000000");
        assert_eq!(format_cpu_mask(&[64], 64), "1,00000000,00000000");
    }

    proptest! {
        #[test]
        fn writing_and_reading_returns_the_same_ids(ids in prop::collection::btree_set(0u32..5000, 0..200)) {
            let ids: Vec<u32> = ids.into_iter().collect();
            prop_assert_eq!(parse_cpu_list(&format_cpu_list(ids.iter().copied())).unwrap(), ids);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9,:/ -]{0,40}|.{0,40}") {
            let _ = parse_cpu_list(&text);
        }
    }
}
