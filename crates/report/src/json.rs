//! The same reports for programs. Field names carry their units, except moments and lengths of program time (`start`, `end`, `duration`, `first`, `last`),
//! which are nanoseconds; shares lie between 0 and 1; every estimate is `{value, low, high}` with a 95 % interval (a point where it was counted). Per-node
//! lists follow `nodes`.

use numapilot_flows::Evidence;
use numapilot_flows::Trace;
use numapilot_insight::Analysis;
use numapilot_insight::LinkTraffic;
use numapilot_insight::StackRow;
use numapilot_insight::Verdict;
use serde_json::Value;
use serde_json::json;

use crate::counted::Counted;
use crate::heading::Heading;

/// Version of the JSON reports: rises when a field changes its meaning or goes.
pub const VERSION: u32 = 1;

/// The fields with which every JSON report begins.
#[must_use]
pub fn base(heading: &Heading, analysis: &Analysis<'_>) -> Value {
    json!({
        "format": "numapilot-report",
        "version": VERSION,
        "recording": heading,
        "limits": heading.limits(),
        "nodes": analysis.nodes(),
        // What "accesses" and "samples" of the report are.
        "counted": Counted::of(analysis.trace()),
    })
}

/// The overview: headline, sites, matrix and links.
#[must_use]
pub fn overview(heading: &Heading, analysis: &Analysis<'_>, links: &[LinkTraffic], top: usize) -> Value {
    let mut value = base(heading, analysis);
    if analysis.trace().evidence() == Evidence::Other {
        // Nothing was sampled that could tell of accesses: their number is not 0 but unknown.
        value["headline"] = json!({ "totals": null, "top": null, "verdict": Verdict::NotSampled });
        value["matrix"] = Value::Null;
        value["links"] = Value::Null;
        value["sites"] = json!([]);
        return value;
    }
    let headline = analysis.headline();
    value["headline"] = json!(headline);
    // A share of nothing, or of what little was seen, is no figure.
    let unknown: &[&str] = match headline.verdict {
        Verdict::Blind | Verdict::NothingSeen | Verdict::NothingPasses => {
            &["remote_share", "local_share", "write_share", "imbalance"]
        }
        Verdict::HomesUnknown | Verdict::PageFaults => &["remote_share", "local_share", "imbalance"],
        _ => &[],
    };
    for share in unknown {
        value["headline"]["totals"][share] = Value::Null;
    }
    if let Some(blindness) = &headline.blindness {
        value["headline"]["blindness"]["says"] = json!(blindness.says());
    }
    value["instrumentation"] = json!(analysis.trace().instrumentation());
    value["matrix"] = json!(analysis.matrix());
    value["links"] = json!(links);
    if Counted::of(analysis.trace()).is_faults() {
        // How much data page faults move is not known.
        for link in value["links"].as_array_mut().into_iter().flatten() {
            (link["bytes"], link["utilisation"]) = (Value::Null, Value::Null);
        }
    }
    value["sites"] = json!(analysis.sites().into_iter().take(top).collect::<Vec<_>>());
    value
}

/// Stacks with their frames spelled out.
#[must_use]
pub fn stacks(rows: &[StackRow], trace: &Trace) -> Value {
    rows.iter()
        .map(|row| {
            let mut value = json!(row);
            value["frames"] = json!(frames(trace, row.stack));
            value
        })
        .collect()
}

/// The frames of a stack, innermost first.
#[must_use]
pub fn frames(trace: &Trace, stack: numapilot_trace::ids::StackId) -> Value {
    let frames = trace.stack(stack).iter().flat_map(|&id| {
        let location = trace.location(id);
        location.frames.iter().map(move |frame| json!({"module": location.module, "frame": frame}))
    });
    frames.collect()
}
