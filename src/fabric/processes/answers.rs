//! The answers of all processes to a call.

use std::time::{Duration, Instant};

use super::part::{Failure, Order};
use crate::error::{Error, Result};

/// How long to wait for the other processes when one has failed. One of them may have failed first, and its
/// report may be on the way. But a stopped process reports nothing.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// The results of a call in each process.
pub(super) struct Answers {
    /// By process. `None`: nothing was heard yet.
    blocks: Vec<Option<Vec<u8>>>,
    missing: Vec<bool>,
    /// The most likely first cause. If several are equally likely, the one of the lowest process, so that all
    /// processes report the same.
    first: Option<(Order, u32, Error)>,
    /// How long to wait for missing processes.
    until: Option<Instant>,
}

impl Answers {
    pub(super) fn new(processes: u32) -> Self {
        Self {
            blocks: vec![None; processes as usize],
            missing: vec![true; processes as usize],
            first: None,
            until: None,
        }
    }

    /// How long to wait for missing processes. `None`: for ever.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn is_missing(&self, process: u32) -> bool {
        self.missing[process as usize]
    }

    pub(super) fn put(&mut self, process: u32, part: std::result::Result<Vec<u8>, Failure>) {
        self.missing[process as usize] = false;
        match part {
            Ok(block) => self.blocks[process as usize] = Some(block),
            Err(failure) => self.fail(process, failure),
        }
    }

    /// Whether the end of a process counts. Where all have done their part of the call, and all failures
    /// follow from another one, only a lost process does: one that leaves does so because of this failure.
    pub(super) fn counts(&self, failure: &Failure) -> bool {
        let only_follows = matches!(self.first, Some((Order::Follows, ..)));
        self.missing.contains(&true) || !only_follows || failure.order == Order::Lost
    }

    /// A process has failed, in this call or since it did its part of the call.
    pub(super) fn fail(&mut self, process: u32, failure: Failure) {
        self.until.get_or_insert_with(|| Instant::now() + GRACE);
        let key = (failure.order, process);
        let is_likelier = |(order, of, _): &(Order, u32, Error)| key < (*order, *of);
        if self.first.as_ref().is_none_or(is_likelier) {
            self.first = Some((failure.order, process, failure.error));
        }
    }

    /// Whether nothing that may still come counts. Where a file is missing, word from the process that has
    /// removed it may be on the way. Where all failures follow from another one, a process may have died
    /// after its part of the call, and the end of its connection may be on the way.
    pub(super) fn is_complete(&self) -> bool {
        let has_no_cause = matches!(self.first, Some((Order::Missed | Order::Follows, ..)));
        !self.missing.contains(&true) && !has_no_cause
    }

    pub(super) fn result(self) -> Result<Vec<Vec<u8>>> {
        match self.first {
            Some((_, _, error)) if self.blocks.contains(&None) => Err(error),
            _ => Ok(self.blocks.into_iter().flatten().collect()),
        }
    }
}
