//! `numapilot whatif`: a recorded program with other homes for some of its objects, predicted.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use numapilot_flows::Trace;
use numapilot_insight::Estimate;
use numapilot_machine::{Machine, NodeId};
use numapilot_report::simulation::{Prediction, prediction};
use numapilot_report::units;
use numapilot_simulator::arrange::{Arrangement, PageRange, arrange};
use numapilot_simulator::program::PAGE_BYTES;
use numapilot_simulator::recorded::{self, RecordedOptions};
use numapilot_simulator::{Layout, Report};
use serde_json::json;

use super::objects::{Chosen, choose_objects};
use super::simulate::progress;
use super::traced::as_recorded;
use crate::args::WhatifArgs;
use crate::output;

/// Parts of the jackknife: each leaves out one of so many equal parts of the samples.
const PARTS: u32 = 5;

/// One wish: some pages, and where they should be.
struct Wish {
    words: String,
    ranges: Vec<PageRange>,
    how: Arrangement,
}

/// Predicts and prints.
pub fn run(arguments: &WhatifArgs) -> Result<()> {
    let trace = Trace::open(&arguments.trace)?;
    let wishes: Vec<Wish> = arguments.set.iter().map(|set| wish(&trace, set)).collect::<Result<_>>()?;
    drop(trace);
    let question = Question { arguments, wishes: &wishes };
    let bar = progress(arguments.quiet, "predicting");
    let done = AtomicUsize::new(0);
    let step = || {
        let runs = done.fetch_add(1, Ordering::Relaxed) + 1;
        bar.set_position((runs * 1000 / (PARTS as usize + 1)) as u64);
    };
    let (whole, parts) = std::thread::scope(|scope| {
        let others = scope.spawn(|| -> Result<Vec<f64>> {
            (0..PARTS)
                .map(|part| question.ask(Some((part, PARTS))).map(|answer| answer.gain()).inspect(|_| step()))
                .collect()
        });
        let whole = question.ask(None).inspect(|_| step());
        (whole, others.join())
    });
    bar.finish_and_clear();
    let answer = whole?;
    let Ok(gains) = parts else { bail!("the prediction's interval could not be computed: a worker ended early") };
    show(arguments, &wishes, &answer, Estimate::jackknife(answer.gain(), &gains?).margin())
}

fn show(arguments: &WhatifArgs, wishes: &[Wish], answer: &Answer, margin: f64) -> Result<()> {
    let set: Vec<String> = wishes
        .iter()
        .zip(&answer.pages)
        .map(|(wish, pages)| match (&wish.how, pages) {
            (Arrangement::PinProcesses, _) => wish.words.clone(),
            (_, pages) => format!("{}, {} of memory", wish.words, units::bytes(pages * PAGE_BYTES)),
        })
        .collect();
    if arguments.json {
        return output::print_json(&json!({
            "predicted": true, "set": set, "gain": answer.gain(), "gain_margin": margin, "more_bytes": answer.more_bytes,
            "now": answer.now, "then": answer.then,
        }));
    }
    let found = Prediction {
        set: &set,
        now: &answer.now,
        then: &answer.then,
        gain: answer.gain(),
        margin: Some(margin),
        more_bytes: answer.more_bytes,
    };
    output::print(&prediction(&found, output::look(&arguments.look)))
}

struct Question<'a> {
    arguments: &'a WhatifArgs,
    wishes: &'a [Wish],
}

struct Answer {
    now: Report,
    then: Report,
    pages: Vec<u64>,
    more_bytes: u64,
}

impl Answer {
    fn gain(&self) -> f64 {
        self.now.run_time_ns / self.then.run_time_ns - 1.0
    }
}

impl Question<'_> {
    /// Simulates the program as it is and as it would be, with one part of the samples left out.
    fn ask(&self, leave_out: Option<(u32, u32)>) -> Result<Answer> {
        let recorded =
            recorded::load(&self.arguments.trace, &RecordedOptions { leave_out, ..RecordedOptions::default() })?;
        let machine = match &self.arguments.machine {
            Some(name) => Machine::load(name).with_context(|| format!("--machine {name}"))?,
            None => recorded.machine,
        };
        let now = as_recorded(&recorded.program, &machine, self.arguments.seed)?;
        let mut program = recorded.program;
        let (mut pages, mut more_bytes) = (Vec::new(), 0);
        for wish in self.wishes {
            let done = arrange(&mut program, &machine, Layout::Recorded, &wish.ranges, &wish.how)?;
            pages.push(done.pages);
            more_bytes += done.more_bytes;
        }
        Ok(Answer { now, then: as_recorded(&program, &machine, self.arguments.seed)?, pages, more_bytes })
    }
}

/// Reads `OBJECT=WHERE`.
fn wish(trace: &Trace, set: &str) -> Result<Wish> {
    let known = "interleave, bind:N, replicate, users, local, first-touch; or write processes=pin";
    let Some((name, place)) = set.rsplit_once('=') else {
        bail!("--set {set}: write OBJECT=WHERE, with WHERE one of {known}")
    };
    if (name, place) == ("processes", "pin") {
        let words = "processes: each pinned to one node".to_owned();
        return Ok(Wish { words, ranges: Vec::new(), how: Arrangement::PinProcesses });
    }
    let how = match place {
        "interleave" => Arrangement::Interleave,
        "replicate" => Arrangement::Replicate,
        "users" | "local" => Arrangement::Users,
        "first-touch" => Arrangement::FirstTouch,
        _ => match place.strip_prefix("bind:").map(str::parse) {
            Some(Ok(node)) => Arrangement::On(NodeId(node)),
            _ => bail!("--set {set}: {place:?} is none of {known}"),
        },
    };
    Ok(Wish { words: format!("{name}: {place}"), ranges: ranges(trace, name)?, how })
}

/// The pages of all objects that a name stands for.
fn ranges(trace: &Trace, name: &str) -> Result<Vec<PageRange>> {
    if name == "*" {
        return Ok((0..trace.processes().len() as u32).map(|process| (process, 0, u64::MAX / 2)).collect());
    }
    let mut ranges = Vec::new();
    for chosen in choose_objects(trace, "--set", name)? {
        let wanted = |object: &&numapilot_flows::Object| match chosen {
            Chosen::Site(site) => object.site == site,
            Chosen::Object(id) => object.id == id,
        };
        for object in trace.objects().iter().filter(wanted) {
            let first = object.address.0 / PAGE_BYTES;
            let end = (object.address.0 + object.bytes).div_ceil(PAGE_BYTES);
            // An instance is shared with forked children: their accesses are of the same pages.
            ranges.extend((0..trace.processes().len() as u32).map(|process| (process, first, end - first)));
        }
    }
    Ok(ranges)
}
