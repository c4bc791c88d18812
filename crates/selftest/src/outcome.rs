//! Verdicts: of one check, of a part, of everything; and the exit status that follows.

use serde::Serialize;

use crate::contention::Contention;

/// Version of the JSON: rises when a field changes its meaning or goes.
const VERSION: u32 = 1;
/// Exit status where nothing could be judged: neither success nor failure. (3 says that a limit is exceeded, in other commands.)
pub const NOTHING_JUDGED: u8 = 4;

/// Verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The claim holds here.
    Pass,
    /// The claim does not hold.
    Fail,
    /// This machine, its kernel or its load does not let it be judged.
    NotJudged,
}

impl Verdict {
    /// The verdict in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::NotJudged => "not judged",
        }
    }

    /// Of several: failed if one failed, else passed if one passed. No checks: not judged.
    #[must_use]
    pub fn of_all(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
        verdicts.into_iter().fold(Verdict::NotJudged, |all, verdict| match (all, verdict) {
            (Verdict::Fail, _) | (_, Verdict::Fail) => Verdict::Fail,
            (Verdict::Pass, _) | (_, Verdict::Pass) => Verdict::Pass,
            _ => Verdict::NotJudged,
        })
    }
}

/// A part of the self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Predicted against measured slow-down of programs that run side by side.
    Contention,
    /// Pages where policies put them.
    Placement,
    /// Recordings of a program whose accesses are known.
    Engines,
    /// Idle latencies against the firmware's distances.
    LatencyOrder,
}

impl Part {
    /// All, in the order in which they run: the fast ones first.
    pub const ALL: [Part; 4] = [Part::Placement, Part::Engines, Part::LatencyOrder, Part::Contention];

    /// Name of the part, as `--only` takes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Part::Contention => "contention",
            Part::Placement => "placement",
            Part::Engines => "engines",
            Part::LatencyOrder => "latency-order",
        }
    }
}

/// A check of one claim on this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Name of the check, in a few words.
    pub name: String,
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// Why, in a whole sentence.
    pub reason: String,
    /// What should have been found; `None` where it was not looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What was found; `None` where it was not looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

impl Check {
    /// A check that this machine does not allow.
    pub fn not_judged(name: impl Into<String>, reason: impl Into<String>) -> Check {
        Check {
            name: name.into(),
            verdict: Verdict::NotJudged,
            reason: sentence(&reason.into()),
            expected: None,
            found: None,
        }
    }

    /// A check that was made.
    pub fn judged(name: impl Into<String>, holds: bool, reason: impl Into<String>) -> Check {
        let verdict = if holds { Verdict::Pass } else { Verdict::Fail };
        Check { verdict, ..Check::not_judged(name, reason) }
    }

    /// The same with what was expected and what was found.
    #[must_use]
    pub fn with(self, expected: impl Into<String>, found: impl Into<String>) -> Check {
        Check { expected: Some(expected.into()), found: Some(found.into()), ..self }
    }
}

/// The text as a sentence: a capital letter before, a full stop after. Names of calls, options and quoted words stay as they are.
fn sentence(text: &str) -> String {
    let text = text.trim();
    let first = text.split(' ').next().unwrap_or("");
    let is_word = !first.is_empty() && first.chars().all(|c| c.is_ascii_lowercase() || c == ',' || c == ':');
    let (head, tail) = text.split_at(usize::from(is_word));
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{tail}{stop}", head.to_uppercase())
}

/// A part with its checks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartResult {
    /// The part of the self-test.
    pub part: Part,
    /// Verdict over all of its checks.
    pub verdict: Verdict,
    /// Checks of the part.
    pub checks: Vec<Check>,
    /// Every pair of programs with prediction and measurement; of [`Part::Contention`] only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// Seconds that it took.
    pub seconds: f64,
}

impl PartResult {
    /// Makes the result of a part from its checks.
    #[must_use]
    pub fn new(part: Part, checks: Vec<Check>, seconds: f64) -> PartResult {
        let verdict = Verdict::of_all(checks.iter().map(|check| check.verdict));
        PartResult { part, verdict, checks, contention: None, seconds }
    }
}

