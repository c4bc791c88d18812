//! What a solution says of one window of time.

/// One window of time under load: its length, loaded latencies by accessing and home node (empty without accesses), and utilisations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    pub lasted_ns: f64,
    pub path_ns: Vec<Vec<f64>>,
    /// Utilisation of each memory controller (in node order, nodes with memory only), then of each link.
    pub stations: Vec<f64>,
}
