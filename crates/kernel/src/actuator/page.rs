//! Sizes of pages.

use numapilot_host::Root;

/// Bytes of a page of the base size.
#[must_use]
pub fn page_bytes() -> u64 {
    // SAFETY: asks for a constant of the system.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Bytes of a transparent huge page; of a base page where the system has none.
#[must_use]
pub fn huge_bytes() -> u64 {
    let bytes = Root::default().number("sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    bytes.filter(|bytes| bytes.is_power_of_two()).unwrap_or_else(page_bytes)
}
