//! Pairs: a forward that may run at the same time as the backward behind it.

use crate::Result;
use crate::error::ScheduleError;
use crate::id::Rank;
use crate::schedule::{Action, Cell, Pass, Schedule};

/// The word behind the brackets of a pair in text: `(0F7;7B3)OVERLAP_F_B`.
const WORD: &str = "OVERLAP_F_B";

impl Schedule {
    /// Marks pairs, each by its forward. The forward and the whole backward behind it may run at the same
    /// time, as in DualPipe. A device that cannot overlap them runs them one after the other. So does the
    /// engine.
    ///
    /// # Errors
    /// [`ScheduleError`] when the next pass of the forward's rank is not a whole backward.
    pub fn with_pairs(mut self, forwards: impl IntoIterator<Item = Cell>) -> Result<Self> {
        self.pairs.extend(forwards);
        let mut found = 0;
        for rank in (0..self.ranks()).map(Rank) {
            let mut passes = self.passes(rank).peekable();
            while let Some((pass, cell)) = passes.next() {
                if pass != Pass::Forward || !self.is_paired(cell) {
                    continue;
                }
                let next = passes.peek().copied();
                let own = next == Some((Pass::Backward, cell));
                if own || next.map(|(pass, _)| pass) != Some(Pass::Backward) {
                    let forward = Action::Compute(pass, cell).to_string();
                    let other = match own {
                        true => "its own backward, which needs it first",
                        false => "the backward after it, but none comes after it",
                    };
                    return Err(ScheduleError::new(format!(
                        "rank {rank}: {forward} is marked as a pair with {other}"
                    ))
                    .into());
                }
                found += 1;
            }
        }
        if found < self.pairs.len() {
            let marked = self.pairs.len();
            return Err(ScheduleError::new(format!(
                "{marked} pairs are marked, but the schedule has only {found} of their forwards"
            ))
            .into());
        }
        Ok(self)
    }

    /// Whether the forward of this cell and the backward behind it are a pair that may run at the same time.
    pub fn is_paired(&self, forward: Cell) -> bool {
        self.pairs.contains(&forward)
    }
}

/// A pair as text.
pub(super) fn write(forward: Action, backward: Action) -> String {
    format!("({forward};{backward}){WORD}")
}

/// The forward and the backward of a pair. `None` for text that is no pair.
///
/// # Errors
/// When it holds something other than a forward and a backward.
pub(super) fn read(text: &str) -> std::result::Result<Option<[Action; 2]>, ScheduleError> {
    let Some(pair) = text.strip_suffix(WORD) else {
        return Ok(None);
    };
    let refuse = || {
        ScheduleError::new(format!(
            "{text:?} is not a pair of a forward and a backward; write it as (0F7;7B3)OVERLAP_F_B"
        ))
    };
    let inner = pair.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let (forward, backward) = inner.and_then(|inner| inner.split_once(';')).ok_or_else(refuse)?;
    let pair = [forward.trim().parse()?, backward.trim().parse()?];
    match pair.map(|action: Action| action.compute().map(|(pass, _)| pass)) {
        [Some(Pass::Forward), Some(Pass::Backward)] => Ok(Some(pair)),
        _ => Err(refuse()),
    }
}
