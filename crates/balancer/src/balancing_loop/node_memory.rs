//! The memory of nodes, which the loop reads again and again for its policy and its status.

use super::Balancer;
use crate::control_port::ControlPort;
use crate::system::node_memory::after;

impl Balancer {
    /// Reads the memory of all nodes, and tells of those whose memory cannot be read.
    pub(super) fn read_memory(&mut self, control_port: &mut dyn ControlPort) {
        let mut unread = Vec::new();
        for (node, memory) in self.machine.nodes().iter().zip(&mut self.memory) {
            let (now, trouble) = after(self.free_memory.of_node(node.id), node, *memory);
            *memory = now;
            match trouble {
                None => self.known_memory.insert(node.id),
                Some(_) => self.known_memory.remove(&node.id),
            };
            unread.extend(trouble);
        }
        unread.into_iter().for_each(|what| self.trouble(what, control_port));
    }
}
