//! The graph: a deterministic R-MAT edge list (Chakrabarti et al., 2004) turned into adjacency lists, one piece per range of vertices.
//! Assumes fewer than 2^32 vertices. The thread that builds a piece touches its memory first.

use std::ops::Range;
use std::thread;

/// Vertex number, below [`Graph::vertices`].
pub type Vertex = u32;

/// One step of splitmix64 as a hash: all output bits depend on all input bits.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What the edges are: a function of the seed and the edge's number alone.
#[derive(Clone, Copy)]
pub struct Generator {
    pub seed: u64,
    /// log2 of the number of vertices, 1 to 28.
    pub scale: u32,
    /// Undirected edges.
    pub edges: u64,
}

impl Generator {
    /// The two ends of edge `number`: at each bit one of four quadrants, with probabilities 0.57, 0.19, 0.19 and 0.05.
    pub fn edge(&self, number: u64) -> (Vertex, Vertex) {
        let mut state = mix(self.seed) ^ mix(number);
        let (mut from, mut to) = (0u64, 0u64);
        for bit in 0..self.scale {
            if bit % 4 == 0 {
                state = mix(state);
            }
            let draw = (state >> (16 * (bit % 4))) & 0xffff;
            let (down, right) = match draw {
                0..37355 => (0, 0),
                37355..49807 => (0, 1),
                49807..62259 => (1, 0),
                _ => (1, 1),
            };
            from = from << 1 | down;
            to = to << 1 | right;
        }
        (self.scatter(from), self.scatter(to))
    }

    /// A bijection on the vertices, so that those with many edges do not all have low numbers.
    fn scatter(&self, vertex: u64) -> Vertex {
        let mask = (1u64 << self.scale) - 1;
        let odd = mix(self.seed ^ 1) | 1;
        let shift = self.scale.div_ceil(2);
        let once = vertex.wrapping_mul(odd) & mask;
        let folded = once ^ (once >> shift);
        (folded.wrapping_mul(odd) & mask) as Vertex
    }
}

/// Adjacency lists of a range of vertices.
pub struct Piece {
    pub vertices: Range<usize>,
    /// Where each vertex's neighbours begin; one more than there are vertices.
    offsets: Vec<u64>,
    neighbours: Vec<Vertex>,
}

impl Piece {
    /// Both directions of every edge that has an end in `vertices`.
    fn build(edges: &[(Vertex, Vertex)], vertices: Range<usize>) -> Self {
        let mut offsets = vec![0u64; vertices.len() + 1];
        let local = |vertex: Vertex| (vertex as usize).wrapping_sub(vertices.start);
        for &(a, b) in edges {
            for end in [local(a), local(b)] {
                if end < vertices.len() {
                    offsets[end + 1] += 1;
                }
            }
        }
        for i in 0..vertices.len() {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let mut neighbours = vec![0 as Vertex; offsets[vertices.len()] as usize];
        for &(a, b) in edges {
            for (end, other) in [(local(a), b), (local(b), a)] {
                if end < vertices.len() {
                    neighbours[next[end] as usize] = other;
                    next[end] += 1;
                }
            }
        }
        Self { vertices, offsets, neighbours }
    }

    /// The neighbours of a vertex of this piece.
    pub fn neighbours(&self, vertex: usize) -> &[Vertex] {
        let local = vertex - self.vertices.start;
        &self.neighbours[self.offsets[local] as usize..self.offsets[local + 1] as usize]
    }
}

/// An undirected graph in pieces of equally many vertices.
pub struct Graph {
    vertices: usize,
    per_piece: usize,
    pieces: Vec<Piece>,
}

impl Graph {
    /// Builds `parts` pieces: each in a thread of its own, or all in the calling thread.
    pub fn build(edges: &[(Vertex, Vertex)], scale: u32, parts: usize, by_owner: bool) -> Self {
        let vertices = 1usize << scale;
        let per_piece = vertices.div_ceil(parts);
        let range = |part: usize| (part * per_piece).min(vertices)..((part + 1) * per_piece).min(vertices);
        let pieces = if by_owner {
            thread::scope(|scope| {
                let builders: Vec<_> =
                    (0..parts).map(|part| scope.spawn(move || Piece::build(edges, range(part)))).collect();
                builders.into_iter().map(|builder| builder.join().expect("a builder does not panic")).collect()
            })
        } else {
            (0..parts).map(|part| Piece::build(edges, range(part))).collect()
        };
        Self { vertices, per_piece, pieces }
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.vertices
    }

    /// The vertices of part `part`.
    pub fn part(&self, part: usize) -> Range<usize> {
        self.pieces[part].vertices.clone()
    }

    /// The neighbours of any vertex.
    pub fn neighbours(&self, vertex: usize) -> &[Vertex] {
        self.pieces[vertex / self.per_piece].neighbours(vertex)
    }
}
