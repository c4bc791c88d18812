//! The lab's public interface: describe a machine, run a command on it, and get its outcome.

use std::env;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use tempfile::TempDir;

use crate::accelerator::Accelerator;
use crate::arch::Arch;
use crate::cache::Cache;
use crate::cache::remove;
use crate::error::AtPath;
use crate::error::LabError;
use crate::guest::DONE;
use crate::guest::Guest;
use crate::guest::READY;
use crate::guest::RUNNING;
use crate::guest::Waited;
use crate::initramfs;
use crate::job;
use crate::kernel;
use crate::kernel::Kernel;
use crate::kvm;
use crate::lockup;
use crate::machine::FILES;
use crate::machine::Machine;
use crate::qemu::Qemu;
use crate::snapshot;
use crate::stale;
use crate::topology::Topology;
use crate::tree;
use crate::truth::Truth;
use crate::truth::TruthOptions;
use crate::turn;
use crate::watch;

/// A cold boot takes five seconds; this is for a slow machine (what others took of a busy one does not count: `time_limit`).
const BOOT: Duration = Duration::from_secs(180);
/// Default time limit of a command: some take 100 s, and a slow machine may be three times slower, or more.
const RUN: Duration = Duration::from_secs(1200);
/// How often a command is repeated after a defect of the emulator ended its guest ([`lockup`], [`stale`]).
const REPEATS: usize = 2;
/// Interval of the checks for a lock-up.
const LOOK: Duration = Duration::from_secs(5);

/// A machine and how to run it.
#[derive(Debug, Clone)]
pub struct Lab {
    topology: Topology,
    arch: Arch,
    kernel: Kernel,
    accelerator: Accelerator,
    cold: bool,
    stream: bool,
    limit: Duration,
    seen: Vec<PathBuf>,
    devices: Vec<String>,
    plugins: Vec<String>,
    truth: Option<TruthOptions>,
}

/// Outcome of a command.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit code, as the shell gives it: 128 and the signal's number for one that was killed.
    pub exit: i32,
    /// Its standard output; bytes that are not UTF-8 are replaced (the file `stdout` has them).
    pub stdout: String,
    /// Standard error of the command.
    pub stderr: String,
    /// The end of the guest's console.
    pub console: String,
    /// How it was run, for reports: `emulated, icount, kernel 6.12.117, 4 nodes, 8 CPUs, 2048 MiB, restored in 0.8 s`.
    pub how: String,
    /// From starting QEMU until the command could start (restoring or booting, mounting files).
    pub boot: Duration,
    /// From then until the command's end, as the host's clock has it.
    pub run: Duration,
    /// Exact counts of its memory accesses, if asked for ([`Lab::truth`]).
    pub truth: Option<Truth>,
    /// A recording of samples of them, in perf's format, if asked for ([`TruthOptions::sampling`]). Emulated, and it says so.
    pub samples: Option<Vec<u8>>,
    files: TempDir,
}

impl Outcome {
    /// The exchange folder: what the command wrote to [`job::FILES_IN_GUEST`]. Deleted with this.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// For tests: returns the outcome if the command exited with 0, and panics with all output otherwise.
    ///
    /// # Panics
    /// If the command did not exit with 0.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(
            self.exit == 0,
            "exit code {} ({})\n--- stdout ---\n{}\n--- stderr ---\n{}\n--- console ---\n{}",
            self.exit,
            self.how,
            self.stdout,
            self.stderr,
            self.console
        );
        self
    }
}

