//! Unpacking the libraries: atomic, repeatable, safe against what others may have put there.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::thread;

use numapilot_runtime::CALLOUTS;
use numapilot_runtime::CONTENT_HASH;
use numapilot_runtime::TRACKER;
use numapilot_runtime::unpack;

#[test]
fn many_at_once_get_the_same_whole_files() {
    let dir = tempfile::tempdir().expect("directory");
    let cache = dir.path().join("a/b/cache");
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| unpack(&cache).expect("unpack"))).collect();
        for thread in threads {
            let found = thread.join().expect("thread");
            assert_eq!(fs::read(&found.tracker).expect("tracker"), TRACKER);
            assert_eq!(fs::read(&found.callouts).expect("call-outs"), CALLOUTS);
            assert!(found.planner.exists() && found.java_agent.exists());
        }
    });
    assert_eq!(fs::read_dir(cache.join(CONTENT_HASH)).expect("directory").count(), 4, "no temporary files are left");
    assert_eq!(fs::metadata(&cache).expect("cache").permissions().mode() & 0o777, 0o700);
}

#[test]
fn damaged_files_and_links_are_replaced() {
    let dir = tempfile::tempdir().expect("directory");
    let first = unpack(dir.path()).expect("unpack");
    fs::remove_file(&first.tracker).expect("remove");
    let target = dir.path().join("precious");
    fs::write(&target, b"precious").expect("write");
    symlink(&target, &first.tracker).expect("link");
    fs::set_permissions(&first.callouts, fs::Permissions::from_mode(0o700)).expect("mode");
    fs::write(&first.callouts, b"damaged").expect("write");
    let second = unpack(dir.path()).expect("unpack again");
    assert_eq!(first, second);
    assert_eq!(fs::read(&second.tracker).expect("tracker"), TRACKER);
    assert_eq!(fs::read(&second.callouts).expect("call-outs"), CALLOUTS);
    assert_eq!(fs::read(&target).expect("target"), b"precious");
}

#[test]
fn directories_that_others_may_write_are_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let open = dir.path().join("open");
    fs::create_dir(&open).expect("directory");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("mode");
    let error = unpack(&open).expect_err("a directory open to all");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("chmod"), "{error}");
    let link = dir.path().join("link");
    symlink(dir.path(), &link).expect("link");
    assert_eq!(unpack(&link).expect_err("a link").kind(), io::ErrorKind::PermissionDenied);
}
