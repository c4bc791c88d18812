//! A limit on the addresses of a process (`ulimit -v`; batch systems set one for every job): the program that is recorded has it as well, and the shared
//! memory of the recording counts.

use crate::arena::Layout;

/// Share of the limit that the recording takes, at most.
const SHARE: u64 = 16;
/// Slots that a recording has in any case.
const LEAST_SLOTS: u32 = 16;

/// The limit in bytes; `None`: there is none.
pub(crate) fn limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: fills in a value of ours.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The layout with as many slots as wanted, or with fewer where a limit would leave the program too little, and a note of that.
pub(crate) fn fit(wanted: u32, sized: impl Fn(u32) -> Layout, limit: Option<u64>) -> (Layout, Option<String>) {
    let whole = sized(wanted);
    let Some(most) = limit.map(|limit| limit / SHARE).filter(|most| whole.arena_bytes > *most) else {
        return (whole, None);
    };
    let fixed = whole.arena_bytes - u64::from(whole.slot_count) * u64::from(whole.slot_bytes);
    let room = most.saturating_sub(fixed) / u64::from(whole.slot_bytes).max(1);
    let slots = u32::try_from(room).unwrap_or(u32::MAX).clamp(LEAST_SLOTS.min(wanted), wanted);
    if slots == wanted {
        return (whole, None);
    }
    let note = format!(
        "the address space is limited (`ulimit -v`), so at most {slots} threads are recorded at a time; raise the limit, or give a smaller `--ring-size`"
    );
    (sized(slots), Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(slots: u32) -> Layout {
        // SAFETY: all-zero bytes are a value of np_config.
        let mut config: numapilot_trace::wire::layout::Config = unsafe { std::mem::zeroed() };
        config.l1_lines = 16;
        Layout::new(&config, slots, 1 << 20)
    }

    #[test]
    fn a_limit_leaves_the_program_most_of_it() {
        assert_eq!(fit(1024, sized, None), (sized(1024), None));
        assert_eq!(fit(1024, sized, Some(1 << 40)), (sized(1024), None), "it fits");
        let (layout, note) = fit(1024, sized, Some(8 << 30));
        assert!(layout.arena_bytes <= (8 << 30) / SHARE && layout.slot_count > 400, "{layout:?}");
        assert!(note.is_some_and(|note| note.contains(&layout.slot_count.to_string())));
        assert_eq!(fit(1024, sized, Some(1 << 20)).0.slot_count, LEAST_SLOTS);
        assert_eq!(fit(4, sized, Some(1 << 20)), (sized(4), None), "fewer than the least were wanted");
    }
}
