//! Names of threads: the kernel's, which it cuts, and the whole ones that a runtime tells.

/// Bytes that the kernel keeps of a thread's name (`TASK_COMM_LEN` without the terminating zero).
const KERNEL_BYTES: usize = 15;
/// What newer Java virtual machines leave of a longer name for the kernel: so many bytes of its beginning, this, and so many of its end.
const MIDDLE: (usize, &[u8], usize) = (7, b"..", 6);

/// What the kernel may have of this name: the name itself, or, of a longer one, its beginning, or its beginning and its end.
pub(crate) fn kernel_names(name: &str) -> Vec<String> {
    let bytes = name.as_bytes();
    if bytes.len() <= KERNEL_BYTES {
        return vec![name.to_owned()];
    }
    let (start, dots, end) = MIDDLE;
    let ends = [&bytes[..start], dots, &bytes[bytes.len() - end..]].concat();
    // As names are decoded: a character that was cut in its middle is no text.
    [&bytes[..KERNEL_BYTES], ends.as_slice()].map(|cut| String::from_utf8_lossy(cut).into_owned()).into()
}

/// Whether `name` is what the kernel was given of the longer name `known`: then the thread has no new name.
pub(crate) fn is_shortened(name: &str, known: &str) -> bool {
    known.len() > KERNEL_BYTES && kernel_names(known).iter().any(|cut| cut == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_keeps_of_a_name_is_no_new_name() {
        let known = "DispatcherWorkerThread21";
        assert!(is_shortened("DispatcherWorke", known), "its beginning");
        assert!(is_shortened("Dispatc..read21", known), "its beginning and its end");
        // The umlaut that is cut has bytes 15 and 16.
        assert!(is_shortened("Grüße aus Ly\u{fffd}", "Grüße aus Lyön und Wien"), "cut within a character");
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

    #[test]
    fn the_kernel_has_short_names_whole() {
        assert_eq!(kernel_names("exactly fifteen"), ["exactly fifteen"]);
        assert_eq!(kernel_names("DispatcherWorkerThread21"), ["DispatcherWorke", "Dispatc..read21"]);
    }
}
