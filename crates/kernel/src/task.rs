//! Processes and threads: listing them, and referring to a process safely although its id may be reused.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

pub use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::TaskStatus;
pub use numapilot_host::Tid;
use numapilot_host::is_gone;
use numapilot_host::number;
use numapilot_host::ticks_per_s;
use numapilot_machine::CpuId;

use crate::error::KernelError;

/// For what acts on processes: makes sure that /proc shows those that system calls mean. In a container, or after `unshare --pid`, it may be another
/// namespace's.
///
/// # Errors
/// It is another namespace's, or there is none.
pub fn require_own_proc() -> Result<(), KernelError> {
    let link = fs::read_link("/proc/self");
    if is_of(link.as_deref().ok(), Pid::own()) { Ok(()) } else { Err(KernelError::OtherProc) }
}

/// Whether `/proc/self` leads to this process by its own number.
fn is_of(link: Option<&Path>, pid: Pid) -> bool {
    link.and_then(Path::to_str).is_some_and(|text| text.parse::<Pid>() == Ok(pid))
}

/// Ids of a process's threads, ascending.
///
/// # Errors
/// The process has ended.
pub fn threads_of(pid: Pid) -> Result<Vec<Tid>, KernelError> {
    threads_under(Path::new("/"), pid)
}

/// [`threads_of`] under another root.
///
/// # Errors
/// As [`threads_of`].
pub fn threads_under(root: &Path, pid: Pid) -> Result<Vec<Tid>, KernelError> {
    Ok(numbers(&root.join(format!("proc/{pid}/task")), pid)?.into_iter().map(Tid).collect())
}

/// All processes that this user can see, ascending.
///
/// # Errors
/// /proc is not there.
pub fn processes() -> Result<Vec<Pid>, KernelError> {
    processes_under(Path::new("/"))
}

/// [`processes`] under another root.
///
/// # Errors
/// As [`processes`].
pub fn processes_under(root: &Path) -> Result<Vec<Pid>, KernelError> {
    Ok(numbers(&root.join("proc"), Pid::CALLING)?.into_iter().map(Pid).collect())
}

fn numbers(folder: &Path, pid: Pid) -> Result<Vec<u32>, KernelError> {
    let fail = |source| KernelError::of_file(folder.to_owned(), pid, source);
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let Ok(entry) = entry else { break };
        out.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    out.sort_unstable();
    Ok(out)
}

/// A running thread of a process whose first thread has ended (`pthread_exit` in `main`): the process's own files about its memory are empty then, and the
/// thread's are not. `None`: the first one runs, or none does.
#[must_use]
pub fn stand_in(root: &Path, pid: Pid) -> Option<Tid> {
    let (under, mut text) = (Root::new(root), Vec::new());
    if !TaskStat::read(&under, pid, &mut text)?.has_ended() {
        return None;
    }
    let mut threads = threads_under(root, pid).unwrap_or_default().into_iter();
    threads.find(|tid| TaskStat::read_thread(&under, (pid, *tid), &mut text).is_some_and(|stat| !stat.has_ended()))
}

/// Why a process that was named is not among those that /proc shows, with the next step.
#[must_use]
pub fn why_absent(pid: Pid) -> String {
    match Process::open(pid) {
        Err(KernelError::Gone { .. }) => format!("there is no process {pid}: it has ended, or never ran"),
        Err(error) => error.to_string(),
        Ok(process) if process.is_running() => format!(
            "process {pid} runs, but /proc does not show it to you (is it mounted with hidepid?); run as root, or as a member of the group that its \
             option gid= names"
        ),
        Ok(_) => format!("process {pid} has ended (a zombie until its parent process waits for it)"),
    }
}

/// A thread's name (`comm` in /proc); empty if the thread has ended.
#[must_use]
pub fn name_of(pid: Pid, tid: Tid) -> String {
    let mut text = Vec::new();
    let name = Root::default().read(&format!("proc/{pid}/task/{tid}/comm"), &mut text).unwrap_or_default();
    String::from_utf8_lossy(name).trim_end_matches('\n').to_owned()
}

/// The parent of a process; `None` where it is gone.
#[must_use]
pub fn parent_of(pid: Pid) -> Option<Pid> {
    of_status(pid, |status| status.parent())
}

