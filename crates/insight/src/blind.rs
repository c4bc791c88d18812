//! Recordings that saw too little to judge by: accesses that the processes' processor time does not allow for.
//!
//! An instrumented program makes tens to hundreds of millions of accesses per second of processor time, simulation included; even one that mostly
//! calls the kernel makes ten million per second in user mode. One that makes less than [`RATE_MIN`] spends its time in code that was not
//! instrumented, or in registers. Which of these, the share of instrumented code tells: a program whose own code is instrumented is believed.

use numapilot_flows::{Instrumentation, Trace};
use serde::Serialize;

/// Accesses per second of user time below which a recording with uninstrumented code in it says nothing. A tenth of the least that was measured on an
/// instrumented program which accesses memory at all (docs/instrument.md has the figures).
pub const RATE_MIN: f64 = 1e6;
/// User time that it takes to judge: the loader and the tracker take up to a few hundredths of a second without an access.
const JUDGED_FROM_NS: u64 = 100_000_000;
/// A binary with less of its code instrumented has a gap.
const SHARE_MIN: f64 = 0.9;
/// Parts that a sentence names.
const PARTS_NAMED: usize = 3;

/// A recording that saw too little.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blindness {
    /// Accesses that were seen.
    pub accesses: u64,
    /// Processor time in user mode of the instrumented processes, ns, at least; `None`: not known.
    pub user_ns: Option<u64>,
    /// What was not seen, and why, in whole sentences.
    pub causes: Vec<String>,
    /// What to do.
    pub remedy: String,
}

impl Blindness {
    /// The first line of every report: how little was seen.
    #[must_use]
    pub fn says(&self) -> String {
        let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
        let seen = match (self.accesses, self.user_ns) {
            (0, Some(ns)) if ns >= JUDGED_FROM_NS => format!("no access was seen in {} of processor time", seconds(ns)),
            (0, _) => "no access was seen".to_owned(),
            (accesses, Some(ns)) => format!("only {accesses} accesses were seen in {} of processor time", seconds(ns)),
            (accesses, None) => format!("only {accesses} accesses were seen"),
        };
        format!("Nothing can be judged: {seen}. {} {}", self.causes.join(" "), self.remedy)
    }
}

/// `None`: nothing speaks against the recording, or it is not known.
pub(crate) fn of(trace: &Trace) -> Option<Blindness> {
    if trace.meta().engine != "instrument" {
        return None;
    }
    judge(&trace.instrumentation()?)
}

/// By what was instrumented and seen alone: what a recorder knows at the end.
#[must_use]
pub fn judge(seen: &Instrumentation) -> Option<Blindness> {
    let causes = causes(seen);
    let is_slow = |ns: u64| (seen.accesses as f64) < RATE_MIN * ns as f64 / 1e9;
    let is_blind = match seen.user_ns.filter(|ns| *ns >= JUDGED_FROM_NS) {
        Some(ns) => is_slow(ns),
        None => seen.accesses == 0,
    };
    let remedy = "Compile all of the program with `numapilot cc`, `c++` or `fc` and record again; `--engine emulate` records it as it is, slower.";
    (is_blind && !causes.is_empty()).then(|| Blindness {
        accesses: seen.accesses,
        user_ns: seen.user_ns,
        causes,
        remedy: remedy.to_owned(),
    })
}

fn causes(seen: &Instrumentation) -> Vec<String> {
    if seen.processes == 0 {
        let programs = seen.modules.iter().filter(|module| module.is_program).map(|module| module.name());
        let programs: Vec<&str> = programs.take(PARTS_NAMED).collect();
        return match programs.is_empty() {
            true => vec!["No instrumented program ran under the recorder.".to_owned()],
            false => vec![format!("None of the programs that ran is instrumented: {}.", programs.join(", "))],
        };
    }
    let gaps = seen.own_modules().filter(|module| module.share().is_some_and(|share| share < SHARE_MIN));
    let words = gaps.map(|module| {
        let name = module.name();
        match (module.instrumented_bytes, module.has_archive) {
            (0, true) => format!("{name} was linked by numapilot, but none of its code is instrumented: its objects were compiled otherwise."),
            (0, false) => format!("{name} is not instrumented."),
            _ => {
                let parts: Vec<&str> = module.left_out.iter().take(PARTS_NAMED).map(|part| part.name.as_str()).collect();
                let share = (module.share().unwrap_or(0.0) * 100.0).floor();
                format!("{share:.0} % of the code of {name} is instrumented, and not: {}.", parts.join(", "))
            }
        }
    });
    words.take(PARTS_NAMED).collect()
}

#[cfg(test)]
mod tests {
    //! Recordings with and without gaps.

    use numapilot_flows::{Module, Part};

    use super::*;

    fn seen(accesses: u64, user_ns: u64, instrumented: u64) -> Instrumentation {
        let program = Module {
            path: "/home/u/server".into(),
            is_program: true,
            has_archive: true,
            code_bytes: 1000,
            instrumented_bytes: instrumented,
            left_out: vec![Part { name: "hdr.c".into(), bytes: 1000 - instrumented }],
            ..Module::default()
        };
        Instrumentation { modules: vec![program], processes: 1, accesses, user_ns: Some(user_ns) }
    }

    #[test]
    fn few_accesses_for_the_time_are_blind_where_code_is_left_out() {
        let found = judge(&seen(5_000, 2_000_000_000, 0)).expect("blind");
        assert!(
            found.says().starts_with("Nothing can be judged: only 5000 accesses were seen in 2.0 s"),
            "{}",
            found.says()
        );
        assert!(found.says().contains("none of its code is instrumented") && found.says().contains("numapilot cc"));
        let part = judge(&seen(5_000, 2_000_000_000, 200)).expect("blind").says();
        assert!(part.contains("20 % of the code of server is instrumented, and not: hdr.c."), "{part}");
    }

    #[test]
    fn programs_that_sleep_compute_or_call_the_kernel_are_not_blind() {
        assert_eq!(judge(&seen(1_000, 20_000_000, 500)), None, "hardly any processor time");
        assert_eq!(judge(&seen(6_000_000, 500_000_000, 500)), None, "copies by system calls: 12 million per second");
        assert_eq!(judge(&seen(10, 9_000_000_000, 1000)), None, "all of it is instrumented: it computes in registers");
    }

    #[test]
    fn no_access_at_all_and_no_instrumented_process_are_blind_at_any_length() {
        assert!(judge(&seen(0, 1_000_000, 0)).is_some());
        let none = Instrumentation { processes: 0, ..seen(0, 0, 0) };
        assert!(judge(&none).expect("blind").says().contains("None of the programs that ran is instrumented: server."));
    }
}
