//! Parts of a program's memory.

use numapilot_host::PageNumber;

/// Pages of a process: (process, first page, pages of 4 KiB).
pub type PageRange = (u32, PageNumber, u64);

/// Pages within a region: (region, first page counted from the region's, pages).
pub(super) type Part = (u32, u64, u64);
