//! Code that processes generate while they run: whose it is, and what lay at an address when it was used.

use numapilot_symbols::{GeneratedCode, GeneratedFunction};

use super::*;
use crate::join::Joined;
use crate::model::LocationId;

/// A function of 64 bytes.
fn function(address: u64, since: Option<u64>, name: &str) -> GeneratedFunction {
    let (address, name) = (VirtAddr(address), name.to_owned());
    GeneratedFunction { address, bytes: 64, name, since, ..GeneratedFunction::default() }
}

/// The start of a process, of the id 10 and its number, with a thread of the same number.
fn start(joiner: &mut Joiner<NoLayouts>, order: u64, process: u32, parent: Option<u32>, by_exec: bool) {
    let thread = thread_start(process, (Pid(10 + process), Tid(10 + process)), parent);
    let begun = Event::ProcessStart {
        index: ProcessIndex(process),
        pid: Pid(10 + process),
        parent_pid: Pid(0),
        parent: parent.map(ProcessIndex),
        by_exec,
        exe: String::new(),
        arguments: Vec::new(),
    };
    for event in [thread, begun] {
        emit(joiner, order, process, event);
    }
}

/// Feeds an event of a thread. The location of the access, if it is one.
fn emit(joiner: &mut Joiner<NoLayouts>, order: u64, thread: u32, event: Event) -> Option<LocationId> {
    let stamp = Stamp { order: Order(order), time: TimeNs(order) };
    let mut location = None;
    let record = Record { stamp, thread: ThreadIndex(thread), event };
    joiner.push(&record, &mut |joined: &JoinedAccess| location = Some(joined.access.location));
    location
}

#[test]
fn generated_code_is_that_of_the_process_that_made_it() {
    let code = |name: &str| GeneratedCode::new(vec![function(0x1000, None, name)]);
    let parents = GeneratedCode::new(vec![function(0x1000, None, "parents"), function(0x2000, None, "boot")]);
    let generated = [(Pid(10), parents), (Pid(12), code("own"))].into_iter().collect();
    let mut joiner = Joiner::new(NoLayouts, CONVENTIONS, 0, generated);
    // A parent, a fork of it, a fork that generated its own, a child with an image of its own, and a fork of the fork.
    let family = [(0, None, false), (1, Some(0), false), (2, Some(0), false), (3, Some(0), true), (4, Some(1), false)];
    for (process, parent, by_exec) in family {
        start(&mut joiner, 0, process, parent, by_exec);
    }
    let places: Vec<_> = (0..5).map(|process| joiner.code_location(ProcessIndex(process), 0x1020)).collect();
    assert_eq!(joiner.code_location(ProcessIndex(0), 0x1020), places[0]);
    let beyond = joiner.code_location(ProcessIndex(0), 0x1040);
    // What a process was forked with it still runs, whatever it has generated itself since.
    let inherited = joiner.code_location(ProcessIndex(2), 0x2020);
    let joined = joiner.finish();
    let binary = |location: LocationId| &joined.binaries[joined.locations[location.0 as usize].binary as usize];
    let maker = |place: LocationId| binary(place).generated_by.map(|pid| pid.0);
    let makers: Vec<Option<u32>> = places.iter().map(|place| maker(*place)).collect();
    assert_eq!(makers, [Some(10), Some(10), Some(12), None, Some(10)]);
    assert_eq!(maker(inherited), Some(10));
    assert_eq!((binary(places[3]).path.as_ref(), binary(beyond).path.as_ref()), ("[anon]", "[anon]"));
}

/// The function that a location names.
fn name(joined: &Joined, location: LocationId) -> String {
    let address = joined.locations[location.0 as usize];
    let binary = &joined.binaries[address.binary as usize];
    let code = binary.generated_by.and_then(|pid| joined.generated.get(&pid)).expect("generated code");
    code.find_within(VirtAddr(address.offset), binary.span).expect("a function").function
}

/// All functions that ever were at the address were named.
#[test]
fn an_access_has_the_function_that_was_there_when_it_took_place() {
    let functions = vec![
        function(0x1000, Some(100), "old"),
        function(0x1000, Some(500), "new"),
        function(0x2000, Some(100), "stays"),
    ];
    let generated = [(Pid(10), GeneratedCode::new(functions))].into_iter().collect();
    let mut joiner = Joiner::new(NoLayouts, Conventions::SAMPLED, 0, generated);
    start(&mut joiner, 90, 0, None, false);
    let access = |joiner: &mut Joiner<NoLayouts>, order, thread, ip| {
        let access = Access { address: VirtAddr(BASE), ip: VirtAddr(ip), weight: 1, ..Access::default() };
        emit(joiner, order, thread, Event::Access(access)).expect("an access")
    };
    let stack = |joiner: &mut Joiner<NoLayouts>, order, id| {
        let (id, frames) = (StackId(id), vec![VirtAddr(0x1011)]);
        emit(joiner, order, 0, Event::Stack { id, frames, truncated: false, failed: false });
    };
    let (old, early) = (access(&mut joiner, 200, 0, 0x1010), access(&mut joiner, 210, 0, 0x2010));
    stack(&mut joiner, 250, 1);
    start(&mut joiner, 300, 1, Some(0), false);
    let (new, late) = (access(&mut joiner, 600, 0, 0x1010), access(&mut joiner, 610, 0, 0x2010));
    stack(&mut joiner, 620, 2);
    // A child has what its parent had when it was forked.
    let child = access(&mut joiner, 700, 1, 0x1010);
    let again = access(&mut joiner, 710, 0, 0x1010);
    let joined = joiner.finish();
    assert_eq!((name(&joined, old), name(&joined, new)), ("old".to_owned(), "new".to_owned()));
    assert_eq!((child, again, early), (old, new, late));
    assert_eq!(name(&joined, early), "stays");
    // A stack is recorded once, for all calls under these addresses from then on.
    let of_stack = |id: usize| name(&joined, joined.stacks[id].frames[0].1);
    assert_eq!((of_stack(1), of_stack(2)), ("new or old".to_owned(), "new".to_owned()));
}
