//! A journal on a disk that is full, by the limit of file sizes: alone in its program, since the limit holds for all of it.

use std::time::Duration;
use std::time::Instant;

use numapilot_balancer::event::Entry;
use numapilot_balancer::event::Event;
use numapilot_balancer::event::Sink;
use numapilot_balancer::event::Trouble;
use numapilot_service::daemon::Daemon;
use numapilot_service::daemon::DaemonSettings;
use numapilot_service::journal::JournalSettings;
use numapilot_service::journal::read;

fn limit_files_to(bytes: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives both calls; only the soft limit changes.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit), 0);
        limit.rlim_cur = bytes.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

#[test]
fn a_full_disk_stops_the_journal_and_not_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    let settings = DaemonSettings { journal: Some(JournalSettings::new(file.clone())), ..DaemonSettings::default() };
    let mut daemon = Daemon::start(&settings, || ()).unwrap();
    let event = |times| Event::Trouble(Trouble { what: "x".repeat(200), times });
    limit_files_to(20_000);
    let start = Instant::now();
    for times in 0..1000 {
        daemon.record(event(times));
    }
    assert!(start.elapsed() < Duration::from_secs(5), "the loop waited for the disk: {:?}", start.elapsed());
    daemon.end();
    let text = std::fs::read(&file).unwrap();
    assert!(text.len() <= 20_000 && text.ends_with(b"}\n"), "{} bytes, ends with a whole line", text.len());
    let mut kept = 0;
    let reading = read(&file, |_| kept += 1).unwrap();
    assert_eq!(reading.unreadable, 0);
    assert!((10..100).contains(&kept), "{kept} lines");
    // There is room again: the journal tries after five seconds, and says what is missing.
    limit_files_to(u64::MAX);
    let start = Instant::now();
    let mut entries: Vec<Entry> = Vec::new();
    while entries.len() <= kept {
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(250));
        daemon.record(event(5000));
        daemon.end();
        entries.clear();
        read(&file, |entry| entries.push(entry)).unwrap();
    }
    let Event::Losses(losses) = &entries[kept].event else { panic!("{:?}", entries[kept]) };
    let lost = losses.lost[0].count;
    assert_eq!(losses.lost[0].what, "journal lines");
    assert!(lost >= 1000 - kept as u64, "{lost} of 1000 lost, {kept} kept");
}
