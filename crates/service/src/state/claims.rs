//! Claims on processes and on the machine's settings: byte locks in one file at a fixed place. So two daemons with different state folders cannot place the
//! same process, or restore settings in the wrong order.
//!
//! Byte 0 stands for the settings, byte N for process N, and all bytes from 1 on for the whole machine. The locks are those of fcntl(2): the kernel releases
//! them when the process ends, and names the holder. There is one file for root and one for each other user. Root's is readable, so that users see what root's
//! daemon manages. A lock that another user puts on root's file is ignored. A user may have a second file, from before or after a session; claims in it count,
//! too, for root and for the user's own daemons. The own lock comes first, the look into other files second: of two daemons that start at the same moment, at
//! least one sees the other's lock (where both do, both refuse).

use std::collections::BTreeSet;
use std::fs::File;
use std::fs::OpenOptions;
use std::fs::Permissions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_kernel::task;

use crate::error::ServiceError;
use crate::places::Places;

/// Name of the lock file.
const FILE: &str = "claims";
/// Byte that stands for the settings.
const SETTINGS: i64 = 0;

/// The claims of this process. There must be only one per process, because closing any descriptor of the file releases all of its locks.
#[derive(Debug)]
pub struct Claims {
    file: File,
    uid: u32,
    has_all: bool,
    has_settings: bool,
    /// Processes that are claimed one by one.
    pids: BTreeSet<Pid>,
    /// Folders of a user's files; tests set their own.
    places_of: fn(u32) -> Vec<PathBuf>,
}

/// Process id of a lock's holder; 0 if the kernel does not know it (in another container).
type Holder = Pid;

impl Claims {
    /// Opens the file in this user's fixed folder, and creates both if necessary.
    ///
    /// # Errors
    /// They cannot be created, or the folder is not exclusively this user's.
    pub fn open() -> Result<Claims, ServiceError> {
        // SAFETY: has no preconditions.
        let uid = unsafe { libc::geteuid() };
        Claims::open_in(&Places::machine(uid), uid, Places::all_of_machine)
    }

    fn open_in(folder: &Path, uid: u32, places_of: fn(u32) -> Vec<PathBuf>) -> Result<Claims, ServiceError> {
        own_folder(folder, uid)?;
        let path = folder.join(FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o644).custom_flags(libc::O_NOFOLLOW);
        let file = options
            .open(&path)
            .map_err(|source| ServiceError::file(&path, "record which processes this numapilot manages", source))?;
        let_others_read(&file, uid)
            .map_err(|source| ServiceError::file(&path, "let other users read what this numapilot manages", source))?;
        Ok(Claims { file, uid, has_all: false, has_settings: false, pids: BTreeSet::new(), places_of })
    }

    /// Claims the machine's settings. True: they were not claimed before.
    ///
    /// # Errors
    /// Another process has claimed them; the message names it.
    pub fn settings(&mut self) -> Result<bool, String> {
        if self.has_settings {
            return Ok(false);
        }
        match self.lock_unless(SETTINGS, 1, |claims| Ok(claims.in_own_others(SETTINGS, 1)))? {
            Some(holder) => Err(format!("{} already changes the kernel's settings", named(holder))),
            None => {
                self.has_settings = true;
                Ok(true)
            }
        }
    }

    /// Claims a process (`None`: all processes).
    ///
    /// # Errors
    /// Another numapilot manages it; the message names that one and the remedy.
    pub fn claim(&mut self, pid: Option<Pid>) -> Result<(), String> {
        let Some(pid) = pid else {
            if self.has_all {
                return Ok(());
            }
            return match self.lock_unless(1, 0, |claims| Ok(claims.in_own_others(1, 0)))? {
                Some(holder) => Err(refusal(holder, "processes of this machine")),
                None => {
                    self.has_all = true;
                    self.pids.clear();
                    Ok(())
                }
            };
        };
        // What is claimed already stays so, whatever the look finds.
        let found = if self.has_all || self.pids.contains(&pid) {
            self.elsewhere(pid)?
        } else {
            self.lock_unless(i64::from(pid.0), 1, |claims| claims.elsewhere(pid))?
        };
        if let Some(holder) = found {
            return Err(refusal(holder, &format!("process {pid}")));
        }
        if !self.has_all {
            self.pids.insert(pid);
        }
        Ok(())
    }

