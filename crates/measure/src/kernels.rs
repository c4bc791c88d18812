//! The bandwidth kernels and chases of `c/`, as safe functions: which variants work here, what each kernel reads and writes, and what it should compute.

use serde::{Deserialize, Serialize};

/// An instruction set that kernels are written for. Discriminants are the wire to `c/kernels.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(i32)]
pub enum Isa {
    /// The baseline of the target: SSE2 on x86-64.
    Portable = 0,
    /// x86-64 with AVX2: vectors of 32 bytes.
    Avx2 = 1,
    /// x86-64 with AVX-512: vectors of 64 bytes.
    Avx512 = 2,
    /// 64-bit Arm, 16-byte vectors.
    Neon = 3,
    /// 64-bit Arm, vectors of the processor's own length.
    Sve = 4,
}

impl Isa {
    /// All instruction sets, the narrowest of each family first.
    pub const ALL: [Isa; 5] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Neon, Isa::Sve];

    /// Whether it was compiled in, and processor and kernel offer it.
    #[must_use]
    pub fn works(self) -> bool {
        // SAFETY: looks at the processor's features only.
        unsafe { np_isa_works(self as i32) != 0 }
    }

    /// The widest instruction set that works here.
    #[must_use]
    pub fn best() -> Isa {
        Isa::ALL.into_iter().rev().find(|isa| isa.works()).unwrap_or(Isa::Portable)
    }

    /// Name of the instruction set, as `--isa` takes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
            Isa::Sve => "sve",
        }
    }
}

/// A bandwidth kernel. Discriminants are the wire to `c/kernels.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(i32)]
pub enum Kernel {
    /// STREAM's `c = a`.
    Copy = 0,
    /// STREAM's `b = q c`.
    Scale = 1,
    /// STREAM's `c = a + b`.
    Add = 2,
    /// STREAM's `a = b + q c`.
    Triad = 3,
    /// Copy with stores that pass the caches by.
    CopyNt = 4,
    /// Scale with such stores.
    ScaleNt = 5,
    /// Add with such stores.
    AddNt = 6,
    /// Triad with such stores.
    TriadNt = 7,
    /// Reads only.
    Read = 8,
    /// Writes only.
    Write = 9,
    /// Writing past the caches.
    WriteNt = 10,
    /// One line read, one written.
    Mix1To1 = 11,
    /// Two lines read, one written.
    Mix2To1 = 12,
    /// Three lines read, one written.
    Mix3To1 = 13,
}

/// Arrays that a kernel uses, and how, per element of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Number of arrays that the kernel reads.
    pub reads: usize,
    /// Number of arrays that the kernel writes.
    pub writes: usize,
    /// Whether a written line is read first although the program does not ask for it (a cache that allocates on writes).
    pub allocates: bool,
}

impl Kernel {
    /// All kernels, in the order of their discriminants.
    pub const ALL: [Kernel; 14] = [
        Kernel::Copy,
        Kernel::Scale,
        Kernel::Add,
        Kernel::Triad,
        Kernel::CopyNt,
        Kernel::ScaleNt,
        Kernel::AddNt,
        Kernel::TriadNt,
        Kernel::Read,
        Kernel::Write,
        Kernel::WriteNt,
        Kernel::Mix1To1,
        Kernel::Mix2To1,
        Kernel::Mix3To1,
    ];
    /// STREAM's four, with ordinary stores and with those past the caches.
    pub const STREAM: [(Kernel, Kernel); 4] = [
        (Kernel::Copy, Kernel::CopyNt),
        (Kernel::Scale, Kernel::ScaleNt),
        (Kernel::Add, Kernel::AddNt),
        (Kernel::Triad, Kernel::TriadNt),
    ];

