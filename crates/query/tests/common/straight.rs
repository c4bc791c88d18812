//! The generic scripts computed straight from the raw tables, row by row with maps and loops: what the SQL is held against. Definitions are those of
//! `scripts/README.md`; nothing here is shared with the engine or with the report.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use numapilot_trace::tables::{AccessRow, ObjectRow};

use super::Raw;

/// Computes a script's CSV from the tables.
pub type Answer = fn(&Raw) -> String;

/// Every script, by name.
pub const ALL: [(&str, Answer); 8] = [
    ("remote", remote),
    ("types", types),
    ("pattern", pattern),
    ("first-touch", first_touch),
    ("handover", handover),
    ("read-only", read_only),
    ("false-sharing", false_sharing),
    ("allocator-only", allocator_only),
];

#[derive(Clone, Debug, Default)]
struct Sums {
    samples: u64,
    accesses: u64,
    known: u64,
    known_samples: u64,
    remote: u64,
    remote_samples: u64,
    writes: u64,
    write_samples: u64,
    bytes: u64,
    objects: BTreeSet<u32>,
    threads: BTreeSet<u32>,
    nodes: BTreeSet<u16>,
}

impl Sums {
    fn add(&mut self, row: &AccessRow) {
        let weight = u64::from(row.weight);
        self.samples += 1;
        self.accesses += weight;
        if let (Some(node), Some(home)) = (row.node, row.home) {
            self.known += weight;
            self.known_samples += 1;
            if node != home {
                self.remote += weight;
                self.remote_samples += 1;
            }
        }
        if row.is_write {
            self.writes += weight;
            self.write_samples += 1;
        }
        self.objects.extend(row.object);
        self.threads.insert(row.thread);
        self.nodes.extend(row.node);
    }
}

fn memory_accesses(raw: &Raw) -> impl Iterator<Item = AccessRow> + '_ {
    raw.accesses.rows().filter(|row| !matches!(row.level, 1 | 2 | 3 | 6))
}

/// Memory accesses by known object, in order of rows.
fn by_object(raw: &Raw) -> BTreeMap<u32, Vec<AccessRow>> {
    let mut found: BTreeMap<u32, Vec<AccessRow>> = BTreeMap::new();
    for row in memory_accesses(raw) {
        if let Some(object) = row.object {
            found.entry(object).or_default().push(row);
        }
    }
    found
}

fn object(raw: &Raw, number: u32) -> ObjectRow {
    raw.objects.row(number as usize)
}

/// A site's first object.
fn site(raw: &Raw, number: u32) -> ObjectRow {
    raw.objects.rows().find(|object| object.site == number).expect("a site has objects")
}

