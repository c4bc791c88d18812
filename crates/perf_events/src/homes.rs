//! Looks up the nodes of sampled pages in batches while their processes are alive (`move_pages` as a query). A node that the kernel does not report
//! (the process has ended, the page is gone) stays unknown.

use std::collections::HashMap;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_kernel::KernelError;
use numapilot_kernel::memory::PageQuery;
use numapilot_kernel::memory::PageState;

use crate::places::Answers;

/// Counts of look-ups of pages' nodes, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Pages looked up.
    pub pages: u64,
    /// Pages whose node the kernel reported.
    pub told: u64,
    /// Pages of processes that had ended.
    pub gone: u64,
    /// Samples that were too old for a look-up when they were processed.
    pub late: u64,
    /// Pages that were no longer mapped, or never were.
    pub absent: u64,
    /// Why pages could not be looked up: the first error.
    pub refused: Option<String>,
}

/// The pages to look up, by process.
#[derive(Debug, Default)]
pub struct Homes {
    query: PageQuery,
    wanted: HashMap<Pid, Vec<PageNumber>>,
    addresses: Vec<u64>,
    states: Vec<PageState>,
    /// Counts of the look-ups by outcome.
    pub asked: Asked,
}

impl Homes {
    /// Wants to know the node of a page.
    pub fn want(&mut self, pid: Pid, address: u64) {
        self.wanted.entry(pid).or_default().push(PageNumber::of(address));
    }

    /// Asks for everything that is wanted.
    pub fn ask(&mut self, answers: &mut Answers) {
        for (&pid, pages) in &mut self.wanted {
            pages.sort_unstable();
            pages.dedup();
            self.addresses.clear();
            self.addresses.extend(pages.iter().map(|page| page.address()));
            self.asked.pages += pages.len() as u64;
            self.states.clear();
            match self.query.states(pid, &self.addresses, &mut self.states) {
                Ok(()) => {
                    for (page, state) in pages.iter().zip(&self.states) {
                        match state.node() {
                            Some(node) => {
                                self.asked.told += 1;
                                answers.insert((pid, *page), node);
                            }
                            None => self.asked.absent += 1,
                        }
                    }
                }
                Err(KernelError::Gone { .. }) => self.asked.gone += pages.len() as u64,
                Err(error) => {
                    self.asked.refused.get_or_insert_with(|| error.to_string());
                }
            }
        }
        // Processes come and go; their buffers go with them.
        self.wanted.clear();
    }
}
