//! The latency that waiting for probes adds on machines that broadcast them: the access ends with the last of the line and the probes' answers, which take
//! different ways. On an idle machine the ways are assumed to be equally long, because only the idle latency is known.
//!
//! Probes leave home along a tree ([`Tree`]): those that cross a link together wait there once. Where ways part, the latest of what follows counts. The mean of
//! the greatest of several independent waits depends on how much they vary: for exponential ones it is, within 6 % for two, the root of
//! the sum of their squares; for ones that hardly vary it is the greatest mean, for which the smooth eighth root of the sum of eighth powers stands (9 % more
//! for two that are equal). Between the two it is in proportion to the deviation. How much waits vary is [`crate::network::Network::variance`].

use crate::network::Variance;
use crate::ways::{Tree, Visit, Way};

/// A wait below which nothing is waited for: the roots have no slope at zero.
const NOTHING_NS: f64 = 1e-9;

/// Waits that run side by side, in nanoseconds: sums of their second and eighth powers.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    square: f64,
    eighth: f64,
    /// How many there are, and the last of them.
    waits: u32,
    last_ns: f64,
}

impl Together {
    fn add(&mut self, wait_ns: f64) {
        let square = wait_ns * wait_ns;
        self.square += square;
        self.eighth += square * square * square * square;
        self.waits += 1;
        self.last_ns = wait_ns;
    }

    /// Mean of the latest if waits vary as exponential ones do, and if they do not vary.
    fn extremes(&self) -> (f64, f64) {
        if self.square <= NOTHING_NS * NOTHING_NS {
            return (0.0, 0.0);
        }
        // Most probes are alone on their last links, and roots are most of a solution's time.
        if self.waits == 1 {
            return (self.last_ns, self.last_ns);
        }
        (self.square.sqrt(), self.eighth.sqrt().sqrt().sqrt())
    }

    /// Mean of the latest; `spread` is 1 for exponential waits and 0 for ones that do not vary.
    fn latest(&self, spread: f64) -> f64 {
        let (varied, even) = self.extremes();
        even + spread * (varied - even)
    }

    /// Derivative of [`Together::latest`] by one of the waits.
    fn slope(&self, wait_ns: f64, spread: f64) -> f64 {
        let (varied, even) = self.extremes();
        if varied <= 0.0 {
            return 0.0;
        }
        spread * wait_ns / varied + (1.0 - spread) * (wait_ns / even).powi(7)
    }
}

/// How much the waits on a way vary: sums, over its stations, of squared waits by their variances, and of squared waits.
#[derive(Clone, Copy)]
struct Varied {
    varied: f64,
    all: f64,
}

impl Varied {
    /// `None` where nobody waits.
    fn of(way: &Way, stretch: &[f64], variance: &[Variance]) -> Option<Self> {
        let mut sums = Self { varied: 0.0, all: 0.0 };
        for &(station, square) in &way.squares {
            let excess = stretch[station] - 1.0;
            let waited = square * excess * excess;
            sums.varied += waited * variance[station].value;
            sums.all += waited;
        }
        (sums.all > NOTHING_NS * NOTHING_NS).then_some(sums)
    }

    /// Deviation over that of exponential waits.
    fn spread(&self) -> f64 {
        (self.varied / self.all).sqrt()
    }
}

/// The race of a line and the answers to its probes. Keeps its vectors between accesses.
#[derive(Clone, Debug, Default)]
pub struct Race {
    /// By answer of the way: its wait.
    answers: Vec<f64>,
    /// By branch of the tree: what follows it; and last what the access waits for.
    groups: Vec<Together>,
    /// By branch: wait from its beginning to the last answer behind it.
    waits: Vec<f64>,
    /// Derivatives by each group's latest and by each answer's wait.
    by_group: Vec<f64>,
    by_answer: Vec<f64>,
}

fn wait_ns(visits: &[Visit], stretch: &[f64]) -> f64 {
    visits.iter().map(|v| v.service_ns * (stretch[v.station] - 1.0)).sum()
}

impl Race {
    /// Nanoseconds by which an access ends later than its line alone would; `stretch` is each station's sojourn over its service time.
    pub fn excess_ns(&mut self, way: &Way, stretch: &[f64], variance: &[Variance]) -> f64 {
        if way.trees.is_empty() {
            return 0.0;
        }
        let Some(varied) = Varied::of(way, stretch, variance) else { return 0.0 };
        let line_ns = self.begin(way, stretch);
        let mut latest_ns = 0.0;
        for tree in &way.trees {
            latest_ns += self.run(tree, line_ns, stretch, varied.spread());
        }
        latest_ns / way.trees.len() as f64 - line_ns
    }

