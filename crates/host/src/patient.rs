//! Reads the files of `/proc/PID` for which the kernel takes the process's `mmap_lock` (`maps`, `smaps`, `numa_maps`, `cmdline`), and gives up where it does
//! not get it. A thread of that process holds the lock for ever where it waits meanwhile for a file server that does not answer; whoever reads such a file
//! then waits as long, and cannot be woken but by a signal that ends the whole program. So a helper thread reads them.
//!
//! A file that takes long is not given up: the kernel walks the page tables of a terabyte for many seconds, and runs meanwhile.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::Pid;
use crate::TaskStat;

/// Time between two looks at a helper that has not answered.
const LOOK: Duration = Duration::from_millis(250);
/// Looks in a row that find the helper waiting, not running, before its file is given up.
const LOOKS: u32 = 8;
/// Helpers that are kept for later files.
const IDLE_MAX: usize = 4;

const LOCKED: &str = "the kernel does not answer, because a thread of the process has its address space locked, as while a file server does not answer";

/// A file to read.
struct Job {
    path: PathBuf,
    bytes_max: u64,
    buffer: Vec<u8>,
    /// Dropped once the file has been read.
    mark: Arc<()>,
}

/// The result of a read: bytes or error, and the buffer that the reader was given.
struct Answer {
    read: io::Result<usize>,
    buffer: Vec<u8>,
    /// Processor time that the helper, and the kernel for it, spent.
    cpu: Duration,
}

/// A helper thread.
struct Helper {
    jobs: Sender<Job>,
    answers: Receiver<Answer>,
    tid: u32,
}

thread_local! {
    static HELPERS_CPU: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Helpers that have nothing to do.
static IDLE: Mutex<Vec<Helper>> = Mutex::new(Vec::new());
/// Folders with a file that a helper still waits for: nothing more of them is read, which would take another thread each time.
static UNANSWERED: Mutex<BTreeMap<PathBuf, Weak<()>>> = Mutex::new(BTreeMap::new());

/// Processor time that helpers have spent on what this thread has read ([`read_patiently`]): the clock of the thread itself does not have it, and whoever
/// limits what reading costs adds it.
#[must_use]
pub fn helpers_cpu() -> Duration {
    HELPERS_CPU.get()
}

/// Reads at most `bytes_max` bytes of a file into `buffer`, which is emptied before. Returns their number.
///
/// # Errors
/// The file cannot be read; [`io::ErrorKind::TimedOut`]: the kernel has not answered for two seconds without working on the answer, or has not yet answered
/// an earlier such reading of a file in the same folder.
pub fn read_patiently(path: &Path, bytes_max: u64, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.clear();
    let folder = path.parent().unwrap_or(path);
    if is_unanswered(folder) {
        return Err(no_answer());
    }
    let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let helper = match idle {
        Some(helper) => helper,
        None => Helper::start()?,
    };
    let mark = Arc::new(());
    let unread = Arc::downgrade(&mark);
    let job = Job { path: path.to_owned(), bytes_max, buffer: std::mem::take(buffer), mark };
    if helper.jobs.send(job).is_err() {
        return Err(io::Error::other("the thread that reads files has ended"));
    }
    match helper.answer() {
        Some(answer) => {
            *buffer = answer.buffer;
            HELPERS_CPU.set(HELPERS_CPU.get().saturating_add(answer.cpu));
            let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE_MAX {
                idle.push(helper);
            }
            answer.read
        }
        None => {
            UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned(), unread);
            Err(no_answer())
        }
    }
}

