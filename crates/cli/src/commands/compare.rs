//! `numapilot compare`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use numapilot_insight::compare::{Comparison, Metric, Prediction, RunSummary, compare};
use numapilot_report::compare as shown;
use numapilot_text::quantity;
use numapilot_text::units::percent;
use serde_json::{Value, json};

use super::exit::BEYOND_LIMITS;
use super::simulate::progress;
use super::summary::{refuse_twice, summarise_named, unlike};
use crate::args::CompareArgs;
use crate::output;

/// Compares the recordings, prints the comparison, and returns exit status 3 if a given limit is exceeded.
pub fn run(arguments: &CompareArgs) -> Result<ExitCode> {
    let is_taken = output::takes_standard_output(&[&arguments.html, &arguments.svg])?;
    let (prediction, foretold_on) = arguments.prediction.as_deref().map(prediction).transpose()?.unzip();
    let before = side(&arguments.before, &arguments.more_before);
    let after = side(&arguments.after, &arguments.more_after);
    [&before, &after].into_iter().try_for_each(|side| refuse_twice(side))?;
    let bar = progress(arguments.quiet, "comparing");
    let total = before.len() + after.len();
    let mut done = 0;
    let mut read = |paths: &[PathBuf]| -> Result<Vec<RunSummary>> {
        paths
            .iter()
            .map(|path| {
                let summary = summarise_named(path, !arguments.no_model);
                done += 1;
                bar.set_position((done * 1000 / total) as u64);
                summary
            })
            .collect()
    };
    let mut found = compare(read(&before)?, read(&after)?, prediction)?;
    bar.finish_and_clear();
    let elsewhere = foretold_on.flatten().and_then(|machine| foretold_elsewhere(&machine, &found));
    found.notes.extend(elsewhere);
    // What is known is shown even where a limit cannot be judged: its notes say why.
    let judged = judge(arguments, &found);
    if let Some(path) = &arguments.html {
        output::write_file(path, &shown::html(&found, arguments.top))?;
    }
    if let Some(path) = &arguments.svg {
        output::write_file(path, &shown::svg(&found, arguments.top))?;
    }
    if arguments.json && !is_taken {
        let mut value = serde_json::to_value(&found).context("JSON")?;
        let listed =
            |of: fn(&Limits) -> &Vec<String>| judged.as_ref().map_or(Value::Null, |limits| of(limits).clone().into());
        value["exceeded"] = listed(|limits| &limits.exceeded);
        value["limits_in_doubt"] = listed(|limits| &limits.in_doubt);
        output::print_json(&json!(value))?;
    } else if !is_taken {
        output::print(&shown::render(&found, arguments.top, output::look(&arguments.look)))?;
    }
    let Limits { exceeded, in_doubt } = judged?;
    for limit in exceeded.iter().chain(&in_doubt) {
        crate::output::tell!("numapilot: {limit}");
    }
    Ok(if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BEYOND_LIMITS) })
}

fn side(first: &Path, more: &[PathBuf]) -> Vec<PathBuf> {
    std::iter::once(first.to_owned()).chain(more.iter().cloned()).collect()
}

/// Limits that are not kept, in words.
#[derive(Default)]
struct Limits {
    /// For certain: the whole interval lies beyond them and, of one recording of each side, what equal runs may differ by too.
    exceeded: Vec<String>,
    /// Only with several recordings of each side there would be a verdict.
    in_doubt: Vec<String>,
}

impl Limits {
    /// Judges one limit. `low`: the lower end of the rise's interval; `certain`: that of what is certain of it.
    fn judge(&mut self, limit: f64, low: f64, certain: f64, words: &str) {
        if certain > limit {
            self.exceeded.push(words.to_owned());
        } else if low > limit {
            self.in_doubt.push(format!(
                "in doubt, because equal runs may differ by as much and each side has one recording: {words}"
            ));
        }
    }
}

fn judge(arguments: &CompareArgs, found: &Comparison) -> Result<Limits> {
    let mut limits = Limits::default();
    let different = |is_of_times| unlike(found.before.iter().chain(&found.after), is_of_times);
    let of = |metric: Metric| found.metrics.iter().find(|change| change.metric == metric).map(|change| &change.change);
    if let Some(limit) = arguments.max_slowdown {
        if let Some(why) = different(true) {
            bail!("--max-slowdown: {why}; record both sides for one machine and with one engine");
        }
        let time = of(Metric::RunTime);
        let Some((rise, certain)) = time.and_then(|time| time.relative.zip(time.certain_relative_rise())) else {
            bail!(
                "--max-slowdown: the run times cannot be compared (see the notes); leave out --no-model, or record both sides with one engine"
            );
        };
        let (value, most) = (percent(rise.value), percent(limit));
        limits.judge(limit, rise.low, certain, &format!("the run time rose by {value}, more than {most}"));
    }
    if let Some(limit) = arguments.max_more_remote {
        if let Some(why) = different(false) {
            bail!("--max-more-remote: {why}; record both sides for one machine");
        }
        let Some(change) = of(Metric::RemoteShare) else {
            bail!("--max-more-remote: the remote accesses of a recording are unknown (see the notes)");
        };
        let (value, most) = (change.difference.value * 100.0, limit * 100.0);
        let words = format!("the share of remote accesses rose by {value:.1} points, more than {most:.1}");
        limits.judge(limit, change.difference.low, change.certain_rise(), &words);
    }
    Ok(limits)
}

