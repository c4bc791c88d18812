//! Detects a guest whose kernel was hit by a breakpoint that was no longer in its code.
//!
//! The kernel changes its code while it runs (`arch/x86/kernel/alternative.c`, `text_poke_bp_batch`): it puts a breakpoint (`int3`, byte cc) on the first
//! byte, writes the others, writes the first one, and after each step waits until every CPU has run an instruction that serialises. Then no CPU can
//! meet the breakpoint any more, and the kernel treats one that does as fatal. Under emulation with a thread for each CPU, a CPU has executed the
//! breakpoint from a translation that was out of date (seen once in some thousands of guests with QEMU 10.0.2, on a busy host). The kernel's report shows
//! it: `Oops: int3: 0000 [#1]`, and the bytes of its code at that moment, in which the byte before the marked one is not cc any more.

const BREAKPOINT: &str = "int3: 0000 [#1]";
const CODE: &str = "Code: ";
const PLACE: &str = "RIP: 0010:";

/// The place in the kernel's code, as its report names it, where a CPU met a breakpoint that was not there. `None`: no such report on this console, or
/// one of a breakpoint that was there, which the emulator has not caused.
pub(crate) fn breakpoint(console: &str) -> Option<String> {
    let report = console.split_once(BREAKPOINT)?.1;
    let place = report.lines().find_map(|line| line.split_once(PLACE))?.1;
    let code = report.lines().find_map(|line| line.split_once(CODE))?.1;
    let (before, _) = code.split_once('<')?;
    let last = u8::from_str_radix(before.split_ascii_whitespace().next_back()?, 16).ok()?;
    (last != 0xcc).then(|| place.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kernel 6.12 wrote, without the registers.
    const SEEN: &str = "numapilot-lab: running\n\
        [   17.258271] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\n\
        [   17.259184] CPU: 2 UID: 0 PID: 32 Comm: migration/2 Not tainted 6.12.117+deb12-amd64 #1  Debian 6.12.117-1~deb12u1\n\
        [   17.280019] RIP: 0010:__schedule+0x3fd/0xbf0\n\
        [   17.282859] Code: 89 d1 49 89 94 24 a0 08 00 00 01 0f <1f> 44 00 00 0f 1f 44 00 00 48\n\
        [   17.316372] Oops: int3: 0000 [#2] PREEMPT SMP NOPTI\n\
        [   17.320527] Kernel panic - not syncing: Fatal exception in interrupt\n";

    #[test]
    fn a_breakpoint_that_the_code_no_longer_has_is_told() {
        assert_eq!(breakpoint(SEEN).as_deref(), Some("__schedule+0x3fd/0xbf0"));
        // Kernel 6.1 writes it without "Oops".
        assert_eq!(breakpoint(&SEEN.replace("Oops: ", "")).as_deref(), Some("__schedule+0x3fd/0xbf0"));
    }

    #[test]
    fn one_that_is_there_is_not_the_emulators() {
        assert_eq!(breakpoint(&SEEN.replace("01 0f <1f>", "01 cc <1f>")), None);
    }

    #[test]
    fn other_and_cut_reports_say_nothing() {
        assert_eq!(breakpoint(""), None);
        assert_eq!(breakpoint(&SEEN.replace("int3", "invalid opcode")), None);
        for end in 0..SEEN.find("<1f>").unwrap() {
            assert_eq!(breakpoint(&SEEN[..end]), None, "{}", &SEEN[..end]);
        }
        for odd in ["<1f> 44", "zz <1f>", "0f 1f 44"] {
            assert_eq!(
                breakpoint(&SEEN.replace("89 d1 49 89 94 24 a0 08 00 00 01 0f <1f> 44 00 00 0f 1f 44 00 00 48", odd)),
                None,
                "{odd}"
            );
        }
    }
}
