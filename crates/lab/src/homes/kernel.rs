//! Reads what the launcher wrote: the last home node of each page in the kernel, and the page faults that led to it.

use std::collections::HashMap;
use std::collections::HashSet;

/// CPUs of each of the guest's nodes.
pub(super) const CPUS_PER_NODE: u32 = 2;
/// Bytes of a page of the guest's kernel.
pub(super) const GUEST_PAGE: u64 = 1 << numapilot_trace::wire::layout::PAGE_SHIFT;

/// One page of one process (its pid).
pub(super) type Page = (u32, u64);

/// A thread's page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// The kernel's event of it, in ns: when the page was there; of a fault in the tracker's call for the page: when that began.
    pub time: u64,
    /// The thread that touched the page.
    pub tid: u32,
    /// The CPU on which it ran.
    pub cpu: u32,
    /// Whether the mirror had put the thread on its node before.
    pub placed: bool,
    /// Whether the fault was in the tracker's call.
    pub in_call: bool,
}

/// The last that is known of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Node of the page.
    pub node: u16,
    /// Whether it is a page of a file, which the page cache had placed.
    pub is_file: bool,
    /// Faults on it in the life in which it was on that node, in their order. A page that a system call touched has none of its own.
    pub faults: Vec<Fault>,
}

/// All pages of all processes that the launcher saw.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    pub pages: HashMap<Page, Seen>,
    /// Faults that found no room in the launcher's rings: where there are any, a page without events says nothing.
    pub lost: u64,
    faults: HashMap<Page, Vec<Fault>>,
    placed: HashSet<(u32, u32)>,
    last_call: HashMap<(u32, u32), Page>,
}

impl Kernel {
    /// From the launcher's lines (`homes/launcher.c` has their form). Lines that are cut short (the launcher was killed) end the reading of themselves only.
    pub fn read(text: &str) -> Self {
        let mut kernel = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            // A line that says something else, or is cut short, says nothing.
            let _ = match words[..] {
                [what @ ("fault" | "populate"), time, pid, tid, cpu, address] => {
                    kernel.fault(what == "populate", time, [pid, tid, cpu], address)
                }
                ["refused", _, pid, tid] => number(pid).zip(number(tid)).map(|thread| kernel.refused(thread)),
                ["file", pid, address, pages] => kernel.each(pid, address, pages, |kernel, page| {
                    kernel.pages.entry(page).and_modify(|seen| seen.is_file = true);
                }),
                ["gone", pid, address, pages] => kernel.gone(pid, address, pages),
                ["exec", pid] => number(pid).map(|pid| kernel.exec(pid)),
                ["begin", pid, address, nodes] => kernel.begin(pid, address, nodes),
                ["placed", pid, tid] => number(pid).zip(number(tid)).map(|thread| {
                    kernel.placed.insert(thread);
                }),
                ["lost", faults] => faults.parse::<u64>().ok().map(|faults| kernel.lost += faults),
                [pid, address, nodes] => kernel.nodes(pid, address, nodes),
                _ => None,
            };
        }
        kernel
    }

    fn fault(&mut self, in_call: bool, time: &str, whose: [&str; 3], address: &str) -> Option<()> {
        let [pid, tid, cpu] = whose.map(number);
        let (pid, tid, cpu) = (pid?, tid?, cpu?);
        let placed = self.placed.contains(&(pid, tid));
        let fault = Fault { time: time.parse().ok()?, tid, cpu, placed, in_call };
        let page = (pid, hexadecimal(address)? / GUEST_PAGE * GUEST_PAGE);
        self.faults.entry(page).or_default().push(fault);
        if in_call {
            self.last_call.insert((pid, tid), page);
        }
        Some(())
    }

    /// The thread's last call made no page.
    fn refused(&mut self, thread: (u32, u32)) {
        if let Some(faults) = self.last_call.remove(&thread).and_then(|page| self.faults.get_mut(&page))
            && let Some(at) = faults.iter().rposition(|fault| fault.in_call && fault.tid == thread.1)
        {
            faults.remove(at);
        }
    }

    fn exec(&mut self, pid: u32) {
        self.faults.retain(|page, _| page.0 != pid);
        self.placed.retain(|thread| thread.0 != pid);
    }

    /// The kernel's own work in exec has no events: they are made here.
    fn begin(&mut self, pid: &str, address: &str, nodes: &str) -> Option<()> {
        let (pid, address) = (number(pid)?, hexadecimal(address)?);
        for (page, node) in nodes_of(pid, address, nodes) {
            let fault =
                Fault { time: 0, tid: pid, cpu: u32::from(node) * CPUS_PER_NODE, placed: false, in_call: false };
            self.faults.entry(page).or_default().push(fault);
        }
        Some(())
    }

    fn nodes(&mut self, pid: &str, address: &str, nodes: &str) -> Option<()> {
        let (pid, address) = (number(pid)?, hexadecimal(address)?);
        for (page, node) in nodes_of(pid, address, nodes) {
            let faults = self.faults.get(&page).cloned().unwrap_or_default();
            self.pages.insert(page, Seen { node, is_file: false, faults });
        }
        Some(())
    }

    /// Only faults go: where the pages were last stays known.
    fn gone(&mut self, pid: &str, address: &str, pages: &str) -> Option<()> {
        let (pid, first, pages) = (number(pid)?, hexadecimal(address)?, pages.parse::<u64>().ok()?);
        let end = first.saturating_add(pages.saturating_mul(GUEST_PAGE));
        self.faults.retain(|&(owner, page), _| owner != pid || page < first || page >= end);
        Some(())
    }

    fn each(&mut self, pid: &str, address: &str, pages: &str, tell: impl Fn(&mut Self, Page)) -> Option<()> {
        let (pid, address, pages) = (number(pid)?, hexadecimal(address)?, pages.parse::<u64>().ok()?);
        (0..pages).for_each(|index| tell(self, (pid, address + index * GUEST_PAGE)));
        Some(())
    }
}

