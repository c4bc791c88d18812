//! Writes the journal: a bounded queue, and the thread that empties it.

use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::channel;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use numapilot_balancer::event::Entry;
use numapilot_balancer::event::Event;
use numapilot_balancer::event::Loss;
use numapilot_balancer::event::Losses;
use numapilot_balancer::event::Sink;
use numapilot_balancer::event::VERSION;

use super::JournalHealth;
use super::JournalSettings;
use super::part;
use crate::error::ServiceError;

/// Maximum number of events in the queue; further events are lost.
const QUEUE: usize = 4096;
/// Wait after a failure before the next attempt.
const RETRY: Duration = Duration::from_secs(5);
/// Bytes written between two checks of the free space.
const LOOK_BYTES: u64 = 64 << 10;

enum Message {
    Event(u64, Box<Event>),
    Flush(Sender<()>),
}

#[derive(Debug, Default)]
struct Shared {
    lines: AtomicU64,
    lost: AtomicU64,
    trouble: Mutex<String>,
}

/// A journal that is being written; dropping it writes the queue.
#[derive(Debug)]
pub struct Journal {
    queue: Option<SyncSender<Message>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A handle on a journal's state.
#[derive(Clone, Debug)]
pub struct HealthOf(Arc<Shared>);

impl HealthOf {
    /// The present state.
    #[must_use]
    pub fn get(&self) -> JournalHealth {
        JournalHealth {
            lines: self.0.lines.load(Ordering::Relaxed),
            lost: self.0.lost.load(Ordering::Relaxed),
            trouble: self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Journal {
    /// Opens or creates the file, readable by this user only.
    ///
    /// # Errors
    /// The file cannot be opened, or another process writes to it. A full disk is not an error: the journal waits for free space.
    pub fn start(settings: JournalSettings) -> Result<Journal, ServiceError> {
        let shared = Arc::new(Shared::default());
        let (queue, messages) = sync_channel(QUEUE);
        let mut writer = Writer::new(settings, Arc::clone(&shared));
        if let Err(source) = writer.open() {
            let is_full = matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
            if !is_full {
                return Err(ServiceError::file(&writer.settings.file, "write the journal", source));
            }
            writer.fail(&source);
        }
        let thread = thread::Builder::new()
            .name("numapilot-journal".to_owned())
            .spawn(move || writer.run(&messages))
            .map_err(|source| ServiceError::System { what: "cannot start the journal's thread", source })?;
        Ok(Journal { queue: Some(queue), shared, thread: Some(thread) })
    }

    /// A handle on the journal's state.
    #[must_use]
    pub fn health(&self) -> HealthOf {
        HealthOf(Arc::clone(&self.shared))
    }

    /// Waits until all events so far are on disk, at most `at_most`.
    pub fn flush(&self, at_most: Duration) {
        let (done, wait) = channel();
        if let Some(queue) = &self.queue
            && queue.try_send(Message::Flush(done)).is_ok()
        {
            let _ = wait.recv_timeout(at_most);
        }
    }
}

impl Sink for Journal {
    fn record(&mut self, event: Event) {
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let message = Message::Event(u64::try_from(now_ns).unwrap_or(u64::MAX), Box::new(event));
        if self.queue.as_ref().is_none_or(|queue| queue.try_send(message).is_err()) {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The line of a run's start event.
struct StartLine {
    text: String,
    /// Whether some file has it.
    is_written: bool,
    /// Whether it was counted as a lost line before it could be written.
    was_lost: bool,
    /// Whether it has to be written before the next event, because readers would give that to an earlier run otherwise: at first, and after a failure (the
    /// file may be another one by then).
    is_due: bool,
}

struct Writer {
    settings: JournalSettings,
    shared: Arc<Shared>,
    /// The open file and its size; `None` after a failure.
    open: Option<(Held, u64)>,
    /// Time of the next attempt after a failure.
    retry_at: Instant,
    /// Number of the next line.
    line: u64,
    /// Lost lines that are recorded in the journal already.
    reported: u64,
    /// The run's first line. It is repeated at the head of every file, so that each can be read alone.
    start: Option<StartLine>,
    /// Size at which the free space is checked again.
    look_at: u64,
}

impl Writer {
    fn new(settings: JournalSettings, shared: Arc<Shared>) -> Writer {
        Writer { settings, shared, open: None, retry_at: Instant::now(), line: 0, reported: 0, start: None, look_at: 0 }
    }

    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Event(unix_ns, event) => self.event(unix_ns, *event),
                Message::Flush(done) => {
                    self.sync();
                    let _ = done.send(());
                }
            }
        }
        self.sync();
    }

    fn sync(&self) {
        if let Some((file, _)) = &self.open {
            let _ = file.0.sync_data();
        }
    }

    fn event(&mut self, unix_ns: u64, event: Event) {
        if matches!(event, Event::Start(_)) {
            let Ok(text) = self.text(unix_ns, event) else { return self.lose(1) };
            self.line += 1;
            self.start = Some(StartLine { text, is_written: false, was_lost: false, is_due: true });
            if !self.write_what_is_due(unix_ns)
                && let Some(start) = self.start.as_mut().filter(|start| !start.is_written)
            {
                start.was_lost = true;
                self.lose(1);
            }
        } else if !self.write_what_is_due(unix_ns) || !self.put(unix_ns, event) {
            self.lose(1);
        }
    }

    /// Opens the file after a failure, once it is time, and writes what has to come before the next event: the run's first line, and how many lines were
    /// lost. False: that was not possible.
    fn write_what_is_due(&mut self, unix_ns: u64) -> bool {
        if self.open.is_none() {
            if Instant::now() < self.retry_at {
                return false;
            }
            if let Err(error) = self.open() {
                self.fail(&error);
                return false;
            }
        }
        if let Some(text) = self.start.as_ref().filter(|start| start.is_due).map(|start| start.text.clone()) {
            if let Err(error) = self.write(&text, true) {
                self.fail(&error);
                return false;
            }
            if let Some(start) = &mut self.start {
                start.is_due = false;
                if !std::mem::replace(&mut start.is_written, true) {
                    self.shared.lines.fetch_add(1, Ordering::Relaxed);
                    self.reported += u64::from(start.was_lost);
                }
            }
        }
        let missed = self.shared.lost.load(Ordering::Relaxed).saturating_sub(self.reported);
        if missed > 0 {
            let loss = Loss { what: "journal lines".to_owned(), count: missed };
            self.line += missed;
            if !self.put(unix_ns, Event::Losses(Losses { lost: vec![loss] })) {
                // They are counted again with those that follow.
                self.line -= missed;
                return false;
            }
            self.reported += missed;
        }
        true
    }

    fn lose(&self, lines: u64) {
        self.shared.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// The next line. Fails only for maps with keys that are not strings, or a failing serializer; events have neither.
    fn text(&self, unix_ns: u64, event: Event) -> serde_json::Result<String> {
        let entry = Entry { v: VERSION, line: self.line, unix_ns, event };
        serde_json::to_string(&entry).map(|text| text + "\n")
    }

    /// Writes one line; false: it was not written, and the file still ends with a complete line.
    fn put(&mut self, unix_ns: u64, event: Event) -> bool {
        let Ok(text) = self.text(unix_ns, event) else { return false };
        match self.write(&text, false) {
            Ok(()) => {
                self.line += 1;
                self.shared.lines.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    fn write(&mut self, text: &str, is_start: bool) -> io::Result<()> {
        let is_full = |bytes: u64| bytes > 0 && bytes + text.len() as u64 > self.settings.max_bytes;
        if self.open.as_ref().is_some_and(|(_, bytes)| is_full(*bytes)) {
            self.rotate()?;
            if let Some(start) = self.start.as_ref().filter(|_| !is_start).map(|start| start.text.clone()) {
                self.append(&start)?;
            }
        }
        self.append(text)
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        let Some((file, bytes)) = &mut self.open else { return Err(io::Error::from_raw_os_error(libc::EBADF)) };
        if *bytes >= self.look_at {
            self.look_at = *bytes + LOOK_BYTES;
            if free_bytes(&file.0)? < self.settings.keep_free_bytes {
                let keep = self.settings.keep_free_bytes >> 20;
                return Err(io::Error::other(format!(
                    "the file system has less than {keep} MiB free, which the journal does not use"
                )));
            }
        }
        if let Err(error) = file.0.write_all(text.as_bytes()) {
            let _ = file.0.set_len(*bytes);
            return Err(error);
        }
        *bytes += text.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.sync();
        let file = self.settings.file.clone();
        for number in (1..=self.settings.keep).rev() {
            let from = if number == 1 { file.clone() } else { part(&file, number - 1) };
            match std::fs::rename(&from, part(&file, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.settings.keep == 0 {
            std::fs::remove_file(&file)?;
        }
        self.open()
    }

    fn open(&mut self) -> io::Result<()> {
        self.open = None;
        self.look_at = 0;
        let mut file = open(&self.settings.file)?;
        let mut bytes = file.0.seek(SeekFrom::End(0))?;
        if bytes > 0 {
            let mut last = [0];
            file.0.seek(SeekFrom::End(-1))?;
            file.0.read_exact(&mut last)?;
            if last != *b"\n" {
                // Terminates the incomplete line of a writer that was killed.
                file.0.write_all(b"\n")?;
                bytes += 1;
            }
        }
        self.open = Some((file, bytes));
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    fn fail(&mut self, error: &io::Error) {
        self.open = None;
        if let Some(start) = &mut self.start {
            start.is_due = true;
        }
        self.retry_at = Instant::now() + RETRY;
        let what = format!("{}: {error}", self.settings.file.display());
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }
}

/// The journal's file, locked until this is dropped. Closing the file is not enough: what another thread starts at that moment has it open, too, until it
/// executes its program.
struct Held(File);

impl Drop for Held {
    fn drop(&mut self) {
        // Nothing is left to do if this fails.
        let _ = self.0.unlock();
    }
}

/// Opens the file for appending and locks it. Only its owner may read it, because a journal holds addresses and names of other users' programs.
fn open(path: &Path) -> io::Result<Held> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file; name another path"));
    }
    // SAFETY: `file` is open; the kernel releases the lock with its last descriptor.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let error = io::Error::last_os_error();
        return Err(match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(error.kind(), "another numapilot writes to it; name another file")
            }
            _ => error,
        });
    }
    Ok(Held(file))
}

fn free_bytes(file: &File) -> io::Result<u64> {
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the structure is large enough for the answer; `file` is open.
    let answer = unsafe {
        if libc::fstatvfs(file.as_raw_fd(), answer.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        answer.assume_init()
    };
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

#[cfg(test)]
mod tests {
    //! Files that turn, tear and fill.

    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use numapilot_balancer::event::Start;
    use numapilot_balancer::event::Trouble;

    use super::super::read;
    use super::*;

    fn trouble(times: u64) -> Event {
        Event::Trouble(Trouble { what: "x".repeat(80), times })
    }

    fn settings(folder: &Path, max_bytes: u64) -> JournalSettings {
        let settings = JournalSettings::new(folder.join("j"));
        JournalSettings { max_bytes, keep: 3, keep_free_bytes: 0, ..settings }
    }

    fn read_all(path: &Path) -> (Vec<Entry>, super::super::Reading) {
        let mut entries = Vec::new();
        let reading = read(path, |entry| entries.push(entry)).unwrap();
        (entries, reading)
    }

    #[test]
    fn files_turn_by_size_and_each_begins_with_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), 2000);
        let mut journal = Journal::start(settings.clone()).unwrap();
        journal.record(Event::Start(Start { run: "r".to_owned(), ..Start::default() }));
        for times in 0..40 {
            journal.record(trouble(times));
        }
        let health = journal.health();
        drop(journal);
        assert_eq!(health.get(), JournalHealth { lines: 41, lost: 0, trouble: String::new() });
        let mut names: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        assert_eq!(names, ["j", "j.1", "j.2", "j.3"].map(|name| folder.path().join(name)));
        for name in names {
            let text = std::fs::read_to_string(&name).unwrap();
            assert!(text.len() <= 2000 && text.lines().next().unwrap().contains(r#""event":"start""#), "{text}");
            assert_eq!(std::fs::metadata(&name).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let (entries, reading) = read_all(&settings.file);
        let numbers: Vec<u64> = entries.iter().map(|entry| entry.line).collect();
        assert_eq!(numbers[0], 0, "the start, once");
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers.last() == Some(&40), "{numbers:?}");
        assert_eq!((reading.files, reading.unreadable), (4, 0));
    }

    #[test]
    fn a_torn_line_is_passed_over_and_sealed() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), 1 << 20);
        let mut journal = Journal::start(settings.clone()).unwrap();
        journal.record(trouble(1));
        journal.record(trouble(2));
        drop(journal);
        let text = std::fs::read(&settings.file).unwrap();
        for cut in 1..60 {
            std::fs::write(&settings.file, &text[..text.len() - cut]).unwrap();
            let (entries, reading) = read_all(&settings.file);
            // Without its line feed only, a line is whole.
            assert_eq!((entries.len(), reading.unreadable), if cut == 1 { (2, 0) } else { (1, 1) }, "cut {cut}");
            let mut journal = Journal::start(settings.clone()).unwrap();
            journal.record(trouble(3));
            drop(journal);
            let (entries, _) = read_all(&settings.file);
            assert_eq!(entries.last().unwrap().event, trouble(3));
        }
    }

    #[test]
    fn a_second_writer_is_refused_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), 1 << 20);
        let first = Journal::start(settings.clone()).unwrap();
        let error = Journal::start(settings.clone()).unwrap_err().to_string();
        assert!(error.contains("another numapilot writes to it"), "{error}");
        drop(first);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(Journal::start(JournalSettings { file: link, ..settings }).is_err());
    }

    /// One that was begun while another thread started a program was refused, as if another balancer wrote to the file.
    #[test]
    fn a_journal_is_free_when_its_writer_is_gone_whoever_has_the_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), 1 << 20);
        let mut writer = Writer::new(settings.clone(), Arc::default());
        writer.event(1, trouble(1));
        // As after a fork: another descriptor of the same open file.
        let inherited = writer.open.as_ref().map(|(file, _)| file.0.try_clone().unwrap()).unwrap();
        drop(writer);
        drop(Journal::start(settings).unwrap());
        drop(inherited);
    }