/// What `/proc/PID/status` says of a process; `None` where it is gone.
fn of_status<T>(pid: Pid, said: impl FnOnce(TaskStatus<'_>) -> Option<T>) -> Option<T> {
    said(TaskStatus::read(&Root::default(), pid, &mut Vec::new())?)
}

/// The fields of `/proc/PID/stat` (or that of a thread) that are used here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Name of the task (`comm`).
    pub name: String,
    /// State: R, S, D, Z, ...
    pub state: u8,
    /// Clock ticks since boot at which it started; together with the id it identifies the process.
    pub start_ticks: u64,
    /// CPU on which it ran last.
    pub cpu: CpuId,
    /// Clock ticks for which it ran, user and system; of a process, all of its threads, the ended ones too.
    pub cpu_ticks: u64,
    /// Start addresses of its code and of its stack, which `exec` changes; 0 or 1 where the caller may not read them.
    pub image: (u64, u64),
}

/// Reads `/proc/PID/stat`.
///
/// # Errors
/// If the process has ended.
pub fn stat(pid: Pid) -> Result<Stat, KernelError> {
    stat_at(&format!("proc/{pid}/stat"), pid)
}

/// When a process started, in clock ticks since boot; `None` where it is gone.
#[must_use]
pub fn start_ticks_of(pid: Pid) -> Option<u64> {
    Some(stat(pid).ok()?.start_ticks)
}

/// Reads `/proc/PID/task/TID/stat`.
///
/// # Errors
/// If the thread has ended.
pub fn stat_of_thread(pid: Pid, tid: Tid) -> Result<Stat, KernelError> {
    stat_at(&format!("proc/{pid}/task/{tid}/stat"), Pid::of_task(tid))
}

fn stat_at(file: &str, pid: Pid) -> Result<Stat, KernelError> {
    let (root, mut text) = (Root::default(), Vec::new());
    let line = root.read(file, &mut text).map_err(|error| KernelError::of_file(error.path, pid, error.source))?;
    parse_stat(line).ok_or_else(|| KernelError::Nonsense {
        path: root.path().join(file),
        line: 1,
        what: "the text does not have the format of /proc/PID/stat",
    })
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    let stat = TaskStat::parse(text)?;
    Some(Stat {
        name: String::from_utf8_lossy(stat.name).into_owned(),
        state: stat.state,
        start_ticks: stat.start_ticks,
        cpu_ticks: stat.cpu_ticks(),
        cpu: CpuId(stat.cpu),
        image: stat.image,
    })
}

/// Times of a thread since its start, as the scheduler counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedTimes {
    /// Nanoseconds for which it ran.
    pub ran_ns: u64,
    /// Nanoseconds for which it was ready to run and waited for a CPU.
    pub waited_ns: u64,
}

/// The scheduler's times of a thread (`schedstat`); `None`: it has ended, or this kernel has no such file (`CONFIG_SCHED_INFO`). Before Linux 5.14, without
/// delay accounting, both are 0.
#[must_use]
pub fn sched_times(root: &Root, pid: Pid, tid: Tid) -> Option<SchedTimes> {
    let mut text = Vec::new();
    let line = root.read(&format!("proc/{pid}/task/{tid}/schedstat"), &mut text).ok()?;
    let mut times = line.split(u8::is_ascii_whitespace).filter_map(number);
    Some(SchedTimes { ran_ns: times.next()?, waited_ns: times.next()? })
}

/// Nanoseconds for which a thread has run. A kernel that does not count them ([`sched_times`]) has it by clock ticks alone, of 10 ms on most machines:
/// `cpu_ticks` of the thread's [`Stat`].
#[must_use]
pub fn ran_ns(pid: Pid, tid: Tid, cpu_ticks: u64) -> u64 {
    ran_ns_under(&Root::default(), (pid, tid), cpu_ticks)
}

fn ran_ns_under(root: &Root, (pid, tid): (Pid, Tid), cpu_ticks: u64) -> u64 {
    match sched_times(root, pid, tid) {
        Some(times) if times.ran_ns > 0 => times.ran_ns,
        _ => cpu_ticks.saturating_mul(1_000_000_000 / ticks_per_s()),
    }
}

