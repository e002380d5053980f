//! What processes keep for each other in memory: each keeps something of the one before it. It comes in
//! pieces, so that what the ranks send each other meanwhile need not wait.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::head::{Head, Kind, invalid};
use super::numbers::read;
use crate::fabric::{Call, Tag};
use crate::id::WorldRank;

/// Whose it is, and of when: a number of the weights and of the steps that they have done.
pub(crate) type Label = (WorldRank, Stamp);

/// When something was as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(crate) struct Stamp {
    /// How often all weights had been replaced.
    pub(crate) era: u32,
    /// How many steps were done.
    pub(crate) step: u64,
}

/// Something that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) label: Label,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// What a process keeps for others. It outlives the connections.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    items: Mutex<BTreeMap<Label, Coming>>,
    /// The longest item. 0: not known yet.
    most: AtomicU64,
}

/// What has come of an item.
#[derive(Debug, Default)]
struct Coming {
    bytes: Arc<Vec<u8>>,
    is_whole: bool,
}

impl Kept {
    /// From now on an item may have `most` bytes.
    pub(crate) fn allow(&self, most: u64) {
        self.most.fetch_max(most, Ordering::Relaxed);
    }

    /// Takes a piece. Returns whether it was the last one of its item.
    pub(super) fn take(&self, head: &Head, from: &mut dyn Read) -> io::Result<bool> {
        let (whole, most) = (head.tag.0, self.most.load(Ordering::Relaxed));
        let mut piece = Vec::new();
        read(from, head.length, &mut piece)?;
        let mut items = self.items();
        if head.numbers == 0 {
            // The first piece: an earlier try may not have ended.
            items.insert(label(head), Coming::default());
        }
        let Some(coming) = items.get_mut(&label(head)) else {
            // It was forgotten while it came.
            return Ok(false);
        };
        let bytes = Arc::make_mut(&mut coming.bytes);
        let count = bytes.len() as u64;
        if coming.is_whole || whole > most || head.numbers != count || count + head.length > whole {
            return Err(invalid("a piece that fits nothing that is kept"));
        }
        bytes.reserve_exact((whole - count) as usize);
        bytes.extend_from_slice(&piece);
        coming.is_whole = bytes.len() as u64 == whole;
        Ok(coming.is_whole)
    }

    /// Whether all of it has come.
    pub(crate) fn has(&self, label: &Label) -> bool {
        self.items().get(label).is_some_and(|coming| coming.is_whole)
    }

    /// Keeps something of this process itself.
    pub(crate) fn put(&self, item: Item) {
        self.items().insert(item.label, Coming { bytes: item.bytes, is_whole: true });
    }

    /// What has this label, if all of it has come.
    pub(crate) fn get(&self, label: &Label) -> Option<Item> {
        let items = self.items();
        let coming = items.get(label).filter(|coming| coming.is_whole)?;
        Some(Item { label: *label, bytes: Arc::clone(&coming.bytes) })
    }

    /// The labels of all that has come whole.
    pub(crate) fn labels(&self) -> Vec<Label> {
        let items = self.items();
        let whole = items.iter().filter(|(_, coming)| coming.is_whole);
        whole.map(|(label, _)| *label).collect()
    }

    /// Forgets all but these.
    pub(crate) fn retain(&self, keeps: impl Fn(&Label) -> bool) {
        self.items().retain(|label, _| keeps(label));
    }

    fn items(&self) -> MutexGuard<'_, BTreeMap<Label, Coming>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The head of a piece that begins at this place of an item.
pub(super) fn head(item: &Item, place: usize) -> Head {
    let (rank, stamp) = item.label;
    Head {
        kind: Kind::Keep,
        call: Call { attempt: stamp.era, number: stamp.step },
        route: [rank; 2],
        tag: Tag(item.bytes.len() as u64),
        length: 0,
        numbers: place as u64,
    }
}

fn label(head: &Head) -> Label {
    let stamp = Stamp { era: head.call.attempt, step: head.call.number };
    (head.route[0], stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `count` bytes from this place on, of an item of ten.
    fn take(kept: &Kept, place: usize, count: u64) -> io::Result<bool> {
        let item = Item { label: (WorldRank(1), Stamp { era: 0, step: 5 }), bytes: Arc::new(vec![7; 10]) };
        let head = Head { length: count, ..head(&item, place) };
        kept.take(&head, &mut &item.bytes[place..])
    }

    #[test]
    fn an_item_may_be_forgotten_while_it_comes() {
        let kept = Kept::default();
        kept.allow(10);
        assert!(!take(&kept, 0, 4).expect("the first piece"));
        kept.retain(|_| false);
        assert!(!take(&kept, 4, 6).expect("nobody needs it"));
        assert!(kept.labels().is_empty());
        assert!(!take(&kept, 0, 4).expect("it comes once more"));
        assert!(take(&kept, 4, 6).expect("the last piece"));
        assert_eq!(kept.labels().len(), 1);
        take(&kept, 4, 6).expect_err("it is whole");
    }
}
