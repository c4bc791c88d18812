//! The numbers that namespaces of processes give to one process or thread.

/// Its numbers, from the text of its `/proc/PID/status` (`NSpid`): first in the namespace of that `/proc`, last in its own, by which it knows itself. None
/// where the kernel does not tell.
pub fn numbers_by_namespace(status: &str) -> impl Iterator<Item = u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.into_iter().flat_map(str::split_ascii_whitespace).map_while(|number| number.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_its_own() {
        let numbers = |status: &str| numbers_by_namespace(status).collect::<Vec<_>>();
        assert_eq!(numbers("Name:\tx\nNSpid:\t4711\t12\nNSsid:\t1\n"), [4711, 12]);
        assert_eq!(numbers("Name:\tx\nNSpid:\t4711\n"), [4711]);
        assert!(numbers("Name:\tNSpid:\t1\nPid:\t4711\n").is_empty());
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(numbers(&own).last(), Some(&std::process::id()));
    }
}
