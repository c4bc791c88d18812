//! The memory of nodes after a reading that may have failed: unknown is not none.

use std::io;

use numapilot_kernel::KernelError;
use numapilot_kernel::actuator::free_memory::NodeMemory;
use numapilot_machine::Node;

/// A node's memory after a reading, and what to tell of it, as a clause. A node that went offline has none. Where its file cannot be read, its memory is that
/// of the reading before; without one, it is as large as at the start, and none of it is known to be free.
#[must_use]
pub fn after(
    reading: Result<NodeMemory, KernelError>,
    node: &Node,
    before: NodeMemory,
) -> (NodeMemory, Option<String>) {
    let error = match reading {
        Ok(memory) => return (memory, None),
        Err(KernelError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return (NodeMemory::default(), None);
        }
        Err(error) => error,
    };
    let told = |taken: &str| Some(format!("the free memory of node {} cannot be read ({error}): {taken}", node.id));
    if before.total_bytes > 0 {
        return (before, told("what was read before is taken for it"));
    }
    let full = NodeMemory { total_bytes: node.memory_bytes, ..NodeMemory::default() };
    (full, told("it is taken for full"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use numapilot_machine::Machine;

    use super::*;

    /// A node whose file could not be read seemed to have lost all its memory.
    #[test]
    fn memory_that_cannot_be_read_is_not_gone() {
        let machine = Machine::load("xeon-2s").unwrap();
        let node = &machine.nodes()[1];
        let failed = |number: i32| {
            let source = io::Error::from_raw_os_error(number);
            Err(KernelError::File { path: PathBuf::from("/sys/devices/system/node/node1/meminfo"), source })
        };
        let before = NodeMemory { total_bytes: 7 << 30, free_bytes: 5 << 30, ..NodeMemory::default() };
        assert_eq!(after(Ok(before), node, NodeMemory::default()), (before, None));
        let (memory, told) = after(failed(libc::EIO), node, before);
        assert_eq!(memory, before);
        assert!(told.is_some_and(|what| what.contains("node 1") && what.contains("meminfo")));
        let (memory, told) = after(failed(libc::EACCES), node, NodeMemory::default());
        assert_eq!((memory.total_bytes, memory.free_bytes), (node.memory_bytes, 0));
        assert!(told.is_some_and(|what| what.ends_with("it is taken for full")));
        assert_eq!(after(failed(libc::ENOENT), node, before), (NodeMemory::default(), None), "it went offline");
    }
}
