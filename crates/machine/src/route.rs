//! Paths through directed links: all shortest, or all widest, between every two nodes. Works on bare vertex numbers
//! (nodes first, routers after them), so that it can be tested on random graphs.

use std::collections::VecDeque;

use crate::ids::LinkId;

/// Greatest number of equal paths per pair: enough to spread traffic, bounded on hypercubes.
pub const MAX_PATHS: usize = 16;

/// A directed edge between vertices; its index in the graph is the link's id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub bandwidth: f64,
}

/// A directed multigraph with its adjacency both ways.
pub struct Graph {
    edges: Vec<Edge>,
    outgoing: Vec<Vec<usize>>,
    incoming: Vec<Vec<usize>>,
}

impl Graph {
    /// A graph of `vertices` vertices. Every edge's ends must be below that.
    pub fn new(vertices: usize, edges: Vec<Edge>) -> Self {
        let mut outgoing = vec![Vec::new(); vertices];
        let mut incoming = vec![Vec::new(); vertices];
        for (index, edge) in edges.iter().enumerate() {
            outgoing[edge.from].push(index);
            incoming[edge.to].push(index);
        }
        Self { edges, outgoing, incoming }
    }

    /// All paths of fewest links, at most [`MAX_PATHS`], in ascending order of link ids; none if there is no way.
    pub fn shortest(&self, from: usize, to: usize) -> Vec<Vec<LinkId>> {
        self.shortest_over(from, to, 0.0)
    }

    /// All paths whose narrowest link is as wide as can be, and of those the ones with fewest links.
    pub fn widest(&self, from: usize, to: usize) -> Vec<Vec<LinkId>> {
        match self.width(from, to) {
            Some(width) => self.shortest_over(from, to, width),
            None => Vec::new(),
        }
    }

    /// Hops from every vertex to `to` over links of at least `width`.
    fn hops_to(&self, to: usize, width: f64) -> Vec<Option<u32>> {
        let mut hops = vec![None; self.outgoing.len()];
        hops[to] = Some(0u32);
        let mut queue = VecDeque::from([(to, 0)]);
        while let Some((vertex, distance)) = queue.pop_front() {
            for &index in &self.incoming[vertex] {
                let edge = self.edges[index];
                if edge.bandwidth >= width && hops[edge.from].is_none() {
                    hops[edge.from] = Some(distance + 1);
                    queue.push_back((edge.from, distance + 1));
                }
            }
        }
        hops
    }

    fn shortest_over(&self, from: usize, to: usize, width: f64) -> Vec<Vec<LinkId>> {
        let hops = self.hops_to(to, width);
        let Some(length) = hops[from] else { return Vec::new() };
        let mut paths = Vec::new();
        let mut path = Vec::with_capacity(length as usize);
        self.extend(from, length, width, &hops, &mut path, &mut paths);
        paths
    }

    /// Depth-first along links that come one hop nearer. Never a dead end, so the bound on paths bounds the time too.
    fn extend(
        &self,
        vertex: usize,
        left: u32,
        width: f64,
        hops: &[Option<u32>],
        path: &mut Vec<LinkId>,
        paths: &mut Vec<Vec<LinkId>>,
    ) {
        if left == 0 {
            paths.push(path.clone());
            return;
        }
        for &index in &self.outgoing[vertex] {
            if paths.len() == MAX_PATHS {
                return;
            }
            let edge = self.edges[index];
            if edge.bandwidth >= width && hops[edge.to] == Some(left - 1) {
                path.push(LinkId(index as u16));
                self.extend(edge.to, left - 1, width, hops, path, paths);
                path.pop();
            }
        }
    }