fn ppm(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { (u128::from(part) * 1_000_000 / u128::from(whole)).to_string() }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// Sites by accesses, descending; what has none comes last among equals.
fn ranked<T>(sites: BTreeMap<Option<u32>, T>, accesses: impl Fn(&T) -> u64) -> Vec<(Option<u32>, T)> {
    let mut sites: Vec<_> = sites.into_iter().collect();
    sites.sort_by_key(|(site, sums)| (std::cmp::Reverse(accesses(sums)), site.is_none(), *site));
    sites
}

fn by_site(raw: &Raw) -> BTreeMap<Option<u32>, Sums> {
    let mut sites: BTreeMap<Option<u32>, Sums> = BTreeMap::new();
    for row in memory_accesses(raw) {
        sites.entry(row.object.map(|number| object(raw, number).site)).or_default().add(&row);
    }
    for sums in sites.values_mut() {
        sums.bytes = sums.objects.iter().map(|&number| object(raw, number).bytes).sum();
    }
    sites
}

fn remote(raw: &Raw) -> String {
    let mut all = Sums::default();
    memory_accesses(raw).for_each(|row| all.add(&row));
    format!(
        "samples,accesses,known_samples,known_accesses,remote_samples,remote_accesses,remote_ppm\n{},{},{},{},{},{},{}\n",
        all.samples,
        all.accesses,
        all.known_samples,
        all.known,
        all.remote_samples,
        all.remote,
        ppm(all.remote, all.known)
    )
}

fn types(raw: &Raw) -> String {
    let mut out =
        "site,kind,name,file,line,instances,bytes,samples,accesses,share_ppm,remote_accesses,remote_ppm,remote_share_ppm\n".to_owned();
    let sites = by_site(raw);
    let (all, all_remote) = (sites.values().map(|s| s.accesses).sum(), sites.values().map(|s| s.remote).sum());
    for (number, sums) in ranked(sites, |sums| sums.accesses) {
        let names = number.map_or(",unknown,,,".to_owned(), |number| {
            let site = site(raw, number);
            format!("{number},{},{},{},{}", site.kind, quoted(&site.name), quoted(&site.site_file), site.site_line)
        });
        let (share, own) = (ppm(sums.accesses, all), ppm(sums.remote, sums.known));
        let _ = writeln!(
            out,
            "{names},{},{},{},{},{share},{},{own},{}",
            sums.objects.len(),
            sums.bytes,
            sums.samples,
            sums.accesses,
            sums.remote,
            ppm(sums.remote, all_remote)
        );
    }
    out
}

fn pattern(raw: &Raw) -> String {
    let last = raw.accesses.time_ns.last().copied().unwrap_or(0);
    // Unknown comes last: it sorts as (1, 0).
    type Key = ((u8, u32), u32, (u8, u32), (u8, u32), u64);
    let order = |value: Option<u32>| value.map_or((1, 0), |value| (0, value));
    let mut cells: BTreeMap<Key, (Sums, u64, u64)> = BTreeMap::new();
    for row in memory_accesses(raw) {
        let site = row.object.map(|number| object(raw, number).site);
        let slice = 10 * row.time_ns / (last + 1);
        let key = (order(site), row.thread, order(row.node.map(u32::from)), order(row.home.map(u32::from)), slice);
        let cell = cells.entry(key).or_insert_with(|| (Sums::default(), u64::MAX, 0));
        cell.0.add(&row);
        (cell.1, cell.2) = (cell.1.min(row.time_ns), cell.2.max(row.time_ns));
    }
    let mut out = "site,thread,node,home,slice,samples,reads,writes,first_ns,last_ns\n".to_owned();
    let back = |(unknown, value): (u8, u32)| shown((unknown == 0).then_some(value));
    for ((site, thread, node, home, slice), (sums, first, last)) in cells {
        let (site, node, home, reads) = (back(site), back(node), back(home), sums.accesses - sums.writes);
        let _ = writeln!(
            out,
            "{site},{thread},{node},{home},{slice},{},{reads},{},{first},{last}",
            sums.samples, sums.writes
        );
    }
    out
}

fn first_touch(raw: &Raw) -> String {
    let mut sites: BTreeMap<Option<u32>, [u64; 6]> = BTreeMap::new();
    for (number, rows) in by_object(raw) {
        let (object, first) = (object(raw, number), &rows[0]);
        let sums = sites.entry(Some(object.site)).or_default();
        sums[0] += 1;
        sums[1] += u64::from(object.thread == Some(first.thread));
        sums[2] += u64::from(rows.iter().any(|row| row.thread != first.thread));
        for row in &rows {
            sums[3] += u64::from(row.weight);
            sums[4] += if row.thread == first.thread { u64::from(row.weight) } else { 0 };
            sums[5] += if row.node.is_some() && row.node == first.node { u64::from(row.weight) } else { 0 };
        }
    }
    let mut out = "site,kind,name,instances,first_by_allocator,shared_instances,accesses,by_first_thread,by_first_node,later_ppm\n".to_owned();
    for (number, [instances, by_allocator, shared, accesses, by_thread, by_node]) in ranked(sites, |sums| sums[3]) {
        let (number, later) = (number.expect("known"), ppm(accesses - by_thread, accesses));
        let site = site(raw, number);
        let names = format!("{number},{},{}", site.kind, quoted(&site.name));
        let _ = writeln!(out, "{names},{instances},{by_allocator},{shared},{accesses},{by_thread},{by_node},{later}");
    }
    out
}

fn handover(raw: &Raw) -> String {
    let mut before: BTreeMap<u32, AccessRow> = BTreeMap::new();
    let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for row in raw.accesses.rows() {
        let Some(number) = row.object else { continue };
        if let Some(last) = before.get(&number).filter(|last| last.thread != row.thread) {
            let sum = sums.entry(number).or_default();
            *sum = (sum.0 + 1, sum.1 + row.time_ns - last.time_ns);
        }
        before.insert(number, row);
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|&(number, (count, _))| (std::cmp::Reverse(count), number));
    let mut out = "object,site,name,handovers,sum_ns,mean_ns\n".to_owned();
    for (number, (count, sum)) in rows {
        let object = object(raw, number);
        let _ = writeln!(out, "{number},{},{},{count},{sum},{}", object.site, quoted(&object.name), sum / count);
    }
    out
}

fn read_only(raw: &Raw) -> String {
    let mut out = "site,kind,name,samples,accesses,write_samples,write_accesses,write_ppm,bound_ppm\n".to_owned();
    for (number, sums) in ranked(by_site(raw), |sums| sums.accesses) {
        let names = number.map_or(",unknown,".to_owned(), |number| {
            let site = site(raw, number);
            format!("{number},{},{}", site.kind, quoted(&site.name))
        });
        let bound = (sums.write_samples == 0).then(|| 3_000_000_u64.div_ceil(sums.samples).min(1_000_000));
        let _ = writeln!(
            out,
            "{names},{},{},{},{},{},{}",
            sums.samples,
            sums.accesses,
            sums.write_samples,
            sums.writes,
            ppm(sums.writes, sums.accesses),
            shown(bound)
        );
    }
    out
}

fn false_sharing(raw: &Raw) -> String {
    let objects = by_object(raw);
    let is_private = |rows: &Vec<AccessRow>| rows.iter().all(|row| row.thread == rows[0].thread);
    let mut pages: BTreeMap<(u32, u64), Sums> = BTreeMap::new();
    for row in objects.values().filter(|rows| is_private(rows)).flatten() {
        let process = raw.threads.process[row.thread as usize];
        pages.entry((process, row.address / 4096 * 4096)).or_default().add(row);
    }
    let mut rows: Vec<_> =
        pages.into_iter().filter(|(_, sums)| sums.threads.len() >= 2 && sums.nodes.len() >= 2).collect();
    rows.sort_by_key(|(key, sums)| (std::cmp::Reverse(sums.accesses), *key));
    let mut out = "process,page,objects,threads,nodes,samples,accesses,remote_accesses\n".to_owned();
    for ((process, page), sums) in rows {
        let (objects, threads, nodes) = (sums.objects.len(), sums.threads.len(), sums.nodes.len());
        let _ = writeln!(
            out,
            "{process},{page},{objects},{threads},{nodes},{},{},{}",
            sums.samples, sums.accesses, sums.remote
        );
    }
    out
}

fn allocator_only(raw: &Raw) -> String {
    let mut sites: BTreeMap<Option<u32>, [u64; 7]> = BTreeMap::new();
    for (number, rows) in by_object(raw) {
        let object = object(raw, number);
        let Some(allocator) = object.thread else { continue };
        let mut own = Sums::default();
        rows.iter().for_each(|row| own.add(row));
        let by_allocator: u64 =
            rows.iter().filter(|row| row.thread == allocator).map(|row| u64::from(row.weight)).sum();
        let is_alone = rows.iter().all(|row| row.thread == allocator);
        let alone = |value: u64| if is_alone { value } else { 0 };
        let sums = sites.entry(Some(object.site)).or_default();
        let more = [1, alone(1), own.accesses, own.remote, by_allocator, alone(own.accesses), alone(own.remote)];
        sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    let mut out = "site,kind,name,instances,alone_instances,accesses,remote_accesses,by_allocator,by_allocator_ppm,alone_accesses,\
                   alone_remote_accesses\n"
        .to_owned();
    for (number, [instances, alone, accesses, remote, own, alone_accesses, alone_remote]) in
        ranked(sites, |sums| sums[2])
    {
        let number = number.expect("known");
        let site = site(raw, number);
        let share = ppm(own, accesses);
        let names = format!("{number},{},{}", site.kind, quoted(&site.name));
        let _ = writeln!(
            out,
            "{names},{instances},{alone},{accesses},{remote},{own},{share},{alone_accesses},{alone_remote}"
        );
    }
    out
}
