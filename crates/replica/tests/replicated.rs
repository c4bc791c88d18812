//! The Rust API on the machine at hand.

use std::panic;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use numapilot_machine::NodeId;
use numapilot_replica::Error;
use numapilot_replica::Options;
use numapilot_replica::Replicated;

#[test]
fn sections_see_whole_versions_in_order_while_others_write() {
    let replica = Replicated::new(&[0_u64; 600]).expect("replica");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut newest = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let section = replica.read();
                    assert!(section.version() >= newest);
                    newest = section.version();
                    assert!(section.iter().all(|value| *value == section.version() - 1));
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..100 {
                        replica.update(|values| values.iter_mut().for_each(|value| *value += 1)).expect("update");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("writer");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(*replica.read(), [200; 600]);
    assert_eq!(replica.info().version, 201);
}

#[test]
fn sections_may_end_in_any_order() {
    let replica = Replicated::new(&[1_u8, 2]).expect("replica");
    let first = replica.read();
    let second = replica.read();
    replica.publish(&[3, 4]).expect("publish");
    drop(first);
    replica.publish(&[5, 6]).expect("publish");
    assert_eq!(*second, [1, 2]);
    assert!(replica.info().pending_versions >= 1);
    drop(second);
    // Sections of other tests' threads, too, delay what is freed: they all share the process's readers.
    let is_free = (0..5000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        replica.publish(&[7, 8]).expect("publish");
        replica.info().pending_versions == 0
    });
    assert!(is_free, "{:?}", replica.info());
}

#[test]
fn a_writer_that_panics_has_written_nothing() {
    let replica = Replicated::new(&[1_u32]).expect("replica");
    let panicked = panic::catch_unwind(AssertUnwindSafe(|| {
        replica.update(|values| {
            values[0] = 9;
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(*replica.read(), [1]);
    replica.update(|values| values[0] += 1).expect("the turn was given up");
    assert_eq!(*replica.read(), [2]);
}

#[test]
fn waiting_for_oneself_is_an_error() {
    let replica =
        Replicated::with_options(&[1_u64], Options { pending_max: 1, ..Options::default() }).expect("replica");
    let section = replica.read();
    replica.publish(&[2]).expect("one version may wait");
    assert_eq!(replica.publish(&[3]), Err(Error::WouldDeadlock));
    assert_eq!(replica.update(|_| replica.publish(&[4])).err(), Some(Error::WouldDeadlock));
    drop(section);
    assert_eq!(replica.update(|_| replica.publish(&[4])), Ok(Err(Error::WouldDeadlock)));
    assert_eq!(*replica.read(), [2]);
}

#[test]
fn collapsing_keeps_one_copy() {
    let replica = Replicated::new(&[7_u16; 5000]).expect("replica");
    let before = replica.info();
    assert_eq!(before.copies, before.nodes);
    replica.collapse().expect("collapse");
    assert_eq!((replica.info().copies, replica.info().is_collapsed), (1, true));
    assert_eq!(replica.read().len(), 5000);
    replica.replicate().expect("replicate");
    assert_eq!((replica.info().copies, replica.info().version), (before.copies, before.version));
    assert_eq!(replica.copy_of(NodeId(60_000)), Err(Error::NoSuchNode));
}

#[test]
fn nothing_cannot_be_replicated() {
    assert_eq!(Replicated::<u64>::new(&[]).err(), Some(Error::BadSize));
    assert_eq!(Replicated::new(&[(), ()]).err(), Some(Error::BadSize));
}
