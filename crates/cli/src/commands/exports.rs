//! The files that a report is written to besides standard output: pictures, profiles, tables.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use numapilot_report::export::Export;
use numapilot_report::export::ExportError;
use numapilot_report::pictures;
use numapilot_report::pictures::View;

use crate::args::ExportArgs;
use crate::output;

/// Writes every file that the arguments name. Returns a line for each, to print after the report. `of_heap`: a profile for pprof is of the heap and not of
/// accesses.
pub fn write(arguments: &ExportArgs, export: &Export<'_>, of_heap: bool) -> Result<Vec<String>> {
    let mut written = Vec::new();
    if let Some(path) = &arguments.svg {
        // Of a recording without accesses, the picture that shows something.
        let view = arguments.view.unwrap_or(if of_heap { View::Heap } else { View::Traffic });
        let picture = pictures::svg(view, export)?;
        save("Picture", path, &mut written, |out| Ok(out.write_all(picture.as_bytes())?))?;
    }
    if let Some(path) = &arguments.pprof {
        save("pprof", path, &mut written, |out| if of_heap { export.pprof_heap(out) } else { export.pprof(out) })?;
    }
    if let Some(path) = &arguments.firefox {
        save("Firefox", path, &mut written, |out| {
            if path.extension().is_none_or(|extension| extension != "gz") {
                return export.firefox(out);
            }
            let mut encoder = GzEncoder::new(out, Compression::fast());
            export.firefox(&mut encoder)?;
            encoder.finish()?;
            Ok(())
        })?;
    }
    if let (Some(path), Some(table)) = (&arguments.csv, arguments.table) {
        save("Table", path, &mut written, |out| export.csv(table, out))?;
    }
    Ok(written)
}

fn save(
    what: &str,
    path: &Path,
    written: &mut Vec<String>,
    write: impl FnOnce(&mut dyn Write) -> Result<(), ExportError>,
) -> Result<()> {
    output::write_with(path, |out| write(out).map_err(anyhow::Error::from))
        .with_context(|| format!("{}: cannot be written", path.display()))?;
    written.push(format!("{what}: {}", path.display()));
    Ok(())
}
