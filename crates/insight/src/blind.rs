//! Detects recordings that saw too few accesses to judge by, given the processor time that the processes used.
//!
//! An instrumented program makes tens to hundreds of millions of accesses per second of processor time, simulation included; even one that mostly
//! calls the kernel makes ten million per second in user mode. One that makes less than [`RATE_MIN`] spends its time in code that was not
//! instrumented, or in registers. The share of instrumented code distinguishes these cases: a program whose own code is
//! instrumented counts as seen.

use numapilot_flows::{Instrumentation, Module, Trace};
use numapilot_text::units::short_percent;
use numapilot_trace::engine::Engine;
use serde::Serialize;

/// Accesses per second of user time below which a recording with uninstrumented code cannot be judged. A tenth of the least that was measured on an
/// instrumented program which accesses memory at all (docs/instrument.md has the figures).
pub const RATE_MIN: f64 = 1e6;
/// Least user time for a judgement, ns: the loader and the tracker take up to a few hundredths of a second without an access.
const JUDGED_FROM_NS: u64 = 100_000_000;
/// Share of instrumented code, 0 to 1, below which a binary counts as a cause.
const SHARE_MIN: f64 = 0.9;
/// Largest number of parts that a sentence names.
const PARTS_NAMED: usize = 3;

/// A recording that saw too little.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blindness {
    /// Number of accesses that were seen.
    pub accesses: u64,
    /// Lower bound of the instrumented processes' processor time in user mode, ns; `None` if it is not known.
    pub user_ns: Option<u64>,
    /// What was not seen, and why, in whole sentences.
    pub causes: Vec<String>,
    /// What to do, in a whole sentence.
    pub remedy: String,
}

impl Blindness {
    /// The first line of every report: how little was seen, why, and the remedy.
    #[must_use]
    pub fn says(&self) -> String {
        let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
        let few =
            |accesses: u64| if accesses == 1 { "1 access was".to_owned() } else { format!("{accesses} accesses were") };
        let seen = match (self.accesses, self.user_ns) {
            (0, Some(ns)) if ns >= JUDGED_FROM_NS => format!("no access was seen in {} of processor time", seconds(ns)),
            (0, _) => "no access was seen".to_owned(),
            (accesses, Some(ns)) => format!("only {} seen in {} of processor time", few(accesses), seconds(ns)),
            (accesses, None) => format!("only {} seen", few(accesses)),
        };
        format!("Nothing can be judged: {seen}. {} {}", self.causes.join(" "), self.remedy)
    }
}

/// Why this recording cannot be judged; `None` if it can be, or if nothing is known of its instrumentation.
pub(crate) fn of(trace: &Trace) -> Option<Blindness> {
    if trace.meta().engine != Engine::Instrument {
        return None;
    }
    judge(&trace.instrumentation()?)
}

/// The same from counts alone, which a recorder knows at its end without opening the trace.
#[must_use]
pub fn judge(seen: &Instrumentation) -> Option<Blindness> {
    let causes = causes(seen);
    let is_slow = |ns: u64| (seen.accesses as f64) < RATE_MIN * ns as f64 / 1e9;
    let is_blind = match seen.user_ns.filter(|ns| *ns >= JUDGED_FROM_NS) {
        Some(ns) => is_slow(ns),
        None => seen.accesses == 0,
    };
    let remedy = "Compile the whole program with `numapilot cc`, `c++` or `fc` and record it again, or record it unchanged with the slower `--engine emulate`.";
    (is_blind && !causes.is_empty()).then(|| Blindness {
        accesses: seen.accesses,
        user_ns: seen.user_ns,
        causes,
        remedy: remedy.to_owned(),
    })
}

fn causes(seen: &Instrumentation) -> Vec<String> {
    if seen.processes == 0 {
        return without_call_outs(seen);
    }
    let gaps = seen.own_modules().filter(|module| module.share().is_some_and(|share| share < SHARE_MIN));
    let words = gaps.map(|module| {
        let name = module.name();
        match (module.instrumented_bytes, module.has_archive) {
            (0, true) => format!("{name} was linked by numapilot, but none of its code is instrumented, because another compiler compiled its object files."),
            (0, false) => format!("{name} is not instrumented."),
            _ => {
                let parts: Vec<&str> = module.left_out.iter().take(PARTS_NAMED).map(|part| part.name.as_str()).collect();
                let share = short_percent(module.share().unwrap_or(0.0));
                format!("{share} of the code of {name} is instrumented. Not instrumented: {}.", parts.join(", "))
            }
        }
    });
    words.take(PARTS_NAMED).collect()
}

/// The causes where no process contains call-outs, as far as is known.
fn without_call_outs(seen: &Instrumentation) -> Vec<String> {
    let programs = |is_examined: bool| -> Vec<&str> {
        let these = |module: &&Module| module.is_program && module.unknown.is_empty() == is_examined;
        seen.modules.iter().filter(these).map(Module::name).take(PARTS_NAMED).collect()
    };
    let (examined, unknown) = (programs(true), programs(false));
    let mut causes = Vec::new();
    if !examined.is_empty() {
        causes.push(format!("None of the programs that ran is instrumented: {}.", examined.join(", ")));
    }
    if !unknown.is_empty() {
        causes.push(format!(
            "It is not known whether these are instrumented, because their files could not be read: {}.",
            unknown.join(", ")
        ));
    }
    if causes.is_empty() {
        causes.push("No instrumented program ran under the recorder.".to_owned());
    }
    causes
}

#[cfg(test)]
mod tests {
    //! Recordings with and without gaps.

    use numapilot_flows::Part;

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
        assert!(part.contains("20 % of the code of server is instrumented. Not instrumented: hdr.c."), "{part}");
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
        let gone =
            Module { is_program: true, path: "/tmp/gone".into(), unknown: "no file".into(), ..Module::default() };
        let says = judge(&Instrumentation { modules: vec![gone], ..none }).expect("blind").says();
        assert!(says.contains("could not be read: gone.") && !says.contains("None of the programs"), "{says}");
    }
}
