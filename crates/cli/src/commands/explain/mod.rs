//! `numapilot explain`: explains the balancer's decisions from its journal, with their evidence, orders and results.

mod text;

use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use anyhow::Context;
use anyhow::Result;
use numapilot_service::Places;
use numapilot_service::explain::Question;
use numapilot_service::explain::explain;

use crate::args::ExplainArgs;
use crate::output;

/// Reads the journal and prints the decisions that the arguments select.
pub fn run(arguments: &ExplainArgs) -> Result<()> {
    let file = arguments.journal.clone().unwrap_or_else(|| Places::usual().journal);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = arguments.since.map(|since| now.saturating_sub(since).as_nanos());
    let question = Question {
        decision: arguments.decision,
        run: arguments.run.clone(),
        pid: arguments.pid,
        address: arguments.page,
        since_unix_ns: since.map(|ns| u64::try_from(ns).unwrap_or(u64::MAX)),
        ranges: arguments.json,
        last: arguments.top,
    };
    let answer = explain(&file, &question)?;
    if arguments.json {
        return output::print_json(&serde_json::to_value(&answer).context("JSON")?);
    }
    let is_detailed = question.decision.is_some() || question.pid.is_some() || question.address.is_some();
    output::print(&text::text(&answer, is_detailed, output::look(&arguments.look)))
}
