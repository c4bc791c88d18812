//! One maker for each pattern. The truth is what the maker does, not what any detector would say.

use numapilot_insight::PatternKind::{self, *};
use numapilot_machine::Machine;
use numapilot_random::Random;
use numapilot_trace::ids::ObjectId;

use super::program::{Made, PAGE, Program, RUN_NS, Size, Touch};

/// A maker of programs.
pub type Maker = fn(Size) -> Program;

/// Makers, by the pattern that each is for.
pub const MAKERS: [(PatternKind, Maker); 17] = [
    (RemoteAfterAllocation, handed_over),
    (RemoteAfterAllocation, one_consumer),
    (AlternateRemote, alternate),
    (ConcurrentReadMostly, read_mostly),
    (ConcurrentWritten, written),
    (SaturatedController, two_tables),
    (SaturatedLink, thin_link),
    (PrivateOnSharedPages, shared_small_pages),
    (PrivateOnSharedPages, shared_large_pages),
    (SerialFirstTouch, serial),
    (SerialFirstTouch, serial_twice),
    (ArenasAcrossNodes, arenas),
    (ThreadsMoved, moved),
    (ProcessWideSharing, processes),
    (HotPage, hot_page),
    (FalseSharing, false_sharing),
    (TierMisplacement, tier),
];

fn opteron() -> Machine {
    Machine::load("opteron-8385").expect("a built-in model")
}

/// Busy enough to matter, far from saturation.
fn calm(size: Size) -> Size {
    Size { rate: size.rate.min(6.0), ..size }
}

/// Each thread waits for memory nearly all the time.
fn busy(size: Size) -> Size {
    Size { rate: 8.5, ..size }
}

fn write(random: &mut Random, share: f64) -> bool {
    random.unit() < share
}

/// Each thread fills an object and hands it to a thread of the next node.
fn handed_over(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("message");
    let objects: Vec<ObjectId> = (0..16).map(|thread| made.object(site, 32 * PAGE, PAGE, thread)).collect();
    let nodes = made.node_of.clone();
    made.run(0.2, &private, &mut |random, thread, time| {
        let filled = time < 0.05;
        let object = if filled { thread } else { (thread + 15) % 16 };
        let offset = random.remainder(32 * PAGE);
        let home = nodes[object as usize];
        Touch { object: objects[object as usize], offset, is_write: filled || write(random, 0.2), home, from: None }
    });
    made.finish(&[RemoteAfterAllocation])
}

/// The main thread reads the input; one node's threads work on it.
fn one_consumer(size: Size) -> Program {
    consumer_of(size, 512 * PAGE)
}

/// The same with an input of so many bytes, of which the first pages are used.
pub fn consumer_of(size: Size, bytes: u64) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("input");
    let input = made.object(site, bytes, PAGE, 0);
    let nodes = made.node_of.clone();
    made.run(0.1, &private, &mut |random, thread, time| {
        let (is_consumer, is_reader) = (nodes[thread as usize] == 2 && time >= 0.04, thread == 0 && time < 0.04);
        if is_consumer || is_reader {
            let offset = random.remainder(512 * PAGE);
            return Touch { object: input, offset, is_write: is_reader || write(random, 0.1), home: 0, from: None };
        }
        let object = private[thread as usize];
        Touch { object, offset: random.remainder(64 * PAGE), is_write: false, home: nodes[thread as usize], from: None }
    });
    made.finish(&[RemoteAfterAllocation])
}

/// A small object goes round: each node has it for a tenth of the run.
fn alternate(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("state");
    let state = made.object(site, 64 * PAGE, PAGE, 0);
    let nodes = made.node_of.clone();
    made.run(0.05, &private, &mut |random, thread, time| {
        let owner = (time * 10.0) as u16 % 4;
        if nodes[thread as usize] == owner {
            let offset = random.remainder(64 * PAGE);
            return Touch { object: state, offset, is_write: write(random, 0.3), home: 0, from: None };
        }
        let object = private[thread as usize];
        Touch { object, offset: random.remainder(64 * PAGE), is_write: false, home: nodes[thread as usize], from: None }
    });
    made.finish(&[AlternateRemote])
}

