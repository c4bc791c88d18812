//! Tables like those of real programs, for sizes and rates.

use std::sync::Arc;

use numapilot_random::Xorshift;
use numapilot_trace::tables::{AccessColumns, AccessRow, ObjectColumns, ObjectRow};

/// Samples as a sixteen-thread program on a four-node machine gives them: mean gap of 100 us of program time over all threads, a few
/// large arrays, a hundred sites, order stamps from two host cores.
pub fn accesses(rows: usize) -> AccessColumns {
    let mut random = Xorshift::new(0xacce55);
    let mut out = AccessColumns::default();
    let mut time = 0;
    let sites: Vec<(u64, u32, u32)> =
        (0..120).map(|site| (0x40_2000 + random.below(1 << 16), site % 17, 1 + site * 3 % 211)).collect();
    for row in 0..rows {
        time += random.below(200_000);
        let thread = random.below(16) as u32;
        let (ip, object, stack) = sites[(random.below(120) * random.below(120) / 120) as usize];
        let object_bytes = 1 << (16 + object % 11);
        let address = 0x7f12_0000_0000 + (u64::from(object) << 28) + random.below(object_bytes) / 8 * 8;
        let node = (thread % 4) as u16;
        let home = if object % 3 == 0 { 0 } else { ((address >> 12) % 4) as u16 };
        let order = time * 5 + random.below(3_000_000);
        out.push(AccessRow {
            time_ns: time,
            order,
            thread,
            address,
            object: Some(object),
            cpu: Some(thread),
            node: Some(node),
            home: Some(home),
            is_write: stack % 3 == 0,
            is_atomic: stack == 7,
            is_range: stack % 40 == 0,
            level: if random.below(20) == 0 { 5 } else { 4 },
            latency_cycles: Some(if node == home { 190 } else { 280 + 40 * u32::from(node ^ home) }),
            ip,
            location: 1 + stack % 120,
            stack,
            weight: 1000 + (row / 50_000) as u32 * 13,
        });
    }
    out
}

/// Heap blocks of a program that allocates all the time: ten sites, re-used addresses, lives of many lengths.
pub fn objects(rows: usize) -> ObjectColumns {
    let mut random = Xorshift::new(0x0b1ec7);
    let mut out = ObjectColumns::default();
    let (mut time, mut order) = (0, 0);
    for object in 0..rows as u32 {
        time += random.below(2000);
        order += random.below(5000);
        let site = random.below(10) as u32;
        let scale = random.below(16);
        let life = random.below(1 << (8 + scale));
        let thread = random.below(8) as u32;
        out.push(ObjectRow {
            object,
            kind: Arc::<str>::from("heap"),
            name: Arc::<str>::from(format!("name{site}")),
            site,
            site_function: Arc::<str>::from(format!("Parser::parse_{site}(char const*, int)")),
            site_file: Arc::<str>::from("/home/user/project/src/parser.cpp"),
            site_line: 100 + site * 17,
            module: Arc::<str>::from("/home/user/project/build/parser"),
            address: 0x5555_5570_0000 + random.below(1 << 20) * 16,
            bytes: 16 << (site % 7),
            process: 0,
            thread: Some(thread),
            cpu: Some(thread),
            node: Some((thread % 4) as u16),
            birth_ns: time,
            death_ns: Some(time + life),
            birth_order: order,
            death_order: Some(order + life * 2 + random.below(1000)),
            stack: 1 + site * 3 + random.below(3) as u32,
            alloc_kind: Some(Arc::<str>::from("new")),
            // No random number of its own: the golden files were written before there was this column.
            death_thread: Some((thread + u32::from(object.is_multiple_of(4))) % 8),
            sample_interval_bytes: None,
        });
    }
    out
}