    /// Adds the derivative of [`Race::excess_ns`] by each station's stretch to `slopes`.
    pub fn add_slopes(&mut self, way: &Way, stretch: &[f64], variance: &[Variance], slopes: &mut [f64]) {
        if way.trees.is_empty() {
            return;
        }
        let Some(varied) = Varied::of(way, stretch, variance) else { return };
        let spread = varied.spread();
        let line_ns = self.begin(way, stretch);
        self.by_answer.clear();
        self.by_answer.resize(way.answers.len(), 0.0);
        let each = 1.0 / way.trees.len() as f64;
        let (mut by_line, mut by_spread) = (-1.0, 0.0);
        for tree in &way.trees {
            self.run(tree, line_ns, stretch, spread);
            by_line += each * self.groups[tree.branches.len()].slope(line_ns, spread);
            by_spread += self.back(tree, spread, each, slopes);
        }
        let lines = std::iter::once((&way.answer, by_line));
        for (visits, by) in lines.chain(way.answers.iter().zip(self.by_answer.iter().copied())) {
            visits.iter().for_each(|visit| slopes[visit.station] += by * visit.service_ns);
        }
        if spread <= 0.0 {
            return;
        }
        for &(station, square) in &way.squares {
            let excess = stretch[station] - 1.0;
            let Variance { value, slope } = variance[station];
            let by_varied = square * excess * (2.0 * value + excess * slope);
            let by_all = square * excess * 2.0;
            slopes[station] += by_spread * (by_varied - spread * spread * by_all) / (2.0 * spread * varied.all);
        }
    }

    /// The wait of the line; leaves those of the answers.
    fn begin(&mut self, way: &Way, stretch: &[f64]) -> f64 {
        self.answers.clear();
        self.answers.extend(way.answers.iter().map(|visits| wait_ns(visits, stretch)));
        wait_ns(&way.answer, stretch)
    }

    /// Mean wait for the latest of all along one tree, from its last branches to home.
    fn run(&mut self, tree: &Tree, line_ns: f64, stretch: &[f64], spread: f64) -> f64 {
        let access = tree.branches.len();
        self.groups.clear();
        self.groups.resize(access + 1, Together::default());
        self.waits.clear();
        self.waits.resize(access, 0.0);
        for end in &tree.ends {
            self.groups[end.branch].add(self.answers[end.answer]);
        }
        self.groups[access].add(line_ns);
        for (index, branch) in tree.branches.iter().enumerate().rev() {
            let crossed_ns = branch.visit.service_ns * (stretch[branch.visit.station] - 1.0);
            let wait_ns = crossed_ns + self.groups[index].latest(spread);
            self.waits[index] = wait_ns;
            self.groups[branch.before.unwrap_or(access)].add(wait_ns);
        }
        self.groups[access].latest(spread)
    }

    /// The same backwards, after [`Race::run`]: adds `each` times the derivatives by the probes' own links to `slopes` and by answers to theirs; returns
    /// that by the spread.
    fn back(&mut self, tree: &Tree, spread: f64, each: f64, slopes: &mut [f64]) -> f64 {
        let access = tree.branches.len();
        self.by_group.clear();
        self.by_group.resize(access + 1, 0.0);
        self.by_group[access] = each;
        for (index, branch) in tree.branches.iter().enumerate() {
            let group = branch.before.unwrap_or(access);
            let by = self.by_group[group] * self.groups[group].slope(self.waits[index], spread);
            self.by_group[index] = by;
            slopes[branch.visit.station] += by * branch.visit.service_ns;
        }
        for end in &tree.ends {
            let slope = self.groups[end.branch].slope(self.answers[end.answer], spread);
            self.by_answer[end.answer] += self.by_group[end.branch] * slope;
        }
        let by_spread = self.groups.iter().zip(&self.by_group).map(|(group, by)| {
            let (varied, even) = group.extremes();
            by * (varied - even)
        });
        by_spread.sum()
    }
}

#[cfg(test)]
mod tests {
    use numapilot_machine::Machine;

    use super::*;
    use crate::load::{Class, Load};
    use crate::network::Network;
    use crate::system::MemorySystem;