/// One thread fills a table, and then everybody reads it.
fn read_mostly(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("table");
    let table = made.object(site, 2048 * PAGE, PAGE, 0);
    made.run(0.2, &private, &mut |random, thread, time| {
        let filling = time < 0.05;
        let object = if filling && thread != 0 { private[thread as usize] } else { table };
        let bytes = if object == table { 2048 * PAGE } else { 64 * PAGE };
        Touch {
            object,
            offset: random.remainder(bytes),
            is_write: filling,
            home: if object == table { 0 } else { (thread % 4) as u16 },
            from: None,
        }
    });
    made.finish(&[ConcurrentReadMostly])
}

/// Everybody reads and writes one table on one node, as fast as memory allows.
fn written(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, busy(size));
    let private = made.private();
    let site = made.site("table");
    let table = made.object(site, 4096 * PAGE, PAGE, 0);
    made.run(0.1, &private, &mut |random, _, _| Touch {
        object: table,
        offset: random.remainder(4096 * PAGE),
        is_write: write(random, 0.25),
        home: 0,
        from: None,
    });
    made.finish(&[ConcurrentWritten])
}

/// Two written tables on one node.
fn two_tables(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, busy(size));
    let private = made.private();
    let sites = [made.site("first"), made.site("second")];
    let tables = sites.map(|site| made.object(site, 2048 * PAGE, PAGE, 1));
    made.run(0.1, &private, &mut |random, _, _| {
        let table = tables[random.remainder(2) as usize];
        Touch {
            object: table,
            offset: random.remainder(2048 * PAGE),
            is_write: write(random, 0.4),
            home: 1,
            from: None,
        }
    });
    made.finish(&[ConcurrentWritten])
}

/// Every thread's memory was touched first on the next node; links carry half of what they do on the real machine.
fn thin_link(size: Size) -> Program {
    let text = include_str!("../../../../models/opteron-8385.toml");
    let thin = text.replace(
        "{ value = 4, source = \"ht1\", estimate = true, range = [3.2, 4] }",
        "{ value = 2, source = \"ht1\" }",
    );
    assert_ne!(thin, text, "the model's bandwidth of links is written otherwise");
    let machine = Machine::from_model_text(&thin, "thin.toml").expect("a sound model");
    let mut made = Made::new(machine, 4, busy(size));
    let private = made.private();
    let site = made.site("input");
    let objects: Vec<ObjectId> = (0..16).map(|thread| made.object(site, 64 * PAGE, PAGE, (thread + 1) % 16)).collect();
    let nodes = made.node_of.clone();
    made.run(0.1, &private, &mut |random, thread, time| {
        let filled = time < 0.04;
        let object = if filled { (thread + 15) % 16 } else { thread };
        let home = nodes[(object as usize + 1) % 16];
        let offset = random.remainder(64 * PAGE);
        Touch { object: objects[object as usize], offset, is_write: filled || write(random, 0.2), home, from: None }
    });
    made.finish(&[RemoteAfterAllocation])
}

/// Small objects of different nodes' threads, side by side on the same pages.
fn shared_small_pages(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("record");
    let each = 16;
    let objects: Vec<ObjectId> = (0..16 * each).map(|index| made.object(site, 512, 512, index % 16)).collect();
    // Whoever touched a page first has it.
    let home: Vec<u16> = (0..objects.len()).map(|page| (page as u64 / 8 % 4) as u16).collect();
    made.run(0.2, &private, &mut |random, thread, _| {
        let index = random.remainder(u64::from(each)) as usize * 16 + thread as usize;
        Touch {
            object: objects[index],
            offset: random.remainder(512),
            is_write: write(random, 0.4),
            home: home[index],
            from: None,
        }
    });
    made.finish(&[PrivateOnSharedPages])
}

