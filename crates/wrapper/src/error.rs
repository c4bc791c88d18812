//! Why nothing was compiled.

use std::io;
use std::path::PathBuf;

/// Why nothing was compiled. The compiler's own errors are its own.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// No compiler was found.
    #[error("found no compiler ({tried} are not on PATH): install one, or name it in {variable}")]
    NoCompiler {
        /// Names that were looked for on PATH.
        tried: String,
        /// Environment variable that overrides them.
        variable: &'static str,
    },
    /// The compiler is a script that calls numapilot.
    #[error("{variable} or PATH leads back to numapilot itself: name the real compiler in {variable}")]
    Loop {
        /// Environment variable that names the real one.
        variable: &'static str,
    },
    /// No assembler was found.
    #[error("found no assembler (as is not on PATH): install binutils, or leave out --after-optimisation")]
    NoAssembler,
    /// The compiler's assembly cannot be read, or written to a temporary file.
    #[error("cannot add call-outs to the assembly: {source} (TMPDIR names the folder for temporary files)")]
    Assembly {
        /// The system's error.
        source: io::Error,
    },
    /// The compiler cannot be run.
    #[error("cannot run the compiler {}: {source}", path.display())]
    CannotRun {
        /// Path of the compiler.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `-static`, `-static-pie`, `-Wl,-static`.
    #[error(
        "{option}: a statically linked program cannot be recorded, because the tracker is preloaded by the dynamic loader; \
         link it dynamically (-static-libgcc and -static-libstdc++ may stay)"
    )]
    Static {
        /// The option.
        option: String,
    },
    /// Another user of the same call-outs, or of the same hooks.
    #[error("{option} cannot be combined with numapilot's instrumentation: leave it out of this build")]
    Sanitizer {
        /// The option.
        option: String,
    },
    /// A support file could not be written or read.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The archive could not be unpacked.
    #[error(transparent)]
    Archive(#[from] numapilot_runtime::UnpackError),
}
