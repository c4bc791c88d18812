//! One line of `/proc/PID/stat` or `/proc/PID/task/TID/stat` (`Documentation/filesystems/proc.rst`, table 1-4), parsed without allocating: `top` reads that of
//! every process at every refresh.

use crate::Pid;
use crate::Root;
use crate::Tid;
use crate::number;

/// The used fields of the line. Borrows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStat<'a> {
    /// Process id or thread id.
    pub id: u32,
    /// Its name, without the brackets; any bytes.
    pub name: &'a [u8],
    /// `R` running, `S` sleeping, `D` waiting for a device, `Z` ended and not waited for, ...
    pub state: u8,
    /// Process id of the parent.
    pub parent: Pid,
    /// Page faults that needed no device, and those that did.
    pub faults: (u64, u64),
    /// Processor time in user code, clock ticks; of a process, that of all of its threads, the ended ones too.
    pub user_ticks: u64,
    /// Processor time in the kernel, likewise.
    pub system_ticks: u64,
    /// Number of threads of the process.
    pub threads: u32,
    /// Start time in clock ticks since boot: distinguishes a process from a later one with the same id.
    pub start_ticks: u64,
    /// Bytes of its address space; 0: it has none.
    pub mapped_bytes: u64,
    /// Number of resident pages.
    pub resident_pages: u64,
    /// Addresses of its program's code and of its stack, which another program image changes; 0 or 1 where the reader may not know.
    pub image: (u64, u64),
    /// CPU on which it ran last.
    pub cpu: u32,
}

impl<'a> TaskStat<'a> {
    /// Parses a line; `None`: it does not have the kernel's format.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<TaskStat<'a>> {
        // A name may contain brackets and blanks: it ends at the last closing bracket.
        let open = line.iter().position(|&byte| byte == b'(')?;
        let close = line.iter().rposition(|&byte| byte == b')')?;
        let name = line.get(open + 1..close)?;
        let mut fields = [&b""[..]; 37];
        let mut words = line[close + 1..].split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        for field in &mut fields {
            *field = words.next()?;
        }
        // Field numbers of proc(5), where the state is field 3.
        let field = |of_proc5: usize| number(fields[of_proc5 - 3]);
        let narrow = |of_proc5: usize| u32::try_from(field(of_proc5)?).ok();
        Some(TaskStat {
            id: u32::try_from(number(line)?).ok()?,
            name,
            state: *fields[0].first()?,
            parent: Pid(narrow(4)?),
            faults: (field(10)?, field(12)?),
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            threads: narrow(20)?,
            start_ticks: field(22)?,
            mapped_bytes: field(23)?,
            resident_pages: field(24)?,
            image: (field(26)?, field(28)?),
            cpu: narrow(39)?,
        })
    }

    /// Reads that of a process into `buffer`; `None`: it has ended, or is not shown.
    pub fn read(root: &Root, pid: Pid, buffer: &'a mut Vec<u8>) -> Option<TaskStat<'a>> {
        TaskStat::parse(root.read(&format!("proc/{pid}/stat"), buffer).ok()?)
    }

    /// Reads that of a thread into `buffer`, likewise.
    pub fn read_thread(root: &Root, (pid, tid): (Pid, Tid), buffer: &'a mut Vec<u8>) -> Option<TaskStat<'a>> {
        TaskStat::parse(root.read(&format!("proc/{pid}/task/{tid}/stat"), buffer).ok()?)
    }

    /// User and system time, clock ticks.
    #[must_use]
    pub fn cpu_ticks(&self) -> u64 {
        self.user_ticks.saturating_add(self.system_ticks)
    }

    /// Whether it is a thread of the kernel, which `/proc` shows as a process: it runs without an address space. One that has ended has none either.
    #[must_use]
    pub fn is_of_the_kernel(&self) -> bool {
        self.mapped_bytes == 0 && !self.has_ended()
    }

    /// Whether the task has ended: of a process's line, its first thread.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether the process has ended and was not waited for yet. Where `main` ends by `pthread_exit`, the first thread is a zombie and the others run on.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        self.has_ended() && self.threads <= 1
    }
}

#[cfg(test)]
mod tests {
    //! Lines as kernels write them, hostile names, and any bytes.

    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "4711 (a (b) c) S 1 4711 4711 34816 5000 4194560 12345 11 7 3 250 50 0 0 20 0 9 0 998877 1234567890 5555 \
        18446744073709551615 94 95 140 0 0 0 0 4096 17 0 0 0 17 13 0 0 0 0 0 1 2 3 4 5 6 7 0\n";

    #[test]
    fn a_line_is_read_whatever_the_name() {
        let stat = TaskStat::parse(LINE.as_bytes()).unwrap();
        assert_eq!((stat.id, stat.name, stat.state, stat.parent), (4711, &b"a (b) c"[..], b'S', Pid(1)));
        assert_eq!((stat.faults, stat.cpu_ticks(), stat.threads, stat.start_ticks), ((12345, 7), 300, 9, 998_877));
        assert_eq!((stat.mapped_bytes, stat.resident_pages), (1_234_567_890, 5555));
        assert_eq!((stat.cpu, stat.image), (13, (94, 140)));
    }

    #[test]
    fn what_runs_without_an_address_space_is_of_the_kernel() {
        let without = LINE.replacen(" 1234567890 5555 ", " 0 0 ", 1);
        let of = |line: &str| TaskStat::parse(line.as_bytes()).unwrap().is_of_the_kernel();
        assert_eq!((of(LINE), of(&without)), (false, true));
        assert!(!of(&without.replacen(") S ", ") Z ", 1)), "it has ended, or its first thread has");
    }

    #[test]
    fn a_process_runs_as_long_as_one_of_its_threads() {
        let of = |state: &str, threads: &str| {
            let line = LINE.replacen(") S ", &format!(") {state} "), 1).replacen(
                " 20 0 9 0 ",
                &format!(" 20 0 {threads} 0 "),
                1,
            );
            let stat = TaskStat::parse(line.as_bytes()).unwrap();
            (stat.has_ended(), stat.is_zombie())
        };
        assert_eq!((of("S", "9"), of("Z", "2")), ((false, false), (true, false)));
        assert_eq!((of("Z", "1"), of("X", "0")), ((true, true), (true, true)));
    }

    #[test]
    fn this_process_is_read() {
        let (root, own, mut text, mut other) = (Root::default(), Pid::own(), Vec::new(), Vec::new());
        let stat = TaskStat::read(&root, own, &mut text).unwrap();
        assert_eq!(stat.id, std::process::id());
        assert!(stat.threads >= 1 && stat.resident_pages > 0);
        let first = TaskStat::read_thread(&root, (own, Tid::first_of(own)), &mut other).unwrap();
        assert_eq!((first.id, first.start_ticks), (stat.id, stat.start_ticks));
        assert_eq!(TaskStat::read(&Root::new("/nowhere"), own, &mut other), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(text in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..180) {
            let _ = TaskStat::parse(&text);
            let _ = TaskStat::parse(&LINE.as_bytes()[..cut]);
        }
    }
}