/// The pages of a line that have a node.
fn nodes_of(pid: u32, address: u64, nodes: &str) -> impl Iterator<Item = (Page, u16)> {
    let nodes = nodes.chars().enumerate();
    nodes.filter_map(move |(index, node)| Some(((pid, address + index as u64 * GUEST_PAGE), node.to_digit(16)? as u16)))
}

fn number(word: &str) -> Option<u32> {
    word.parse().ok()
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_of_the_launcher_hold_and_pages_without_memory_have_no_home() {
        let kernel = Kernel::read("7 1000 01.\n7 2000 3\n8 1000 2\n9 zz 1\n7 40");
        let node = |pid, page| kernel.pages.get(&(pid, page)).map(|seen| seen.node);
        assert_eq!(node(7, 0x1000), Some(0));
        assert_eq!(node(7, 0x2000), Some(3));
        assert_eq!(node(7, 0x3000), None);
        assert_eq!(node(8, 0x1000), Some(2));
        assert_eq!(kernel.pages.len(), 3);
    }

    #[test]
    fn faults_are_of_the_life_in_which_the_kernel_said_where_the_page_is() {
        let lines = [
            "fault 1 7 8 2 1000",
            "placed 7 8",
            "7 1000 12",
            "gone 7 1000 1",
            "fault 2 7 8 0 1010",
            "7 1000 0.",
            "populate 3 7 9 6 1000",
            "file 7 2000 1",
            "lost 3",
        ];
        let kernel = Kernel::read(&lines.join("\n"));
        let first = &kernel.pages[&(7, 0x1000)];
        assert_eq!((first.node, first.is_file), (0, false));
        assert_eq!(first.faults, [Fault { time: 2, tid: 8, cpu: 0, placed: true, in_call: false }]);
        assert_eq!(kernel.pages[&(7, 0x2000)], Seen { node: 2, is_file: true, faults: Vec::new() });
        assert_eq!(kernel.lost, 3);

        let before = Kernel::read(&lines[..3].join("\n"));
        assert_eq!(
            before.pages[&(7, 0x1000)].faults,
            [Fault { time: 1, tid: 8, cpu: 2, placed: false, in_call: false }]
        );
    }

    #[test]
    fn a_call_that_was_refused_made_no_page() {
        let text = "populate 1 7 8 0 1000\npopulate 2 7 9 2 1000\nrefused 3 7 8\nrefused 4 7 8\n7 1000 1";
        let faults = &Kernel::read(text).pages[&(7, 0x1000)].faults;
        assert_eq!(faults.iter().map(|fault| fault.tid).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn what_exec_filled_was_there_before_the_thread_was_on_its_node() {
        let kernel = Kernel::read(
            "placed 7 7\nfault 1 7 7 0 1000\n7 1000 0\nexec 7\nbegin 7 1000 .3\npopulate 5 7 7 6 1000\n7 1000 33",
        );
        let in_exec = Fault { time: 0, tid: 7, cpu: 6, placed: false, in_call: false };
        assert_eq!(kernel.pages[&(7, 0x1000)].faults, [Fault { time: 5, in_call: true, ..in_exec }]);
        assert_eq!(kernel.pages[&(7, 0x2000)].faults, [in_exec]);
    }
}