    /// Takes a lock, and releases it again where `look` finds a holder elsewhere, or fails. `Some`: the holder.
    fn lock_unless(
        &self,
        first: i64,
        length: i64,
        look: impl FnOnce(&Claims) -> Result<Option<Holder>, String>,
    ) -> Result<Option<Holder>, String> {
        if let Some(holder) = self.lock(first, length)? {
            return Ok(Some(holder));
        }
        let found = look(self);
        if !matches!(found, Ok(None)) {
            self.unlock_unclaimed(first, length);
        }
        found
    }

    /// Releases a lock (`length` 0: to the end), but for the claims on single processes that it has taken in: they are held all the time.
    fn unlock_unclaimed(&self, first: i64, length: i64) {
        let mut from = first;
        for pid in self.pids.iter().map(|pid| i64::from(pid.0)).filter(|_| length == 0) {
            if pid > from {
                self.unlock(from, pid - from);
            }
            from = pid + 1;
        }
        self.unlock(from, length);
    }

    /// Releases a lock. That it is not held is not an error.
    fn unlock(&self, first: i64, length: i64) {
        let mut lock = flock(libc::F_UNLCK, first, length);
        // SAFETY: the descriptor is open and the structure is ours.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLK, &raw mut lock) };
    }

    /// Releases the claim on a process.
    pub fn unclaim(&mut self, pid: Pid) {
        if !self.has_all {
            self.pids.remove(&pid);
            self.unlock(i64::from(pid.0), 1);
        }
    }

    /// Takes a lock. `Some`: its holder. A lock held by a user without rights on this file counts as taken by this process.
    fn lock(&self, first: i64, length: i64) -> Result<Option<Holder>, String> {
        let mut lock = flock(libc::F_WRLCK, first, length);
        // SAFETY: the descriptor is open and the structure is ours.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLK, &raw mut lock) } == 0 {
            return Ok(None);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EAGAIN) => {
                let holder = holder(&self.file, libc::F_WRLCK, first, length).unwrap_or_default();
                Ok(Some(holder).filter(|holder| is_valid_holder(*holder, self.uid)))
            }
            _ => Err(format!(
                "which processes another numapilot manages cannot be determined: locking the file `{FILE}` failed ({error})"
            )),
        }
    }

    /// The holder of a claim on this process in another file: of this user, and of root for a user, of the process's user for root.
    ///
    /// # Errors
    /// Root's file exists and cannot be read. What is wrong with a user's file does not keep root from managing that user's processes.
    fn elsewhere(&self, pid: Pid) -> Result<Option<Holder>, String> {
        if let Some(holder) = self.in_own_others(i64::from(pid.0), 1) {
            return Ok(Some(holder));
        }
        let other = if self.uid == 0 { task::user_of(pid) } else { Some(0) };
        let Some(other) = other.filter(|other| *other != self.uid) else { return Ok(None) };
        for path in (self.places_of)(other).into_iter().map(|folder| folder.join(FILE)) {
            match self.locked_in(&path, other, i64::from(pid.0), 1) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) if self.uid == 0 || error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let path = path.display();
                    return Err(format!(
                        "whether root's numapilot manages process {pid} cannot be determined: reading `{path}` failed ({error})"
                    ));
                }
            }
        }
        Ok(None)
    }

    /// The holder of such a lock in the files of this user but its own one. What is wrong with them does not count: anybody may make a folder in `/tmp`.
    fn in_own_others(&self, first: i64, length: i64) -> Option<Holder> {
        let mut others = (self.places_of)(self.uid).into_iter().map(|folder| folder.join(FILE));
        others.find_map(|path| self.locked_in(&path, self.uid, first, length).ok().flatten())
    }

    /// The holder of a lock in a user's file; `None` also if that is no file of this user, or this process's own one.
    fn locked_in(&self, path: &Path, uid: u32, first: i64, length: i64) -> io::Result<Option<Holder>> {
        // By whatever path, also one that another user lets lead there, the own file must not be opened: closing it again would release all claims. A
        // descriptor of the place alone releases none.
        let mut options = OpenOptions::new();
        let place = options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
        let (facts, own) = (place.metadata()?, self.file.metadata()?);
        if facts.is_symlink() {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        if !facts.is_file() || facts.uid() != uid || (facts.dev(), facts.ino()) == (own.dev(), own.ino()) {
            return Ok(None);
        }
        let file = File::open(Root::default().path().join(format!("proc/self/fd/{}", place.as_raw_fd())))?;
        Ok(holder(&file, libc::F_RDLCK, first, length).filter(|holder| is_valid_holder(*holder, uid)))
    }
}

