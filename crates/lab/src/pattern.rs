//! The known pattern (`workloads/pattern/pattern.c`), compiled for a test: a program whose first touchers and readers of each page are known.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::error::LabError;
use crate::packages;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/pattern/pattern.c");

/// Compiles it into `folder`; the program.
///
/// # Errors
/// If there is no C compiler, or it refuses.
pub fn compile_pattern(folder: &Path) -> Result<PathBuf, LabError> {
    let program = folder.join("pattern");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-g", "-pthread", "-o"]).arg(&program).arg(SOURCE);
    packages::run(&mut compiler, "compiling workloads/pattern", "Install gcc (tools/setup test does).")?;
    Ok(program)
}
