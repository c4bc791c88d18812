//! The views over the tables. Their SQL is the same for every engine; lines that end in `-- fleet` are for fleets only.

/// A view that ships with numapilot.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Name of the view.
    pub name: &'static str,
    text: &'static str,
}

/// Every view, in the order of the documentation.
pub const ALL: [View; 4] = [
    View { name: "tef", text: include_str!("../views/tef.sql") },
    View { name: "oef", text: include_str!("../views/oef.sql") },
    View { name: "pages", text: include_str!("../views/pages.sql") },
    View { name: "stack_functions", text: include_str!("../views/stack_functions.sql") },
];

impl View {
    /// One sentence on the view's rows: the comment in its first line.
    #[must_use]
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("-- ")
    }

    /// The view's query, for a trace or for a fleet.
    #[must_use]
    pub fn query(&self, is_fleet: bool) -> String {
        const MARK: &str = " -- fleet";
        let lines = self.text.lines().filter(|line| !line.starts_with("--"));
        let kept = lines.filter(|line| is_fleet || !line.ends_with(MARK));
        kept.map(|line| line.strip_suffix(MARK).unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fleets_speak_of_hosts() {
        for view in ALL {
            assert!(view.query(true).contains("a.host") || view.query(true).contains("s.host"), "{}", view.name);
            assert!(!view.query(false).contains("host"), "{}", view.name);
            assert!(!view.query(true).contains("--"), "{}", view.name);
            assert!(view.about().starts_with("One row per "), "{}", view.name);
        }
    }
}
