//! The scan period of the kernel's NUMA balancing: short while evidence is needed, the system's own otherwise. Hinting faults need it, so it is turned on for
//! the run where it is off. It also moves pages that several nodes use repeatedly, so it runs no faster than the evidence requires.

use std::time::Duration;
use std::time::Instant;

use super::Balancer;
use super::options::Who;
use crate::control_port::ControlPort;
use crate::event::Event;
use crate::evidence::observe::Use;
use crate::execution::settings;
use crate::execution::settings::NUMA_BALANCING;
use crate::execution::settings::SCAN_DELAY;
use crate::execution::settings::SCAN_PERIOD_MAX;
use crate::execution::settings::SCAN_PERIOD_MIN;

/// Maximum time of fast scanning after new targets or orders; it ends earlier when several decisions bring no orders.
const FAST_FOR: Duration = Duration::from_secs(4);
/// Share of the time that may be scanned fast, beyond the first [`ADVANCE`]: scanning costs programs up to 3 % of their time.
const SHARE: f64 = 0.33;
const ADVANCE: Duration = Duration::from_secs(20);
/// Running time of targets without any sample, after which sampling counts as not working.
const SILENT_NS: f64 = 10e9;
const FAST_MS: &str = "100";
const FAST_MAX_MS: &str = "400";

impl Balancer {
    /// Turns NUMA balancing on if it is off and there is no other source of page uses.
    pub(super) fn begin_scanning(&mut self, control_port: &mut dyn ControlPort) {
        if self.samples.is_some() {
            self.want_evidence();
            return;
        }
        let mode = settings::read(NUMA_BALANCING).and_then(|text| text.parse::<i64>().ok());
        let is_on = mode.is_some_and(|mode| mode & 1 != 0);
        if !self.options.steers_scanning || self.options.dry_run {
            if !is_on {
                let what = "the kernel's NUMA balancing is off, so accesses to a page after its first touch are not observed: \
                            run `sysctl kernel.numa_balancing=1`";
                self.trouble(what.to_owned(), control_port);
            }
            return;
        }
        let Some(mode) = mode else {
            let what = "this kernel has no NUMA balancing (CONFIG_NUMA_BALANCING), so accesses to a page after its first touch are not observed";
            return self.trouble(what.to_owned(), control_port);
        };
        if !is_on && !self.set(NUMA_BALANCING, &(mode | 1).to_string(), control_port) {
            return;
        }
        self.scanning.may = settings::read(SCAN_PERIOD_MIN).is_some();
        if !self.scanning.may {
            let what = "the scan period of the kernel's NUMA balancing cannot be changed (debugfs is not mounted or not readable), \
                        so the kernel's own period applies: one scan per second or less";
            self.trouble(what.to_owned(), control_port);
        }
        self.want_evidence();
        // A new program inherits the delay before its first scan. The delay must not stay this short: four times the delay is also how long the kernel
        // remembers which threads used a mapping, and it does not scan mappings that no thread has used (`vma_is_accessed` in `kernel/sched/fair.c`).
        if self.options.who == Who::Child && self.scanning.may {
            self.scanning.is_young = self.set(SCAN_DELAY, FAST_MS, control_port);
        }
    }

    /// Falls back to page faults when samples are refused, or do not arrive although targets run (a hypervisor may offer a PMU that counts nothing).
    pub(super) fn fall_back_to_faults(&mut self, uses: &[Use], ran_ns: f64, control_port: &mut dyn ControlPort) {
        if self.samples.is_none() {
            return;
        }
        self.silent_ns = if uses.iter().any(|used| used.is_sampled) { 0.0 } else { self.silent_ns + ran_ns };
        let why = match self.refused.take() {
            Some(why) => why,
            None if self.silent_ns >= SILENT_NS => {
                format!("the targets ran for {} s and none of their accesses was sampled", SILENT_NS / 1e9)
            }
            None => return,
        };
        self.samples = None;
        self.trouble(format!("{why}; page faults are used as evidence instead"), control_port);
        self.begin_scanning(control_port);
    }

    /// Restores the delay before the first scan, once the program has started.
    pub(super) fn end_first_delay(&mut self, control_port: &mut dyn ControlPort) {
        if std::mem::take(&mut self.scanning.is_young)
            && let Some(setting) = self.settings.put_back(SCAN_DELAY, control_port)
        {
            control_port.record(Event::Setting(setting));
        }
    }

    fn set(&mut self, file: &str, value: &str, control_port: &mut dyn ControlPort) -> bool {
        match self.settings.set(file, value, control_port) {
            Ok(setting) => {
                setting.into_iter().for_each(|setting| control_port.record(Event::Setting(setting)));
                true
            }
            Err(what) => {
                self.trouble(what, control_port);
                false
            }
        }
    }

    /// Requests fresh evidence: there is a new target, an order, or threads that run on other nodes.
    pub(super) fn want_evidence(&mut self) {
        self.gate.request_decision();
        self.scanning.asked_at = Some(Instant::now());
    }

    /// Sets the scan period for the next interval.
    pub(super) fn pace_scanning(&mut self, control_port: &mut dyn ControlPort) {
        if !self.scanning.may {
            return;
        }
        let fast = self.scanning.fast + self.scanning.fast_since.map_or(Duration::ZERO, |since| since.elapsed());
        let allowed = ADVANCE + self.started.elapsed().mul_f64(SHARE);
        let asked = self.scanning.asked_at.is_some_and(|asked| asked.elapsed() < FAST_FOR);
        let wants_fast = asked && fast < allowed && !self.is_paused && !self.gate.is_calm();
        if wants_fast == self.scanning.fast_since.is_some() {
            return;
        }
        if wants_fast {
            // The minimum first, because the kernel requires it to be below the maximum.
            let values = [(SCAN_PERIOD_MIN, FAST_MS), (SCAN_PERIOD_MAX, FAST_MAX_MS)];
            let (settings, result) = self.settings.set_together(&values, control_port);
            settings.into_iter().for_each(|setting| control_port.record(Event::Setting(setting)));
            match result {
                Ok(()) => self.scanning.fast_since = Some(Instant::now()),
                Err(what) => {
                    self.scanning.may = false;
                    self.trouble(what, control_port);
                }
            }
        } else {
            self.scanning.fast += self.scanning.fast_since.take().map_or(Duration::ZERO, |since| since.elapsed());
            for file in [SCAN_PERIOD_MAX, SCAN_PERIOD_MIN] {
                if let Some(setting) = self.settings.put_back(file, control_port) {
                    control_port.record(Event::Setting(setting));
                }
            }
        }
    }
}
