//! What is asked of the memory system: classes of alike threads, and traffic that no thread waits for.

/// A group of threads that run on one node and behave alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Node on which the threads run, as an index.
    pub from: usize,
    /// How many threads; fractions are allowed (a thread that runs half of the time is half a thread).
    pub threads: f64,
    /// Memory accesses that one thread keeps outstanding, on average: 1 is a dependent chase, more is overlap and prefetching.
    pub outstanding: f64,
    /// Nanoseconds of a thread's own work per memory access (everything that is not waiting for memory).
    pub think_ns: f64,
    /// Share of the class's accesses that read from each node's memory, by node index.
    pub reads: Vec<f64>,
    /// Share that writes to each node's memory: the line is read first and written back later. `reads` and `writes` together sum to 1.
    pub writes: Vec<f64>,
}

/// Traffic that takes bandwidth and waits for nobody, such as the copying of migrated pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Background {
    /// Node that the data is read from.
    pub source: usize,
    /// Node that the data is written to.
    pub target: usize,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

/// Everything that is asked of the memory system at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// The threads.
    pub classes: Vec<Class>,
    /// The traffic beside them.
    pub background: Vec<Background>,
}
