//! Homes that first touches gave pages, for recordings that do not leave that to the join.

use std::collections::hash_map::Entry;

use foldhash::HashMap;
use numapilot_host::PageNumber;
use numapilot_machine::NodeId;

use super::shared::MappedPage;

/// The home of each page whose first touch was seen.
#[derive(Debug, Default)]
pub(crate) struct FirstTouches {
    /// By process image, then by page.
    own: HashMap<usize, HashMap<PageNumber, NodeId>>,
    /// By shared memory and page there.
    shared: HashMap<(usize, u64), NodeId>,
}

impl FirstTouches {
    /// Home of a page, if its first touch was seen.
    pub fn get(&self, key: MappedPage) -> Option<NodeId> {
        match key {
            MappedPage::Own(image, page) => self.own.get(&image)?.get(&page).copied(),
            MappedPage::Shared(memory, page) => self.shared.get(&(memory, page)).copied(),
        }
    }

    /// A touch of a page. Returns whether it is the first.
    pub fn touch(&mut self, key: MappedPage, home: NodeId) -> bool {
        match key {
            MappedPage::Own(image, page) => is_put(self.own.entry(image).or_default().entry(page), home),
            MappedPage::Shared(memory, page) => is_put(self.shared.entry((memory, page)), home),
        }
    }

    /// The pages from `first` to before `end` of a process image are new.
    pub fn renew(&mut self, image: usize, (first, end): (PageNumber, PageNumber)) {
        let Some(pages) = self.own.get_mut(&image) else { return };
        if end - first < pages.len() as u64 {
            for page in first.run(end - first) {
                pages.remove(&page);
            }
        } else {
            pages.retain(|page, _| !(first..end).contains(page));
        }
    }

    /// A process image has ended.
    pub fn forget(&mut self, image: usize) {
        self.own.remove(&image);
    }
}

fn is_put<K>(entry: Entry<'_, K, NodeId>, home: NodeId) -> bool {
    let is_vacant = matches!(entry, Entry::Vacant(_));
    entry.or_insert(home);
    is_vacant
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_touched_first_once_until_it_is_new_or_its_process_has_ended() {
        let [first, second] = [NodeId(0), NodeId(1)];
        let mut touches = FirstTouches::default();
        let own = |image, page| MappedPage::Own(image, PageNumber(page));
        for key in [own(3, 7), own(4, 7), MappedPage::Shared(3, 7)] {
            assert!(touches.touch(key, first) && !touches.touch(key, second));
            assert_eq!(touches.get(key), Some(first));
        }
        assert!(touches.touch(own(3, 9), first));
        touches.renew(3, (PageNumber(0), PageNumber(8)));
        touches.renew(3, (PageNumber(10), PageNumber(u64::MAX)));
        assert_eq!([7, 9].map(|page| touches.get(own(3, page))), [None, Some(first)]);
        touches.forget(4);
        assert_eq!((touches.get(own(4, 7)), touches.own.len()), (None, 1));
        assert_eq!(touches.get(MappedPage::Shared(3, 7)), Some(first));
    }
}
