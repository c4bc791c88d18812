//! Programs without a problem: everything that could look like one and is none.

use numapilot_insight::PatternKind;
use numapilot_machine::Machine;
use numapilot_trace::ids::ObjectId;

use super::makers::{MAKERS, Maker};
use super::program::{Made, PAGE, Program, Size, Touch};

/// The `index`-th program.
pub fn sound(index: u64, size: Size) -> Program {
    match index % 5 {
        0 => local(size),
        1 => hardly_accesses(index, size),
        2 => interleaved(size),
        3 => parts(size),
        _ => small_share(size),
    }
}

fn opteron(size: Size) -> Made {
    Made::new(Machine::load("opteron-8385").expect("a built-in model"), 4, size)
}

/// Everybody at home.
fn local(size: Size) -> Program {
    let mut made = opteron(Size { noise: 0.0, ..size });
    let private = made.private();
    made.run(1.0, &private, &mut |_, _, _| unreachable!("all is private"));
    made.finish(&[])
}

/// Any of the patterns, by a program that computes nearly all the time.
fn hardly_accesses(index: u64, size: Size) -> Program {
    // Those for busy memory set their own rate.
    let is_calm =
        |maker: &Maker| !maker(Size { samples: 64, rate: 0.005, ..size }).truth.contains(&PatternKind::SaturatedLink);
    let calm: Vec<Maker> = MAKERS.iter().map(|(_, maker)| *maker).filter(is_calm).collect();
    calm[index as usize / 5 % calm.len()](Size { rate: 0.005, ..size })
}

/// A table that all share and write, evenly over the nodes, far from saturation.
fn interleaved(size: Size) -> Program {
    let mut made = opteron(Size { rate: size.rate.min(5.0), ..size });
    let private = made.private();
    let site = made.site("table");
    let table = made.object(site, 1024 * PAGE, PAGE, 0);
    made.run(0.2, &private, &mut |random, _, _| {
        let offset = random.remainder(1024 * PAGE);
        Touch { object: table, offset, is_write: random.unit() < 0.3, home: (offset / PAGE % 4) as u16, from: None }
    });
    made.finish(&[])
}

/// An array of which each thread touched its part first.
fn parts(size: Size) -> Program {
    let mut made = opteron(size);
    let private = made.private();
    let site = made.site("grid");
    let grid = made.object(site, 1024 * PAGE, PAGE, 0);
    made.run(0.2, &private, &mut |random, thread, _| {
        let offset = u64::from(thread) * 64 * PAGE + random.remainder(64 * PAGE);
        Touch { object: grid, offset, is_write: random.unit() < 0.3, home: (thread % 4) as u16, from: None }
    });
    made.finish(&[])
}

/// A shared table on one node that draws one access in fifty.
fn small_share(size: Size) -> Program {
    let mut made = opteron(Size { rate: size.rate.min(5.0), ..size });
    let private = made.private();
    let site = made.site("settings");
    let settings: ObjectId = made.object(site, 64 * PAGE, PAGE, 0);
    made.run(0.98, &private, &mut |random, _, _| Touch {
        object: settings,
        offset: random.remainder(64 * PAGE),
        is_write: random.unit() < 0.1,
        home: 0,
        from: None,
    });
    made.finish(&[])
}