    /// Bandwidth of the narrowest link on the best path, by Dijkstra's algorithm with max-min in place of sum.
    fn width(&self, from: usize, to: usize) -> Option<f64> {
        let mut best = vec![0.0f64; self.outgoing.len()];
        let mut done = vec![false; self.outgoing.len()];
        best[from] = f64::INFINITY;
        loop {
            let next =
                (0..best.len()).filter(|&v| !done[v] && best[v] > 0.0).max_by(|&a, &b| best[a].total_cmp(&best[b]))?;
            if next == to {
                return Some(best[to]).filter(|width| width.is_finite());
            }
            done[next] = true;
            for &index in &self.outgoing[next] {
                let edge = self.edges[index];
                best[edge.to] = best[edge.to].max(best[next].min(edge.bandwidth));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn graph_strategy() -> impl Strategy<Value = (usize, Vec<Edge>)> {
        (2usize..10).prop_flat_map(|n| {
            let edge = (0..n, 0..n, 1u32..6).prop_map(|(from, to, b)| Edge { from, to, bandwidth: f64::from(b) });
            (Just(n), prop::collection::vec(edge.prop_filter("no loops", |e| e.from != e.to), 0..30))
        })
    }

    /// Floyd and Warshall's algorithm: another way to the same distances.
    fn all_distances(n: usize, edges: &[Edge]) -> Vec<Vec<u32>> {
        let mut d = vec![vec![u32::MAX / 2; n]; n];
        (0..n).for_each(|v| d[v][v] = 0);
        edges.iter().for_each(|e| d[e.from][e.to] = 1);
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    d[i][j] = d[i][j].min(d[i][k] + d[k][j]);
                }
            }
        }
        d
    }

    /// The same for the greatest bandwidth of a path's narrowest link.
    fn all_widths(n: usize, edges: &[Edge]) -> Vec<Vec<f64>> {
        let mut w = vec![vec![0.0f64; n]; n];
        edges.iter().for_each(|e| w[e.from][e.to] = w[e.from][e.to].max(e.bandwidth));
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    w[i][j] = w[i][j].max(w[i][k].min(w[k][j]));
                }
            }
        }
        w
    }

    fn is_chain(edges: &[Edge], path: &[LinkId], from: usize, to: usize) -> bool {
        let mut at = from;
        for link in path {
            let edge = edges[usize::from(link.0)];
            if edge.from != at {
                return false;
            }
            at = edge.to;
        }
        at == to
    }

    proptest! {
        #[test]
        fn shortest_paths_are_chains_of_the_true_length((n, edges) in graph_strategy()) {
            let graph = Graph::new(n, edges.clone());
            let distances = all_distances(n, &edges);
            for (from, row) in distances.iter().enumerate() {
                for to in (0..n).filter(|&to| to != from) {
                    let paths = graph.shortest(from, to);
                    prop_assert_eq!(paths.is_empty(), row[to] >= u32::MAX / 2);
                    prop_assert!(paths.len() <= MAX_PATHS);
                    prop_assert!(paths.windows(2).all(|p| p[0] < p[1]), "sorted and distinct");
                    for path in &paths {
                        prop_assert!(is_chain(&edges, path, from, to));
                        prop_assert_eq!(path.len() as u32, row[to]);
                    }
                }
            }
        }

        #[test]
        fn widest_paths_are_as_wide_as_can_be((n, edges) in graph_strategy()) {
            let graph = Graph::new(n, edges.clone());
            let widths = all_widths(n, &edges);
            for (from, row) in widths.iter().enumerate() {
                for to in (0..n).filter(|&to| to != from) {
                    let paths = graph.widest(from, to);
                    prop_assert_eq!(paths.is_empty(), row[to] == 0.0);
                    for path in &paths {
                        prop_assert!(is_chain(&edges, path, from, to));
                        let narrowest = path.iter().map(|l| edges[usize::from(l.0)].bandwidth).fold(f64::INFINITY, f64::min);
                        prop_assert_eq!(narrowest, row[to]);
                    }
                }
            }
        }
    }

    #[test]
    fn one_way_links_make_the_way_back_longer() {
        let edge = |from, to| Edge { from, to, bandwidth: 1.0 };
        let ring = Graph::new(4, vec![edge(0, 1), edge(1, 2), edge(2, 3), edge(3, 0)]);
        assert_eq!(ring.shortest(0, 1), [[LinkId(0)]]);
        assert_eq!(ring.shortest(1, 0), [[LinkId(1), LinkId(2), LinkId(3)]]);
    }

    #[test]
    fn widest_takes_a_detour_where_shortest_does_not() {
        let edge = |from, to, bandwidth| Edge { from, to, bandwidth };
        let graph = Graph::new(3, vec![edge(0, 1, 1.0), edge(0, 2, 4.0), edge(2, 1, 3.0)]);
        assert_eq!(graph.shortest(0, 1), [vec![LinkId(0)]]);
        assert_eq!(graph.widest(0, 1), [vec![LinkId(1), LinkId(2)]]);
    }
}
