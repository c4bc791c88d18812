//! Placing tasks: where to run one that would rather be on another node, alone or in exchange (`task_numa_migrate`).

use numapilot_machine::NodeIndex;

use super::KernelBalancing;
use super::loads::NodeLoads;

/// Improvements below this are not worth an exchange of tasks (`SMALLIMP`; the greatest is 1998, or an eighth more where a task comes to its preferred node).
const SMALL_IMPROVEMENT: i64 = 30;

/// A way to move a task: alone, or in exchange for another.
#[derive(Clone, Copy, Debug)]
struct Way {
    improvement: i64,
    to: NodeIndex,
    exchange: Option<u32>,
}

impl KernelBalancing {
    /// Thousandths of a task's faults on a node (`task_weight`).
    fn task_weight(&self, thread: u32, node: NodeIndex) -> i64 {
        let Some(task) = self.tasks.get(&thread).filter(|t| t.faults.total > 0) else { return 0 };
        1000 * self.score(&task.faults, node) / task.faults.total
    }

    /// Thousandths of its group's faults on a node (`group_weight`); 0 outside groups.
    fn group_weight(&self, thread: u32, node: NodeIndex) -> i64 {
        let group = self.tasks.get(&thread).and_then(|t| t.group).and_then(|id| self.groups.get(&id));
        group.filter(|g| g.faults.total > 0).map_or(0, |g| 1000 * self.score(&g.faults, node) / g.faults.total)
    }

    /// The moves that bring a task to its preferred node or another better one; empty if there is none. Sets the preferred node of a task in a group to where
    /// it ends, so that the group settles.
    pub(super) fn migrate_task(
        &mut self,
        thread: u32,
        preferred: NodeIndex,
        loads: &NodeLoads,
    ) -> Vec<(u32, NodeIndex)> {
        let Some(from) = self.tasks.get(&thread).map(|t| t.node) else { return Vec::new() };
        let group = self.tasks.get(&thread).and_then(|t| t.group);
        let is_spread = group.and_then(|id| self.groups.get(&id)).is_some_and(|g| g.active_nodes > 1);
        let mut best = self.find_way(thread, from, preferred, loads, None);
        if best.is_none() || is_spread {
            let others = NodeIndex::all(self.facts.count()).filter(|&n| n != from && n != preferred);
            for node in others.filter(|&n| self.facts.cpus[n] > 0) {
                let (task_gain, group_gain) = self.gains(thread, from, node);
                if task_gain >= 0 || group_gain >= 0 {
                    best = self.find_way(thread, from, node, loads, best);
                }
            }
        }
        if let (Some(_), Some(task)) = (group, self.tasks.get_mut(&thread)) {
            task.preferred = Some(best.map_or(from, |way| way.to));
        }
        let Some(way) = best else { return Vec::new() };
        let mut moves = vec![(thread, way.to)];
        moves.extend(way.exchange.map(|other| (other, from)));
        moves
    }

    /// What a task and its group gain by the task's going from one node to another.
    fn gains(&self, thread: u32, from: NodeIndex, to: NodeIndex) -> (i64, i64) {
        (
            self.task_weight(thread, to) - self.task_weight(thread, from),
            self.group_weight(thread, to) - self.group_weight(thread, from),
        )
    }

    /// The best way onto one node, if better than `best` (`task_numa_find_cpu`, `task_numa_compare`). What counts is also whether the other task is on its
    /// preferred node, or comes to it (Linux 5.7).
    fn find_way(
        &self,
        thread: u32,
        from: NodeIndex,
        to: NodeIndex,
        loads: &NodeLoads,
        best: Option<Way>,
    ) -> Option<Way> {
        let task = self.tasks.get(&thread)?;
        if self.facts.cpus[to] == 0 {
            return best;
        }
        let (task_gain, group_gain) = self.gains(thread, from, to);
        let alone = if task.group.is_some() { group_gain } else { task_gain };
        let may_move = !loads.too_imbalanced(from, to, task.load);
        let mut best = best;
        let standing = |best: &Option<Way>| best.map_or(0, |way| way.improvement);
        if loads.has_idle_cpu(to) && may_move && alone >= standing(&best) {
            best = Some(Way { improvement: alone, to, exchange: None });
        }
        for (&other, peer) in self.tasks.iter().filter(|(_, peer)| peer.node == to && peer.load > 0.0) {
            // Tasks that come to their preferred node go before others.
            let comes_home = peer.preferred == Some(from);
            let rival = best.and_then(|way| way.exchange).and_then(|rival| self.tasks.get(&rival));
            let rival_comes_home = rival.map(|rival| rival.preferred == Some(from));
            if rival_comes_home == Some(true) && !comes_home {
                continue;
            }
            let improvement = match self.exchange_gain(thread, other, from, to, task_gain, alone) {
                gain if peer.preferred == Some(to) => gain - gain / 16,
                gain if comes_home => gain + gain / 8,
                gain => gain,
            };
            if may_move && alone > improvement && alone > standing(&best) {
                best = Some(Way { improvement: alone, to, exchange: None });
                continue;
            }
            if comes_home && rival_comes_home == Some(false) {
                best = Some(Way { improvement, to, exchange: Some(other) });
                continue;
            }
            let too_small = improvement < SMALL_IMPROVEMENT || improvement <= standing(&best) + SMALL_IMPROVEMENT / 2;
            let shift = task.load - peer.load;
            if !too_small && (shift == 0.0 || !loads.too_imbalanced(from, to, shift)) {
                best = Some(Way { improvement, to, exchange: Some(other) });
            }
        }
        best
    }

    /// What the exchange of two tasks improves: by their own faults within a group, else by their groups'.
    fn exchange_gain(
        &self,
        thread: u32,
        other: u32,
        from: NodeIndex,
        to: NodeIndex,
        task_gain: i64,
        alone: i64,
    ) -> i64 {
        let group = |thread: u32| self.tasks.get(&thread).and_then(|t| t.group);
        let (back_task, back_group) = self.gains(other, to, from);
        match (group(thread), group(other)) {
            (mine, theirs) if mine == theirs => {
                let gain = task_gain + back_task;
                // Some hysteresis against exchanges within a group over tiny differences.
                if mine.is_some() { gain - gain / 16 } else { gain }
            }
            (Some(_), Some(_)) => alone + back_group,
            _ => alone + back_task,
        }
    }
}
