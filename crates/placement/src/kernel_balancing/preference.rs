//! The node that a task prefers, by its faults and its group's.

use numapilot_machine::NodeIndex;

use super::KernelBalancing;
use super::faults::FaultTable;

impl KernelBalancing {
    /// After a pass of its process: decays a task's faults, chooses its preferred node, adapts its scan period (`task_numa_placement`).
    pub(super) fn place_task(&mut self, thread: u32, now_ns: u64) {
        let Some(passes) = self.tasks.get(&thread).and_then(|t| self.processes.get(&t.process)).map(|p| p.passes)
        else {
            return;
        };
        let Some(task) = self.tasks.get_mut(&thread).filter(|task| task.passes != passes) else { return };
        task.passes = passes;
        let run_share = match task.placed {
            Some((time, runtime)) => (task.runtime_ns - runtime) as f64 / (now_ns.saturating_sub(time) + 1) as f64,
            None => task.load,
        };
        task.placed = Some((now_ns, task.runtime_ns));
        let before = task.faults.clone();
        let kinds = task.faults.decay(run_share.min(1.0), task.locality[0] + task.locality[1]);
        let (after, group_id) = (task.faults.clone(), task.group);
        if let Some(group) = group_id.and_then(|id| self.groups.get_mut(&id)) {
            group.faults.subtract(&before);
            group.faults.add(&after);
            group.count_active_nodes();
        }
        let group = group_id.and_then(|id| self.groups.get(&id));
        let table = group.map_or(&after, |g| &g.faults);
        let preferred = self.preferred_node(table, group.is_some());
        let max_ms = self.tasks.get(&thread).map(|task| self.period_max_ms(task));
        if let Some(task) = self.tasks.get_mut(&thread) {
            task.preferred = preferred.or(task.preferred);
            task.period_max_ms = max_ms.unwrap_or(task.period_max_ms);
        }
        self.adapt_period(thread, kinds, now_ns);
    }

    /// The node with most faults, or the nearest to it that has CPUs; for a group on a mesh, faults on near nodes count in part (`preferred_group_nid`). `None`
    /// without faults.
    fn preferred_node(&self, table: &FaultTable, is_group: bool) -> Option<NodeIndex> {
        let nodes = || NodeIndex::all(self.facts.count());
        let near = self.facts.nearest_with_cpus(first_of_most(nodes(), |node| table.memory(node))?);
        if !is_group || self.farthest.is_none() {
            return Some(near);
        }
        let with_cpus = nodes().filter(|&node| self.facts.cpus[node] > 0);
        first_of_most(with_cpus, |node| self.score(table, node)).or(Some(near))
    }

    /// Faults on a node's memory, and on a machine whose nodes are not all equally far also those of nearer nodes, the less the farther (`score_nearby_nodes`).
    pub(super) fn score(&self, table: &FaultTable, node: NodeIndex) -> i64 {
        let mut score = table.memory(node);
        let Some(farthest) = self.farthest else { return score };
        for near in NodeIndex::all(self.facts.count()).filter(|&n| n != node) {
            // A node without CPUs may be farther than any that has some: like the farthest, it counts nothing.
            let nearness = farthest.saturating_sub(self.facts.distance[node][near]);
            score += table.memory(near) * i64::from(nearness) / i64::from(farthest - 10);
        }
        score
    }
}

/// The first of the nodes with the highest score above 0.
fn first_of_most(nodes: impl Iterator<Item = NodeIndex>, score: impl Fn(NodeIndex) -> i64) -> Option<NodeIndex> {
    let mut best: Option<(NodeIndex, i64)> = None;
    for node in nodes {
        let score = score(node);
        if score > best.map_or(0, |(_, s)| s) {
            best = Some((node, score));
        }
    }
    best.map(|(node, _)| node)
}
