//! Which mappings may show one shared memory. A trace has names of mappings and not what they show: of two memories that had one name, one after the other, a
//! process may map both, but nobody needs to map one memory twice at once.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use numapilot_trace::ids::{ObjectId, ProcessIndex};

use crate::model::{Object, ObjectKind, Site, SiteId};

/// A mapping of shared memory. Its moments are order stamps or program times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub site: SiteId,
    pub process: ProcessIndex,
    pub birth: u64,
    /// The moment from which on it is no more; `None` if it lived to the end.
    pub end: Option<u64>,
}

/// The sites of these mappings, which are in order of birth, without those of which a process has two at once: each site's mappings may all show one memory.
/// Where a process has two, nothing tells which of them the other processes' mappings show.
pub(crate) fn mapped_once_at_a_time(mappings: impl Iterator<Item = Mapping>) -> HashSet<SiteId> {
    let mut until: HashMap<(SiteId, ProcessIndex), u64> = HashMap::new();
    let (mut all, mut twice) = (HashSet::new(), HashSet::new());
    for mapping in mappings {
        let until = until.entry((mapping.site, mapping.process)).or_insert(0);
        all.insert(mapping.site);
        if mapping.birth < *until {
            twice.insert(mapping.site);
        }
        *until = mapping.end.unwrap_or(u64::MAX).max(*until);
    }
    all.retain(|site| !twice.contains(site));
    all
}

/// The mappings of shared memory that may show the same memory as the first mapping of their site, with that one. Objects are in order of birth.
pub(crate) fn first_mappings(objects: &[Object], sites: &[Site]) -> HashMap<ObjectId, ObjectId> {
    let is_shared =
        |object: &&Object| sites.get(object.site.0 as usize).is_some_and(|site| site.kind == ObjectKind::Shared);
    let shared = || objects.iter().filter(is_shared);
    let mapping = |object: &Object| Mapping {
        site: object.site,
        process: object.process,
        birth: object.birth.0,
        end: object.death.map(|death| death.0),
    };
    let once = mapped_once_at_a_time(shared().map(mapping));
    let mut first: HashMap<SiteId, ObjectId> = HashMap::new();
    let of_one = shared().filter(|object| once.contains(&object.site));
    of_one.map(|object| (object.id, *first.entry(object.site).or_insert(object.id))).collect()
}

#[cfg(test)]
mod tests {
    use numapilot_trace::ids::TimeNs;

    use super::*;

    /// Objects of these sites and processes, born and dead at these times.
    fn objects(rows: &[(u32, u32, u64, Option<u64>)]) -> Vec<Object> {
        let object = |(id, &(site, process, birth, death)): (u32, &(u32, u32, u64, Option<u64>))| Object {
            id: ObjectId(id),
            site: SiteId(site),
            process: ProcessIndex(process),
            birth: TimeNs(birth),
            death: death.map(TimeNs),
            ..Object::default()
        };
        (0..).zip(rows).map(object).collect()
    }

    /// The object whose memory each of them may show, by its number.
    fn first_of(rows: &[(u32, u32, u64, Option<u64>)], kind: ObjectKind) -> Vec<Option<u32>> {
        let sites: Vec<Site> = (0..2).map(|_| Site { kind, ..Site::default() }).collect();
        let objects = objects(rows);
        let found = first_mappings(&objects, &sites);
        objects.iter().map(|object| found.get(&object.id).map(|first| first.0)).collect()
    }

    #[test]
    fn mappings_of_several_processes_may_show_one_memory() {
        let rows = [(0, 0, 1, None), (1, 0, 2, None), (0, 1, 3, None), (0, 2, 4, Some(5))];
        assert_eq!(first_of(&rows, ObjectKind::Shared), [Some(0), Some(1), Some(0), Some(0)]);
        assert_eq!(first_of(&rows, ObjectKind::Heap), [None; 4], "memory of one process each");
        assert_eq!(first_of(&[(7, 0, 1, None)], ObjectKind::Shared), [None], "no such site");
    }

    #[test]
    fn a_process_may_map_it_again_but_not_twice_at_once() {
        let again = [(0, 0, 1, Some(5)), (0, 1, 2, None), (0, 0, 5, None)];
        assert_eq!(first_of(&again, ObjectKind::Shared), [Some(0); 3]);
        let twice = [(0, 0, 1, Some(6)), (1, 1, 2, None), (0, 1, 3, None), (0, 0, 5, None)];
        assert_eq!(first_of(&twice, ObjectKind::Shared), [None, Some(1), None, None], "the other site's stays");
        let long = [(0, 0, 1, None), (0, 0, 2, Some(3)), (0, 0, 4, Some(5))];
        assert_eq!(first_of(&long, ObjectKind::Shared), [None; 3]);
        // Another process's between them hides nothing.
        let apart = [(0, 0, 1, Some(9)), (0, 1, 2, Some(3)), (0, 0, 8, Some(9))];
        assert_eq!(first_of(&apart, ObjectKind::Shared), [None; 3]);
    }
}
