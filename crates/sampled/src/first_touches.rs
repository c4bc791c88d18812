//! Homes that first touches gave pages, for recordings that do not leave that to the join.

use foldhash::HashMap;
use numapilot_host::PageNumber;
use numapilot_machine::{NodeId, Packed};

use super::shared::MappedPage;

/// Pages whose homes are kept together, in one line of a cache: programs touch neighbours one after the other.
const CHUNK_PAGES: u64 = 32;

/// The home of a page; none: its first touch was not seen.
type Home = Packed<NodeId, u16>;
type Chunk = [Home; CHUNK_PAGES as usize];

/// The homes of the pages of one process image, or of one shared memory.
#[derive(Debug, Default)]
struct Homes {
    chunks: HashMap<u64, Chunk>,
}

impl Homes {
    fn get(&self, page: u64) -> Option<NodeId> {
        self.chunks.get(&(page / CHUNK_PAGES))?[(page % CHUNK_PAGES) as usize].id()
    }

    /// Sets the home of a page that has none; false if it has one.
    fn put(&mut self, page: u64, home: NodeId) -> bool {
        let chunk = self.chunks.entry(page / CHUNK_PAGES).or_insert([Home::NONE; CHUNK_PAGES as usize]);
        let place = &mut chunk[(page % CHUNK_PAGES) as usize];
        let is_first = *place == Home::NONE;
        if is_first {
            *place = home.into();
        }
        is_first
    }

    /// Forgets the pages from `first` to before `end`.
    fn clear(&mut self, first: u64, end: u64) {
        let numbers = first / CHUNK_PAGES..end.div_ceil(CHUNK_PAGES);
        if numbers.end.saturating_sub(numbers.start) < self.chunks.len() as u64 {
            for number in numbers {
                if self.chunks.get_mut(&number).is_some_and(|chunk| !cut(number, chunk, (first, end))) {
                    self.chunks.remove(&number);
                }
            }
        } else {
            self.chunks.retain(|&number, chunk| !numbers.contains(&number) || cut(number, chunk, (first, end)));
        }
    }
}

/// Forgets the pages from `first` to before `end` of the chunk with this number; whether it has others.
fn cut(number: u64, chunk: &mut Chunk, (first, end): (u64, u64)) -> bool {
    for (at, home) in (0..).zip(chunk.iter_mut()) {
        if (first..end).contains(&(number * CHUNK_PAGES + at)) {
            *home = Home::NONE;
        }
    }
    chunk.iter().any(|home| *home != Home::NONE)
}

/// The home of each page whose first touch was seen.
#[derive(Debug, Default)]
pub(crate) struct FirstTouches {
    /// By process image.
    own: HashMap<usize, Homes>,
    /// By shared memory.
    shared: HashMap<usize, Homes>,
}

impl FirstTouches {
    /// Home of a page, if its first touch was seen.
    pub fn get(&self, key: MappedPage) -> Option<NodeId> {
        match key {
            MappedPage::Own(image, page) => self.own.get(&image)?.get(page.0),
            MappedPage::Shared(memory, page) => self.shared.get(&memory)?.get(page),
        }
    }

    /// A touch of a page. Returns whether it is the first.
    pub fn touch(&mut self, key: MappedPage, home: NodeId) -> bool {
        match key {
            MappedPage::Own(image, page) => self.own.entry(image).or_default().put(page.0, home),
            MappedPage::Shared(memory, page) => self.shared.entry(memory).or_default().put(page, home),
        }
    }

    /// The pages from `first` to before `end` of a process image are new.
    pub fn renew(&mut self, image: usize, (first, end): (PageNumber, PageNumber)) {
        if let Some(pages) = self.own.get_mut(&image) {
            pages.clear(first.0, end.0);
        }
    }

    /// A process image has ended.
    pub fn forget(&mut self, image: usize) {
        self.own.remove(&image);
    }
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

    /// The same as of a list of pages, whether few chunks are cut or most of those that there are.
    #[test]
    fn pages_are_renewed_one_by_one_whatever_is_kept_with_them() {
        let pages: Vec<u64> = (0..40 * CHUNK_PAGES).filter(|page| page % 3 != 1).collect();
        for (from, end) in [(0, 0), (5, 6), (31, 33), (32, 64), (40, 200), (0, 1279), (33, u64::MAX)] {
            let mut touches = FirstTouches::default();
            for &page in &pages {
                assert!(touches.touch(MappedPage::Own(1, PageNumber(page)), NodeId(2)));
            }
            touches.renew(1, (PageNumber(from), PageNumber(end)));
            for page in 0..40 * CHUNK_PAGES {
                let is_kept = page % 3 != 1 && !(from..end).contains(&page);
                let home = touches.get(MappedPage::Own(1, PageNumber(page)));
                assert_eq!(home, is_kept.then_some(NodeId(2)), "{page} of {from}..{end}");
            }
        }
        let mut touches = FirstTouches::default();
        for page in [0, u64::MAX - CHUNK_PAGES, u64::MAX - 1, u64::MAX] {
            assert!(touches.touch(MappedPage::Own(1, PageNumber(page)), NodeId(3)));
        }
        touches.renew(1, (PageNumber(u64::MAX - 1), PageNumber(u64::MAX)));
        let kept = [0, u64::MAX - CHUNK_PAGES, u64::MAX - 1, u64::MAX];
        let kept = kept.map(|page| touches.get(MappedPage::Own(1, PageNumber(page))).is_some());
        assert_eq!(kept, [true, true, false, true], "the last pages that there are");
        let mut touches = FirstTouches::default();
        touches.touch(MappedPage::Own(1, PageNumber(70)), NodeId(0));
        touches.renew(1, (PageNumber(64), PageNumber(96)));
        assert!(touches.own[&1].chunks.is_empty(), "nothing is kept of it");
    }
}
