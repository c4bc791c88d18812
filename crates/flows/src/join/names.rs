//! Names of threads: the kernel's, which it cuts, and the whole ones that a runtime tells.

/// Bytes that the kernel keeps of a thread's name (`TASK_COMM_LEN` without the terminating zero).
const KERNEL_BYTES: usize = 15;
/// What newer Java virtual machines leave of a longer name for the kernel: so many bytes of its beginning, this, and so many of its end.
const MIDDLE: (usize, &[u8], usize) = (7, b"..", 6);

/// Whether `name` is what the kernel was given of the longer name `known`: then the thread has no new name.
pub(super) fn is_shortened(name: &str, known: &str) -> bool {
    if known.len() <= KERNEL_BYTES {
        return false;
    }
    // A character that was cut in its middle is no text.
    let kept = name.trim_end_matches(char::REPLACEMENT_CHARACTER);
    let is_cut = kept.len() == KERNEL_BYTES || kept.len() < name.len();
    if is_cut && !kept.is_empty() && known.starts_with(kept) {
        return true;
    }
    let (start, dots, end) = MIDDLE;
    let (name, known) = (name.as_bytes(), known.as_bytes());
    name.len() == start + dots.len() + end
        && name[..start] == known[..start]
        && name[start..start + dots.len()] == *dots
        && name[start + dots.len()..] == known[known.len() - end..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_keeps_of_a_name_is_no_new_name() {
        let known = "DispatcherWorkerThread21";
        assert!(is_shortened("DispatcherWorke", known), "its beginning");
        assert!(is_shortened("Dispatc..read21", known), "its beginning and its end");
        assert!(is_shortened("Grüße aus Köl\u{fffd}", "Grüße aus Köln nach Wien"), "cut within a character");
    }

    #[test]
    fn other_names_are_new_ones() {
        let known = "DispatcherWorkerThread21";
        for name in
            ["", "Dispatcher", "DispatcherWorkf", "Dispatc..read22", "Dispatd..read21", "DispatcherWorkerThread22"]
        {
            assert!(!is_shortened(name, known), "{name}");
        }
        assert!(!is_shortened("worker", "worker"), "one that the kernel keeps whole");
        assert!(!is_shortened("exactly fifteen", "exactly fifteen"));
    }
}
