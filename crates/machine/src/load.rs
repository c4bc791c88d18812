//! The ways to a [`Machine`]: by name, from the running system, from model files. Beside the machine, because the readers make machines.

use std::path::Path;

use crate::error::MachineError;
use crate::hardware::MachineSource;
use crate::machine::Machine;
use crate::{builtin, model, sysfs};

impl Machine {
    /// The machine called `spec`: `live`, the name of a built-in model, or the path of a model file. What holds a `/` or ends in
    /// `.toml` is a path; anything else is first looked for among the built-in names.
    pub fn load(spec: &str) -> Result<Self, MachineError> {
        if spec == "live" {
            return Self::live();
        }
        if !spec.contains('/') && !spec.ends_with(".toml") {
            if let Some(text) = builtin::builtin_text(spec) {
                return model::read(text, &format!("built-in model {spec}"), MachineSource::Builtin);
            }
            if !Path::new(spec).is_file() {
                return Err(builtin::unknown(spec));
            }
        }
        Self::from_model_file(Path::new(spec))
    }

    /// Reads the running system from `/sys` and `/proc`.
    pub fn live() -> Result<Self, MachineError> {
        Self::from_sysfs(Path::new("/"))
    }

    /// The system whose `/sys` and `/proc` lie under `root`.
    pub fn from_sysfs(root: &Path) -> Result<Self, MachineError> {
        sysfs::read(root)
    }

    /// The machine that a model file describes.
    pub fn from_model_file(path: &Path) -> Result<Self, MachineError> {
        model::read_file(path)
    }

    /// The machine that the text of a model file describes; `file` is what errors call it.
    pub fn from_model_text(text: &str, file: &str) -> Result<Self, MachineError> {
        model::read(text, file, MachineSource::Model { path: file.into() })
    }
}
