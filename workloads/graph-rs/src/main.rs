//! Parallel breadth-first search and connected components on a random graph, standard library only: a program that is recorded as
//! it is, without being rebuilt for it.
//!
//! Naive: the main thread builds the adjacency lists and the arrays. Partitioned: each thread builds those of its own vertices.

mod graph;
mod options;
mod search;

use graph::Generator;
use graph::Graph;
use graph::Vertex;
use graph::mix;
use search::UNREACHED;
use std::process::ExitCode;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Lowest vertex of each vertex's component, serially by union-find: shares nothing with the algorithm under test.
fn components_by_union(edges: &[(Vertex, Vertex)], vertices: usize) -> Vec<Vertex> {
    fn root(parents: &mut [Vertex], mut vertex: Vertex) -> Vertex {
        while parents[vertex as usize] != vertex {
            parents[vertex as usize] = parents[parents[vertex as usize] as usize];
            vertex = parents[vertex as usize];
        }
        vertex
    }
    let mut parents: Vec<Vertex> = (0..vertices as Vertex).collect();
    for &(a, b) in edges {
        let (a, b) = (root(&mut parents, a), root(&mut parents, b));
        // The lower root stays, so that a root is its component's lowest vertex.
        parents[a.max(b) as usize] = a.min(b);
    }
    (0..vertices as Vertex).map(|vertex| root(&mut parents, vertex)).collect()
}

/// The definition of a distance: 0 at the root alone; the ends of an edge differ by one at most; every other reached vertex has a
/// neighbour one nearer; and exactly the root's component is reached.
fn check_levels(
    edges: &[(Vertex, Vertex)],
    levels: &[AtomicU32],
    root: usize,
    component: &[Vertex],
) -> Result<(), String> {
    let level = |vertex: Vertex| levels[vertex as usize].load(Relaxed);
    let mut has_parent = vec![false; levels.len()];
    for &(a, b) in edges {
        let (la, lb) = (level(a), level(b));
        if (la == UNREACHED) != (lb == UNREACHED) || la.abs_diff(lb) > 1 {
            return Err(format!("edge {a}-{b} has the levels {la} and {lb}"));
        }
        has_parent[a as usize] |= lb < la;
        has_parent[b as usize] |= la < lb;
    }
    for vertex in 0..levels.len() {
        let own = level(vertex as Vertex);
        let reached = own != UNREACHED;
        if reached != (component[vertex] == component[root]) {
            return Err(format!("vertex {vertex} is in another component than its level {own} says"));
        }
        if (own == 0) != (vertex == root) || (reached && vertex != root && !has_parent[vertex]) {
            return Err(format!("vertex {vertex} has the level {own} without a neighbour before it"));
        }
    }
    Ok(())
}

/// Prints the time since `since` and restarts it.
fn phase(name: &str, since: &mut Instant) {
    eprintln!("  {name:<10} {:8.3} s", since.elapsed().as_secs_f64());
    *since = Instant::now();
}

fn hash_of(array: &[AtomicU32]) -> u64 {
    array.iter().fold(0, |hash, value| mix(hash ^ u64::from(value.load(Relaxed))))
}

fn run(options: &options::Options) -> Result<String, String> {
    let mut since = Instant::now();
    let vertices = 1u64 << options.scale;
    let generator = Generator { seed: options.seed, scale: options.scale, edges: vertices * options.degree };
    let edges: Vec<(Vertex, Vertex)> = (0..generator.edges).map(|number| generator.edge(number)).collect();
    phase("edges", &mut since);
    let graph = Graph::build(&edges, options.scale, options.threads, options.partitioned);
    phase("build", &mut since);

    let labels = search::shared_array(&graph, options.threads, options.partitioned, |vertex| vertex as u32);
    let rounds = search::components(&graph, options.threads, &labels);
    phase("components", &mut since);
    let component = components_by_union(&edges, graph.vertices());
    if let Some(wrong) = (0..graph.vertices()).find(|&v| labels[v].load(Relaxed) != component[v]) {
        return Err(format!(
            "vertex {wrong} is labelled {}, its component is {}",
            labels[wrong].load(Relaxed),
            component[wrong]
        ));
    }
    phase("verify", &mut since);

    let (mut checksum, mut reached) = (hash_of(&labels), 0u64);
    for number in 0..options.searches {
        // Only vertices with edges make a search.
        let root = generator.edge(mix(options.seed ^ number) % generator.edges).0 as usize;
        let levels = search::shared_array(&graph, options.threads, options.partitioned, |_| UNREACHED);
        search::breadth_first(&graph, options.threads, root, &levels);
        phase("search", &mut since);
        check_levels(&edges, &levels, root, &component)?;
        reached += levels.iter().filter(|level| level.load(Relaxed) != UNREACHED).count() as u64;
        checksum = mix(checksum ^ hash_of(&levels));
        phase("verify", &mut since);
    }
    eprintln!("  {rounds} rounds of label propagation");
    let searches = options.searches;
    Ok(format!(
        "graph-rs ok vertices={vertices} edges={} searches={searches} reached={reached} checksum={checksum:016x}",
        generator.edges
    ))
}

fn main() -> ExitCode {
    let options = options::parse();
    eprintln!("graph-rs: {}, {} threads", if options.partitioned { "partitioned" } else { "naive" }, options.threads);
    match run(&options) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("graph-rs: wrong result: {problem}");
            ExitCode::FAILURE
        }
    }
}