    /// Name of the kernel, as options and reports have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kernel::Copy => "copy",
            Kernel::Scale => "scale",
            Kernel::Add => "add",
            Kernel::Triad => "triad",
            Kernel::CopyNt => "copy-nt",
            Kernel::ScaleNt => "scale-nt",
            Kernel::AddNt => "add-nt",
            Kernel::TriadNt => "triad-nt",
            Kernel::Read => "read",
            Kernel::Write => "write",
            Kernel::WriteNt => "write-nt",
            Kernel::Mix1To1 => "1:1",
            Kernel::Mix2To1 => "2:1",
            Kernel::Mix3To1 => "3:1",
        }
    }

    /// The kernel of this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Kernel> {
        Kernel::ALL.into_iter().find(|kernel| kernel.word() == word)
    }

    /// Number of arrays that it reads and writes.
    #[must_use]
    pub fn usage(self) -> Use {
        let (reads, writes, allocates) = match self {
            Kernel::Copy | Kernel::Scale => (1, 1, true),
            Kernel::Add | Kernel::Triad => (2, 1, true),
            Kernel::CopyNt | Kernel::ScaleNt => (1, 1, false),
            Kernel::AddNt | Kernel::TriadNt => (2, 1, false),
            Kernel::Read => (1, 0, false),
            Kernel::Write => (0, 1, true),
            Kernel::WriteNt => (0, 1, false),
            Kernel::Mix1To1 => (1, 1, false),
            Kernel::Mix2To1 => (2, 1, false),
            Kernel::Mix3To1 => (3, 1, false),
        };
        Use { reads, writes, allocates }
    }

    /// Bytes that the program reads and writes for each element: STREAM's way of counting.
    #[must_use]
    pub fn bytes_per_element(self) -> usize {
        let usage = self.usage();
        8 * (usage.reads + usage.writes)
    }

    /// What the traffic model takes a kernel for: memory accesses per line of each array, and the share of them that write. What is read and written in
    /// place (the mixes) is one access; so is a line that is written after the cache has read it.
    #[must_use]
    pub fn model_accesses(self) -> (f64, f64) {
        let usage = self.usage();
        let in_place = matches!(self, Kernel::Mix1To1 | Kernel::Mix2To1 | Kernel::Mix3To1);
        let updated = if in_place { usage.writes } else { 0 };
        let accesses = (usage.reads + usage.writes - updated) as f64;
        (accesses, usage.writes as f64 / accesses)
    }

    /// Bytes that pass the memory controller for each element, if the caches read every line before they write it.
    #[must_use]
    pub fn traffic_per_element(self) -> usize {
        self.bytes_per_element() + if self.usage().allocates { 8 } else { 0 }
    }
}

unsafe extern "C" {
    fn np_isa_works(isa: i32) -> i32;
    fn np_run_kernel(isa: i32, kernel: i32, a: *mut f64, b: *mut f64, c: *mut f64, count: usize, q: f64) -> f64;
    fn np_chase(start: *mut libc::c_void, loads: usize) -> *mut libc::c_void;
    fn np_chase_many(ends: *mut *mut libc::c_void, rounds: usize);
    fn np_spin(steps: libc::c_ulong) -> libc::c_ulong;
}

/// Kernels work on multiples of this many elements (`NP_CHUNK`).
pub const CHUNK: usize = 128;
/// Loads per turn of the chase's loop (`NP_CHASE_UNROLL`).
pub const CHASE_UNROLL: usize = 100;
/// Chains of a chase side by side (`NP_CHAINS`).
pub const CHAINS: usize = 32;
/// Steps per turn of the spin's loop (`NP_SPIN_UNROLL`).
pub const SPIN_UNROLL: usize = 64;

/// Initial values of STREAM's arrays.
pub const START: [f64; 3] = [1.0, 2.0, 0.0];
/// STREAM's scalar for Scale and Triad; the constant of writes and mixes.
pub const SCALAR: f64 = 3.0;

/// Three arrays of equal length that one thread works on.
pub struct Arrays<'a> {
    /// `a`, `b` and `c`.
    pub each: [&'a mut [f64]; 3],
}

impl Arrays<'_> {
    /// Writes what the kernels begin with.
    pub fn fill(&mut self) {
        for (array, value) in self.each.iter_mut().zip(START) {
            array.fill(value);
        }
    }

    /// Runs a kernel over a part of each array; the sum of what it reads, where it sums. `isa` must work here, or the portable variant runs.
    ///
    /// # Panics
    /// If the arrays differ in length, or the part's is not a multiple of [`CHUNK`], or it is not aligned to 64 bytes: a slip in this crate.
    pub fn run_part(&mut self, isa: Isa, kernel: Kernel, part: std::ops::Range<usize>) -> f64 {
        let count = part.len();
        let pointers = self.each.each_mut().map(|array| array[part.clone()].as_mut_ptr());
        assert!(count.is_multiple_of(CHUNK) && self.each.iter().all(|array| array.len() == self.each[0].len()));
        assert!(pointers.iter().all(|pointer| (*pointer as usize).is_multiple_of(64)), "arrays begin at a line");
        let [a, b, c] = pointers;
        let isa = if isa.works() { isa } else { Isa::Portable };
        // SAFETY: three distinct arrays of `count` elements, aligned and of a whole number of chunks as checked above; the variant works here.
        unsafe { np_run_kernel(isa as i32, kernel as i32, a, b, c, count, SCALAR) }
    }
}

