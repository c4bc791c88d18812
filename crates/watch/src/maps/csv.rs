//! A process's memory as CSV: a line per object and node, so that the columns are the same on every machine (RFC 4180).

use std::fmt::Write;

use numapilot_text::csv::quoted;
use numapilot_text::csv::text;

use super::MemoryMap;
use super::object::Object;

/// The heading line.
#[must_use]
pub fn csv_heading() -> &'static str {
    "time_s,pid,process,kind,name,policy,start,mappings,mapped_bytes,node,pages,bytes,is_far\n"
}

/// One line per object and node; `time_s`: seconds since the start of watching.
#[must_use]
pub fn csv(map: &MemoryMap, objects: &[Object], time_s: f64) -> String {
    let mut out = String::new();
    for object in objects {
        let mapped_bytes = if object.lacks_sizes { String::new() } else { object.mapped_bytes.to_string() };
        for (node, bytes) in &object.bytes_by_node {
            let pages = object.pages_by_node.get(node).copied().unwrap_or(0);
            let _ = writeln!(
                out,
                "{time_s:.3},{},{},{},{},{},{:#x},{},{mapped_bytes},{node},{pages},{bytes},{}",
                map.pid,
                text(&map.name),
                object.kind.word(),
                text(&object.name),
                quoted(&object.policy),
                object.start.0,
                object.areas,
                u8::from(map.is_far(*node)),
            );
        }
    }
    out
}