impl Lab {
    /// A machine with the newest of our kernels, restored from a snapshot.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            arch: Arch::default(),
            kernel: Kernel::default(),
            accelerator: Accelerator::default(),
            cold: false,
            stream: false,
            limit: RUN,
            seen: Vec::new(),
            devices: Vec::new(),
            plugins: Vec::new(),
            truth: None,
        }
    }

    /// Sets the guest's architecture. One that is not the host's is emulated, and its guest sees a small Debian of its own; of the host's files it sees the
    /// command's folder, the folder of its program, the project with its builds, and the folder of temporary files ([`Lab::see`] adds others).
    #[must_use]
    pub fn arch(mut self, arch: Arch) -> Self {
        self.arch = arch;
        self
    }

    /// A further folder of the host that a guest of another architecture sees at the same path. Changes stay in the guest.
    #[must_use]
    pub fn see(mut self, folder: &Path) -> Self {
        self.seen.push(folder.to_path_buf());
        self
    }

    /// Sets the guest's kernel.
    #[must_use]
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = kernel;
        self
    }

    /// Reproducible: time passes by instructions, whatever the host's load. For whatever is compared or asserted.
    #[must_use]
    pub fn icount(mut self, on: bool) -> Self {
        self.accelerator = if on { Accelerator::Icount } else { Accelerator::Auto };
        self
    }

    /// Sets how instructions are executed; [`Accelerator::Auto`] by default.
    #[must_use]
    pub fn accelerator(mut self, accelerator: Accelerator) -> Self {
        self.accelerator = accelerator;
        self
    }

    /// Boots instead of restoring.
    #[must_use]
    pub fn cold(mut self, on: bool) -> Self {
        self.cold = on;
        self
    }

    /// Passes the command's output on while it runs; if the command is started again, the output begins again.
    #[must_use]
    pub fn stream(mut self, on: bool) -> Self {
        self.stream = on;
        self
    }

    /// Ends the guest when its command runs for longer (by default 20 minutes), not counting time in which QEMU waited for a processor.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Loads a TCG plugin (`-plugin FILE,ARGUMENTS`); `{files}` in it becomes the exchange folder on the host. Implies emulation.
    #[must_use]
    pub fn plugin(mut self, file: &Path, arguments: &str) -> Self {
        let comma = if arguments.is_empty() { "" } else { "," };
        self.plugins.push(format!("{}{comma}{arguments}", file.display()));
        self
    }

    /// Counts every memory access of the command's user code, exactly ([`Outcome::truth`]). Implies emulation, and slows it down.
    #[must_use]
    pub fn truth(mut self, options: TruthOptions) -> Self {
        self.truth = Some(options);
        self
    }

    /// Adds words to QEMU's command line, such as a device; `{files}` becomes the exchange folder on the host.
    /// They are part of the machine: each set of them has its own snapshot.
    #[must_use]
    pub fn device<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.devices.extend(words.into_iter().map(Into::into));
        self
    }

    /// Downloads and prepares what [`Lab::run`] needs, and takes the snapshot.
    ///
    /// # Errors
    /// The error says what is missing and what to do.
    pub fn prepare(&self) -> Result<(), LabError> {
        let (cache, machine, accelerator) = self.machine()?;
        if self.cold { Ok(()) } else { self.snapshot(&cache, &machine, accelerator).map(drop) }
    }

    /// Runs a command to its end: program, arguments, environment and folder of `command` count. Its folder (by default this process's) is
    /// shared for writing; of all other files of the host that it sees ([`Lab::arch`]) the guest has a copy that it may change for itself. Where a defect of
    /// the emulator ends the guest ([`LabError::is_emulators`]), the command runs again from its beginning, in a new guest with an exchange folder of its own;
    /// [`Outcome::how`] says so.
    ///
    /// # Errors
    /// If the guest cannot be had, dies, or takes too long; not if the command fails.
    pub fn run(&self, command: &Command) -> Result<Outcome, LabError> {
        let mut defects = 0;
        loop {
            match self.run_once(command) {
                Err(error) if error.is_emulators() && defects < REPEATS => {
                    defects += 1;
                    crate::say(&format!("{error}\nstarting the guest again"));
                }
                Ok(mut outcome) if defects > 0 => {
                    outcome.how += &format!("; guests before it that a defect of the emulator ended: {defects}");
                    return Ok(outcome);
                }
                other => return other,
            }
        }
    }

    fn run_once(&self, command: &Command) -> Result<Outcome, LabError> {
        let work = job::working_folder(command)?;
        let (cache, machine, accelerator) = self.machine()?;
        let snapshot = if self.cold { None } else { Some(self.snapshot(&cache, &machine, accelerator)?) };
        let files = tempfile::Builder::new().prefix("numapilot-lab-").tempdir();
        let files = files.at(&env::temp_dir(), "cannot make the exchange folder")?;
        let before: &[&str] = match &self.truth {
            Some(options) => {
                watch::prepare(files.path())?;
                watch::command(options)
            }
            None => &[],
        };
        job::write(before, command, &work, files.path(), &tree::seen(&machine.root, command, &self.seen))?;
        let _turn = turn::take();
        let started = Instant::now();
        let (mut guest, verb) =
            match snapshot.and_then(|s| self.restore(&s, &machine, accelerator, &work, files.path())) {
                Some(guest) => (guest, "restored"),
                None => (self.boot(&machine, accelerator, &work, files.path())?, "booted"),
            };
        let heard = match guest.go(BOOT) {
            Waited::Seen => guest.wait_for(RUNNING, BOOT),
            other => other,
        };
        let boot = started.elapsed();
        let how = format!(
            "{}, kernel {}, {}, {verb} in {:.1} s",
            accelerator.name(),
            machine.kernel.release,
            self.topology.summary(),
            boot.as_secs_f64()
        );
        match heard {
            Waited::Seen => self.follow(&mut guest, files.path(), &how)?,
            Waited::Ended => {}
            Waited::TimedOut => {
                let (stderr, console) = (String::new(), tail(&guest.said()));
                return Err(LabError::Hung {
                    limit: BOOT,
                    what: "the guest had not started its command",
                    how,
                    stderr,
                    console,
                });
            }
        }
        guest.quit();
        let run = started.elapsed().saturating_sub(boot);
        if accelerator == Accelerator::Emulated
            && let Some(place) = stale::breakpoint(&guest.said())
        {
            let stderr = tail(&read_text(&files.path().join("stderr")));
            return Err(LabError::StaleCode { place, how, stderr, console: tail(&guest.said()) });
        }
        let mut outcome = outcome(guest, files, how, (boot, run))?;
        if let Some(options) = &self.truth {
            outcome.truth = Some(watch::read(outcome.files(), &outcome.console)?);
            let samples = options.sampling.map(|s| watch::recording(outcome.files(), s, &self.topology, command));
            outcome.samples = samples.transpose()?;
        }
        Ok(outcome)
    }

    /// Waits for the command's end, passing its output on if requested.
    fn follow(&self, guest: &mut Guest, files: &Path, how: &str) -> Result<(), LabError> {
        let mut output = Follower::new(files.join("stdout"));
        let mut errors = Follower::new(files.join("stderr"));
        let step = if self.stream { Duration::from_millis(100) } else { LOOK };
        let time_limit = guest.time_limit(self.limit);
        loop {
            let waited = guest.wait_for(DONE, step.min(time_limit.left()));
            if self.stream {
                output.pass_on(&mut io::stdout().lock());
                errors.pass_on(&mut io::stderr().lock());
            }
            if waited != Waited::TimedOut {
                return Ok(());
            }
            let console = guest.said();
            let lockup = lockup::last(&console);
            if lockup.is_none() && !time_limit.left().is_zero() {
                continue;
            }
            let (how, console) = (how.to_owned(), tail(&console));
            let stderr = tail(&read_text(&files.join("stderr")));
            return Err(match lockup {
                Some(lockup) => LabError::Stuck { cpu: lockup.cpu, seconds: lockup.seconds, how, stderr, console },
                None => LabError::Hung { limit: self.limit, what: "the command had not ended", how, stderr, console },
            });
        }
    }

    /// Everything that a guest is started from, and how it is run here.
    fn machine(&self) -> Result<(Cache, Machine, Accelerator), LabError> {
        if crate::skipped() {
            return Err(LabError::Skipped);
        }
        let cache = Cache::of_user()?;
        if self.truth.is_some() {
            self.arch.check_countable()?;
        }
        let machine = self.parts(&cache)?;
        let accelerator = match self.accelerator {
            Accelerator::Kvm if !self.arch.is_hosts() => {
                let arch = self.arch;
                return Err(LabError::Command(format!("KVM runs no {arch} guest here: do not name an accelerator")));
            }
            Accelerator::Auto if !self.arch.is_hosts() => Accelerator::Emulated,
            // Plugins see only what is emulated.
            Accelerator::Auto if !self.plugins.is_empty() || self.truth.is_some() => Accelerator::Emulated,
            Accelerator::Kvm if self.truth.is_some() => {
                return Err(LabError::Command(
                    "accesses cannot be counted under KVM: do not name an accelerator".into(),
                ));
            }
            Accelerator::Auto if kvm::kvm_works(&cache, &machine)? => Accelerator::Kvm,
            Accelerator::Auto => Accelerator::Emulated,
            asked => asked,
        };
        Ok((cache, machine, accelerator))
    }

    fn parts(&self, cache: &Cache) -> Result<Machine, LabError> {
        let topology = self.topology.arguments(self.arch)?;
        let qemu = Qemu::find(cache, self.arch)?;
        let kernel = kernel::files(cache, self.arch, self.kernel)?;
        let (initramfs, initramfs_hash) = initramfs::file(cache, self.arch, &kernel)?;
        let (root, devices) = (tree::root(cache, self.arch)?, self.devices.clone());
        Ok(Machine { arch: self.arch, qemu, kernel, initramfs, initramfs_hash, root, topology, devices })
    }

    /// The machine's snapshot, taken now if there is none.
    fn snapshot(&self, cache: &Cache, machine: &Machine, accelerator: Accelerator) -> Result<PathBuf, LabError> {
        let path = snapshot::path(cache, &machine.key(accelerator));
        if !path.exists() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let _lock = cache.lock(&name)?;
            if !path.exists() {
                crate::say(&format!("booting {} for a snapshot, once", self.topology.summary()));
                let folder = tempfile::tempdir().at(&env::temp_dir(), "cannot make a folder")?;
                let mut guest = Guest::start(machine.command(accelerator, folder.path(), folder.path()))?;
                wait_booted(&mut guest, accelerator)?;
                let time_limit = guest.time_limit(snapshot::LIMIT);
                snapshot::write(cache, &mut guest.monitor, &path, &time_limit)?;
            }
        }
        cache.touch(&path);
        Ok(path)
    }

    /// A guest from a snapshot; none if the snapshot is of no use (it is deleted then).
    fn restore(
        &self,
        snapshot: &Path,
        machine: &Machine,
        accelerator: Accelerator,
        work: &Path,
        files: &Path,
    ) -> Option<Guest> {
        let mut command = machine.command(accelerator, work, files);
        self.add_plugins(&mut command, accelerator, files);
        command.args(["-incoming", &format!("file:{}", snapshot.display())]);
        let restored = Guest::start(command).and_then(|mut guest| {
            let time_limit = guest.time_limit(snapshot::LIMIT);
            snapshot::wait_restored(&mut guest.monitor, &time_limit)?;
            Ok(guest)
        });
        match restored {
            Ok(guest) => Some(guest),
            Err(error) => {
                crate::say(&format!("a snapshot cannot be restored and is deleted; booting instead ({error})"));
                // Another may have deleted it already.
                let _ = remove(snapshot);
                None
            }
        }
    }

    fn boot(&self, machine: &Machine, accelerator: Accelerator, work: &Path, files: &Path) -> Result<Guest, LabError> {
        let mut command = machine.command(accelerator, work, files);
        self.add_plugins(&mut command, accelerator, files);
        let mut guest = Guest::start(command)?;
        wait_booted(&mut guest, accelerator)?;
        Ok(guest)
    }

    fn add_plugins(&self, command: &mut Command, accelerator: Accelerator, files: &Path) {
        let ours = self.truth.as_ref().map(|o| watch::plugin(o, &self.topology, accelerator == Accelerator::Icount));
        for plugin in self.plugins.iter().chain(&ours) {
            command.arg("-plugin").arg(plugin.replace(FILES, &files.display().to_string()));
        }
    }
}