/// The real user of a process; `None` where it is gone.
#[must_use]
pub fn user_of(pid: Pid) -> Option<u32> {
    users_of(pid).map(|[real, ..]| real)
}

/// The user ids of a process: real, effective, saved and of the file system; `None` where it is gone.
#[must_use]
pub fn users_of(pid: Pid) -> Option<[u32; 4]> {
    of_status(pid, |status| status.users())
}

/// Whether a process that had the ids `before` has others by now, as after the exec of a set-user-ID program: its real user stays then. One that could be any
/// user (root) may change as it likes.
#[must_use]
pub fn has_gained_rights(before: [u32; 4], now: [u32; 4]) -> bool {
    !before.contains(&0) && now.iter().any(|id| !before.contains(id))
}

/// Whether a process ignores a signal (`SigIgn` of `/proc/PID/status`); false if it has ended or does not show.
#[must_use]
pub fn ignores(pid: Pid, signal: libc::c_int) -> bool {
    of_status(pid, |status| Some(status.ignores(signal))).unwrap_or(false)
}

/// Time between two looks at a process that no descriptor of its own tells of.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A process held by a descriptor: it refers to the process that had the id when it was opened, even after the id is reused (pidfd_open, Linux 5.3).
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    held: Held,
}

/// The descriptor of a process.
#[derive(Debug)]
enum Held {
    /// Of the process itself.
    Process(OwnedFd),
    /// Of its folder in /proc, for older kernels, and for containers whose seccomp profile does not know the call. Its files are gone with the process, whoever
    /// gets the id.
    Folder(OwnedFd),
}

impl Process {
    /// Opens a descriptor of the process.
    ///
    /// # Errors
    /// It has ended, or there are too many descriptors.
    pub fn open(pid: Pid) -> Result<Process, KernelError> {
        let number = pid.raw().ok_or(KernelError::Gone { pid })?;
        // SAFETY: takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            let source = io::Error::last_os_error();
            return match source.raw_os_error() {
                // The id of a thread that is not a process.
                Some(libc::EINVAL) => Err(KernelError::Gone { pid }),
                // The kernel itself needs no right for it.
                Some(libc::ENOSYS | libc::EPERM) if require_own_proc().is_ok() => Process::by_folder(pid),
                _ => Err(KernelError::of_call("pidfd_open", pid, source)),
            };
        }
        // SAFETY: `fd` is open and owned by nobody else.
        Ok(Process { pid, held: Held::Process(unsafe { OwnedFd::from_raw_fd(fd) }) })
    }

    fn by_folder(pid: Pid) -> Result<Process, KernelError> {
        let path = PathBuf::from(format!("/proc/{pid}"));
        let folder = fs::File::open(&path).map_err(|source| KernelError::of_file(path, pid, source))?;
        let folder = OwnedFd::from(folder);
        let mut text = Vec::new();
        let status = under(&folder).read("status", &mut text);
        let status = status.map_err(|error| KernelError::of_file(error.path, pid, error.source))?;
        // A thread that is not a process has a folder, too.
        match TaskStatus::of(status).process() {
            Some(process) if process == pid => Ok(Process { pid, held: Held::Folder(folder) }),
            _ => Err(KernelError::Gone { pid }),
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends it a signal (`pidfd_send_signal`, Linux 5.1): to this process, and never to one that was given its id later. On an older kernel, where the id
    /// could be given away between two system calls, `kill`.
    ///
    /// # Errors
    /// It has ended, or belongs to another user.
    pub fn signal(&self, signal: libc::c_int) -> Result<(), KernelError> {
        let (call, sent) = match &self.held {
            Held::Process(fd) => {
                let none = std::ptr::null_mut::<libc::siginfo_t>();
                // SAFETY: an open descriptor, a number, and no siginfo (the kernel fills it in as kill(2) does).
                let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, none, 0) };
                ("pidfd_send_signal", sent)
            }
            Held::Folder(folder) => {
                let number = self.pid.raw().ok_or(KernelError::Gone { pid: self.pid })?;
                // While its file can be read, nobody else has the id; a zombie has it, too. If it cannot be read for another reason, nobody knows.
                let (held, mut text) = (under(folder), Vec::new());
                let looked = held.read("stat", &mut text);
                looked.map_err(|error| KernelError::of_file(error.path, self.pid, error.source))?;
                // SAFETY: takes two integers.
                let sent = unsafe { libc::kill(number, signal) };
                ("kill", libc::c_long::from(sent))
            }
        };
        if sent == 0 {
            return Ok(());
        }
        Err(KernelError::of_call(call, self.pid, io::Error::last_os_error()))
    }

    /// Waits until it ends, the time is over, or a signal is caught, whichever comes first.
    pub fn wait(&self, time: Duration) {
        match &self.held {
            Held::Process(fd) => {
                let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one valid pollfd.
                unsafe { libc::poll(&raw mut poll, 1, millis(time)) };
            }
            Held::Folder(folder) => {
                let began = Instant::now();
                while runs(folder) {
                    let left = time.saturating_sub(began.elapsed()).min(LOOK_EVERY);
                    // SAFETY: no pollfd; it sleeps, and fails where a signal is caught.
                    let slept = unsafe { libc::poll(std::ptr::null_mut(), 0, millis(left)) };
                    if left.is_zero() || slept < 0 {
                        return;
                    }
                }
            }
        }
    }

    /// Whether it still runs (a zombie does not).
    #[must_use]
    pub fn is_running(&self) -> bool {
        match &self.held {
            Held::Process(fd) => {
                let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one valid pollfd; a timeout of 0 returns at once. The descriptor becomes readable when the process ends.
                !is_readable(unsafe { libc::poll(&mut poll, 1, 0) })
            }
            Held::Folder(folder) => runs(folder),
        }
    }
}

