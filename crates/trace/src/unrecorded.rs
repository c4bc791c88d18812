//! The program that did most of a recording's work while the tracker could not be loaded into it: what was recorded then is of other programs, such as the
//! shell that started it. It is stored in `meta.json` under `unrecorded_program`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Key in `meta.json`.
pub const KEY: &str = "unrecorded_program";

/// Such a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnrecordedProgram {
    /// Path of its file.
    pub path: String,
    /// Its share of the processor time that was seen, 0 to 1: of all processes of the recording. A lower bound, where processes that ended used more.
    pub share: f64,
    /// Why the tracker could not be loaded, as a clause.
    pub reason: String,
    /// What to do so that it can be, as a clause.
    pub remedy: String,
}

impl UnrecordedProgram {
    /// Reads it from the additional fields `more` of `meta.json`; `None` if there is none, and in older recordings.
    #[must_use]
    pub fn read(more: &serde_json::Map<String, Value>) -> Option<UnrecordedProgram> {
        more.get(KEY).and_then(|found| serde_json::from_value(found.clone()).ok())
    }

    /// Its file name, without the folder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written() {
        let program = UnrecordedProgram { path: "/srv/table".to_owned(), share: 0.5, ..UnrecordedProgram::default() };
        let more = serde_json::Map::from_iter([(KEY.to_owned(), serde_json::json!(program))]);
        assert_eq!(UnrecordedProgram::read(&more), Some(program));
        let none = serde_json::Map::from_iter([(KEY.to_owned(), Value::Null)]);
        assert_eq!((UnrecordedProgram::read(&none), UnrecordedProgram::read(&serde_json::Map::new())), (None, None));
    }
}
