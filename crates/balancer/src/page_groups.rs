//! The groups in which the journal, the status and the metrics give pages by outcome: `refused` and `other` are coarser than what the kernel answers.
//!
//! Also a module for `#[serde(with)]`: an object with a field for each group, named with underscores.

use std::collections::BTreeMap;

use numapilot_kernel::actuator::MoveOutcome;
use numapilot_kernel::actuator::PageOutcomes;
use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de::Error;

/// Name of each group, its field, and its outcomes. A count that was read belongs to the first outcome of its group.
const GROUPS: [(&str, &str, &[MoveOutcome]); 8] = [
    ("moved", "moved", &[MoveOutcome::Moved]),
    ("already-there", "already_there", &[MoveOutcome::AlreadyThere]),
    ("gone", "gone", &[MoveOutcome::Gone]),
    ("busy", "busy", &[MoveOutcome::Busy]),
    ("no-room", "no_room", &[MoveOutcome::NoRoom]),
    ("refused", "refused", &[MoveOutcome::NotPermitted]),
    ("not-tried", "not_tried", &[MoveOutcome::NotTried]),
    ("other", "other", &[MoveOutcome::Other(0), MoveOutcome::Unmovable]),
];

/// Names and counts of the groups, in the order in which they are shown; they add up to the pages ordered.
#[must_use]
pub fn by_group(pages: &PageOutcomes) -> [(&'static str, u64); 8] {
    GROUPS.map(|(name, _, outcomes)| (name, count(pages, outcomes)))
}

fn count(pages: &PageOutcomes, outcomes: &[MoveOutcome]) -> u64 {
    outcomes.iter().map(|outcome| pages.count(*outcome)).sum()
}

/// Writes the groups. Fails if the serializer does.
pub(crate) fn serialize<S: Serializer>(pages: &PageOutcomes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(GROUPS.iter().map(|(_, field, outcomes)| (field, count(pages, outcomes))))
}

/// Reads the groups. Fails if one is missing or no count; fields of later versions are passed over.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PageOutcomes, D::Error> {
    let fields = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
    let mut pages = PageOutcomes::default();
    for (_, field, outcomes) in GROUPS {
        let value = fields.get(field).ok_or_else(|| D::Error::missing_field(field))?;
        *pages.count_mut(outcomes[0]) += value
            .as_u64()
            .ok_or_else(|| D::Error::custom(format!("`{field}` is {value}, which is no count of pages")))?;
    }
    Ok(pages)
}

/// Pages that several processes map, by what became of the orders about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPages {
    /// Moved: all processes that map them are managed.
    pub moved: u64,
    /// Left, because other processes map them, too.
    pub foreign: u64,
    /// Left, because the managed processes together use them more from another node, or not at all as far as is known.
    pub wanted_elsewhere: u64,
    /// Left, because one of these processes may not have them on that node, or has chosen where they are.
    pub forbidden: u64,
    /// Left, because it could not be told who maps them.
    pub unknown: u64,
}

impl SharedPages {
    /// Whether there were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == SharedPages::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Line {
        #[serde(with = "super")]
        pages: PageOutcomes,
    }

    #[test]
    fn groups_hold_every_page_and_keep_their_names() {
        let all = PageOutcomes::of(&MoveOutcome::ALL);
        assert_eq!(by_group(&all).iter().map(|(_, count)| count).sum::<u64>(), all.total());
        assert_eq!(
            serde_json::to_string(&Line { pages: all }).unwrap(),
            r#"{"pages":{"moved":1,"already_there":1,"gone":1,"busy":1,"no_room":1,"refused":1,"not_tried":1,"other":2}}"#
        );
    }

    #[test]
    fn what_was_written_is_read_and_what_lacks_a_group_is_an_error() {
        let pages = PageOutcomes { moved: 3, not_permitted: 2, other: 1, ..PageOutcomes::default() };
        let text = serde_json::to_string(&Line { pages }).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), Line { pages });
        let later = text.replace("\"moved\"", "\"split\":{},\"moved\"");
        assert_eq!(serde_json::from_str::<Line>(&later).unwrap(), Line { pages });
        for wrong in [text.replace("refused", "declined"), text.replace(":3,", ":-3,")] {
            assert!(serde_json::from_str::<Line>(&wrong).is_err(), "{wrong}");
        }
    }
}
