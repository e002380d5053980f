//! A frozen matrix whose numbers take few bits.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::parameter::description::Part;
use crate::parameter::init::starts_at_zero;
use crate::parameter::{Compact, Parameter};
use crate::quantised::{Quantisation, Quantised};
use crate::tensor::numbers::Numbers;

impl Parameter {
    /// Stores its numbers in blocks of this kind from now on, and frees [`Parameter::value`]. Layers compute
    /// as with the decoded numbers in `f32`: every product has the same bits. In a model that is made with
    /// weights of zero, blocks come when the weights are [read](Parameter::hold). Blocks of a kind that is
    /// only read have zero bits until then.
    ///
    /// A checkpoint does not have such a parameter: its weights stay where they came from.
    ///
    /// # Errors
    /// When it is not a frozen matrix, its rows are no whole blocks, or a number is not finite.
    pub fn quantise(&mut self, kind: Quantisation) -> Result<()> {
        if !self.is_frozen() || !self.takes_blocks {
            let error = "only frozen matrices of linear layers and of embeddings can be quantised";
            return Err(Error::new(error).at(&self.name));
        }
        if self.cut.is_some() {
            let error = "a matrix that is divided among shards cannot be quantised";
            return Err(Error::new(error).at(&self.name));
        }
        let columns = self.dims[1];
        if !kind.fits(columns) {
            let numbers = kind.block().0;
            let error = format!("its rows of {columns} numbers are no whole blocks of {numbers} ({kind:?})");
            return Err(Error::new(error).at(&self.name));
        }
        self.quantised = Some(kind);
        if starts_at_zero() {
            return Ok(());
        }
        let blocks = match kind.can_be_made() {
            true => Quantised::of(kind, columns, &self.value).map_err(|error| error.at(&self.name))?,
            false => Quantised::of_zero_bits(kind, [self.dims[0], columns]),
        };
        self.hold(blocks)
    }

    /// Says that its layer can compute with blocks.
    pub(crate) fn taking_blocks(mut self) -> Self {
        self.takes_blocks = true;
        self
    }

    /// Whether [`Parameter::quantise`] may be called for it, when it is frozen.
    pub fn takes_blocks(&self) -> bool {
        self.takes_blocks
    }

    /// Whether these numbers are in its fields.
    pub(crate) fn has(&self, part: Part) -> bool {
        part != Part::Value || self.quantised.is_none()
    }

    /// Stores its numbers in `f32` again.
    pub fn widen(&mut self) {
        if let Some(blocks) = self.blocks() {
            let wide = blocks.to_f32();
            self.value = Numbers::zeros(wide.len());
            self.value.copy_from_slice(&wide);
            self.compact = None;
        }
        self.quantised = None;
    }

    /// Has these numbers from now on.
    ///
    /// # Errors
    /// When it is on a GPU that has too little memory, or reports an error.
    ///
    /// # Panics
    /// When they are not as many, or it is not to be [quantised](Parameter::quantise).
    pub fn hold(&mut self, blocks: Quantised) -> Result<()> {
        assert!(self.quantised.is_some(), "{}: it is not quantised", self.name);
        assert_eq!([blocks.rows(), blocks.columns()], self.dims[..], "{}: the blocks' numbers", self.name);
        if let Some(weights) = self.on_gpu_mut() {
            weights.hold(&blocks)?;
        }
        self.compact = Some(Compact::Blocks(blocks));
        self.value = Numbers::none();
        Ok(())
    }

    /// In which blocks its numbers are stored, or those that take most memory, if there are several.
    pub fn quantisation(&self) -> Option<Quantisation> {
        self.quantised
    }

    /// Its blocks, if it has some.
    pub fn blocks(&self) -> Option<&Quantised> {
        match &self.compact {
            Some(Compact::Blocks(blocks)) => Some(blocks),
            _ => None,
        }
    }

    /// The weights in `f32`, however they are stored: on a GPU, those that were fetched last.
    pub fn numbers(&self) -> Cow<'_, [f32]> {
        match &self.compact {
            Some(Compact::Blocks(blocks)) => Cow::Owned(blocks.to_f32()),
            Some(Compact::Halves(halves)) => Cow::Owned(halves.iter().map(|half| half.to_f32()).collect()),
            None => Cow::Borrowed(&self.value),
        }
    }

    /// Shows the bytes of its weights, as they are stored, in order.
    pub fn show_bytes(&self, show: &mut dyn FnMut(&[u8])) {
        match &self.compact {
            Some(Compact::Blocks(blocks)) => blocks.chunks().for_each(|(_, bytes)| show(bytes)),
            Some(Compact::Halves(halves)) => show(bytemuck::cast_slice(halves)),
            None => show(bytemuck::cast_slice(&self.value)),
        }
    }
}
