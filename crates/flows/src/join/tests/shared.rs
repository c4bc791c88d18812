//! Memory that processes share, in recordings of engines that follow first touches for each process by itself.

use super::*;

/// Maps 16 pages at `address` in a process.
fn map(world: &mut World, process: usize, address: u64, flags: u32, path: &str) {
    let (address, path) = (VirtAddr(address), path.to_owned());
    let map = Event::Map { address, bytes: 16 * PAGE, flags, file_offset: 0, path, stack: StackId(0) };
    emit_all(world, process, [map]);
}

fn place(world: &mut World, process: usize, address: u64, node: u16, cause: u32) {
    let (address, node, cause) = (VirtAddr(address), NodeId(node), cause as u8);
    emit_all(world, process, [Event::Place { address, pages: 1, node, cause, toucher: None }]);
}

/// An access to a page that its process takes to be on `home`; returns where the join says that it is.
fn home(world: &mut World, process: usize, address: u64, home: u16) -> Option<u16> {
    let (address, home) = (VirtAddr(address), Some(NodeId(home)));
    emit_all(world, process, [Event::Access(Access { address, home, weight: 7, ..Access::default() })]);
    world.results.last().and_then(|(_, home)| *home)
}

/// Causes of the placements that the join tells, and accesses whose home another process had given to the page.
fn told(world: World) -> (Vec<String>, u64) {
    let joined = world.joiner.finish();
    (joined.placements.cause.iter().map(ToString::to_string).collect(), joined.homes_of_others)
}

const FIRST_TOUCH: u32 = layout::PLACED_FIRST_TOUCH;

#[test]
fn a_page_that_a_forked_child_touched_first_is_there_for_its_parent_too() {
    let mut world = World::new();
    map(&mut world, 0, BASE, layout::MAP_SHARED, "");
    world.process(Some(0), true, false);
    place(&mut world, 1, BASE, 2, FIRST_TOUCH);
    place(&mut world, 0, BASE, 0, FIRST_TOUCH);
    place(&mut world, 0, BASE + PAGE, 0, FIRST_TOUCH);
    place(&mut world, 1, BASE + PAGE, 2, layout::PLACED_POLICY);
    let homes = [
        home(&mut world, 0, BASE, 0),
        home(&mut world, 1, BASE, 2),
        home(&mut world, 0, BASE + PAGE, 0),
        home(&mut world, 1, BASE + PAGE, 2),
    ];
    assert_eq!(homes, [Some(2), Some(2), Some(0), Some(0)]);
    place(&mut world, 1, BASE, 3, layout::PLACED_MOVED);
    assert_eq!(home(&mut world, 0, BASE, 0), Some(3), "moved, for all");
    let causes = ["first_touch", "first_touch", "moved"].map(str::to_owned).to_vec();
    assert_eq!(told(world), (causes, 3));
}

#[test]
fn a_segment_of_system_v_has_one_home_for_each_page_wherever_it_is_attached() {
    let mut world = World::new();
    world.process(None, false, false);
    for (process, address) in [(0, BASE), (1, 5 * BASE)] {
        map(&mut world, process, address, layout::MAP_SHARED | layout::MAP_SHM, "/SYSV id 7");
    }
    place(&mut world, 0, BASE + PAGE, 1, FIRST_TOUCH);
    place(&mut world, 1, 5 * BASE + PAGE, 3, FIRST_TOUCH);
    assert_eq!(home(&mut world, 1, 5 * BASE + PAGE, 3), Some(1));
    assert_eq!(told(world), (vec!["first_touch".to_owned()], 1));
}

/// A file of shared memory may have been made anew under its name, and private memory is copied at a write.
#[test]
fn elsewhere_each_process_knows_best() {
    for (flags, path) in [(0, ""), (layout::MAP_SHARED, "/dev/shm/a"), (layout::MAP_SHARED, "/memfd:a (deleted)")] {
        let mut world = World::new();
        map(&mut world, 0, BASE, flags, path);
        world.process(Some(0), true, false);
        place(&mut world, 1, BASE, 2, FIRST_TOUCH);
        place(&mut world, 0, BASE, 0, FIRST_TOUCH);
        assert_eq!([home(&mut world, 0, BASE, 0), home(&mut world, 1, BASE, 2)], [Some(0), Some(2)], "{path}");
        assert_eq!(told(world), (vec!["first_touch".to_owned(); 2], 0), "{path}");
    }
}

/// A child that has written a page has a copy on its own node; what it shares for good, and what it touched first itself, is none such.
#[test]
fn accesses_to_inherited_memory_on_another_node_are_counted() {
    let mut world = World::new();
    map(&mut world, 0, BASE, 0, "");
    map(&mut world, 0, BASE + 16 * PAGE, layout::MAP_SHARED, "/dev/shm/a");
    for page in [0, 16] {
        place(&mut world, 0, BASE + page * PAGE, 2, FIRST_TOUCH);
    }
    world.process(Some(0), true, false);
    place(&mut world, 1, BASE + PAGE, 2, FIRST_TOUCH);
    // Threads run on node 0.
    for (process, page, home_node) in [(1, 0, 2), (1, 0, 0), (1, 1, 2), (1, 16, 2), (0, 0, 2)] {
        home(&mut world, process, BASE + page * PAGE, home_node);
    }
    assert_eq!(world.joiner.finish().inherited_remote, 1, "the first alone");
}
