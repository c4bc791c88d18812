//! What the kernel's name of a mapping (in /proc/PID/maps, and in perf's records of it) says.

/// Whether it is that of memory without a file on a disk, which processes share: POSIX, System V, memfd, or anonymous.
#[must_use]
pub fn is_shared_memory(name: &[u8]) -> bool {
    let starts: [&[u8]; 5] = [b"/dev/shm/", b"/SYSV", b"/memfd:", b"/dev/zero", b"[anon_shmem:"];
    starts.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_memory_are_told_from_those_of_files() {
        for name in
            ["/dev/shm/a", "/SYSV0052e2c1 (deleted)", "/memfd:x (deleted)", "/dev/zero (deleted)", "[anon_shmem:pool]"]
        {
            assert!(is_shared_memory(name.as_bytes()), "{name}");
        }
        for name in ["", "//anon", "[heap]", "[anon:x]", "/dev/dri/card0", "/usr/lib/libc.so.6"] {
            assert!(!is_shared_memory(name.as_bytes()), "{name}");
        }
    }
}