/// What the arrays hold at each element after runs of kernels, and what the last sum was: the same arithmetic on single numbers, against which whole arrays are
/// checked. All elements of an array are always equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Expected value of each element of the arrays `a`, `b` and `c`.
    pub each: [f64; 3],
}

impl Expected {
    /// The values after [`Arrays::fill`].
    pub fn start() -> Expected {
        Expected { each: START }
    }

    /// Follows one run of a kernel; the sum that it should return for each element.
    pub fn after(&mut self, kernel: Kernel) -> f64 {
        let [a, b, c] = self.each;
        match kernel {
            Kernel::Copy | Kernel::CopyNt => self.each[2] = a,
            Kernel::Scale | Kernel::ScaleNt => self.each[1] = SCALAR * c,
            Kernel::Add | Kernel::AddNt => self.each[2] = a + b,
            Kernel::Triad | Kernel::TriadNt => self.each[0] = b + SCALAR * c,
            Kernel::Read => return a,
            Kernel::Write | Kernel::WriteNt => self.each[0] = SCALAR,
            Kernel::Mix1To1 => self.each[0] = SCALAR - a,
            Kernel::Mix2To1 => {
                self.each[0] = SCALAR - a;
                return b;
            }
            Kernel::Mix3To1 => {
                self.each[0] = SCALAR - a;
                return b + c;
            }
        }
        0.0
    }
}

/// Follows `loads` pointers from `start` (rounded up to a multiple of [`CHASE_UNROLL`]); where it ends.
///
/// # Safety
/// From `start` on, every pointer leads to another valid one, for ever: a ring.
pub unsafe fn chase(start: *mut libc::c_void, loads: usize) -> *mut libc::c_void {
    // SAFETY: as the caller promises.
    unsafe { np_chase(start, loads) }
}

/// Follows [`CHAINS`] chains at once, `rounds` pointers of each, from `ends` on, which then says where they are.
///
/// # Safety
/// As of [`chase`], of each chain.
pub unsafe fn chase_many(ends: &mut [*mut libc::c_void; CHAINS], rounds: usize) {
    // SAFETY: as the caller promises; the array has as many entries as the C side takes.
    unsafe { np_chase_many(ends.as_mut_ptr(), rounds) }
}

/// Takes one core cycle per step (rounded up to a multiple of [`SPIN_UNROLL`]).
pub fn spin(steps: u64) {
    // SAFETY: arithmetic in registers.
    std::hint::black_box(unsafe { np_spin(steps as libc::c_ulong) });
}

#[cfg(test)]
mod tests {
    //! Every variant that works here against plain arithmetic, on every kernel and many lengths.

    use proptest::prelude::*;

    use super::*;

    #[repr(align(64))]
    struct Aligned([f64; 8 * CHUNK]);

