//! Every record that the encoder can write, over random subsets of the fields, decodes to what was written: in both byte orders.

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_perf::abi::{attr_flag, branch_sample, misc, read_format, sample};
use numapilot_perf::testing::{BranchSpec, SampleSpec, SideBandSpec, attr_bytes};
use numapilot_perf::{
    Bytes, Endian, EventAttr, FileIdentity, Header, Record, Sample, SampleId, Session, SideBand, TaskChange, Weight,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn endian() -> impl Strategy<Value = Endian> {
    prop_oneof![Just(Endian::Little), Just(Endian::Big)]
}

fn attr() -> impl Strategy<Value = EventAttr> {
    let regs = prop_oneof![Just(0), 0u64..1 << 20, any::<u64>()];
    (any::<u64>(), 0u64..32, any::<bool>(), any::<bool>(), regs.clone(), regs, any::<bool>(), any::<u64>()).prop_map(
        |(fields, read, index, counters, user, intr, all, config)| {
            let mut sample_type = fields & sample::KNOWN;
            if sample_type & sample::WEIGHT != 0 {
                sample_type &= !sample::WEIGHT_STRUCT;
            }
            let bit = |set: bool, bit: u64| if set { bit } else { 0 };
            EventAttr {
                kind: 4,
                size: 136,
                config,
                config1: !config,
                config2: config >> 3,
                config3: config << 3,
                config4: config << 4,
                period_or_freq: 1000,
                sample_type,
                read_format: read,
                flags: u64::from(all) << attr_flag::SAMPLE_ID_ALL | 1 << attr_flag::FREQ,
                branch_sample_type: bit(index, branch_sample::HW_INDEX) | bit(counters, branch_sample::COUNTERS),
                sample_regs_user: user,
                sample_regs_intr: intr,
                sample_stack_user: 4096,
                clock_id: -1,
            }
        },
    )
}

fn branches() -> impl Strategy<Value = Vec<BranchSpec>> {
    let one = (any::<u64>(), any::<u64>(), any::<[u64; 9]>()).prop_map(|(from, to, mut fields)| {
        for (field, width) in fields.iter_mut().zip([1, 1, 1, 1, 16, 4, 2, 4, 3]) {
            *field &= (1u64 << width) - 1;
        }
        BranchSpec { from, to, fields }
    });
    vec(one, 0..6)
}

prop_compose! {
    fn spec()(
        words in any::<[u64; 16]>(),
        small in any::<[u32; 3]>(),
        counts in vec(any::<(u64, u64, u64)>(), 1..5),
        callchain in vec(any::<u64>(), 0..20),
        raw in vec(any::<u8>(), 0..90),
        branches in branches(),
        abis in (0u64..3, 0u64..3),
        regs in any::<[[u64; 32]; 4]>(),
        stack in vec(any::<u64>(), 0..12),
        aux in vec(any::<u64>(), 0..12),
    ) -> SampleSpec {
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        SampleSpec {
            misc: misc::USER,
            id: words[0], ip: words[1], pid: small[0], tid: small[1], time: words[2], addr: words[3],
            stream_id: words[4], cpu: small[2], period: words[5], time_enabled: words[6], time_running: words[7],
            counts, callchain, raw,
            branch_index: words[8],
            branch_counters: branches.iter().map(|branch| branch.from ^ 1).collect(),
            branches,
            user_abi: abis.0, user_regs: regs[..2].concat(), intr_abi: abis.1, intr_regs: regs[2..].concat(),
            user_stack: bytes(&stack), user_stack_valid: words[9], weight: words[10], data_src: words[11],
            transaction: words[12], phys_addr: words[13], cgroup: words[14], data_page_size: words[15],
            code_page_size: words[15] ^ 1, aux: bytes(&aux),
        }
    }
}

/// What is asked for is there and equal, what is not is not.
macro_rules! same {
    ($attr:expr, $bit:ident, $got:expr, $want:expr) => {
        prop_assert_eq!($got, $attr.samples(sample::$bit).then(|| $want), "{}", stringify!($bit))
    };
}

fn check(attr: &EventAttr, spec: &SampleSpec, got: &Sample<'_>) -> Result<(), TestCaseError> {
    same!(attr, IDENTIFIER, got.identifier, spec.id);
    same!(attr, IP, got.ip, spec.ip);
    same!(attr, TID, got.pid_tid, (Pid(spec.pid), Tid(spec.tid)));
    same!(attr, TIME, got.time, spec.time);
    same!(attr, ADDR, got.addr, spec.addr);
    same!(attr, ID, got.id, spec.id);
    same!(attr, STREAM_ID, got.stream_id, spec.stream_id);
    same!(attr, CPU, got.cpu, CpuId(spec.cpu));
    same!(attr, PERIOD, got.period, spec.period);
    same!(attr, CALLCHAIN, got.callchain.map(|chain| chain.iter().collect()), spec.callchain.clone());
    same!(attr, RAW, got.raw.map(|raw| raw[..spec.raw.len()].to_vec()), spec.raw.clone());
    let is_parts = attr.samples(sample::WEIGHT_STRUCT);
    if is_parts {
        let (var1, var2, var3) = (spec.weight as u32, (spec.weight >> 32) as u16, (spec.weight >> 48) as u16);
        prop_assert_eq!(got.weight, Some(Weight::Parts { var1, var2, var3 }));
    } else {
        same!(attr, WEIGHT, got.weight, Weight::Full(spec.weight));
    }
    same!(attr, DATA_SRC, got.data_src, spec.data_src);
    same!(attr, TRANSACTION, got.transaction, spec.transaction);
    same!(attr, PHYS_ADDR, got.phys_addr, spec.phys_addr);
    same!(attr, CGROUP, got.cgroup, spec.cgroup);
    same!(attr, DATA_PAGE_SIZE, got.data_page_size, spec.data_page_size);
    same!(attr, CODE_PAGE_SIZE, got.code_page_size, spec.code_page_size);
    same!(attr, AUX, got.aux.map(<[u8]>::to_vec), spec.aux.clone());
    check_parts(attr, spec, got)
}

fn check_parts(attr: &EventAttr, spec: &SampleSpec, got: &Sample<'_>) -> Result<(), TestCaseError> {
    let format = |bit| attr.read_format & bit != 0;
    prop_assert_eq!(got.read.is_some(), attr.samples(sample::READ));
    if let Some(read) = got.read {
        let counts = if format(read_format::GROUP) { &spec.counts[..] } else { &spec.counts[..1] };
        let got: Vec<_> = read.values().map(|value| (value.value, value.id, value.lost)).collect();
        let want: Vec<_> = counts
            .iter()
            .map(|&(value, id, lost)| {
                (value, format(read_format::ID).then_some(id), format(read_format::LOST).then_some(lost))
            })
            .collect();
        prop_assert_eq!(got, want);
        prop_assert_eq!(read.time_enabled, format(read_format::TOTAL_TIME_ENABLED).then_some(spec.time_enabled));
        prop_assert_eq!(read.time_running, format(read_format::TOTAL_TIME_RUNNING).then_some(spec.time_running));
    }
    for (regs, bit, mask, abi, values) in [
        (got.user_regs, sample::REGS_USER, attr.sample_regs_user, spec.user_abi, &spec.user_regs),
        (got.intr_regs, sample::REGS_INTR, attr.sample_regs_intr, spec.intr_abi, &spec.intr_regs),
    ] {
        prop_assert_eq!(regs.is_some(), attr.samples(bit));
        let Some(regs) = regs else { continue };
        prop_assert_eq!((regs.abi, regs.mask), (abi, mask));
        let mut position = 0;
        for register in 0..64 {
            let is_there = abi != 0 && mask >> register & 1 != 0;
            prop_assert_eq!(regs.get(register), is_there.then(|| values[position]));
            position += usize::from(is_there);
        }
    }
    prop_assert_eq!(got.user_stack.is_some(), attr.samples(sample::STACK_USER));
    if let Some(stack) = got.user_stack {
        prop_assert_eq!(stack.bytes, &spec.user_stack[..]);
        prop_assert_eq!(stack.valid_bytes, if spec.user_stack.is_empty() { 0 } else { spec.user_stack_valid });
    }
    prop_assert_eq!(got.branch_stack.is_some(), attr.samples(sample::BRANCH_STACK));
    if let Some(stack) = got.branch_stack {
        let has = |bit| attr.branch_sample_type & bit != 0;
        prop_assert_eq!(stack.hardware_index, has(branch_sample::HW_INDEX).then_some(spec.branch_index));
        let counters = if has(branch_sample::COUNTERS) { spec.branch_counters.clone() } else { Vec::new() };
        prop_assert_eq!(stack.counters.iter().collect::<Vec<_>>(), counters);
        let got: Vec<_> = stack
            .entries()
            .map(|entry| {
                let flags = [entry.mispredicted, entry.predicted, entry.in_transaction, entry.abort].map(u64::from);
                let [a, b, c, d] = flags;
                let fields = [
                    a,
                    b,
                    c,
                    d,
                    entry.cycles.into(),
                    entry.kind.into(),
                    entry.speculation.into(),
                    entry.new_kind.into(),
                    entry.privilege.into(),
                ];
                BranchSpec { from: entry.from, to: entry.to, fields }
            })
            .collect();
        prop_assert_eq!(got, spec.branches.clone());
    }
    Ok(())
}

fn header_and_body(record: &[u8], endian: Endian) -> (Header, &[u8]) {
    let mut bytes = Bytes::new(record, 0, endian);
    let header = Header::decode(&mut bytes).expect("our own header");
    (header, bytes.rest())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn samples_of_every_field_subset_round_trip(attr in attr(), spec in spec(), endian in endian()) {
        let record = spec.encode(&attr, endian);
        let mut session = Session::new(endian);
        session.add(attr.clone(), [spec.id]);
        let (header, body) = header_and_body(&record, endian);
        let time = session.peek_time(header, body);
        prop_assert_eq!(time, attr.samples(sample::TIME).then_some(spec.time));
        match session.decode(header, body, 0) {
            Ok(Record::Sample(0, sample)) => check(&attr, &spec, &sample)?,
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn cut_samples_give_an_error_inside_the_record(attr in attr(), spec in spec(), endian in endian(), cut in any::<prop::sample::Index>()) {
        let record = spec.encode(&attr, endian);
        let mut session = Session::new(endian);
        session.add(attr, [spec.id]);
        let keep = 8 + cut.index(record.len() - 7);
        let (mut header, body) = header_and_body(&record, endian);
        header.size = keep as u16;
        match session.decode(header, body, 1000) {
            Ok(Record::Sample(..)) => prop_assert_eq!(keep, record.len(), "decoded although cut"),
            Ok(other) => prop_assert!(false, "{:?}", other),
            Err(error) => prop_assert!((1000..=1000 + keep as u64).contains(&error.offset)),
        }
    }

    #[test]
    fn attributes_round_trip_at_every_size(attr in attr(), endian in endian(), size in 64u32..200) {
        let attr = EventAttr { size, ..attr };
        let bytes = attr_bytes(&attr, endian);
        prop_assert_eq!(bytes.len(), size as usize);
        let got = EventAttr::decode(&mut Bytes::new(&bytes, 0, endian)).unwrap();
        // Fields beyond the size are 0; those within are equal.
        let has = |end: u32, value: u64| if size >= end { value } else { 0 };
        prop_assert_eq!(
            (got.kind, got.config, got.sample_type, got.read_format, got.flags, got.config1),
            (attr.kind, attr.config, attr.sample_type, attr.read_format, attr.flags, attr.config1)
        );
        prop_assert_eq!(got.config2, has(72, attr.config2));
        prop_assert_eq!(got.branch_sample_type, has(80, attr.branch_sample_type));
        prop_assert_eq!(got.sample_regs_user, has(88, attr.sample_regs_user));
        prop_assert_eq!(got.sample_regs_intr, has(104, attr.sample_regs_intr));
        prop_assert_eq!(got.config3, has(136, attr.config3));
        prop_assert_eq!(got.config4, has(144, attr.config4));
    }

    #[test]
    fn any_bytes_give_a_record_or_an_error(attr in attr(), kind in 0u32..90, misc in any::<u16>(), body in vec(any::<u8>(), 0..300), endian in endian()) {
        let mut session = Session::new(endian);
        session.add(attr, [1]);
        let header = Header { kind, misc, size: (body.len() + 8) as u16 };
        let _ = session.peek_time(header, &body);
        if let Err(error) = session.decode(header, &body, 8) {
            prop_assert!(error.offset <= 8 + body.len() as u64, "{}", error);
        }
    }
}

fn side_band() -> impl Strategy<Value = SideBandSpec> {
    let text = "[a-z/\\[\\]]{0,30}";
    prop_oneof![
        (any::<[u32; 2]>(), any::<[u64; 3]>(), any::<bool>(), text).prop_map(|(ids, n, is_data, path)| {
            SideBandSpec::Mmap { pid: ids[0], tid: ids[1], addr: n[0], len: n[1], file_offset: n[2], is_data, path }
        }),
        (any::<[u32; 3]>(), any::<[u64; 3]>(), prop::option::of(vec(any::<u8>(), 0..21)), text).prop_map(
            |(ids, n, build_id, path)| SideBandSpec::Mmap2 {
                pid: ids[0],
                tid: ids[1],
                addr: n[0],
                len: n[1],
                file_offset: n[2],
                build_id,
                protection: ids[2],
                path
            }
        ),
        (any::<[u32; 2]>(), any::<bool>(), text).prop_map(|(ids, by_exec, name)| SideBandSpec::Comm {
            pid: ids[0],
            tid: ids[1],
            name,
            by_exec
        }),
        (any::<bool>(), any::<[u32; 4]>(), any::<u64>()).prop_map(|(is_fork, ids, time)| SideBandSpec::Task {
            is_fork,
            pid: ids[0],
            parent_pid: ids[1],
            tid: ids[2],
            parent_tid: ids[3],
            time
        }),
        any::<[u64; 2]>().prop_map(|[id, count]| SideBandSpec::Lost { id, count }),
        any::<u64>().prop_map(|count| SideBandSpec::LostSamples { count }),
        (any::<bool>(), any::<[u64; 3]>()).prop_map(|(begins, [time, id, stream_id])| SideBandSpec::Throttle {
            begins,
            time,
            id,
            stream_id
        }),
        any::<[u64; 3]>().prop_map(|[offset, size, flags]| SideBandSpec::Aux { offset, size, flags }),
        any::<[u32; 2]>().prop_map(|[pid, tid]| SideBandSpec::ItraceStart { pid, tid }),
        (any::<[bool; 2]>(), any::<Option<(u32, u32)>>()).prop_map(|([out, preempted], other)| SideBandSpec::Switch {
            out,
            preempted,
            other
        }),
        (any::<[u32; 2]>(), vec(any::<[u64; 2]>(), 0..8)).prop_map(|([pid, tid], links)| SideBandSpec::Namespaces {
            pid,
            tid,
            links: links.concat()
        }),
        (any::<u64>(), text).prop_map(|(id, path)| SideBandSpec::Cgroup { id, path }),
        (17u32..64, vec(any::<u64>(), 0..9))
            .prop_filter("of a kind that is not decoded", |(kind, _)| *kind != 19)
            .prop_map(|(kind, words)| SideBandSpec::Unknown {
                kind,
                body: words.iter().flat_map(|w| w.to_le_bytes()).collect()
            }),
    ]
}

fn check_side_band(spec: &SideBandSpec, got: &SideBand<'_>) -> Result<(), TestCaseError> {
    match (spec, got) {
        (SideBandSpec::Mmap { pid, tid, addr, len, file_offset, is_data, path }, SideBand::Mmap(got)) => {
            prop_assert_eq!((got.pid, got.tid, got.addr, got.len), (Pid(*pid), Tid(*tid), *addr, *len));
            prop_assert_eq!((got.file_offset, got.is_executable, got.path), (*file_offset, !is_data, path.as_bytes()));
            prop_assert_eq!((got.identity, got.protection, got.flags), (FileIdentity::Unknown, None, None));
        }
        (SideBandSpec::Mmap2 { pid, tid, addr, len, file_offset, build_id, protection, path }, SideBand::Mmap(got)) => {
            prop_assert_eq!((got.pid, got.tid, got.addr, got.len), (Pid(*pid), Tid(*tid), *addr, *len));
            prop_assert_eq!((got.file_offset, got.path), (*file_offset, path.as_bytes()));
            prop_assert_eq!((got.protection, got.is_executable), (Some(*protection), protection & 4 != 0));
            match build_id {
                Some(id) => prop_assert_eq!(got.identity, FileIdentity::BuildId(id)),
                None => {
                    let inode = FileIdentity::Inode { device: (8, 1), inode: 4711, generation: 1 };
                    prop_assert_eq!(got.identity, inode);
                }
            }
        }
        (SideBandSpec::Comm { pid, tid, name, by_exec }, got) => {
            let want = SideBand::Comm { pid: Pid(*pid), tid: Tid(*tid), name: name.as_bytes(), by_exec: *by_exec };
            prop_assert_eq!(got, &want);
        }
        (SideBandSpec::Task { is_fork, pid, parent_pid, tid, parent_tid, time }, got) => {
            let task = TaskChange {
                pid: Pid(*pid),
                parent_pid: Pid(*parent_pid),
                tid: Tid(*tid),
                parent_tid: Tid(*parent_tid),
                time: *time,
            };
            prop_assert_eq!(got, &if *is_fork { SideBand::Fork(task) } else { SideBand::Exit(task) });
        }
        (SideBandSpec::Namespaces { pid, tid, links }, SideBand::Namespaces { pid: p, tid: t, links: got }) => {
            prop_assert_eq!((p.0, t.0, got.iter().collect::<Vec<_>>()), (*pid, *tid, links.clone()));
        }
        (SideBandSpec::Cgroup { id, path }, got) => {
            prop_assert_eq!(got, &SideBand::Cgroup { id: *id, path: path.as_bytes() });
        }
        (SideBandSpec::Unknown { kind, .. }, got) => prop_assert_eq!(got, &SideBand::Other { kind: *kind }),
        (spec, got) => {
            let want = match *spec {
                SideBandSpec::Lost { id, count } => SideBand::Lost { id, count },
                SideBandSpec::LostSamples { count } => SideBand::LostSamples { count },
                SideBandSpec::Throttle { begins, time, id, stream_id } => {
                    SideBand::Throttle { begins, time, id, stream_id }
                }
                SideBandSpec::Aux { offset, size, flags } => SideBand::Aux { offset, size, flags },
                SideBandSpec::ItraceStart { pid, tid } => SideBand::ItraceStart { pid: Pid(pid), tid: Tid(tid) },
                SideBandSpec::Switch { out, preempted, other } => {
                    let other = other.map(|(pid, tid)| (Pid(pid), Tid(tid)));
                    SideBand::Switch { out, preempted, other }
                }
                _ => return Err(TestCaseError::fail(format!("{spec:?} became {got:?}"))),
            };
            prop_assert_eq!(got, &want);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn side_band_records_and_their_trailers_round_trip(
        attr in attr(), spec in side_band(), endian in endian(), ids in any::<[u64; 4]>(), small in any::<[u32; 3]>(),
    ) {
        let id = SampleId {
            pid_tid: Some((Pid(small[0]), Tid(small[1]))), time: Some(ids[0]), id: Some(ids[1]), stream_id: Some(ids[2]),
            cpu: Some(CpuId(small[2])), identifier: Some(ids[1]),
        };
        let record = spec.encode(&attr, &id, endian);
        let mut session = Session::new(endian);
        session.add(attr.clone(), [ids[1]]);
        let (header, body) = header_and_body(&record, endian);
        let all = attr.sample_id_all();
        let there = |bit| all && attr.samples(bit);
        prop_assert_eq!(session.peek_time(header, body), there(sample::TIME).then_some(ids[0]));
        match session.decode(header, body, 0) {
            Ok(Record::SideBand(got, got_id)) => {
                check_side_band(&spec, &got)?;
                prop_assert_eq!(got_id.pid_tid, id.pid_tid.filter(|_| there(sample::TID)));
                prop_assert_eq!(got_id.time, id.time.filter(|_| there(sample::TIME)));
                prop_assert_eq!(got_id.id, id.id.filter(|_| there(sample::ID)));
                prop_assert_eq!(got_id.stream_id, id.stream_id.filter(|_| there(sample::STREAM_ID)));
                prop_assert_eq!(got_id.cpu, id.cpu.filter(|_| there(sample::CPU)));
                prop_assert_eq!(got_id.identifier, id.identifier.filter(|_| there(sample::IDENTIFIER)));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn each_sample_is_read_by_its_own_event(first in attr(), second in attr(), spec in spec(), endian in endian(), at_id in any::<bool>()) {
        // Either both carry the identifier, or both an id at the same place.
        let bit = if at_id { sample::ID } else { sample::IDENTIFIER };
        let place = sample::IP | sample::TID | sample::TIME | sample::ADDR | sample::IDENTIFIER | sample::ID;
        let shared = first.sample_type & place & !sample::IDENTIFIER & !sample::ID | bit;
        let with = |attr: &EventAttr| EventAttr { sample_type: attr.sample_type & !place | shared, ..attr.clone() };
        let (first, second) = (with(&first), with(&second));
        let mut session = Session::new(endian);
        session.add(first.clone(), [spec.id ^ 1]);
        session.add(second.clone(), [spec.id]);
        for (event, attr, spec) in [
            (0, &first, SampleSpec { id: spec.id ^ 1, ..spec.clone() }),
            (1, &second, spec.clone()),
        ] {
            let record = spec.encode(attr, endian);
            let (header, body) = header_and_body(&record, endian);
            match session.decode(header, body, 0) {
                Ok(Record::Sample(got, sample)) => {
                    prop_assert_eq!(got, event);
                    check(attr, &spec, &sample)?;
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