/// Objects of 16 KiB of different nodes' threads, side by side on pages of 64 KiB, which lie on the nodes in turn.
pub fn shared_pages_of_64_kib(size: Size) -> Program {
    const EACH: u64 = 4 * PAGE;
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("record");
    let objects: Vec<ObjectId> = (0..256u32)
        .map(|index| made.object(site, EACH, if index == 0 { 4 * EACH } else { EACH }, index % 16))
        .collect();
    made.run(0.2, &private, &mut |random, thread, _| {
        let index = random.remainder(16) as usize * 16 + thread as usize;
        Touch {
            object: objects[index],
            offset: random.remainder(EACH),
            is_write: write(random, 0.4),
            home: (index / 4 % 4) as u16,
            from: None,
        }
    });
    made.finish(&[PrivateOnSharedPages])
}

/// Page-sized objects of different nodes' threads within large pages, each of which is on one node.
fn shared_large_pages(size: Size) -> Program {
    const LARGE: u64 = 512 * PAGE;
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("buffer");
    let objects: Vec<ObjectId> = (0..64u32)
        .map(|index| made.object(site, 32 * PAGE, if index == 0 { LARGE } else { PAGE }, index % 16))
        .collect();
    made.run(0.2, &private, &mut |random, thread, _| {
        let index = random.remainder(4) as usize * 16 + thread as usize;
        let home = (index / 16 % 4) as u16;
        Touch {
            object: objects[index],
            offset: random.remainder(32 * PAGE),
            is_write: write(random, 0.4),
            home,
            from: None,
        }
    });
    made.finish(&[PrivateOnSharedPages])
}

/// One thread fills an array of which every thread then has its part.
fn serial(size: Size) -> Program {
    serial_of(size, 64)
}

/// The same with so many pages for each of 16 threads.
pub fn serial_of(size: Size, pages: u64) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("grid");
    let grid = made.object(site, 16 * pages * PAGE, PAGE, 0);
    made.run(0.2, &private, &mut |random, thread, time| {
        let filling = time < 0.05;
        if filling && thread != 0 {
            let object = private[thread as usize];
            return Touch {
                object,
                offset: random.remainder(64 * PAGE),
                is_write: false,
                home: (thread % 4) as u16,
                from: None,
            };
        }
        let part = u64::from(thread) * pages * PAGE;
        let offset = if filling { random.remainder(16 * pages * PAGE) } else { part + random.remainder(pages * PAGE) };
        Touch { object: grid, offset, is_write: filling || write(random, 0.3), home: 0, from: None }
    });
    made.finish(&[SerialFirstTouch])
}

/// The same with two arrays, one of which another thread fills.
fn serial_twice(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let sites = [made.site("old"), made.site("new")];
    let grids = [made.object(sites[0], 512 * PAGE, PAGE, 0), made.object(sites[1], 512 * PAGE, PAGE, 1)];
    made.run(0.2, &private, &mut |random, thread, time| {
        let filling = time < 0.05;
        if filling && thread > 1 {
            let object = private[thread as usize];
            return Touch {
                object,
                offset: random.remainder(64 * PAGE),
                is_write: false,
                home: (thread % 4) as u16,
                from: None,
            };
        }
        let which = if filling { thread as usize } else { random.remainder(2) as usize };
        let part = u64::from(thread) * 32 * PAGE;
        let offset = if filling { random.remainder(512 * PAGE) } else { part + random.remainder(32 * PAGE) };
        Touch { object: grids[which], offset, is_write: filling || write(random, 0.5), home: which as u16, from: None }
    });
    made.finish(&[SerialFirstTouch])
}