    /// Everybody's pages on node 0, and stretches as if node 0's links were full.
    fn crowded(name: &str) -> (MemorySystem, Network, Vec<f64>) {
        let system = MemorySystem::new(&Machine::load(name).unwrap()).unwrap();
        let nodes = system.nodes();
        let only = |share: f64| (0..nodes).map(|node| if node == 0 { share } else { 0.0 }).collect::<Vec<f64>>();
        let class =
            |from| Class { from, threads: 4.0, outstanding: 3.0, think_ns: 10.0, reads: only(0.8), writes: only(0.2) };
        let load = Load { classes: (0..nodes).map(class).collect(), background: Vec::new() };
        let mut network = Network::default();
        network.build(&system, &load).unwrap();
        let stretch = (0..system.stations()).map(|station| 1.5 + (station * station % 23) as f64).collect();
        (system, network, stretch)
    }

    fn variances(network: &Network, stretch: &[f64]) -> Vec<Variance> {
        stretch.iter().enumerate().map(|(station, stretch)| network.variance(station, *stretch)).collect()
    }

    #[test]
    fn the_latest_of_waits_is_between_the_greatest_and_the_root_of_all_squares() {
        let mut alone = Together::default();
        alone.add(7.0);
        let mut equal = Together::default();
        (0..2).for_each(|_| equal.add(7.0));
        for spread in [0.0, 0.3, 1.0] {
            assert!((alone.latest(spread) - 7.0).abs() < 1e-12 && (alone.slope(7.0, spread) - 1.0).abs() < 1e-12);
            assert!((7.0..=7.0 * 2f64.sqrt() + 1e-12).contains(&equal.latest(spread)), "{spread}");
        }
        assert!((equal.latest(1.0) - 7.0 * 2f64.sqrt()).abs() < 1e-12, "two exponential waits");
        assert!(equal.latest(0.0) < 1.1 * 7.0, "two that do not vary");
        assert_eq!((alone.latest(0.3), alone.slope(7.0, 0.3)), (7.0, 1.0), "one wait needs no roots");
        assert_eq!(Together::default().latest(0.5), 0.0);
    }

    /// The farthest chip's probe crosses a full link with its neighbour's: only one wait is there, and two links are full, not three ways.
    #[test]
    fn probes_that_cross_a_link_together_wait_there_once() {
        let (system, network, mut stretch) = crowded("opteron-8385");
        stretch.fill(1.0);
        let way = system.way(0, 0).unwrap();
        let mut first: Vec<usize> = Vec::new();
        for branch in way.trees.iter().flat_map(|tree| &tree.branches).filter(|branch| branch.before.is_none()) {
            if !first.contains(&branch.visit.station) {
                first.push(branch.visit.station);
            }
        }
        assert_eq!((way.trees.len(), first.len()), (2, 2), "two ways to the farthest chip, two links from home");
        first.iter().for_each(|&station| stretch[station] = 21.0);
        let crossing_ns = 20.0 * way.trees[0].branches[0].visit.service_ns;
        let exponential = vec![Variance { value: 1.0, slope: 0.0 }; stretch.len()];
        let even = vec![Variance { value: 0.0, slope: 0.0 }; stretch.len()];
        let mut race = Race::default();
        let excess_ns = race.excess_ns(way, &stretch, &exponential);
        assert!((excess_ns / crossing_ns - 2f64.sqrt()).abs() < 1e-9, "{excess_ns} of {crossing_ns}");
        let excess_ns = race.excess_ns(way, &stretch, &even);
        assert!((1.0..1.1).contains(&(excess_ns / crossing_ns)), "{excess_ns} of {crossing_ns}");
        // With 20 of the 48 customers there, the truth is near the latter.
        let excess_ns = race.excess_ns(way, &stretch, &variances(&network, &stretch));
        assert!((1.0..1.25).contains(&(excess_ns / crossing_ns)), "{excess_ns} of {crossing_ns}");
    }

    #[test]
    fn slopes_are_derivatives() {
        for name in ["opteron-8385", "memprof-a"] {
            let (system, network, stretch) = crowded(name);
            let mut race = Race::default();
            for (from, to) in [(0, 0), (0, 3), (1, 0), (2, 1)] {
                let way = system.way(from, to).unwrap();
                let mut slopes = vec![0.0; stretch.len()];
                race.add_slopes(way, &stretch, &variances(&network, &stretch), &mut slopes);
                assert!(slopes.iter().any(|slope| slope.abs() > 1e-3), "{name}");
                for (station, slope) in slopes.iter().enumerate() {
                    let mut at = |shift: f64| {
                        let mut moved = stretch.clone();
                        moved[station] += shift;
                        race.excess_ns(way, &moved, &variances(&network, &moved))
                    };
                    let difference = (at(1e-4) - at(-1e-4)) / 2e-4;
                    let error = (difference - slope).abs();
                    assert!(error < 1e-4, "{name}, {from} to {to}, station {station}: {difference} and {slope}");
                }
            }
        }
    }
}