/// Milliseconds as poll(2) takes them, at least as long as `time`.
fn millis(time: Duration) -> libc::c_int {
    libc::c_int::try_from(time.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX)
}

/// The files of a folder that is open.
fn under(folder: &OwnedFd) -> Root {
    Root::new(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// Whether the process whose folder in /proc this is still runs.
fn runs(folder: &OwnedFd) -> bool {
    let mut text = Vec::new();
    match under(folder).read("stat", &mut text) {
        Ok(line) => TaskStat::parse(line).is_some_and(|stat| !stat.is_zombie()),
        // One that cannot be read for another reason, such as too few descriptors, has not ended for that.
        Err(error) => !is_gone(&error.source),
    }
}

/// Whether a call of poll(2) found its descriptor readable. One that finds nothing may end with an error: EINTR where a signal is caught meanwhile
/// (`do_poll` in `fs/select.c`).
fn is_readable(answer: libc::c_int) -> bool {
    answer > 0
}

#[cfg(test)]
mod tests {
    //! This process, and one that ends.

    use std::process::Command;

    use super::*;

    const IN_ANOTHER_NAMESPACE: &str = "NUMAPILOT_TEST_IN_ANOTHER_NAMESPACE";

    /// Its threads were passed over, so that it had none, or had never run.
    #[test]
    fn a_kernel_that_does_not_count_nanoseconds_counts_ticks() {
        let folder = tempfile::tempdir().unwrap();
        let (root, task) = (Root::new(folder.path()), (Pid(7), Tid(8)));
        let tick_ns = 1_000_000_000 / ticks_per_s();
        assert_eq!((ran_ns_under(&root, task, 3), ran_ns_under(&root, task, 0)), (3 * tick_ns, 0));
        fs::create_dir_all(folder.path().join("proc/7/task/8")).unwrap();
        let put = |text: &str| fs::write(folder.path().join("proc/7/task/8/schedstat"), text).unwrap();
        put("0 0 0\n");
        assert_eq!(ran_ns_under(&root, task, 3), 3 * tick_ns);
        put("31234567 89 5\n");
        assert_eq!(ran_ns_under(&root, task, 3), 31_234_567);
        assert_eq!(sched_times(&root, task.0, task.1), Some(SchedTimes { ran_ns: 31_234_567, waited_ns: 89 }));
        assert_eq!(sched_times(&root, task.0, Tid(9)), None);
    }

    /// Process 1 of a container is not process 1 of the host: numbers found in the host's /proc were used in the container's system calls.
    #[test]
    fn processes_of_another_namespace_are_not_acted_on() {
        if std::env::var_os(IN_ANOTHER_NAMESPACE).is_some() {
            eprintln!("refused: {}", matches!(require_own_proc(), Err(KernelError::OtherProc)));
            return;
        }
        assert!(require_own_proc().is_ok() && is_of(Some(Path::new("7")), Pid(7)));
        assert!(!is_of(Some(Path::new("7")), Pid(1)) && !is_of(None, Pid(7)));
        let this = std::env::current_exe().unwrap();
        let name = "task::tests::processes_of_another_namespace_are_not_acted_on";
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork"])
            .arg(this)
            .args(["--exact", name, "--nocapture"])
            .env(IN_ANOTHER_NAMESPACE, "1");
        let told =
            command.output().map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
        if !told.contains("refused: ") {
            return numapilot_not_run::not_run!(
                PidNamespaces,
                "this system makes no namespaces of process numbers here"
            );
        }
        assert!(told.contains("refused: true"), "{told}");
    }

    #[test]
    fn this_process_and_its_threads_are_listed() {
        let pid = Pid::own();
        assert!(processes().unwrap().contains(&pid));
        assert!(threads_of(pid).unwrap().contains(&Tid::first_of(pid)));
        assert!(!name_of(pid, Tid::first_of(pid)).is_empty());
        assert_eq!(parent_of(pid), Some(Pid(std::os::unix::process::parent_id())));
    }

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name() {
        let line = b"7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 100 5 18446744073709551615 111 222 333 0 0 0 0 0 0 0 0 17 3 0 0";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.start_ticks, stat.cpu), ("a) b (c", b'S', 4242, CpuId(0)));
        assert_eq!((stat.image, stat.cpu_ticks), ((111, 333), 11));
        assert_eq!(parse_stat(b"7 (x"), None);
        let own = Pid::own();
        let first = stat_of_thread(own, Tid::first_of(own)).unwrap();
        assert_eq!(first.start_ticks, super::stat(own).unwrap().start_ticks);
        assert!(user_of(own).is_some());
    }

    /// The real user alone was compared, which a set-user-ID program does not change.
    #[test]
    fn a_set_user_id_program_is_another_users() {
        assert!(has_gained_rights([1000; 4], [1000, 0, 0, 0]) && has_gained_rights([1000; 4], [0; 4]));
        assert!(!has_gained_rights([1000; 4], [1000; 4]), "nothing has changed");
        assert!(!has_gained_rights([1000, 33, 33, 33], [1000, 1000, 33, 1000]), "it could be both all the time");
        assert!(!has_gained_rights([0; 4], [33; 4]), "a server gives up its rights");
        let own = Pid::own();
        let (users, user) = (users_of(own).unwrap(), user_of(own).unwrap());
        assert!(users[0] == user && !has_gained_rights(users, users));
        assert_eq!(users_of(Pid(u32::MAX)), None);
    }

    /// The balancer took a process whose name is no UTF-8 for one that had ended, and let go of it.
    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let named = std::thread::spawn(|| {
            // SAFETY: the call reads a string that ends with a zero.
            let answer = unsafe { libc::prctl(libc::PR_SET_NAME, c"\xff".as_ptr()) };
            // SAFETY: has no preconditions.
            let tid = Tid(unsafe { libc::gettid() } as u32);
            let task = Pid::of_task(tid);
            assert_eq!((answer, name_of(Pid::own(), tid).as_str()), (0, "\u{fffd}"));
            assert!(users_of(task).is_some() && user_of(task).is_some() && parent_of(task).is_some());
        });
        named.join().unwrap();
    }

    #[test]
    fn a_process_without_its_first_thread_is_read_by_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("p.c"), folder.path().join("p"));
        let text = "#include <pthread.h>\n#include <unistd.h>\nstatic void *run(void *a) { pause(); return a; }\n\
                    int main(void) { pthread_t t; return pthread_create(&t, 0, run, 0) ? 1 : (pthread_exit(0), 0); }\n";
        std::fs::write(&source, text).unwrap();
        assert!(Command::new("cc").arg("-pthread").arg(&source).arg("-o").arg(&program).status().unwrap().success());
        let mut child = Command::new(&program).spawn().unwrap();
        let pid = Pid::of_child(&child);
        let began = std::time::Instant::now();
        while stat(pid).unwrap().state != b'Z' {
            assert!(began.elapsed() < Duration::from_secs(60), "its first thread does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let tid = stand_in(Path::new("/"), pid);
        let mut maps = Vec::new();
        let read = crate::maps::read(pid, "maps", &mut maps);
        let stack = crate::maps::maps(&maps).find(|line| line.path == b"[stack]").map(|line| line.end.0 - 4096);
        let mut states = Vec::new();
        let asked = crate::memory::PageQuery::new().states(pid, &[stack.unwrap_or(0)], &mut states);
        let mut members = numapilot_host::Members::new(numapilot_host::Group::Processes(vec![pid]));
        members.refresh(&numapilot_host::Root::default());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tid.is_some_and(|tid| tid != Tid::first_of(pid)), "{tid:?}");
        assert!(read.is_ok() && String::from_utf8_lossy(&maps).contains("[stack]"), "{read:?}");
        assert!(members.contains(pid));
        // The kernel knows no memory by the process's own number (EINVAL): its pages could neither be found nor moved.
        match asked {
            Err(KernelError::Unavailable { .. }) => {}
            asked => assert!(asked.is_ok() && states[0].node().is_some(), "{asked:?}, {states:?}"),
        }
        assert_eq!(stand_in(Path::new("/"), Pid::own()), None);
        assert!(why_absent(pid).contains("ended") || why_absent(pid).contains("no process"), "{}", why_absent(pid));
    }

    #[test]
    fn a_process_that_ends_is_noticed_and_gone() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::open(Pid::of_child(&child)).unwrap();
        assert!(process.is_running());
        assert!(!is_readable(-1), "a signal that was caught meanwhile is no end of the process");
        process.wait(Duration::from_millis(1));
        child.kill().unwrap();
        process.wait(Duration::from_secs(100));
        assert!(!process.is_running());
        child.wait().unwrap();
        assert!(matches!(process.signal(0), Err(KernelError::Gone { .. })), "not to whoever has its id next");
        assert!(matches!(Process::open(Pid::of_child(&child)), Err(KernelError::Gone { .. })));
        assert!(matches!(threads_of(Pid::of_child(&child)), Err(KernelError::Gone { .. })));
    }

    /// Linux 4.18 (RHEL 8) has no pidfd_open: `stat` started its command and then failed, and left the command to itself.
    #[test]
    fn a_kernel_without_descriptors_of_processes_has_their_folders() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid::of_child(&child);
        let process = Process::by_folder(pid).unwrap();
        process.wait(Duration::from_millis(1));
        assert!(process.is_running() && process.pid() == pid);
        process.signal(libc::SIGTERM).unwrap();
        let began = Instant::now();
        while process.is_running() && began.elapsed() < Duration::from_secs(100) {
            process.wait(Duration::from_secs(100));
        }
        assert!(!process.is_running(), "nobody has waited for it yet");
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
        assert!(!process.is_running());
        assert!(matches!(process.signal(0), Err(KernelError::Gone { .. })), "not to whoever has its id next");
        assert!(matches!(Process::by_folder(Pid(u32::MAX)), Err(KernelError::Gone { .. })));
        let of_a_thread = std::thread::spawn(|| {
            // SAFETY: has no preconditions.
            let tid = unsafe { libc::gettid() };
            Process::by_folder(Pid(tid as u32))
        });
        assert!(matches!(of_a_thread.join().unwrap(), Err(KernelError::Gone { .. })));
        let other = tempfile::tempdir().unwrap();
        let held = OwnedFd::from(fs::File::open(other.path()).unwrap());
        assert!(!runs(&held), "its file is gone");
        fs::create_dir(other.path().join("stat")).unwrap();
        assert!(runs(&held), "an error that does not say that it has ended");
    }

    #[test]
    fn a_signal_is_sent_and_ignored_ones_are_known() {
        let script = "trap '' INT; echo ready; exec sleep 100";
        let mut child = Command::new("sh").args(["-c", script]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        assert!(ignores(Pid::of_child(&child), libc::SIGINT) && !ignores(Pid::of_child(&child), libc::SIGTERM));
        Process::open(Pid::of_child(&child)).unwrap().signal(libc::SIGTERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
        assert!(!ignores(Pid::of_child(&child), libc::SIGINT), "it has ended");
    }
}
