//! Figures that help to decide: totals, the node-to-node matrix, controller imbalance, links, the decision row of each object
//! and site, threads, functions, stacks, pages, all of it also over time, each with its uncertainty.
//!
//! Everything starts at [`Analysis`]. Results are data; wording and layout are the report's. Every definition is in
//! `docs/metrics.md`.

mod blind;
mod calibration;
mod callers;
pub mod check;
pub mod compare;
mod context;
mod course;
pub mod cube;
mod decision;
mod detail;
mod estimate;
mod facts;
mod fixes;
mod headline;
mod heap;
mod measured;
mod patterns;
mod price;
mod processor_time;
mod rows;
mod scene;
mod shared_cores;
mod statistics;
mod totals;
mod touch;
mod traffic;
mod uncertainty;
mod unseen;
mod usage;
pub mod whatif;
mod windows;

pub use blind::{Blindness, RATE_MIN, judge as blindness_of};
pub use callers::CallerRow;
pub use context::Analysis;
pub use decision::{DecisionRow, Pattern, RowKey};
pub use detail::{CodeRow, ObjectDetail, ObjectThread, PAGE_BYTES, PageRow, ThreadDetail};
pub use estimate::{Estimate, Tally, Weight};
pub use fixes::{Fix, FixKind, is_placeable};
pub use headline::{Headline, Verdict, WithoutCpus};
pub use heap::{HeapProfile, HeapRow, HeapThread, HeapUse, SampledHeap, SampledRow, SampledUse};
pub use measured::MeasuredLatency;
pub use patterns::{
    Confidence, Evidence, Finding, Findings, Nothing, OF_ITS_ACCESSES_REMOTE, PatternKind, Subject, Unit,
};
pub use rows::{FunctionRow, StackRow, ThreadRow};
pub use scene::Surveyed;
pub use statistics::Statistics;
pub use totals::{Bin, Imbalance, LINE_BYTES, Matrix, Series, Source, Totals, imbalance_of};
pub use touch::{Away, FileFaults, PageUse, TouchLine, TouchSite, Touches};
pub use traffic::{LinkTraffic, link_traffic};
pub use uncertainty::{Calibration, LatencyBound, Source as UncertaintySource, Uncertainty};