impl Helper {
    fn start() -> io::Result<Helper> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (done, answers) = mpsc::channel();
        let (told, tid) = mpsc::channel();
        let work = move || {
            block_signals();
            let _ = told.send(own_tid());
            for Job { path, bytes_max, mut buffer, mark } in waiting {
                let began = thread_cpu();
                let read = File::open(&path).and_then(|file| file.take(bytes_max).read_to_end(&mut buffer));
                let cpu = thread_cpu().saturating_sub(began);
                // Before the answer: who gets that may ask for the next file of the folder at once.
                drop(mark);
                if done.send(Answer { read, buffer, cpu }).is_err() {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("files".to_owned()).spawn(work)?;
        let tid = tid.recv().map_err(io::Error::other)?;
        Ok(Helper { jobs, answers, tid })
    }

    /// The answer to the only job; `None`: there is none, the helper waits for the kernel.
    fn answer(&self) -> Option<Answer> {
        let mut waits = 0;
        while waits < LOOKS {
            match self.answers.recv_timeout(LOOK) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) => waits = if is_running(self.tid) { 0 } else { waits + 1 },
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

/// Whether the kernel has not answered yet for a file of this process on the running system, which was given up. System calls about its memory would wait as
/// long, and cannot be given up: they are not made then ([`locked_error`]).
#[must_use]
pub fn is_locked(pid: Pid) -> bool {
    is_unanswered(Path::new(&format!("/proc/{pid}")))
}

/// What is said of a process whose address space is locked; [`io::ErrorKind::TimedOut`].
#[must_use]
pub fn locked_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, LOCKED)
}

/// As if a file of this process had been given up, until the result is dropped.
#[cfg(feature = "testing")]
#[must_use]
pub fn locked_for_test(pid: Pid) -> Arc<()> {
    let mark = Arc::new(());
    let mut unanswered = UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    unanswered.insert(PathBuf::from(format!("/proc/{pid}")), Arc::downgrade(&mark));
    mark
}

fn is_unanswered(folder: &Path) -> bool {
    let mut unanswered = UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    unanswered.retain(|_, mark| mark.strong_count() > 0);
    unanswered.contains_key(folder)
}

/// Leaves the signals of the process to the threads that wait for them.
fn block_signals() {
    // SAFETY: all bytes are a set of signals; it is this function's own, and filled before it is used. The mask is that of this thread alone.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

fn own_tid() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    u32::try_from(unsafe { libc::gettid() }).unwrap_or(0)
}

/// Processor time of this thread.
fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the struct alone; every kernel has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Whether a thread of this process runs or could, if a CPU were free. (`/proc/PID/task/TID/stat` takes no lock on memory.)
fn is_running(tid: u32) -> bool {
    let line = std::fs::read(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    TaskStat::parse(&line).is_some_and(|stat| stat.state == b'R')
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("not read: {LOCKED}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_file_is_read_as_far_as_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("maps");
        let mut buffer = b"before".to_vec();
        let error = read_patiently(&path, 9, &mut buffer).unwrap_err();
        assert_eq!((error.kind(), buffer.len()), (io::ErrorKind::NotFound, 0));
        std::fs::write(&path, "0123456789").unwrap();
        assert_eq!((read_patiently(&path, 9, &mut buffer).unwrap(), buffer.as_slice()), (9, &b"012345678"[..]));
        assert_eq!((read_patiently(&path, 99, &mut buffer).unwrap(), buffer.len()), (10, 10));
    }

    /// A pipe without a writer answers as little as a process whose address space is locked.
    #[test]
    fn a_file_that_does_not_answer_is_given_up_until_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("numa_maps"), folder.path().join("smaps"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&file, "text").unwrap();
        let mut buffer = Vec::new();
        let error = read_patiently(&pipe, 99, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().starts_with("not read: "), "{error}");
        // No other thread waits for the same process.
        let began = Instant::now();
        assert_eq!(read_patiently(&file, 99, &mut buffer).unwrap_err().kind(), io::ErrorKind::TimedOut);
        // A wait of its own would be of as many looks as the first, however busy this machine is.
        assert!(began.elapsed() < LOOK * LOOKS, "{:?}", began.elapsed());
        assert!(!is_locked(Pid::own()));
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("smaps"), "text").unwrap();
        assert_eq!(read_patiently(&elsewhere.path().join("smaps"), 99, &mut buffer).unwrap(), 4);

        File::options().write(true).open(&pipe).unwrap().write_all(b"late").unwrap();
        let read = (0..12_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            read_patiently(&file, 99, &mut buffer).ok()
        });
        assert_eq!((read, buffer.as_slice()), (Some(4), &b"text"[..]));
    }

    /// Who limits the cost of reading would not see it otherwise.
    #[test]
    fn the_time_of_helpers_is_that_of_the_thread_that_reads() {
        let (mut buffer, before) = (Vec::new(), helpers_cpu());
        let began = Instant::now();
        while helpers_cpu() == before {
            assert!(began.elapsed() < Duration::from_secs(60), "reading takes no time");
            read_patiently(Path::new("/proc/self/smaps"), u64::MAX, &mut buffer).unwrap();
        }
        assert!(helpers_cpu() - before <= began.elapsed());
        assert_eq!(std::thread::spawn(helpers_cpu).join().unwrap(), Duration::ZERO, "it has read nothing");
    }

    /// This machine's files, by several threads at once, each with its own.
    #[test]
    fn threads_get_the_files_that_they_asked_for() {
        let read = |name: &'static str| {
            move || {
                let mut buffer = Vec::new();
                for _ in 0..50 {
                    let read = read_patiently(Path::new(&format!("/proc/self/{name}")), 1 << 20, &mut buffer);
                    assert!(read.unwrap() > 0);
                    assert_eq!(buffer.starts_with(b"Name:"), name == "status");
                }
            }
        };
        std::thread::scope(|scope| {
            for name in ["status", "maps", "status", "cmdline"] {
                scope.spawn(read(name));
            }
        });
    }
}
