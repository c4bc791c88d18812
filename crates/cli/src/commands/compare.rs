//! `numapilot compare`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use numapilot_insight::compare::{Comparison, Metric, Prediction, RunSummary, compare};
use numapilot_report::compare as shown;
use serde_json::{Value, json};

use super::exit::BEYOND_LIMITS;
use super::simulate::progress;
use super::summary::summarise_named;
use crate::args::CompareArgs;
use crate::output;

/// Compares the recordings, prints the comparison, and returns exit status 3 if a given limit is exceeded.
pub fn run(arguments: &CompareArgs) -> Result<ExitCode> {
    let is_taken = output::takes_standard_output(&[&arguments.html, &arguments.svg])?;
    let (prediction, foretold_on) = arguments.prediction.as_deref().map(prediction).transpose()?.unzip();
    let before = side(&arguments.before, &arguments.more_before);
    let after = side(&arguments.after, &arguments.more_after);
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
    let exceeded = exceeded(arguments, &found);
    if let Some(path) = &arguments.html {
        output::write_file(path, &shown::html(&found, arguments.top))?;
    }
    if let Some(path) = &arguments.svg {
        output::write_file(path, &shown::svg(&found, arguments.top))?;
    }
    if arguments.json && !is_taken {
        let mut value = serde_json::to_value(&found).context("JSON")?;
        value["exceeded"] = exceeded.as_ref().map_or(Value::Null, |exceeded| Value::from(exceeded.clone()));
        output::print_json(&json!(value))?;
    } else if !is_taken {
        output::print(&shown::render(&found, arguments.top, output::look(&arguments.look)))?;
    }
    let exceeded = exceeded?;
    for limit in &exceeded {
        crate::output::tell!("numapilot: {limit}");
    }
    Ok(if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BEYOND_LIMITS) })
}

fn side(first: &Path, more: &[PathBuf]) -> Vec<PathBuf> {
    std::iter::once(first.to_owned()).chain(more.iter().cloned()).collect()
}

/// Limits that are exceeded for certain: the whole interval lies beyond them.
fn exceeded(arguments: &CompareArgs, found: &Comparison) -> Result<Vec<String>> {
    let mut exceeded = Vec::new();
    let of = |metric: Metric| found.metrics.iter().find(|change| change.metric == metric).map(|change| &change.change);
    if let Some(limit) = arguments.max_slowdown {
        let Some(rise) = of(Metric::RunTime).and_then(|change| change.relative) else {
            bail!(
                "--max-slowdown: the run times cannot be compared (see the notes); leave out --no-model, or record both sides with one engine"
            );
        };
        if rise.low > limit {
            exceeded.push(format!(
                "the run time rose by {:.1} %, more than {:.1} %",
                rise.value * 100.0,
                limit * 100.0
            ));
        }
    }
    if let Some(limit) = arguments.max_more_remote {
        let Some(change) = of(Metric::RemoteShare) else {
            bail!("--max-more-remote: the remote accesses of a recording are unknown (see the notes)");
        };
        if change.difference.low > limit {
            exceeded.push(format!(
                "the share of remote accesses rose by {:.1} points, more than {:.1}",
                change.difference.value * 100.0,
                limit * 100.0
            ));
        }
    }
    Ok(exceeded)
}

/// That the prediction is for another machine than that of the recordings.
fn foretold_elsewhere(machine: &str, found: &Comparison) -> Option<String> {
    let other = found.before.iter().chain(&found.after).find(|run| run.machine != machine)?;
    Some(format!(
        "The prediction is for machine {machine}, and {} was recorded on {}: whether they agree says nothing of the prediction.",
        other.trace, other.machine
    ))
}

/// Parses the predicted gain: a percentage, or a file that `whatif --json` wrote. Also the machine that it is for, if the file names one.
fn prediction(text: &str) -> Result<(Prediction, Option<String>)> {
    let number = text.trim_end_matches('%').trim_start_matches('+');
    if let Ok(percent) = number.parse::<f64>()
        && percent.is_finite()
    {
        return Ok((Prediction { gain: percent / 100.0, interval: None }, None));
    }
    let content = std::fs::read_to_string(text).with_context(|| format!("--prediction {text}"))?;
    let value: Value = serde_json::from_str(&content).with_context(|| format!("--prediction {text}: not JSON"))?;
    let Some(gain) = value["gain"].as_f64() else {
        bail!("--prediction {text}: it has no field \"gain\"; give a file that `numapilot whatif --json` wrote");
    };
    // An end that is no number (JSON has `null`) is open: the model did not converge. No run takes longer than for ever.
    let end = |name: &str, open: f64| value.get(name).map(|end| end.as_f64().unwrap_or(open));
    let interval = end("gain_low", -1.0).zip(end("gain_high", f64::INFINITY));
    Ok((Prediction { gain, interval }, value["machine"].as_str().map(str::to_owned)))
}
