//! Converts orders and outcomes into events of the journal. Pure.

use std::collections::BTreeMap;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::NodeId;
use numapilot_placement::Action as Order;
use numapilot_placement::PageKey;

use crate::event::Batch;
use crate::event::PageDecision;
use crate::event::SeenFrom;
use crate::event::ThreadOrder;
use crate::evidence::table::Known;

/// The page of an order; `None`: the order is not about a page.
fn page_of(order: &Order) -> Option<PageKey> {
    match order {
        Order::Migrate { page, .. } | Order::Replicate { page, .. } | Order::Split { page } => Some(*page),
        Order::Allocate { .. } | Order::MoveThread { .. } | Order::Unmap { .. } | Order::ClearAccessed { .. } => None,
    }
}

/// What the journal calls an order about a page. `home`: the page's present home node.
fn decision_of(order: &Order, home: Option<NodeId>, ids: &[NodeId]) -> Option<PageDecision> {
    match order {
        Order::Migrate { to, .. } => Some(PageDecision::Move { from: home, to: ids[*to] }),
        Order::Replicate { nodes, .. } => {
            Some(PageDecision::Copy { nodes: nodes.iter().map(|node| ids[*node]).collect() })
        }
        Order::Split { .. } => Some(PageDecision::Split),
        Order::Allocate { .. } | Order::MoveThread { .. } | Order::Unmap { .. } | Order::ClearAccessed { .. } => None,
    }
}

/// Gathers orders about pages into ranges with the same order. `pid_of` returns the process id of a policy's process number, `known` the evidence about a page.
pub fn batches(
    orders: &[Order],
    ids: &[NodeId],
    pid_of: impl Fn(u32) -> Pid,
    known: impl Fn(&PageKey) -> Option<Known>,
) -> Vec<Batch> {
    let mut sorted: Vec<(&Order, PageKey)> = orders.iter().filter_map(|order| Some((order, page_of(order)?))).collect();
    sorted.sort_by_key(|(_, page)| *page);
    let mut out: Vec<Batch> = Vec::new();
    for (order, page) in sorted {
        let known = known(&page);
        let home = known.as_ref().and_then(|known| known.home).map(|home| ids[home]);
        let Some(ordered) = decision_of(order, home, ids) else { continue };
        let seen = seen_from(known.as_ref(), ids);
        let (pid, first, page_bytes) = (pid_of(page.process), page.page.address(), page.size.bytes());
        match out.last_mut() {
            Some(last)
                if last.pid == pid && last.end() == first && last.page_bytes == page_bytes && last.order == ordered =>
            {
                last.pages += 1;
                add(&mut last.seen, &seen);
            }
            _ => out.push(Batch {
                pid,
                first,
                pages: 1,
                page_bytes,
                order: ordered,
                seen,
                because: String::new(),
                predicted_gain_ns_per_s: None,
            }),
        }
    }
    out
}

fn seen_from(known: Option<&Known>, ids: &[NodeId]) -> Vec<SeenFrom> {
    let users = known.map_or(&[][..], |known| &known.users);
    users.iter().map(|(node, count)| SeenFrom { node: ids[*node], reads: f64::from(*count), writes: 0.0 }).collect()
}

fn add(sums: &mut Vec<SeenFrom>, more: &[SeenFrom]) {
    for seen in more {
        match sums.iter_mut().find(|sum| sum.node == seen.node) {
            Some(sum) => sum.reads += seen.reads,
            None => sums.push(*seen),
        }
    }
}

/// Converts orders about threads. `task_of` returns process id and thread id of a policy's thread number.
pub fn threads(orders: &[Order], ids: &[NodeId], task_of: impl Fn(u32) -> Option<(Pid, Tid)>) -> Vec<ThreadOrder> {
    let order = |order: &Order| match order {
        Order::MoveThread { thread, to } => {
            let (pid, tid) = task_of(*thread)?;
            Some(ThreadOrder { pid, tid: Some(tid), nodes: vec![ids[*to]], because: String::new() })
        }
        _ => None,
    };
    orders.iter().filter_map(order).collect()
}

