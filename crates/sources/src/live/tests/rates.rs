//! What a sample costs on its way from a ring to the trace's files, kept or discarded: rings full of synthesised records, drained by the recorder's own
//! reader on one core. It holds that every one arrives (or is counted as discarded), and prints what they cost; `tools/bench` runs it in a release build with
//! NUMAPILOT_TEST_FULL=1, which makes the rings and rounds enough for figures.

use std::time::Duration;

use super::*;

/// Accesses of a round, and rounds.
fn extent() -> (u64, usize) {
    if std::env::var_os("NUMAPILOT_TEST_FULL").is_some() { (20_000, 15) } else { (2_000, 3) }
}

const RING_BYTES: u64 = 8 << 20;

/// CPU time of this thread, nanoseconds.
fn cpu_ns() -> f64 {
    // SAFETY: a zeroed timespec is a valid value, and the call fills in ours.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

impl Kernel {
    /// Writes whole records at once, around the end; they must fit.
    fn write_all(&mut self, records: &[u8]) {
        assert!(self.room() >= records.len() as u64, "the ring is too small");
        let start = self.head % self.data_bytes;
        let first = records.len().min((self.data_bytes - start) as usize);
        self.file.write_all_at(&records[..first], PAGE + start).unwrap();
        self.file.write_all_at(&records[first..], PAGE).unwrap();
        self.head += records.len() as u64;
        self.file.write_all_at(&self.head.to_ne_bytes(), DATA_HEAD).unwrap();
    }
}

/// The sample without its data address, as of an instruction that accesses no memory.
fn without_address(record: &[u8], session: &Session) -> Vec<u8> {
    let header = Header { kind: kind::SAMPLE, misc: 2, size: record.len() as u16 };
    let mut out = record.to_vec();
    let decoded = session.decode(header, &record[Header::BYTES..], 0).unwrap();
    let numapilot_perf::Record::Sample(_, sample) = decoded else { panic!("no sample") };
    match sample.raw {
        // Behind the capabilities the registers: IbsOpCtl, IbsOpRip, IbsOpData, IbsOpData2, and IbsOpData3, which says that there is an address.
        Some(raw) => {
            let at = raw.as_ptr() as usize - record.as_ptr() as usize + 4 + 4 * 8;
            out[at..at + 8].fill(0);
        }
        None => {
            let at = Header::BYTES + 4 * 8;
            assert_eq!(record[at..at + 8], sample.addr.unwrap().to_ne_bytes());
            out[at..at + 8].fill(0);
        }
    }
    out
}

/// Nanoseconds of one core per sample: median, least, greatest of the rounds.
fn cost(recording: &DataFile, is_ibs: bool, is_kept: bool) -> [f64; 3] {
    let (accesses, rounds) = extent();
    let mut lab = Lab::new(recording, RING_BYTES, 0);
    std::thread::sleep(Duration::from_millis(5));
    let (attr, begins, ends) =
        (lab.attr.clone(), streams::truth(1)[0].time, streams::truth(accesses).pop().unwrap().time);
    let (truths, span) = (streams::truth(accesses), ends - begins + 1_000_000);
    let mut kernels = std::mem::take(&mut lab.kernels);
    let session = lab.events.as_ref().unwrap().session.clone();
    let (mut reader, writer) = lab.reader(EventFact { is_ibs, ..EventFact::default() });
    let is_sample = |record: &&Vec<u8>| u32::from_le_bytes(record[..4].try_into().unwrap()) == kind::SAMPLE;
    let mut costs = Vec::new();
    for round in 0..=rounds {
        let shift = ClockPair::now().raw_ns - span - begins;
        let mut rings = [Vec::new(), Vec::new()];
        // Processes and mappings come once.
        for record in recording.records.iter().filter(|record| round == 0 && !is_sample(record)) {
            rings[0].extend(moved(record, &attr, shift));
        }
        for (record, truth) in recording.records.iter().filter(is_sample).zip(&truths) {
            let record = if is_kept { record.clone() } else { without_address(record, &session) };
            rings[usize::from(truth.cpu == 2)].extend(moved(&record, &attr, shift));
        }
        kernels.iter_mut().zip(&rings).for_each(|(kernel, records)| kernel.write_all(records));
        let start = cpu_ns();
        reader.look(false).unwrap();
        // What a look takes goes on after the next.
        reader.look(false).unwrap();
        let spent = (cpu_ns() - start) / accesses as f64;
        // The first round meets cold memory.
        if round > 0 {
            costs.push(spent);
        }
        std::thread::sleep(Duration::from_nanos(span));
    }
    let outcome = reader.run(&AtomicBool::new(true), &AtomicBool::new(false));
    let all = accesses * (rounds as u64 + 1);
    let kept = if is_kept { all } else { 0 };
    assert_eq!((outcome.counts.samples, outcome.counts.accesses, outcome.counts.lost), (all, kept, 0));
    assert_eq!((outcome.corrupt_bytes, outcome.counts.undecodable), (0, 0));
    drop(writer);
    costs.sort_by(f64::total_cmp);
    [costs[rounds / 2], costs[0], costs[rounds - 1]]
}

#[test]
fn costs_of_samples() {
    let start = HostInstant::now();
    let cycles_per_ns = f64::from(start.calibrate(Duration::from_millis(50))) / 1e6;
    let (accesses, _) = extent();
    let kinds = [
        ("IBS, registers", streams::ibs(accesses), true),
        ("PEBS, call chain", streams::pebs(accesses, Endian::Little), false),
    ];
    for (name, recording, is_ibs) in kinds {
        for (what, is_kept) in [("kept", true), ("discarded", false)] {
            let [ns, least, greatest] = cost(&recording, is_ibs, is_kept);
            let cycles = ns * cycles_per_ns;
            eprintln!(
                "COST {{\"kind\":\"{name}\",\"sample\":\"{what}\",\"ns\":{ns:.1},\"least\":{least:.1},\"greatest\":{greatest:.1},\"cycles\":{cycles:.0}}}"
            );
        }
    }
}
