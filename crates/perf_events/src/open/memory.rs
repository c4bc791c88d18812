//! Memory of a recording's rings: as much of what was asked for as the limit on locked memory leaves room for.

use numapilot_machine::CpuId;

use crate::event::EventRequest;
use crate::locked_memory::Limits;
use crate::locked_memory::Sizes;

/// Memory of the rings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub limits: Limits,
    pub rings: usize,
    pub asked: Sizes,
    /// As much of that as the limits leave room for.
    pub sizes: Sizes,
}

impl Memory {
    /// `bytes`: of each ring.
    pub fn new(requests: &[EventRequest], cpus: &[CpuId], bytes: usize) -> Memory {
        let has_aux = |cpu: &&CpuId| {
            let is_there = |request: &EventRequest| request.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
            requests.iter().any(|request| request.aux_bytes > 0 && is_there(request))
        };
        let (rings, areas) = (cpus.len(), cpus.iter().filter(has_aux).count());
        let limits = Limits::here(rings);
        let aux = requests.iter().map(|request| request.aux_bytes).max().unwrap_or(0);
        let asked = Sizes { data: bytes, aux };
        Memory { limits, rings, asked, sizes: asked.within(&limits, rings, areas) }
    }

    /// Requests with AUX areas of the size that there is room for.
    pub fn fit(self, mut requests: Vec<EventRequest>) -> Vec<EventRequest> {
        for request in requests.iter_mut().filter(|request| request.aux_bytes > self.sizes.aux) {
            request.aux_bytes = self.sizes.aux;
            request.aux_watermark = (self.sizes.aux / 4) as u32;
        }
        requests
    }

    /// Says if rings are smaller than asked for.
    pub fn note(self) -> Option<String> {
        let Memory { asked, sizes, .. } = self;
        let what = |what: &str, now: usize, asked: usize| {
            (now < asked).then(|| format!("{what} have {} KiB per CPU instead of {} KiB", now >> 10, asked >> 10))
        };
        let smaller: Vec<String> = [what("rings", sizes.data, asked.data), what("AUX areas", sizes.aux, asked.aux)]
            .into_iter()
            .flatten()
            .collect();
        (!smaller.is_empty()).then(|| {
            format!(
                "{}, because the limit on locked memory does not allow more (kernel.perf_event_mlock_kb, `ulimit -l`)",
                smaller.join(" and ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_and_areas_that_do_not_fit_are_smaller_and_that_is_told() {
        let limits =
            Limits { page: 4096, cpus: 64, mlock_kib: Some(516), memlock_bytes: Some(8 << 20), is_exempt: false };
        let asked = Sizes { data: 1 << 20, aux: 1 << 20 };
        let memory = Memory { limits, rings: 64, asked, sizes: asked.within(&limits, 64, 64) };
        let request = EventRequest { aux_bytes: 1 << 20, aux_watermark: 1 << 18, ..EventRequest::default() };
        let fitted = memory.fit(vec![request, EventRequest::side_band()]);
        let sizes: Vec<_> = fitted.iter().map(|request| (request.aux_bytes, request.aux_watermark)).collect();
        assert_eq!(sizes, [(1 << 18, 1 << 16), (0, 0)]);
        let note = memory.note().unwrap();
        assert!(note.contains("rings have 256 KiB per CPU instead of 1024 KiB and AUX areas have 256 KiB"), "{note}");
        assert_eq!(Memory { sizes: asked, ..memory }.note(), None);
    }
}
