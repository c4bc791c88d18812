//! Accesses whose mean latency each member of the ensemble tells, to be compared with one that was measured.

use numapilot_machine::NodeIndex;

use super::window::Window;

/// Accesses from one node to the memory of another.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Watched {
    /// The accessing node and the home.
    pub from: NodeIndex,
    pub home: NodeIndex,
    /// Windows with such accesses, and how many there are in each.
    pub windows: Vec<(usize, f64)>,
}

impl Watched {
    /// Mean of their latencies in these windows, ns; not a number if there is none.
    pub fn mean_ns(&self, windows: &[Window]) -> f64 {
        let latency_ns = |window: usize| {
            let row = windows.get(window)?.path_ns.get(self.from.0)?;
            row.get(self.home.0).copied()
        };
        let (mut sum_ns, mut accesses) = (0.0, 0.0);
        for (window, count) in &self.windows {
            if let Some(ns) = latency_ns(*window) {
                sum_ns += count * ns;
                accesses += count;
            }
        }
        sum_ns / accesses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_counts_each_window_by_its_accesses() {
        let window = |ns: f64| Window { path_ns: vec![vec![100.0, ns]], ..Window::default() };
        let watched = Watched { from: NodeIndex(0), home: NodeIndex(1), windows: vec![(0, 1.0), (2, 3.0)] };
        // The second window's latency does not count, nor does one without accesses.
        let windows = [window(200.0), window(900.0), window(400.0), Window::default()];
        assert_eq!(watched.mean_ns(&windows), 350.0);
        assert!(Watched { windows: vec![(3, 1.0)], ..watched }.mean_ns(&windows).is_nan());
    }
}