fn flock(kind: libc::c_int, first: i64, length: i64) -> libc::flock {
    // SAFETY: a structure of integers, for which all-zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (first, length);
    lock
}

/// Holder of a lock that conflicts with this one.
fn holder(file: &File, kind: libc::c_int, first: i64, length: i64) -> Option<Holder> {
    let mut lock = flock(kind, first, length);
    // SAFETY: the descriptor is open and the structure is ours.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) } == 0;
    (asked && lock.l_type != libc::F_UNLCK as libc::c_short)
        .then(|| u32::try_from(lock.l_pid).map(Pid).unwrap_or_default())
}

/// Whether a holder's lock counts: in a user's file those of that user, of root, and of processes that are not visible from here.
fn is_valid_holder(holder: Holder, uid: u32) -> bool {
    let user = task::user_of(holder);
    holder == Pid(0) || user.is_none_or(|user| user == uid || user == 0)
}

fn named(holder: Holder) -> String {
    match holder {
        Pid(0) => "a numapilot in another container".to_owned(),
        pid => format!("numapilot (process {pid})"),
    }
}

fn refusal(holder: Holder, what: &str) -> String {
    format!("{} already manages {what}; control it with `numapilot ctl`, or stop it first", named(holder))
}

/// Lets all users read a file, or look into a folder, of this user. The mode of open(2) and mkdir(2) is subject to the umask, which systemd's unit and many
/// servers set to 077, and a daemon's claims have to be seen by those of other users.
fn let_others_read(opened: &File, uid: u32) -> io::Result<()> {
    let facts = opened.metadata()?;
    let needed = if facts.is_dir() { 0o055 } else { 0o044 };
    let mode = facts.permissions().mode() & 0o7777;
    if facts.uid() != uid || mode & needed == needed {
        return Ok(());
    }
    opened.set_permissions(Permissions::from_mode(mode | needed))
}

/// Creates or checks a folder that only this user can write to.
fn own_folder(folder: &Path, uid: u32) -> Result<(), ServiceError> {
    let doing = "create this folder, in which numapilot processes coordinate";
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|source| ServiceError::file(folder, doing, source))?;
    let facts = std::fs::symlink_metadata(folder).map_err(|source| ServiceError::file(folder, doing, source))?;
    if facts.is_dir() && facts.uid() == uid && facts.permissions().mode() & 0o022 == 0 {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY).open(folder);
        return opened
            .and_then(|opened| let_others_read(&opened, uid))
            .map_err(|source| ServiceError::file(folder, "let other users look into this folder", source));
    }
    Err(ServiceError::Content {
        path: folder.to_owned(),
        line: None,
        what: format!(
            "this folder must be owned by user {uid} and writable by no other user; remove it, and numapilot creates it again"
        ),
    })
}

#[cfg(test)]
mod tests {
    //! Locks are a process's own, so the other daemon is another process: this test program, started again to hold claims until its input ends.

    use std::io::BufRead;
    use std::io::BufReader;
    use std::process::Child;
    use std::process::Command;
    use std::process::Stdio;
    use std::sync::Mutex;
    use std::sync::OnceLock;

    use super::*;

    const HOLD: &str = "NUMAPILOT_TEST_HOLDS_CLAIMS";

    fn nowhere(_: u32) -> Vec<PathBuf> {
        vec![PathBuf::from("/nonexistent")]
    }

    /// What a user had before the session in which this test runs.
    static BEFORE: OnceLock<PathBuf> = OnceLock::new();

    fn before_the_session(_: u32) -> Vec<PathBuf> {
        BEFORE.get().cloned().into_iter().collect()
    }

