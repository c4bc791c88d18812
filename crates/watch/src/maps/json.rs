//! A process's memory as JSON, exact to the page.

use numapilot_machine::NodeId;
use serde_json::Value;
use serde_json::json;

use super::MemoryMap;
use super::object::Object;

/// A process's memory, with `objects` in their order.
#[must_use]
pub fn json(map: &MemoryMap, objects: &[Object]) -> Value {
    let by_node = |values: &mut dyn Iterator<Item = (NodeId, Value)>| -> Value {
        values.map(|(node, value)| (node.to_string(), value)).collect::<serde_json::Map<_, _>>().into()
    };
    let row = |object: &Object| {
        let sized = |bytes: u64| (!object.lacks_sizes).then_some(bytes);
        json!({
            "kind": object.kind.word(), "name": object.name, "policy": object.policy, "start": format!("{:#x}", object.start.0),
            "mappings": object.areas, "mapped_bytes": sized(object.mapped_bytes), "bytes": object.bytes(),
            "page_bytes": (object.page_bytes > 0).then_some(object.page_bytes),
            "pages": by_node(&mut object.pages_by_node.iter().map(|(node, pages)| (*node, json!(pages)))),
            "bytes_by_node": by_node(&mut object.bytes_by_node.iter().map(|(node, bytes)| (*node, json!(bytes)))),
            "huge_bytes": sized(object.huge_bytes), "swapped_bytes": sized(object.swapped_bytes), "far_bytes": object.far_bytes,
        })
    };
    json!({
        "pid": map.pid, "name": map.name, "threads": map.threads,
        "cpu_time_share": by_node(&mut map.runs_on.iter().map(|(node, share)| (*node, json!(share)))),
        "far_nodes": map.far_nodes,
        "total": {
            "bytes_by_node": by_node(&mut map.nodes.iter().copied().zip(map.bytes_by_node().into_iter().map(|bytes| json!(bytes)))),
            "bytes": map.bytes_by_node().iter().sum::<u64>(), "far_bytes": map.far_bytes(),
        },
        "objects": objects.iter().map(row).collect::<Vec<_>>(),
        "notes": map.notes,
    })
}
