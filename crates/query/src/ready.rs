//! Ready-made queries: the SQL half of `scripts/`. Those that begin with `fleet-` are for fleets, the others for one trace.

use crate::error::QueryError;

/// A query that ships with numapilot.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Its name, as `--run` takes it.
    pub name: &'static str,
    /// Its SQL.
    pub sql: &'static str,
}

macro_rules! ready {
    ($($name:literal),* $(,)?) => {
        /// Every ready-made query: those of `scripts/questions.toml` in its order, then those for fleets.
        pub const ALL: &[Ready] = &[$(Ready { name: $name, sql: include_str!(concat!("../../../scripts/", $name, ".sql")) }),*];
    };
}

ready!(
    "remote",
    "types",
    "pattern",
    "first-touch",
    "handover",
    "read-only",
    "false-sharing",
    "allocator-only",
    "fleet-remote",
    "fleet-types",
);

impl Ready {
    /// One sentence on what the query answers: the comment in its first line.
    #[must_use]
    pub fn about(&self) -> &'static str {
        self.sql.lines().next().unwrap_or_default().trim_start_matches("-- ")
    }

    /// Names of its parameters, which are null unless set.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        ["site", "object"].into_iter().filter(|name| has_parameter(self.sql, name))
    }

    /// Whether the query is for fleets; otherwise it is for one trace.
    #[must_use]
    pub fn is_for_fleets(&self) -> bool {
        self.name.starts_with("fleet-")
    }
}

/// Whether a query has a parameter, by its whole name: letters, digits and `_` behind a `$`, as the engine reads it.
#[must_use]
pub fn has_parameter(sql: &str, name: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    sql.split('$').skip(1).any(|behind| behind.strip_prefix(name).is_some_and(|rest| !goes_on(rest)))
}

/// The ready-made query of this name, for a trace or a fleet.
///
/// # Errors
/// There is none of this name, or it is for a fleet and `is_fleet` is false, or the other way round.
pub fn find(name: &str, is_fleet: bool) -> Result<&'static Ready, QueryError> {
    let names = || {
        ALL.iter()
            .filter(|ready| ready.is_for_fleets() == is_fleet)
            .map(|ready| ready.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let what = if is_fleet { "a fleet" } else { "a trace" };
    match ALL.iter().find(|ready| ready.name == name) {
        Some(ready) if ready.is_for_fleets() == is_fleet => Ok(ready),
        Some(_) => Err(QueryError::Ready(format!("the query `{name}` is not for {what}; those that are: {}", names()))),
        None => {
            Err(QueryError::Ready(format!("there is no ready-made query `{name}` for {what}; there are {}", names())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_says_what_it_answers() {
        for ready in ALL {
            assert!(ready.sql.starts_with("-- ") && ready.about().ends_with('.'), "{}", ready.name);
        }
    }

    /// The value of a line `key = "value"`.
    fn values<'a>(table: &'a str, key: &str) -> Vec<&'a str> {
        let begin = format!("{key} = \"");
        table.lines().filter_map(|line| line.strip_prefix(begin.as_str())?.strip_suffix('"')).collect()
    }

    #[test]
    fn queries_for_traces_are_those_of_the_table_of_questions() {
        let table = include_str!("../../../scripts/questions.toml");
        let (names, answers) = (values(table, "name"), values(table, "answers"));
        let ours: Vec<&Ready> = ALL.iter().filter(|ready| !ready.is_for_fleets()).collect();
        assert_eq!(ours.iter().map(|ready| ready.name).collect::<Vec<_>>(), names);
        assert_eq!(answers.len(), names.len());
        for (ready, answers) in ours.iter().zip(answers) {
            assert!(ready.about().to_lowercase().starts_with(&answers.to_lowercase()), "{}: {answers}", ready.name);
        }
    }

    #[test]
    fn parameters_are_found_by_their_whole_names() {
        let sql = "select $nodes, ($site) from oef where a = $object_2 and b = $größe";
        for (name, is_there) in [
            ("nodes", true),
            ("node", false),
            ("site", true),
            ("object", false),
            ("object_2", true),
            ("größe", true),
            ("gr", false),
            ("oef", false),
        ] {
            assert_eq!(has_parameter(sql, name), is_there, "{name}");
        }
        assert!(has_parameter("select 1 where a = $nodes or a = $node", "node"));
    }

    #[test]
    fn traces_and_fleets_have_their_own() {
        assert_eq!(find("types", false).map(|ready| ready.name).ok(), Some("types"));
        assert!(find("types", true).is_err_and(|error| error.to_string().contains("fleet-types")));
        assert!(find("nothing", false).is_err_and(|error| error.to_string().contains("allocator-only")));
    }
}