    fn uid() -> u32 {
        // SAFETY: has no preconditions.
        unsafe { libc::geteuid() }
    }

    fn open(folder: &Path) -> Claims {
        Claims::open_in(folder, uid(), nowhere).unwrap()
    }

    struct Other(Child);

    impl Other {
        /// Another process that claims these: a number, `all` or `settings`.
        fn holding(folder: &Path, what: &str) -> Other {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "state::claims::tests::hold", "--nocapture"])
                .env(HOLD, format!("{what} {}", folder.display()))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line.contains("held")), "it holds {what}");
            Other(child)
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// What [`Other`] runs; by itself it has nothing to hold.
    #[test]
    fn hold() {
        let Ok(what) = std::env::var(HOLD) else { return };
        let (what, folder) = what.split_once(' ').unwrap();
        let mut claims = open(Path::new(folder));
        match what {
            "settings" => assert!(claims.settings().unwrap()),
            "all" => claims.claim(None).unwrap(),
            pid => claims.claim(Some(pid.parse().unwrap())).unwrap(),
        }
        io::Write::write_all(&mut io::stdout(), b"held\n").unwrap();
        let _ = io::stdin().lines().count();
    }

    #[test]
    fn what_another_places_is_refused_by_its_name_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let mut claims = open(&folder);
        for (what, claimed) in [("4711", Some(4711)), ("4711", None), ("all", Some(12)), ("all", None)] {
            let claimed = claimed.map(Pid);
            let other = Other::holding(&folder, what);
            let refused = claims.claim(claimed).unwrap_err();
            assert!(
                refused.contains(&format!("process {})", other.0.id())) && refused.contains("numapilot ctl"),
                "{refused}"
            );
            assert_eq!(claims.claim(Some(Pid(4712))).is_ok(), what != "all");
            claims.unclaim(Pid(4712));
            drop(other);
            claims.claim(claimed).unwrap();
            claims = open(&folder);
        }
        let other = Other::holding(&folder, "settings");
        let refused = claims.settings().unwrap_err();
        assert!(refused.contains(&other.0.id().to_string()), "{refused}");
        claims.claim(None).unwrap();
        drop(other);
        assert!(claims.settings().unwrap() && !claims.settings().unwrap());
    }

    /// A daemon that cron started claims in `/tmp`, and those of the user's later session in `/run/user`: both placed the same process.
    #[test]
    fn claims_from_before_a_session_count_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let (before, now) = (folder.path().join("before"), folder.path().join("now"));
        BEFORE.set(before.clone()).unwrap();
        let mut claims = Claims { places_of: before_the_session, ..open(&now) };
        claims.claim(Some(Pid(4713))).unwrap();
        for (what, claimed) in [("4711", Some(4711)), ("4711", None), ("all", Some(4711)), ("settings", None)] {
            let claimed = claimed.map(Pid);
            let other = Other::holding(&before, what);
            let refused = match what {
                "settings" => claims.settings().map(drop).unwrap_err(),
                _ => claims.claim(claimed).unwrap_err(),
            };
            assert!(refused.contains(&format!("process {})", other.0.id())), "{what}: {refused}");
            // What was refused is not held in the own file either.
            drop(Other::holding(&now, if what == "all" { "4711" } else { what }));
        }
        claims.claim(Some(Pid(4711))).unwrap();
        // The own file by another path: looking into it must not release what is claimed.
        std::fs::remove_dir_all(&before).unwrap();
        std::os::unix::fs::symlink(&now, &before).unwrap();
        claims.claim(Some(Pid(4712))).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "state::claims::tests::hold", "--nocapture"])
            .env(HOLD, format!("4713 {}", now.display()));
        let output = child.stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success(), "4713 is claimed still");
    }

    /// A folder of another user, which leads to the own one.
    static LEADS_BACK: OnceLock<PathBuf> = OnceLock::new();

    fn leads_back(_: u32) -> Vec<PathBuf> {
        LEADS_BACK.get().cloned().into_iter().collect()
    }

    /// A user could let `/run/user/UID/numapilot` lead to root's folder: looking into it released all that root's daemon had claimed.
    #[test]
    fn a_folder_of_another_user_that_leads_to_the_own_one_releases_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (now, link) = (folder.path().join("now"), folder.path().join("link"));
        std::os::unix::fs::symlink(&now, &link).unwrap();
        LEADS_BACK.set(link).unwrap();
        let mut claims = Claims { uid: 4711, places_of: leads_back, ..open(&now) };
        claims.claim(Some(Pid(4714))).unwrap();
        claims.claim(Some(Pid(4715))).unwrap();
        for what in ["4714", "4715"] {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child
                .args(["--exact", "state::claims::tests::hold", "--nocapture"])
                .env(HOLD, format!("{what} {}", now.display()));
            let output = child.stdin(Stdio::null()).output().unwrap();
            assert!(!output.status.success(), "{what} is claimed still");
        }
    }

    /// What is claimed in this test, and where; and whether another daemon could claim it at the moment at which this one looks into other files.
    static AT_THE_LOOK: Mutex<Option<(&str, PathBuf)>> = Mutex::new(None);
    static COULD_CLAIM: Mutex<Vec<bool>> = Mutex::new(Vec::new());

    fn another_tries(_: u32) -> Vec<PathBuf> {
        let (what, folder) = AT_THE_LOOK.lock().unwrap().clone().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "state::claims::tests::hold", "--nocapture"])
            .env(HOLD, format!("{what} {}", folder.display()));
        let output = child.stdin(Stdio::null()).output().unwrap();
        COULD_CLAIM.lock().unwrap().push(output.status.success());
        Vec::new()
    }

    /// Two daemons that started at the same moment looked into each other's files first and locked their own second: neither found the other.
    #[test]
    fn the_own_lock_is_held_before_others_files_are_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        for what in ["settings", "all", "4711"] {
            let folder = folder.path().join(what);
            *AT_THE_LOOK.lock().unwrap() = Some((what, folder.clone()));
            let mut claims = Claims { places_of: another_tries, ..open(&folder) };
            match what {
                "settings" => assert!(claims.settings().unwrap()),
                "all" => claims.claim(None).unwrap(),
                _ => claims.claim(Some(Pid(4711))).unwrap(),
            }
            let tries = std::mem::take(&mut *COULD_CLAIM.lock().unwrap());
            assert!(!tries.is_empty() && !tries.contains(&true), "{what}: {tries:?}");
        }
    }

    #[test]
    fn other_users_can_read_the_claims_of_a_daemon_whose_umask_keeps_its_files_to_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, file) = (folder.path().join("run"), folder.path().join("run").join(FILE));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(&file, "").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for (path, before) in [(&folder, 0o700), (&file, 0o600)] {
            std::fs::set_permissions(path, Permissions::from_mode(before)).unwrap();
        }
        let _claims = open(&folder);
        assert_eq!((mode(&folder), mode(&file)), (0o755, 0o644));
    }

    /// A file of claims that exists and cannot be opened, by root either: a symbolic link.
    fn unreadable(_: u32) -> Vec<PathBuf> {
        let folder = std::env::temp_dir().join(format!("numapilot-claims-{}", std::process::id()));
        let _ = std::fs::create_dir(&folder);
        let _ = std::os::unix::fs::symlink("/dev/null", folder.join(FILE));
        vec![folder]
    }

    #[test]
    fn a_user_is_refused_where_roots_claims_cannot_be_read_and_root_does_not_depend_on_a_users() {
        let folder = tempfile::tempdir().unwrap();
        let mut claims = Claims { uid: 4711, places_of: unreadable, ..open(folder.path()) };
        let refused = claims.claim(Some(Pid::own())).unwrap_err();
        assert!(refused.contains("whether root's numapilot manages"), "{refused}");
        claims.places_of = nowhere;
        claims.claim(Some(Pid::own())).unwrap();
        (claims.uid, claims.places_of) = (0, unreadable);
        claims.claim(Some(Pid::own())).unwrap();
        std::fs::remove_dir_all(&unreadable(0)[0]).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = Claims::open_in(folder.path(), uid(), nowhere).unwrap_err().to_string();
        assert!(error.contains("no other user"), "{error}");
    }
}