/// Gathers pages that are held back because they moved back and forth into ranges: first page, number of pages, most bounces, longest rest.
pub fn ranges_left_alone(pages: BTreeMap<PageKey, (u8, u32)>) -> Vec<(PageKey, u64, u8, u32)> {
    let mut out: Vec<(PageKey, u64, u8, u32)> = Vec::new();
    for (page, (bounces, rest)) in pages {
        match out.last_mut() {
            Some((first, count, most, longest))
                if first.process == page.process
                    && first.size == page.size
                    && page.page == first.page + *count * page.size.small_pages() =>
            {
                *count += 1;
                *most = (*most).max(bounces);
                *longest = (*longest).max(rest);
            }
            _ => out.push((page, 1, bounces, rest)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    //! Adjacent pages with the same order are one batch.

    use numapilot_host::PageNumber;
    use numapilot_machine::NodeIndex;
    use numapilot_placement::PageSize;

    use super::*;

    fn page(page: u64) -> PageKey {
        PageKey { process: 5, page: PageNumber(page), size: PageSize::Small }
    }

    #[test]
    fn neighbours_with_one_order_are_one_batch_with_their_evidence() {
        let ids = [NodeId(0), NodeId(2)];
        let orders: Vec<Order> =
            [12, 10, 11, 20].map(|number| Order::Migrate { page: page(number), to: NodeIndex(1) }).into();
        let known = |page: &PageKey| {
            Some(Known { users: vec![(NodeIndex(1), 3)], home: (page.page.0 < 20).then_some(NodeIndex(0)), bounces: 0 })
        };
        let told = batches(&orders, &ids, |_| Pid(77), known);
        assert_eq!(told.len(), 2);
        assert_eq!((told[0].pid, told[0].first, told[0].pages), (Pid(77), 10 * 4096, 3));
        assert_eq!(told[0].order, PageDecision::Move { from: Some(NodeId(0)), to: NodeId(2) });
        assert_eq!(told[0].seen, [SeenFrom { node: NodeId(2), reads: 9.0, writes: 0.0 }]);
        assert_eq!(told[1].order, PageDecision::Move { from: None, to: NodeId(2) });
        let moves = [3, 4].map(|thread| Order::MoveThread { thread, to: NodeIndex(1) });
        let told = threads(&moves, &ids, |thread| (thread == 3).then_some((Pid(77), Tid(78))));
        assert_eq!((told.len(), told[0].tid, told[0].nodes.clone()), (1, Some(Tid(78)), vec![NodeId(2)]));
    }

    /// Whatever was neither a move nor a copy was recorded as split.
    #[test]
    fn each_order_about_a_page_is_recorded_as_what_it_is() {
        let ids = [NodeId(0), NodeId(2)];
        let orders = [
            Order::Split { page: page(10) },
            Order::Replicate { page: page(20), nodes: vec![NodeIndex(0), NodeIndex(1)] },
            Order::MoveThread { thread: 3, to: NodeIndex(1) },
            Order::Unmap { process: 5, first: PageNumber(30), pages: 2 },
        ];
        let told: Vec<PageDecision> =
            batches(&orders, &ids, |_| Pid(77), |_| None).into_iter().map(|batch| batch.order).collect();
        assert_eq!(told, [PageDecision::Split, PageDecision::Copy { nodes: vec![NodeId(0), NodeId(2)] }]);
    }

    #[test]
    fn ranges_left_alone_are_gathered() {
        let pages = [(page(1), (2, 10)), (page(2), (3, 5)), (page(9), (2, 1))].into_iter().collect();
        assert_eq!(ranges_left_alone(pages), [(page(1), 2, 3, 10), (page(9), 1, 2, 1)]);
    }
}
