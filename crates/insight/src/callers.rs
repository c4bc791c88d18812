//! A site's allocations by the call stacks that made them: which callers of a function that many call allocate what is accessed.

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::{AccessRef, LocationId, SiteId, Trace};
use numapilot_trace::ids::StackId;
use serde::Serialize;

use crate::context::{AllSums, Analysis};
use crate::estimate::{Estimate, Tally};

/// Functions that a row names.
const PATH_MAX: usize = 3;

/// The allocations of a site that came by one call stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallerRow {
    /// Call stack, as an index of the trace.
    pub stack: StackId,
    /// Functions of it with their places, innermost first, from where the site's call stacks part.
    pub path: Vec<String>,
    /// Number of instances, accessed or not.
    pub instances: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
    /// Number of samples.
    pub samples: u64,
    /// Share of the site's accesses.
    pub share: Estimate,
    /// Of its accesses, the share that is remote.
    pub remote: Estimate,
}

#[derive(Default)]
struct Calls {
    instances: u64,
    bytes: u64,
    sums: AllSums,
}

impl Analysis<'_> {
    /// The call stacks that allocated a site's instances, those with most accesses first. Empty where there is only one. `own` are the site's accesses.
    pub(crate) fn caller_rows(&self, site: SiteId, own: &[AccessRef]) -> Vec<CallerRow> {
        let trace = self.trace;
        let mut stacks: HashMap<StackId, Calls> = HashMap::new();
        for object in trace.objects().iter().filter(|object| object.site == site) {
            let calls = stacks.entry(object.stack).or_default();
            calls.instances += 1;
            calls.bytes = calls.bytes.saturating_add(object.bytes);
        }
        if stacks.len() < 2 {
            return Vec::new();
        }
        let mut all = Tally::default();
        for access in own {
            all.add(access);
            let stack = access.object.and_then(|object| trace.object(object)).map_or(StackId(0), |object| object.stack);
            stacks.entry(stack).or_default().sums.add(access);
        }
        let common = common(stacks.keys().map(|stack| trace.stack(*stack)));
        let row = |(stack, calls): (StackId, Calls)| CallerRow {
            stack,
            path: path(trace, trace.stack(stack).get(common..).unwrap_or_default()),
            instances: calls.instances,
            bytes: calls.bytes,
            samples: calls.sums.all.samples,
            share: calls.sums.all.share_of(&all),
            remote: calls.sums.remote.share_of(&calls.sums.known),
        };
        let mut rows: Vec<CallerRow> = stacks.into_iter().map(row).collect();
        let order = |a: &CallerRow, b: &CallerRow| {
            b.share.value.total_cmp(&a.share.value).then(b.bytes.cmp(&a.bytes)).then(a.stack.cmp(&b.stack))
        };
        rows.sort_by(order);
        rows
    }
}

/// How many innermost locations all call stacks have in common, less one where a stack has no more: it would have no caller to show.
fn common<'s>(mut stacks: impl Iterator<Item = &'s [LocationId]>) -> usize {
    let Some(first) = stacks.next() else { return 0 };
    let (mut shared, mut least) = (first.len(), first.len());
    for stack in stacks {
        shared = first.iter().zip(stack).take(shared).take_while(|(a, b)| a == b).count();
        least = least.min(stack.len());
    }
    shared.min(least.saturating_sub(1))
}

fn path(trace: &Trace, locations: &[LocationId]) -> Vec<String> {
    let frames = locations
        .iter()
        .map(|id| trace.location(*id))
        .flat_map(|code| code.frames.iter().map(move |frame| (code, frame)));
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let named = frames.map(|(code, frame)| match (&*frame.file, frame.line) {
        ("", _) => format!("{} ({})", frame.function, base(&code.module)),
        (file, 0) => format!("{} ({})", frame.function, base(file)),
        (file, line) => format!("{} ({}:{line})", frame.function, base(file)),
    });
    named.take(PATH_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stacks: &[&[u32]]) -> usize {
        let stacks: Vec<Vec<LocationId>> =
            stacks.iter().map(|stack| stack.iter().map(|&id| LocationId(id)).collect()).collect();
        common(stacks.iter().map(Vec::as_slice))
    }

    #[test]
    fn stacks_part_where_their_callers_differ() {
        assert_eq!(of(&[&[1, 2, 3, 9], &[1, 2, 4, 9], &[1, 2, 3, 8]]), 2);
        assert_eq!(of(&[&[1, 2], &[3, 2]]), 0);
        // One ends where the others go on: its last function is shown.
        assert_eq!(of(&[&[1, 2], &[1, 2, 3]]), 1);
        assert_eq!(of(&[&[], &[1, 2, 3]]), 0);
        assert_eq!(of(&[]), 0);
    }
}