/// The whole result: what `--json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelfTest {
    /// Name of the format: `numapilot-selftest`.
    pub format: String,
    /// Version of this form.
    pub version: u32,
    /// Version of the program.
    pub numapilot: String,
    /// The machine, its kernel and this process's rights, as `numapilot doctor` prints them: label and text.
    pub host: Vec<(String, String)>,
    /// Verdict over all parts.
    pub verdict: Verdict,
    /// The parts that ran.
    pub parts: Vec<PartResult>,
}

impl SelfTest {
    /// Makes the result of a run from its parts.
    #[must_use]
    pub fn new(numapilot: &str, host: Vec<(String, String)>, parts: Vec<PartResult>) -> SelfTest {
        SelfTest {
            format: "numapilot-selftest".to_owned(),
            version: VERSION,
            numapilot: numapilot.to_owned(),
            host,
            verdict: Verdict::of_all(parts.iter().map(|part| part.verdict)),
            parts,
        }
    }

    /// 0: nothing failed, and something was judged; 1: something failed; [`NOTHING_JUDGED`].
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self.verdict {
            Verdict::Pass => 0,
            Verdict::Fail => 1,
            Verdict::NotJudged => NOTHING_JUDGED,
        }
    }

    /// Number of checks with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.parts.iter().flat_map(|part| &part.checks).filter(|check| check.verdict == verdict).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(verdicts: &[&[Verdict]]) -> SelfTest {
        let check = |verdict: &Verdict| Check { verdict: *verdict, ..Check::not_judged("x", "because") };
        let part = |of: &&[Verdict]| PartResult::new(Part::Placement, of.iter().map(check).collect(), 0.0);
        SelfTest::new("0", Vec::new(), verdicts.iter().map(part).collect())
    }

    #[test]
    fn one_failure_fails_all_and_silence_is_no_success() {
        use Verdict::{Fail, NotJudged, Pass};
        for (verdicts, status) in [
            (&[&[Pass, NotJudged][..], &[NotJudged]][..], 0),
            (&[&[Pass, Fail], &[NotJudged]], 1),
            (&[&[NotJudged], &[Fail]], 1),
            (&[&[NotJudged], &[]], NOTHING_JUDGED),
            (&[], NOTHING_JUDGED),
        ] {
            assert_eq!(with(verdicts).exit_status(), status, "{verdicts:?}");
        }
        assert_eq!(with(&[&[Pass, Fail], &[Pass]]).count(Pass), 2);
    }

    #[test]
    fn the_json_stays_as_it_is() {
        let passed = Check::judged("bind to node 0", true, "all is well").with("node 0: 2", "node 0: 2");
        let open = Check::not_judged("interleave", "there is one node");
        let parts = vec![PartResult::new(Part::Placement, vec![passed, open], 0.5)];
        let host = vec![("machine".to_owned(), "two CPUs".to_owned())];
        let text = serde_json::to_string(&SelfTest::new("0.1.0", host, parts)).expect("JSON");
        let golden = concat!(
            r#"{"format":"numapilot-selftest","version":1,"numapilot":"0.1.0","host":[["machine","two CPUs"]],"verdict":"pass","#,
            r#""parts":[{"part":"placement","verdict":"pass","checks":[{"name":"bind to node 0","verdict":"pass","#,
            r#""reason":"All is well.","expected":"node 0: 2","found":"node 0: 2"},{"name":"interleave","verdict":"not_judged","#,
            r#""reason":"There is one node."}],"seconds":0.5}]}"#
        );
        assert_eq!(text, golden);
    }

    #[test]
    fn reasons_are_sentences() {
        for (text, expected) in [
            ("this machine has one node", "This machine has one node."),
            ("Done.", "Done."),
            ("move_pages failed", "move_pages failed."),
            ("`x` is y", "`x` is y."),
            ("", "."),
        ] {
            assert_eq!(sentence(text), expected);
        }
    }
}