    #[test]
    fn a_file_system_without_room_loses_lines_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let settings = JournalSettings { keep_free_bytes: u64::MAX, ..settings(folder.path(), 1 << 20) };
        let mut journal = Journal::start(settings).unwrap();
        for times in 0..5 {
            journal.record(trouble(times));
        }
        journal.flush(Duration::from_secs(10));
        let health = journal.health().get();
        assert_eq!((health.lines, health.lost), (0, 5));
        assert!(health.trouble.contains("MiB free"), "{health:?}");
    }

    #[test]
    fn lost_lines_are_told_once_there_is_room_again() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), 1 << 20);
        let shared = Arc::new(Shared::default());
        let mut writer = Writer::new(settings.clone(), Arc::clone(&shared));
        writer.event(1, trouble(1));
        writer.fail(&io::Error::from_raw_os_error(libc::ENOSPC));
        writer.event(2, trouble(2));
        writer.event(3, trouble(3));
        assert_eq!(shared.lost.load(Ordering::Relaxed), 2);
        assert!(!shared.trouble.lock().unwrap().is_empty());
        writer.retry_at = Instant::now();
        writer.event(4, trouble(4));
        assert!(shared.trouble.lock().unwrap().is_empty());
        let (entries, reading) = read_all(&settings.file);
        let told = Event::Losses(Losses { lost: vec![Loss { what: "journal lines".to_owned(), count: 2 }] });
        assert_eq!(
            entries.iter().map(|e| (e.line, &e.event)).collect::<Vec<_>>(),
            [(0, &trouble(1)), (3, &told), (4, &trouble(4))]
        );
        assert_eq!(reading.missing, 2);
    }

    #[test]
    fn lost_lines_are_counted_once_however_often_there_is_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), 1 << 20);
        let mut writer = Writer::new(settings.clone(), Arc::default());
        writer.event(1, trouble(1));
        writer.fail(&io::Error::from_raw_os_error(libc::ENOSPC));
        writer.settings.keep_free_bytes = u64::MAX;
        for times in 2..5 {
            writer.retry_at = Instant::now();
            writer.event(times, trouble(times));
        }
        writer.settings.keep_free_bytes = 0;
        writer.retry_at = Instant::now();
        writer.event(5, trouble(5));
        let (entries, reading) = read_all(&settings.file);
        assert_eq!(entries.iter().map(|entry| entry.line).collect::<Vec<_>>(), [0, 4, 5]);
        assert_eq!(reading.missing, 3);
    }

    #[test]
    fn a_start_for_which_there_was_no_room_comes_before_what_follows_and_so_does_one_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), 1 << 20);
        let start = |run: &str| Event::Start(Start { run: run.to_owned(), ..Start::default() });
        let mut earlier = Writer::new(settings.clone(), Arc::default());
        earlier.event(1, start("a"));
        earlier.event(2, trouble(1));
        drop(earlier);
        let shared = Arc::new(Shared::default());
        let full = JournalSettings { keep_free_bytes: u64::MAX, ..settings.clone() };
        let mut writer = Writer::new(full, Arc::clone(&shared));
        writer.event(3, start("b"));
        writer.event(4, trouble(2));
        writer.settings.keep_free_bytes = 0;
        writer.retry_at = Instant::now();
        writer.event(5, trouble(3));
        let (entries, reading) = read_all(&settings.file);
        let told = Event::Losses(Losses { lost: vec![Loss { what: "journal lines".to_owned(), count: 1 }] });
        assert_eq!(
            entries.iter().map(|entry| (entry.line, entry.event.clone())).collect::<Vec<_>>(),
            [(0, start("a")), (1, trouble(1)), (0, start("b")), (2, told), (3, trouble(3))]
        );
        assert_eq!((reading.missing, shared.lost.load(Ordering::Relaxed)), (1, 2));
        // Somebody makes room by removing the journal.
        writer.fail(&io::Error::from_raw_os_error(libc::ENOSPC));
        std::fs::remove_file(&settings.file).unwrap();
        writer.retry_at = Instant::now();
        writer.event(6, trouble(4));
        let (entries, _) = read_all(&settings.file);
        assert_eq!(entries.iter().map(|entry| entry.event.clone()).collect::<Vec<_>>(), [start("b"), trouble(4)]);
    }
}