/// Blocks that threads of one node freed are handed to threads of another.
fn arenas(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("scratch");
    let before: Vec<ObjectId> = (0..64).map(|index| made.object(site, 16 * PAGE, PAGE, index % 16)).collect();
    let addresses: Vec<u64> = before.iter().map(|id| made.tables.objects[id.0 as usize].address.0).collect();
    for id in &before {
        made.tables.objects[id.0 as usize].death = Some(numapilot_trace::ids::TimeNs(100_000_000));
    }
    let after: Vec<ObjectId> = (0..64u32)
        .map(|index| made.object_at(site, addresses[index as usize], 16 * PAGE, (index + 1) % 16, 100_000_001))
        .collect();
    let nodes = made.node_of.clone();
    made.run(0.2, &private, &mut |random, thread, time| {
        let group = random.remainder(4) as usize * 16;
        let index = if time <= 0.11 { group + thread as usize } else { group + (thread as usize + 15) % 16 };
        let object = if time <= 0.11 { before[index] } else { after[index] };
        Touch {
            object,
            offset: random.remainder(16 * PAGE),
            is_write: write(random, 0.5),
            home: nodes[index % 16],
            from: None,
        }
    });
    made.finish(&[ArenasAcrossNodes])
}

/// Half of the threads are moved to the next node a third of the way.
fn moved(size: Size) -> Program {
    let mut made = Made::new(opteron(), 2, calm(size));
    let site = made.site("own");
    let objects: Vec<ObjectId> = (0..8).map(|thread| made.object(site, 64 * PAGE, PAGE, thread)).collect();
    let nodes = made.node_of.clone();
    made.run(0.0, &[], &mut |random, thread, time| {
        let own = nodes[thread as usize];
        let from = (thread % 2 == 0 && time > 0.33).then_some((own + 1) % 4);
        Touch {
            object: objects[thread as usize],
            offset: random.remainder(64 * PAGE),
            is_write: write(random, 0.3),
            home: own,
            from,
        }
    });
    made.finish(&[ThreadsMoved])
}

/// Four processes of four threads, one on each node, share what one of them touched first.
fn processes(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    made.put_into_processes(4);
    let site = made.site("pool");
    let pools: Vec<ObjectId> = (0..16).map(|index| made.object(site, 64 * PAGE, PAGE, index)).collect();
    made.run(0.0, &[], &mut |random, thread, _| {
        let pool = (thread / 4 * 4) as usize + random.remainder(4) as usize;
        Touch {
            object: pools[pool],
            offset: random.remainder(64 * PAGE),
            is_write: write(random, 0.2),
            home: (pool % 4) as u16,
            from: None,
        }
    });
    made.finish(&[ProcessWideSharing])
}

/// Half of all accesses go to one page.
fn hot_page(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, busy(size));
    let private = made.private();
    let site = made.site("queue");
    let queue = made.object(site, PAGE, PAGE, 0);
    made.run(0.4, &private, &mut |random, _, _| Touch {
        object: queue,
        offset: random.remainder(PAGE),
        is_write: write(random, 0.3),
        home: 0,
        from: None,
    });
    made.finish(&[HotPage])
}

/// A counter for each thread, eight to a line.
fn false_sharing(size: Size) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("counters");
    let counters = made.object(site, 128, 64, 0);
    made.run(0.6, &private, &mut |random, thread, _| Touch {
        object: counters,
        offset: u64::from(thread) * 8,
        is_write: write(random, 0.5),
        home: 0,
        from: None,
    });
    made.finish(&[FalseSharing])
}

/// One thread fills a slot for each thread, eight to a line; then each reads its own, and where they are `written` writes it too.
pub fn slots_of_threads(size: Size, written: bool) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let private = made.private();
    let site = made.site("slots");
    let slots = made.object(site, 128, 64, 0);
    let nodes = made.node_of.clone();
    made.run(0.6, &private, &mut |random, thread, time| {
        let filling = time < 0.1;
        if filling && thread != 0 {
            let (object, home) = (private[thread as usize], nodes[thread as usize]);
            return Touch { object, offset: random.remainder(64 * PAGE), is_write: false, home, from: None };
        }
        let slot = if filling { random.remainder(16) } else { u64::from(thread) };
        let is_write = filling || (written && write(random, 0.5));
        Touch { object: slots, offset: slot * 8, is_write, home: 0, from: None }
    });
    let truth: &[PatternKind] = if written { &[FalseSharing] } else { &[] };
    made.finish(truth)
}