fn wait_booted(guest: &mut Guest, accelerator: Accelerator) -> Result<(), LabError> {
    match guest.wait_for(READY, BOOT) {
        Waited::Seen => Ok(()),
        Waited::Ended => Err(LabError::Died { how: accelerator.name().into(), console: tail(&guest.said()) }),
        Waited::TimedOut => Err(LabError::Hung {
            limit: BOOT,
            what: "the guest had not booted",
            how: accelerator.name().into(),
            stderr: String::new(),
            console: tail(&guest.said()),
        }),
    }
}

fn outcome(
    mut guest: Guest,
    files: TempDir,
    how: String,
    (boot, run): (Duration, Duration),
) -> Result<Outcome, LabError> {
    let console = guest.said();
    let exit = fs::read_to_string(files.path().join("exit")).ok().and_then(|t| t.trim().parse().ok());
    let Some(exit) = exit else {
        return Err(LabError::Died { how, console: tail(&console) });
    };
    let stdout = read_text(&files.path().join("stdout"));
    let stderr = read_text(&files.path().join("stderr"));
    Ok(Outcome { exit, stdout, stderr, console, how, boot, run, truth: None, samples: None, files })
}

/// A file that grows, passed on piece by piece.
struct Follower {
    path: PathBuf,
    file: Option<File>,
}

impl Follower {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    fn pass_on(&mut self, to: &mut impl Write) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let mut bytes = Vec::new();
        // The outcome has everything again: what cannot be passed on now is not lost.
        if let Some(file) = &mut self.file
            && file.read_to_end(&mut bytes).is_ok()
        {
            let _ = to.write_all(&bytes).and_then(|()| to.flush());
        }
    }
}

fn read_text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The last lines of a text that is shown in a message.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
