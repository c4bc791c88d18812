//! Memory that processes share, in recordings of engines that follow first touches for each process by itself.

use numapilot_trace::record::FileIdentity;

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

/// The runtime tells of the copy that a page becomes for who writes it first after a fork.
#[test]
fn a_copy_after_a_fork_is_its_writers_alone() {
    let mut world = World::new();
    map(&mut world, 0, BASE, 0, "");
    for page in 0..2 {
        place(&mut world, 0, BASE + page * PAGE, 2, FIRST_TOUCH);
    }
    world.process(Some(0), true, false);
    place(&mut world, 1, BASE, 1, FIRST_TOUCH);
    let homes = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(process, page)| found(&mut world, process, BASE + page * PAGE));
    assert_eq!(homes, [Some(2), Some(1), Some(2), Some(2)]);
}

const FILE: FileIdentity = FileIdentity { device: 1, inode: 7, born: 3 };

/// Maps 16 pages of a file at `address` in a process.
fn map_file(world: &mut World, process: usize, address: u64, file: FileIdentity, path: &str) {
    let told = Event::File { address: VirtAddr(address), file, offset: 0, bytes: 0, node: None };
    emit_all(world, process, [told]);
    map(world, process, address, layout::MAP_SHARED, path);
}

/// An access to a page of which its process does not know the home; returns where the join says that it is.
fn found(world: &mut World, process: usize, address: u64) -> Option<u16> {
    let address = VirtAddr(address);
    emit_all(world, process, [Event::Access(Access { address, home: None, weight: 1, ..Access::default() })]);
    world.results.last().and_then(|(_, home)| *home)
}

#[test]
fn a_page_of_a_file_lies_where_the_first_of_all_processes_touched_it() {
    for path in ["/dev/shm/a", "/memfd:a (deleted)", "/var/lib/data"] {
        let mut world = World::new();
        world.process(None, false, false);
        map_file(&mut world, 0, BASE, FILE, path);
        map_file(&mut world, 1, 5 * BASE, FILE, "/dev/shm/renamed");
        place(&mut world, 0, BASE + PAGE, 1, FIRST_TOUCH);
        // The second process finds two pages: one that the first has touched, and one that nobody recorded has.
        for page in [1, 2] {
            place(&mut world, 1, 5 * BASE + page * PAGE, 0, layout::PLACED_UNKNOWN);
        }
        assert_eq!(found(&mut world, 1, 5 * BASE + PAGE), Some(1), "{path}");
        assert_eq!(found(&mut world, 1, 5 * BASE + 2 * PAGE), None, "{path}: not the node of whoever finds it");
        assert_eq!(told(world), (vec!["first_touch".to_owned(), "unknown_toucher".to_owned()], 1), "{path}");
    }
}

#[test]
fn a_file_that_is_made_anew_under_its_name_is_another() {
    let mut world = World::new();
    world.process(None, false, false);
    map_file(&mut world, 0, BASE, FILE, "/dev/shm/a");
    place(&mut world, 0, BASE, 1, FIRST_TOUCH);
    map_file(&mut world, 1, BASE, FileIdentity { inode: 8, ..FILE }, "/dev/shm/a");
    place(&mut world, 1, BASE, 3, FIRST_TOUCH);
    assert_eq!([home(&mut world, 0, BASE, 1), home(&mut world, 1, BASE, 3)], [Some(1), Some(3)]);
    assert_eq!(told(world).1, 0);
}

#[test]
fn a_page_that_a_file_was_given_before_it_was_mapped_lies_where_that_thread_ran() {
    let mut world = World::new();
    world.process(None, false, false);
    let node = Some(NodeId(2));
    let given = Event::File { address: VirtAddr(0), file: FILE, offset: 0, bytes: 2 * PAGE, node };
    emit_all(&mut world, 0, [given]);
    map_file(&mut world, 1, BASE, FILE, "/dev/shm/a");
    place(&mut world, 1, BASE, 0, layout::PLACED_UNKNOWN);
    assert_eq!([found(&mut world, 1, BASE), home(&mut world, 1, BASE + PAGE, 0)], [Some(2); 2]);
}

/// What a file record says is of the mapping at its address alone, and of a private mapping nothing.
#[test]
fn a_file_is_that_of_its_own_mapping() {
    let mut world = World::new();
    world.process(None, false, false);
    map_file(&mut world, 0, BASE, FILE, "/dev/shm/a");
    place(&mut world, 0, BASE, 1, FIRST_TOUCH);
    let lost = Event::File { address: VirtAddr(9 * BASE), file: FILE, offset: 0, bytes: 0, node: None };
    emit_all(&mut world, 1, [lost]);
    map(&mut world, 1, BASE, layout::MAP_SHARED, "/dev/shm/b");
    let private = Event::File { address: VirtAddr(2 * BASE), file: FILE, offset: 0, bytes: 0, node: None };
    emit_all(&mut world, 1, [private]);
    map(&mut world, 1, 2 * BASE, 0, "/dev/shm/a");
    assert_eq!([home(&mut world, 1, BASE, 3), home(&mut world, 1, 2 * BASE, 3)], [Some(3); 2]);
}