/// That the prediction is for another machine than that of the recordings.
fn foretold_elsewhere(machine: &str, found: &Comparison) -> Option<String> {
    // Of a machine that was recorded as it is, a prediction has the name alone, and a recording also says which one it was.
    let is_it = |run: &RunSummary| {
        run.machine.strip_prefix(machine).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
    };
    let other = found.before.iter().chain(&found.after).find(|run| !is_it(run))?;
    Some(format!(
        "The prediction is for machine {machine}, and {} was recorded on {}: whether they agree says nothing of the prediction.",
        other.trace, other.machine
    ))
}

/// Parses the predicted gain: a percentage, or a file that `whatif --json` wrote. Also the machine that it is for, if the file names one.
fn prediction(text: &str) -> Result<(Prediction, Option<String>)> {
    if let Ok(gain) = quantity::change(text) {
        return Ok((Prediction { of: Metric::RunTime, gain, interval: None }, None));
    }
    let content = std::fs::read_to_string(text).with_context(|| format!("--prediction {text}"))?;
    let value: Value = serde_json::from_str(&content).with_context(|| format!("--prediction {text}: not JSON"))?;
    let Some(predicted) = foretold(&value) else {
        bail!("--prediction {text}: it has no field \"gain\"; give a file that `numapilot whatif --json` wrote");
    };
    Ok((predicted, value["machine"].as_str().map(str::to_owned)))
}

/// The gain that `whatif --json` predicts: of the processor time, where it says how much of that is gained, because sleeps decide how long the run is; else of
/// the run time. `None` if it has no gain.
fn foretold(value: &Value) -> Option<Prediction> {
    let (of, gain, low, high) = match value.get("work_gain").filter(|work| !work.is_null()) {
        Some(work) => (Metric::ProcessorTime, work.get("value"), work.get("low"), work.get("high")),
        None => (Metric::RunTime, value.get("gain"), value.get("gain_low"), value.get("gain_high")),
    };
    // An end that is no number (JSON has `null`) is open: the model did not converge. No run takes longer than for ever.
    let end = |end: Option<&Value>, open: f64| end.map(|end| end.as_f64().unwrap_or(open));
    Some(Prediction { of, gain: gain?.as_f64()?, interval: end(low, -1.0).zip(end(high, f64::INFINITY)) })
}

#[cfg(test)]
mod tests {
    use numapilot_trace::engine::Engine;

    use super::super::summary::tests::run as recorded;
    use super::*;
    use crate::args::{Colour, LookArgs};

    fn arguments() -> CompareArgs {
        CompareArgs {
            before: PathBuf::new(),
            after: PathBuf::new(),
            more_before: Vec::new(),
            more_after: Vec::new(),
            prediction: None,
            max_slowdown: None,
            max_more_remote: None,
            no_model: false,
            top: 10,
            json: false,
            html: None,
            svg: None,
            quiet: true,
            look: LookArgs { color: Colour::Never, width: 100 },
        }
    }

    /// A gate passed or failed by what another machine makes of the program.
    #[test]
    fn a_rise_from_one_machine_to_another_is_no_verdict() {
        let arguments = CompareArgs { max_slowdown: Some(0.05), ..arguments() };
        let judged = |machine: &str, engine: Engine| {
            let (before, after) =
                (recorded("b", "small", Engine::Instrument, 1e9), recorded("a", machine, engine, 2e9));
            let found = compare(vec![before], vec![after], None).expect("two sides");
            judge(&arguments, &found).map(|limits| limits.exceeded.len()).map_err(|error| error.to_string())
        };
        assert_eq!(judged("small", Engine::Instrument), Ok(1));
        let why = judged("large", Engine::Instrument).expect_err("another machine");
        assert!(why.starts_with("--max-slowdown: b was recorded on machine small, a on large; "), "{why}");
        assert!(judged("small", Engine::Emulate).is_err_and(|why| why.contains("by engine instrument, a by emulate")));
    }

    #[test]
    fn a_prediction_for_the_machine_that_was_recorded_is_no_other() {
        let recorded = |trace: &str| recorded(trace, "live (a processor, 2 nodes, 4 CPUs)", Engine::Pmu, 1e9);
        let found = compare(vec![recorded("b")], vec![recorded("a")], None).expect("two sides");
        assert_eq!(foretold_elsewhere("live", &found), None);
        assert!(foretold_elsewhere("xeon-2s", &found).is_some_and(|note| note.contains("b was recorded on live (")));
    }

    #[test]
    fn a_prediction_of_processor_time_is_taken_for_one() {
        let run_time = json!({ "gain": 0.001, "gain_low": -0.01, "gain_high": 0.02 });
        let predicted = |of, gain, interval| Some(Prediction { of, gain, interval });
        assert_eq!(foretold(&run_time), predicted(Metric::RunTime, 0.001, Some((-0.01, 0.02))));
        let mut sleeps = run_time;
        sleeps["work_gain"] = json!({ "value": 0.2, "low": 0.1, "high": null });
        assert_eq!(foretold(&sleeps), predicted(Metric::ProcessorTime, 0.2, Some((0.1, f64::INFINITY))));
        assert_eq!(foretold(&json!({ "gain": 0.3 })), predicted(Metric::RunTime, 0.3, None));
        assert_eq!(foretold(&json!({ "x": 1 })), None);
    }
}
