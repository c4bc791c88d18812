//! The options of a policy, as written after its name: `name:key=value,key=value`. Each policy declares its options in a table with their
//! defaults, which is what is parsed, listed and documented: there is no second place.

use crate::error::PlacementError;

/// One option of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// Name of the option, as in `key=value`.
    pub key: &'static str,
    /// Default value, as it would be written.
    pub default: &'static str,
    /// Effect of the option, with its unit and the source of the default.
    pub help: &'static str,
}

impl OptionInfo {
    pub(crate) const fn new(key: &'static str, default: &'static str, help: &'static str) -> Self {
        Self { key, default, help }
    }
}

/// The options of one policy, checked to be known; unless given, an option has its default.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    policy: &'static str,
    table: Vec<OptionInfo>,
    given: Vec<(String, String)>,
}

impl Options {
    /// Reads `key=value,key=value` (or nothing) for a policy whose options are `table`.
    pub fn parse(policy: &'static str, table: Vec<OptionInfo>, text: &str) -> Result<Self, PlacementError> {
        let mut options = Self { policy, table, given: Vec::new() };
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (key, value) =
                item.split_once('=').map_or((item, None), |(key, value)| (key.trim(), Some(value.trim())));
            if !options.table.iter().any(|o| o.key == key) {
                let known = options.table.iter().map(|o| o.key).collect();
                return Err(PlacementError::UnknownOption { policy, key: key.to_owned(), known });
            }
            let Some(value) = value else {
                return Err(options.bad(key, "it has no value", format!("write `{key}=VALUE`")));
            };
            if options.given.iter().any(|(k, _)| k == key) {
                return Err(options.bad(key, "it is given twice", "keep one".to_owned()));
            }
            options.given.push((key.to_owned(), value.to_owned()));
        }
        Ok(options)
    }

    /// An error about one option.
    pub fn bad(&self, key: &str, what: impl Into<String>, remedy: String) -> PlacementError {
        PlacementError::BadOption { policy: self.policy, key: key.to_owned(), what: what.into(), remedy }
    }

    /// What an option is, as written. Only declared options may be asked for.
    pub fn text(&self, key: &str) -> &str {
        let given = self.given.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str());
        given.or_else(|| self.table.iter().find(|o| o.key == key).map(|o| o.default)).unwrap_or_default()
    }

    /// A number between two bounds, both allowed.
    pub fn number(&self, key: &str, min: f64, max: f64) -> Result<f64, PlacementError> {
        let text = self.text(key);
        match text.parse::<f64>() {
            Ok(value) if value >= min && value <= max => Ok(value),
            _ => Err(self.bad(
                key,
                format!("{text:?} is not a number from {min} to {max}"),
                format!("give such a number, as in `{key}={min}`"),
            )),
        }
    }

    /// A whole number between two bounds, both allowed.
    pub fn whole(&self, key: &str, min: u64, max: u64) -> Result<u64, PlacementError> {
        let text = self.text(key);
        match text.parse::<u64>() {
            Ok(value) if value >= min && value <= max => Ok(value),
            _ => Err(self.bad(
                key,
                format!("{text:?} is not a whole number from {min} to {max}"),
                format!("give such a number, as in `{key}={min}`"),
            )),
        }
    }

    /// Value of a switch: true for `on`, false for `off`.
    pub fn flag(&self, key: &str) -> Result<bool, PlacementError> {
        Ok(self.choice(key, &["on", "off"])? == "on")
    }

    /// Value of an option that takes one of several words.
    pub fn choice<'a>(&self, key: &str, words: &[&'a str]) -> Result<&'a str, PlacementError> {
        let text = self.text(key);
        words.iter().find(|word| **word == text).copied().ok_or_else(|| {
            self.bad(key, format!("{text:?} is not known"), format!("it is one of: {}", words.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, PlacementError> {
        let table = vec![OptionInfo::new("speed", "7", "how fast"), OptionInfo::new("mode", "on", "whether")];
        Options::parse("test", table, text)
    }

    #[test]
    fn given_values_stand_over_defaults() {
        let options = parse("speed=9").expect("valid");
        assert_eq!((options.whole("speed", 0, 10), options.flag("mode")), (Ok(9), Ok(true)));
        assert_eq!(parse("").expect("valid").number("speed", 0.0, 10.0), Ok(7.0));
    }

    #[test]
    fn errors_name_the_option_and_what_it_takes() {
        let message = |text: &str| parse(text).expect_err("invalid").to_string();
        assert!(message("sped=1").contains("no option \"sped\"; it takes: speed, mode"), "{}", message("sped=1"));
        assert!(message("speed").contains("write `speed=VALUE`"), "{}", message("speed"));
        assert!(message("speed=1,speed=2").contains("given twice"), "{}", message("speed=1,speed=2"));
        let range = parse("speed=11").expect("known key").whole("speed", 0, 10).expect_err("out of range").to_string();
        assert!(range.contains("\"11\" is not a whole number from 0 to 10"), "{range}");
        let nan = parse("speed=NaN").expect("known key").number("speed", 0.0, 10.0);
        assert!(nan.is_err(), "NaN is not a number");
        let word = parse("mode=maybe").expect("known key").flag("mode").expect_err("not a word").to_string();
        assert!(word.contains("one of: on, off"), "{word}");
    }
}
