//! The built-in machine models, and the error for an unknown name.

use crate::error::MachineError;

macro_rules! models {
    ($($name:literal),* $(,)?) => {
        const MODELS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../../models/", $name, ".toml")))),*];
    };
}

models!(
    "opteron-8385",
    "memprof-a",
    "memprof-b",
    "memprof-c",
    "x1-32xlarge",
    "epyc-2s-nps1",
    "epyc-2s-nps4",
    "xeon-2s",
    "xeon-2s-snc2",
    "xeon-2s-snc4",
    "xeon-2s-cxl",
    "xeon-max-flat",
);

/// Names of the built-in models.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|(name, _)| *name)
}

/// The text of a built-in model's file.
pub fn builtin_text(name: &str) -> Option<&'static str> {
    MODELS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The error for a name that is no model's.
pub fn unknown(name: &str) -> MachineError {
    let known: Vec<String> = builtin_names().map(str::to_owned).collect();
    let short: String = name.chars().take(100).collect();
    let nearest = known.iter().chain(std::iter::once(&"live".to_owned())).map(|k| (edits(&short, k), k.clone())).min();
    let prefix = known.iter().find(|k| !short.is_empty() && k.starts_with(&short)).cloned();
    let closest = prefix.or_else(|| nearest.filter(|(d, k)| *d <= k.len() / 3).map(|(_, k)| k));
    MachineError::UnknownName { name: short, closest, known }
}

/// The Levenshtein distance of two names, in edits.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, MachineSource};

    #[test]
    fn every_model_loads_by_its_own_name() {
        for name in builtin_names() {
            let machine = Machine::load(name).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(machine.name(), name);
            assert_eq!(*machine.source(), MachineSource::Builtin);
        }
    }

    #[test]
    fn every_file_in_models_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|f| f.unwrap().file_name().to_str()?.strip_suffix(".toml").map(str::to_owned))
            .collect();
        let mut names: Vec<String> = builtin_names().map(str::to_owned).collect();
        files.sort();
        names.sort();
        assert_eq!(files, names);
    }

    #[test]
    fn an_unknown_name_lists_the_known_and_the_closest() {
        let message = Machine::load("opteron-8358").unwrap_err().to_string();
        assert!(message.contains("did you mean \"opteron-8385\"?") && message.contains("xeon-2s-cxl"), "{message}");
        let message = Machine::load("epyc-2s").unwrap_err().to_string();
        assert!(message.contains("did you mean \"epyc-2s-nps1\"?"), "{message}");
        let message = Machine::load("cray").unwrap_err().to_string();
        assert!(!message.contains("did you mean"), "{message}");
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("live", "live"), 0);
    }
}
