//! A rank's tensors as they were at the end of a step, to be written while the next steps run.

use std::sync::{Arc, Mutex, PoisonError};

use pipewright_stages::copy;
use serde::{Deserialize, Serialize};

use super::kept::Kept;
use super::write::{Draft, Writer, Written};
use crate::checksum::Checksum;
use crate::error::Result;

/// Copies of a rank's parameters and of their optimizer state. Their memory is used again for the next
/// checkpoint.
#[derive(Debug, Default)]
pub struct Copies {
    tensors: Vec<Whole>,
    /// How many of them belong to the newest checkpoint.
    count: usize,
}

/// A parameter with its optimizer state.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Whole {
    pub(super) name: String,
    pub(super) value: Vec<f32>,
    /// In place of the weights, if they stay elsewhere.
    pub(super) elsewhere: Option<Checksum>,
    pub(super) states: Vec<Vec<u8>>,
}

impl Whole {
    /// The parameter's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of its weights and of its optimizer state.
    pub fn bytes(&self) -> u64 {
        let states = self.states.iter().map(Vec::len).sum::<usize>();
        (size_of_val(&self.value[..]) + states) as u64
    }
}

impl Copies {
    /// Forgets what was copied, but keeps the memory.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Copies a parameter and its optimizer state, with the threads of the current thread. `states` are as in
    /// [`Writer::write`].
    pub fn add(&mut self, name: &str, value: Kept<'_>, states: &[&[u8]]) {
        if self.count == self.tensors.len() {
            self.tensors.push(Whole::default());
        }
        let tensors = &mut self.tensors[self.count];
        name.clone_into(&mut tensors.name);
        let (value, elsewhere) = match value {
            Kept::Numbers(value) => (value, None),
            Kept::Elsewhere(checksum) => (&[][..], Some(checksum)),
        };
        fill(&mut tensors.value, value);
        tensors.elsewhere = elsewhere;
        tensors.states.resize_with(states.len(), Vec::new);
        for (copied, state) in tensors.states.iter_mut().zip(states) {
            fill(copied, state);
        }
        self.count += 1;
    }

    /// Gives away what was copied, and its memory.
    pub fn take(&mut self) -> Vec<Whole> {
        let mut all = std::mem::take(self);
        all.tensors.truncate(all.count);
        all.tensors
    }

    /// Writes what was copied.
    ///
    /// # Errors
    /// As for [`Writer::write`].
    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<()> {
        self.tensors[..self.count].iter().try_for_each(|tensors| {
            let states: Vec<&[u8]> = tensors.states.iter().map(Vec::as_slice).collect();
            let value = tensors.elsewhere.map_or(Kept::Numbers(&tensors.value), Kept::Elsewhere);
            writer.write(&tensors.name, value, &states)
        })
    }
}

/// Makes `to` equal to `from`. Only if the lengths differ it takes other memory.
fn fill<T: bytemuck::Zeroable + Copy + Send + Sync>(to: &mut Vec<T>, from: &[T]) {
    if to.len() != from.len() {
        *to = vec![T::zeroed(); from.len()];
    }
    copy(from, to);
}

impl Draft {
    /// Writes the copies of all ranks of this process, one after the other. Returns when they are on the
    /// disk.
    ///
    /// # Errors
    /// As for [`Draft::open`], [`Writer::write`] and [`Writer::finish`].
    pub fn write_copies(&self, ranks: &[Arc<Mutex<Copies>>]) -> Result<Vec<Written>> {
        let mut writer = self.open()?;
        for rank in ranks {
            rank.lock().unwrap_or_else(PoisonError::into_inner).write(&mut writer)?;
        }
        writer.finish()
    }
}
