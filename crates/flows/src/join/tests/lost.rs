//! Threads whose starts were lost, binaries that a forked child unloads, memory that the C library uses before anybody tells of it, and addresses at which no
//! memory is.

use super::*;

/// Make sure that a thread does not count as running, or waiting, before anything is known of it.
#[test]
fn a_thread_whose_start_was_lost_begins_where_it_was_seen_first() {
    let mut world = World::new();
    let wait = Event::Sync { kind: 1, object: 0, began: TimeNs(40) };
    for (order, thread, event) in [(50, 2, access_to(BASE)), (60, 2, access_to(BASE)), (70, 3, wait)] {
        world.order = order;
        world.emit(thread, event);
    }
    let joined = world.joiner.finish();
    let starts: Vec<(u64, u64)> = joined
        .threads
        .iter()
        .zip(&joined.thread_extras)
        .map(|(thread, extra)| (thread.start.0, extra.start_order))
        .collect();
    assert_eq!(starts, [(1, 1), (0, 0), (50, 50), (70, 70)], "nothing is known of the second");
    assert_eq!(joined.losses.inconsistent_records, 2, "once for each");
}

/// The binaries that a child is forked with are its parent's, which go on having them.
#[test]
fn a_binary_that_a_forked_child_unloads_stays_loaded_in_its_parent() {
    let id = ModuleId(1);
    for unloads in [0, 1] {
        let mut world = World::new();
        let (address, path) = (VirtAddr(BASE), "/usr/lib/plugin.so".to_owned());
        emit_all(&mut world, 0, [Event::Module { id, address, bytes: PAGE, bias: BASE, path, build_id: Vec::new() }]);
        world.process(Some(0), true, false);
        emit_all(&mut world, unloads, [Event::ModuleEnd { id }]);
        let at = world.order;
        let modules = [0, 1].map(|process| world.joiner.spaces[process].module_at(BASE).is_some());
        assert_eq!(modules, [unloads == 1, unloads == 0], "process {unloads} unloads it");
        assert_eq!(world.joiner.finish().modules.unload_ns, [(unloads == 0).then_some(at)]);
    }
}

/// A page in thirty or more of a growing heap was memory of no known object.
#[test]
fn memory_above_the_break_is_the_allocators_before_its_growth_is_told() {
    let grown = |at, flags| {
        let (address, path) = (VirtAddr(at), String::new());
        Event::Map { address, bytes: 2 * PAGE, flags, file_offset: 0, path, stack: StackId(0) }
    };
    let objects_of = |flags: u32| {
        let mut world = World::with(Conventions { accesses_are_faults: true, ..Conventions::SAMPLED });
        let above = BASE + 3 * PAGE;
        emit_all(&mut world, 0, [grown(BASE, flags), access_to(BASE), access_to(above + 8), access_to(above + 16)]);
        emit_all(&mut world, 0, [grown(BASE + 2 * PAGE, flags), access_to(above), access_to(BASE + (1 << 30))]);
        let objects: Vec<Option<u32>> = world.results.iter().map(|(object, _)| *object).collect();
        (objects, world.joiner.finish())
    };
    let (objects, joined) = objects_of(layout::MAP_BRK);
    let [Some(first), Some(above), Some(again), Some(told), None] = objects[..] else { panic!("{objects:?}") };
    assert!(above == again && above != first && told != above, "{objects:?}");
    let (page, growth) = (&joined.objects[above as usize], &joined.objects[told as usize]);
    assert_eq!((page.address, page.bytes), (VirtAddr(BASE + 3 * PAGE), PAGE));
    assert!(page.death.is_some() && growth.death.is_none());
    assert_eq!([page.site, growth.site], [joined.objects[first as usize].site; 2]);
    let (objects, joined) = objects_of(0);
    assert!(matches!(objects[..], [Some(_), None, None, Some(_), None]), "above other memory is nothing: {objects:?}");
    assert_eq!(joined.losses.accesses_without_object, 3);
}

/// Call stacks of code without frame pointers end in data, which was taken for generated code.
#[test]
fn return_addresses_where_no_memory_is_are_told_from_generated_code() {
    let mut world = World::new();
    let path_at = |world: &mut World, at| {
        let location = world.joiner.code_location(ProcessIndex(0), at);
        let binary = world.joiner.out.locations[location.0 as usize].binary;
        world.joiner.out.binaries[binary as usize].path.to_string()
    };
    assert_eq!(path_at(&mut world, 0x1_2ef7), "[anon]", "nothing is known of the process");
    let (address, path) = (VirtAddr(BASE), String::new());
    let map = Event::Map { address, bytes: PAGE, flags: 0, file_offset: 0, path, stack: StackId(0) };
    emit_all(&mut world, 0, [map]);
    assert_eq!([BASE + 8, 0x1_2ef7].map(|at| path_at(&mut world, at)), ["[anon]", "[unmapped]"]);
}
