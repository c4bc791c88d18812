//! Fields of an event's description: `config:0-7,21` in a PMU's `format` folder says where the bits of a value go.

use crate::attr::EventAttr;

/// A word of `perf_event_attr` that PMUs define.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Word {
    Config,
    Config1,
    Config2,
    Config3,
}

/// Where a field's bits are, the lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The word of `perf_event_attr` that holds the field.
    pub word: Word,
    /// First and last bit of each run.
    pub runs: Vec<(u32, u32)>,
}

impl Field {
    /// Parses the text of a file in `format`, such as `config1:0-15`; `None` if it has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Field> {
        let (word, bits) = text.trim().split_once(':')?;
        let word = match word {
            "config" => Word::Config,
            "config1" => Word::Config1,
            "config2" => Word::Config2,
            "config3" => Word::Config3,
            _ => return None,
        };
        let run = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last && last < 64).then_some((first, last))
        };
        let runs: Option<Vec<(u32, u32)>> = bits.split(',').map(run).collect();
        runs.map(|runs| Field { word, runs })
    }

    /// Bits that a value may have.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.runs.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Puts a value into an event's description; false if it has more bits than the field.
    pub fn set(&self, attr: &mut EventAttr, value: u64) -> bool {
        if self.width() < 64 && value >> self.width() != 0 {
            return false;
        }
        let word = match self.word {
            Word::Config => &mut attr.config,
            Word::Config1 => &mut attr.config1,
            Word::Config2 => &mut attr.config2,
            Word::Config3 => &mut attr.config3,
        };
        let mut rest = value;
        for &(first, last) in &self.runs {
            let width = last - first + 1;
            let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
            *word = *word & !(mask << first) | (rest & mask) << first;
            rest = rest.checked_shr(width).unwrap_or(0);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_spread_over_its_runs() {
        let field = Field::parse("config:0-7,32-35").unwrap();
        let mut attr = EventAttr { config: u64::MAX, ..EventAttr::default() };
        assert_eq!(field.width(), 12);
        assert!(field.set(&mut attr, 0xabc));
        assert_eq!(attr.config, 0xffff_fffa_ffff_ffbc);
        assert!(!field.set(&mut attr, 0x1000));
        let mut attr = EventAttr::default();
        assert!(Field::parse("config2:0").unwrap().set(&mut attr, 1));
        assert!(Field::parse("config1:0-63").unwrap().set(&mut attr, u64::MAX));
        assert_eq!((attr.config1, attr.config2), (u64::MAX, 1));
    }

    #[test]
    fn what_is_no_field_is_none() {
        for text in ["", "config", "config:", "config:64", "config:5-3", "config4:0", "config:a", "config:0-7,"] {
            assert_eq!(Field::parse(text), None, "{text:?}");
        }
    }
}