/// An array of which each node has a word in every line. Each node comes to every line twice, and every access is recorded.
pub fn each_line_twice() -> Program {
    const LINES: u64 = 512;
    let mut made = Made::new(opteron(), 1, Size { samples: 8 * LINES, noise: 0.0, rate: 1e-6, seed: 1 });
    let site = made.site("counters");
    let counters = made.object(site, 64 * LINES, 64, 0);
    let mut time = 0;
    for line in (0..LINES).chain(0..LINES) {
        for thread in 0..4 {
            let offset = 64 * line + 8 * u64::from(thread);
            let from = made.node(thread);
            made.push(time, thread, from, &Touch { object: counters, offset, is_write: true, home: 0, from: None });
            time += RUN_NS / (8 * LINES);
        }
    }
    made.finish(&[FalseSharing])
}

/// A table that all use lies on the node without CPUs.
fn tier(size: Size) -> Program {
    tier_in_clusters(size, 1)
}

/// The same, with so many samples drawn together.
pub fn tier_in_clusters(size: Size, per_cluster: u32) -> Program {
    let machine = Machine::load("xeon-2s-cxl").expect("a built-in model");
    let far = machine.nodes().iter().find(|node| !node.has_cpus()).expect("a node without CPUs").id.0;
    let mut made = Made::new(machine, 4, calm(size));
    made.per_cluster = per_cluster;
    let private = made.private();
    let site = made.site("index");
    let index = made.object(site, 1024 * PAGE, PAGE, 0);
    made.run(0.3, &private, &mut |random, _, _| Touch {
        object: index,
        offset: random.remainder(1024 * PAGE),
        is_write: write(random, 0.1),
        home: far,
        from: None,
    });
    made.finish(&[TierMisplacement])
}

/// All threads run on node 0, as under `taskset`, and write a table there as fast as memory allows, which has a third of the real machine's bandwidth.
pub fn one_node(size: Size, is_allocator_known: bool) -> Program {
    let text = include_str!("../../../../models/opteron-8385.toml");
    let thin = text.replace("memory_bandwidth_gb_per_s = { value = 12.8,", "memory_bandwidth_gb_per_s = { value = 4,");
    assert_ne!(thin, text, "the model's bandwidth of memory is written otherwise");
    let machine = Machine::from_model_text(&thin, "thin.toml").expect("a sound model");
    let mut made = Made::new(machine, 4, busy(size));
    made.node_of.fill(0);
    for thread in &mut made.tables.threads {
        thread.node = Some(numapilot_machine::NodeId(0));
    }
    let site = made.site("table");
    let table = made.object(site, 4096 * PAGE, PAGE, 0);
    if !is_allocator_known {
        made.tables.objects[table.0 as usize].thread = None;
    }
    made.run(0.0, &[], &mut |random, _, _| Touch {
        object: table,
        offset: random.remainder(4096 * PAGE),
        is_write: write(random, 0.4),
        home: 0,
        from: None,
    });
    made.finish(&[])
}

/// Each thread uses memory of the next node, by itself. `waits`: the main thread is there, too, and waits until the others have ended.
pub fn all_remote(size: Size, waits: bool) -> Program {
    let mut made = Made::new(opteron(), 4, calm(size));
    let site = made.site("own");
    let objects: Vec<ObjectId> = (0..16).map(|thread| made.object(site, 64 * PAGE, PAGE, thread)).collect();
    if waits {
        let index = numapilot_trace::ids::ThreadIndex(16);
        let node = Some(numapilot_machine::NodeId(0));
        made.tables.threads.push(numapilot_flows::Thread { index, node, ..numapilot_flows::Thread::default() });
    }
    let nodes = made.node_of.clone();
    made.run(0.0, &[], &mut |random, thread, _| Touch {
        object: objects[thread as usize],
        offset: random.remainder(64 * PAGE),
        is_write: write(random, 0.3),
        home: (nodes[thread as usize] + 1) % 4,
        from: None,
    });
    made.finish(&[])
}
