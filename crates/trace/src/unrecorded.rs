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
    /// Reads it from the additional fields `more` of `meta.json`; `None` if there is none, in older recordings, and where its share is none.
    #[must_use]
    pub fn read(more: &serde_json::Map<String, Value>) -> Option<UnrecordedProgram> {
        let program: UnrecordedProgram = serde_json::from_value(more.get(KEY)?.clone()).ok()?;
        (0.0..=1.0).contains(&program.share).then_some(program)
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
        let hostile = serde_json::json!({ "path": "/a", "share": 1e300, "reason": "", "remedy": "" });
        for none in [Value::Null, serde_json::json!({ "path": "/a" }), serde_json::json!("/a"), hostile] {
            let more = serde_json::Map::from_iter([(KEY.to_owned(), none)]);
            assert_eq!(UnrecordedProgram::read(&more), None);
        }
        assert_eq!(UnrecordedProgram::read(&serde_json::Map::new()), None);
    }
}
