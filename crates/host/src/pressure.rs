//! Pressure stall information (PSI): the share of time in which tasks waited for a resource, in the whole system (`/proc/pressure`) and in a cgroup of version
//! 2 (`memory.pressure` and the like in its folder). `Documentation/accounting/psi.rst`, `Documentation/admin-guide/cgroup-v2.rst`. A kernel built without it
//! (`CONFIG_PSI`) or started without it (`psi=0`) has no such files, or has them and refuses to have them read. It can be turned off for a cgroup
//! (`cgroup.pressure`, Linux 6.1).

use std::fs;
use std::io;
use std::path::Path;

use crate::FileError;
use crate::Root;

/// What tasks wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A CPU to run on.
    Cpu,
    /// Devices.
    Io,
    /// Memory: until other memory is freed for it, or comes back from swap or a file that had been dropped.
    Memory,
}

impl Resource {
    /// All resources.
    pub const ALL: [Resource; 3] = [Resource::Cpu, Resource::Io, Resource::Memory];

    /// Its name in the kernel's files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Io => "io",
            Resource::Memory => "memory",
        }
    }
}

/// How much was waited: a line of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    /// Share of the last 10 s, 0 to 1: a running mean, renewed every 2 s.
    pub of_10s: f64,
    /// Share of the last 60 s, likewise.
    pub of_60s: f64,
    /// Share of the last 300 s, likewise.
    pub of_300s: f64,
    /// Microseconds since the start of the system, or since the cgroup was made.
    pub total_us: u64,
}

/// Pressure on a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Time in which at least one task waited, as the mean over CPUs by how long each had something to do.
    pub some: Waiting,
    /// Time in which all tasks waited that were not idle; `None`: not told (of CPUs by Linux before 5.13). Of the CPUs of the whole system it means nothing,
    /// and is 0.
    pub full: Option<Waiting>,
}

impl Pressure {
    /// Reads the text of a file; `None`: it does not have the kernel's format.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Pressure> {
        let of = |kind: &str| {
            let mut lines = text.split(|&byte| byte == b'\n');
            lines.find_map(|line| waiting(line.strip_prefix(kind.as_bytes())?))
        };
        Some(Pressure { some: of("some ")?, full: of("full ") })
    }

    /// That of the whole system; `None`: this kernel does not count it.
    ///
    /// # Errors
    /// The file is there, and this process may not read it.
    pub fn of_system(root: &Root, resource: Resource) -> Result<Option<Pressure>, FileError> {
        let mut text = Vec::new();
        match root.read(&format!("proc/pressure/{}", resource.name()), &mut text) {
            Ok(text) => Ok(Pressure::parse(text)),
            Err(error) if is_not_counted(&error.source) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// That of the processes of a cgroup and those within, by the cgroup's folder; `None`: it is not counted there, or the cgroup is gone.
    #[must_use]
    pub fn of_cgroup(folder: &Path, resource: Resource) -> Option<Pressure> {
        Pressure::parse(&fs::read(folder.join(format!("{}.pressure", resource.name()))).ok()?)
    }
}

fn is_not_counted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EOPNOTSUPP))
}

/// `avg10=0.12 avg60=0.34 avg300=0.56 total=789`: percent, and microseconds.
fn waiting(fields: &[u8]) -> Option<Waiting> {
    let share = |name: &str| -> Option<f64> {
        let percent: f64 = value(fields, name)?.parse().ok()?;
        // It is rounded.
        (0.0..=101.0).contains(&percent).then_some((percent / 100.0).min(1.0))
    };
    Some(Waiting {
        of_10s: share("avg10=")?,
        of_60s: share("avg60=")?,
        of_300s: share("avg300=")?,
        total_us: value(fields, "total=")?.parse().ok()?,
    })
}

fn value<'a>(fields: &'a [u8], name: &str) -> Option<&'a str> {
    let mut words = fields.split(u8::is_ascii_whitespace);
    std::str::from_utf8(words.find_map(|word| word.strip_prefix(name.as_bytes()))?).ok()
}

#[cfg(test)]
mod tests {
    //! Texts of several kernels, and made trees.

    use proptest::prelude::*;

    use super::*;

    /// Linux 6.12, under load.
    const MEMORY: &str =
        "some avg10=12.34 avg60=5.60 avg300=0.07 total=4711000\nfull avg10=1.50 avg60=0.25 avg300=0.00 total=815\n";

    #[test]
    fn both_lines_are_read() {
        let pressure = Pressure::parse(MEMORY.as_bytes()).unwrap();
        let waited = |of_10s, of_60s, of_300s, total_us| Waiting {
            of_10s: of_10s / 100.0,
            of_60s: of_60s / 100.0,
            of_300s: of_300s / 100.0,
            total_us,
        };
        assert_eq!(pressure.some, waited(12.34, 5.6, 0.07, 4_711_000));
        assert_eq!(pressure.full.unwrap(), waited(1.5, 0.25, 0.0, 815));
    }

    #[test]
    fn lines_that_are_missing_and_words_of_later_kernels_are_passed_over() {
        // Linux 5.10, of CPUs.
        let older = Pressure::parse(b"some avg10=99.59 avg60=99.30 avg300=100.00 total=8453300077\n").unwrap();
        assert_eq!((older.some.of_10s, older.some.of_300s, older.full), (99.59 / 100.0, 1.0, None));
        let later = format!("most avg10=1.00\n{} more=7\n", MEMORY.trim_end());
        assert_eq!(Pressure::parse(later.as_bytes()), Pressure::parse(MEMORY.as_bytes()));
        // That of interrupts has one line, and is none of these.
        assert_eq!(Pressure::parse(b"full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"), None);
    }

    #[test]
    fn what_the_kernel_never_writes_is_refused() {
        for text in [
            "",
            "some",
            "some avg10=nan avg60=0.00 avg300=0.00 total=1",
            "some avg10=-1.00 avg60=0.00 avg300=0.00 total=1",
            "some avg10=1000 avg60=0.00 avg300=0.00 total=1",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=-1",
            "some avg10=0.00 avg60=0.00 total=1",
        ] {
            assert_eq!(Pressure::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_system_and_a_cgroup_are_read_where_they_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let of_system = |resource| Pressure::of_system(&root, resource).unwrap();
        assert_eq!(Resource::ALL.map(of_system), [None; 3], "a kernel without it");
        fs::create_dir_all(folder.path().join("proc/pressure")).unwrap();
        fs::write(folder.path().join("proc/pressure/memory"), MEMORY).unwrap();
        assert_eq!(of_system(Resource::Memory), Pressure::parse(MEMORY.as_bytes()));
        assert_eq!(of_system(Resource::Cpu), None);
        let of_cgroup = |resource| Pressure::of_cgroup(folder.path(), resource);
        assert_eq!(of_cgroup(Resource::Io), None);
        fs::write(folder.path().join("io.pressure"), MEMORY).unwrap();
        assert_eq!((of_cgroup(Resource::Io), of_cgroup(Resource::Memory)), (Pressure::parse(MEMORY.as_bytes()), None));
    }

    #[test]
    fn refusing_to_be_read_is_not_counting_and_a_missing_right_is_an_error() {
        let is = |number| is_not_counted(&io::Error::from_raw_os_error(number));
        assert_eq!([libc::ENOENT, libc::EOPNOTSUPP, libc::EACCES, libc::EPERM].map(is), [true, true, false, false]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..100) {
            let _ = Pressure::parse(&text);
            let _ = Pressure::parse(&MEMORY.as_bytes()[..cut]);
        }
    }
}