    /// A few lines of memory whose contents differ at every element.
    fn memory(seed: u64) -> [Box<Aligned>; 3] {
        let mut state = seed;
        std::array::from_fn(|_| {
            let mut array = Box::new(Aligned([0.0; 8 * CHUNK]));
            for element in &mut array.0 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *element = (state >> 40) as f64;
            }
            array
        })
    }

    fn scalar(kernel: Kernel, arrays: &mut [Vec<f64>; 3]) -> f64 {
        let mut sum = 0.0;
        for index in 0..arrays[0].len() {
            let mut one = Expected { each: [arrays[0][index], arrays[1][index], arrays[2][index]] };
            sum += one.after(kernel);
            for (array, value) in arrays.iter_mut().zip(one.each) {
                array[index] = value;
            }
        }
        sum
    }

    proptest! {
        #[test]
        fn every_variant_computes_what_the_definition_says(
            seed in any::<u64>(), first in 0_usize..4, chunks in 1_usize..5, kernel in prop::sample::select(Kernel::ALL.to_vec()),
        ) {
            let part = first * CHUNK..(first + chunks) * CHUNK;
            for isa in Isa::ALL.into_iter().filter(|isa| isa.works()) {
                let mut boxes = memory(seed);
                let before: [Vec<f64>; 3] = std::array::from_fn(|k| boxes[k].0.to_vec());
                let mut expected: [Vec<f64>; 3] = std::array::from_fn(|k| before[k][part.clone()].to_vec());
                let sum = scalar(kernel, &mut expected);
                let [a, b, c] = &mut boxes;
                let mut arrays = Arrays { each: [&mut a.0, &mut b.0, &mut c.0] };
                let found = arrays.run_part(isa, kernel, part.clone());
                // Whole numbers below 2^24, so sums are exact in any order.
                prop_assert_eq!(found, sum, "{:?} {:?}", isa, kernel);
                for k in 0..3 {
                    prop_assert_eq!(&boxes[k].0[part.clone()], &expected[k][..], "{:?} {:?} array {}", isa, kernel, k);
                    prop_assert_eq!(&boxes[k].0[..part.start], &before[k][..part.start], "before the part");
                    prop_assert_eq!(&boxes[k].0[part.end..], &before[k][part.end..], "after the part");
                }
            }
        }
    }

    #[test]
    fn the_portable_variant_always_works_and_the_best_does() {
        assert!(Isa::Portable.works() && Isa::best().works());
        assert_eq!(Isa::Neon.works(), cfg!(target_arch = "aarch64"));
    }

    #[test]
    fn words_are_distinct_and_lead_back() {
        for kernel in Kernel::ALL {
            assert_eq!(Kernel::from_word(kernel.word()), Some(kernel));
        }
        assert_eq!(Kernel::from_word("daxpy"), None);
    }

    #[test]
    fn the_model_sees_one_access_per_line_that_is_updated_in_place() {
        assert_eq!(Kernel::Read.model_accesses(), (1.0, 0.0));
        assert_eq!(Kernel::Write.model_accesses(), (1.0, 1.0));
        assert_eq!(Kernel::Triad.model_accesses(), (3.0, 1.0 / 3.0));
        assert_eq!(Kernel::Mix1To1.model_accesses(), (1.0, 1.0));
        assert_eq!(Kernel::Mix2To1.model_accesses(), (2.0, 0.5));
    }

    #[test]
    fn triad_counts_as_stream_counts_and_moves_a_third_more() {
        assert_eq!((Kernel::Triad.bytes_per_element(), Kernel::Triad.traffic_per_element()), (24, 32));
        assert_eq!((Kernel::TriadNt.bytes_per_element(), Kernel::TriadNt.traffic_per_element()), (24, 24));
    }

    #[test]
    fn chains_side_by_side_end_where_each_alone_would() {
        let mut ring: Vec<*mut libc::c_void> = vec![std::ptr::null_mut(); 37];
        let base = ring.as_mut_ptr();
        for (index, slot) in ring.iter_mut().enumerate() {
            *slot = base.wrapping_add((index + 5) % 37).cast();
        }
        let mut ends: [*mut libc::c_void; CHAINS] = std::array::from_fn(|chain| base.wrapping_add(chain).cast());
        // SAFETY: a ring of 37.
        unsafe { chase_many(&mut ends, 11) };
        for (chain, end) in ends.into_iter().enumerate() {
            assert_eq!(end, base.wrapping_add((chain + 55) % 37).cast(), "chain {chain}");
        }
    }

    #[test]
    fn a_chase_ends_where_its_ring_says() {
        let mut ring: Vec<*mut libc::c_void> = vec![std::ptr::null_mut(); 7];
        let base = ring.as_mut_ptr();
        for (index, slot) in ring.iter_mut().enumerate() {
            *slot = base.wrapping_add((index + 2) % 7).cast();
        }
        for turns in 1..4 {
            // SAFETY: a ring of seven.
            let end = unsafe { chase(base.cast(), turns * CHASE_UNROLL) };
            assert_eq!(end, base.wrapping_add(turns * CHASE_UNROLL * 2 % 7).cast());
        }
    }
}
