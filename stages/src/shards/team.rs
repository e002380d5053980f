//! The shards of a rank, as the layers of one of them see them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::sharding::Shard;
use super::tree::add_by_tree;
use crate::device::{DType, Place};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::arithmetic::Row;

/// Messages between the shards of a rank.
pub trait Exchange: Send {
    /// Sends a tensor to another shard, without waiting for it.
    ///
    /// # Errors
    /// When the other shard has stopped.
    fn send(&mut self, shard: u32, tensor: Tensor) -> Result<()>;

    /// All tensors of an exchange have been sent, and these come. An exchange that has to know what comes
    /// before it sends can do both now, at once.
    ///
    /// # Errors
    /// When another shard has stopped.
    fn sent(&mut self, _coming: &[Coming]) -> Result<()> {
        Ok(())
    }

    /// Waits for the next tensor of another shard. They come in the order in which they were sent.
    ///
    /// # Errors
    /// When the other shard has stopped.
    fn receive(&mut self, shard: u32) -> Result<Tensor>;
}

/// A tensor that another shard sends.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// The other shard.
    pub shard: u32,
    /// Its shape.
    pub shape: Shape,
    /// Its number format.
    pub dtype: DType,
}

/// A tensor for each shard, or from each, in shard order.
pub(crate) type Each = SmallVec<[Tensor; 8]>;

/// The shards of a rank, as the layers of one of them see them. A micro-batch's rows are divided among the
/// shards: layers that treat each row alone work on the shard's own rows, `[rows, width]`. Layers whose
/// weights are divided gather all rows first, or add up what all shards have, and keep their own rows.
#[derive(Clone)]
pub struct Team {
    shard: Shard,
    /// The dimensions of a micro-batch of all rows, without the last one.
    outer: Arc<Mutex<SmallVec<[usize; 3]>>>,
    exchange: Arc<Mutex<dyn Exchange>>,
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Team({} of {} rows)", self.shard, self.rows())
    }
}

impl Team {
    /// A shard's view. `outer`: the dimensions of a micro-batch without the last one.
    ///
    /// # Errors
    /// When a micro-batch has fewer rows than there are shards.
    pub fn new(shard: Shard, outer: &[usize], exchange: Arc<Mutex<dyn Exchange>>) -> Result<Self> {
        let team = Self { shard, outer: Arc::new(Mutex::new(outer.into())), exchange };
        team.check_rows()?;
        Ok(team)
    }

    /// Fails if a micro-batch has fewer rows than there are shards.
    ///
    /// # Errors
    /// Then.
    pub fn check_rows(&self) -> Result<()> {
        let (rows, shards) = (self.rows(), self.shard.of);
        if shards as usize <= rows {
            return Ok(());
        }
        Err(Error::new(format!(
            "a micro-batch of {rows} rows cannot be divided among {shards} shards: choose fewer shards, or \
             larger micro-batches"
        )))
    }

    /// Which shard it is.
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// How many rows a micro-batch has.
    pub fn rows(&self) -> usize {
        self.outer.lock().iter().product()
    }

    /// The rows of this shard.
    pub fn own_rows(&self) -> Range<usize> {
        self.rows_of(self.shard.index)
    }

    /// The rows of a shard.
    pub(crate) fn rows_of(&self, shard: u32) -> Range<usize> {
        let before = |shard: u32| shard as usize * self.rows() / self.shard.of as usize;
        before(shard)..before(shard + 1)
    }

    /// The shape of all rows.
    pub(crate) fn all_rows(&self, width: usize) -> Shape {
        let mut dims: SmallVec<[usize; 4]> = self.outer.lock().iter().copied().collect();
        dims.push(width);
        Shape::f32(&dims)
    }

    /// The shape of this shard's rows.
    pub(crate) fn own_shape(&self, width: usize) -> Shape {
        Shape::f32(&[self.own_rows().len(), width])
    }

    /// Fails unless it is the shape of this shard's rows.
    pub(crate) fn check_own(&self, shape: &Shape, width: usize) -> Result<()> {
        let expected = self.own_shape(width);
        match *shape == expected {
            true => Ok(()),
            false => Err(Error::shape(format!("{expected}, the rows of {}", self.shard), shape)),
        }
    }

    /// Fails unless it is the shape of all rows.
    pub(crate) fn check_all(&self, shape: &Shape, width: usize) -> Result<()> {
        let expected = self.all_rows(width);
        match *shape == expected {
            true => Ok(()),
            false => Err(Error::shape(format!("{expected}, all rows"), shape)),
        }
    }

    /// Gives each shard its tensor, and returns what each has given this one. Its own tensor comes back.
    /// `dims` are the dimensions of what a shard gives.
    ///
    /// # Errors
    /// When another shard gives something else, or has stopped.
    pub(crate) fn each(&self, given: Each, dims: impl Fn(u32) -> [usize; 2]) -> Result<Each> {
        let own = self.shard.index;
        let mut exchange = self.exchange.lock();
        let Place { device, dtype } = given[own as usize].place();
        let others = || (0..self.shard.of).filter(|shard| *shard != own);
        let coming = |shard| Coming { shard, shape: Shape::f32(&dims(shard)), dtype };
        let mut kept = None;
        for (shard, tensor) in (0..).zip(given) {
            match shard == own {
                true => kept = Some(tensor),
                false => {
                    tensor.mark_ready()?;
                    exchange.send(shard, tensor)?;
                }
            }
        }
        exchange.sent(&others().map(coming).collect::<SmallVec<[_; 8]>>())?;
        let all = (0..self.shard.of).map(|shard| match kept.take_if(|_| shard == own) {
            Some(own) => Ok(own),
            None => {
                let tensor = exchange.receive(shard)?;
                check_from(&coming(shard), &tensor)?;
                tensor.arrive(Place { device, dtype })
            }
        });
        all.collect()
    }

    /// What each shard gives: all get the same. Each gives a tensor of these dimensions.
    pub(crate) fn all(&self, own: Tensor, dims: impl Fn(u32) -> [usize; 2]) -> Result<Each> {
        self.each((0..self.shard.of).map(|_| own.clone()).collect(), dims)
    }

    /// The first shard's number that is not 0, or 0. All shards get the same. The numbers are below 2^24.
    pub(crate) fn first_of(&self, own: usize) -> Result<usize> {
        let all = self.all(Tensor::from_vec(&[1, 1], vec![own as f32])?, |_| [1, 1])?;
        let mut told = all.iter().map(|one| one.f32()[0] as usize);
        Ok(told.find(|number| *number != 0).unwrap_or(0))
    }

    /// From now on micro-batches have other rows: `outer` are their dimensions without the last one.
    pub fn set_rows(&self, outer: &[usize]) {
        *self.outer.lock() = outer.into();
    }

    /// This shard's rows of all rows.
    pub(crate) fn own_part(&self, all: &Tensor) -> Result<Tensor> {
        all.rows(self.own_rows())
    }

    /// All rows `[.., width]`, from each shard's own `[own rows, width]`. Its gradient is a [`Team::sum`].
    ///
    /// # Errors
    /// When they are not this shard's rows, when another shard gives something else, or when it has stopped.
    pub fn gather(&self, own: &Tensor) -> Result<Tensor> {
        let width = own.shape().last();
        self.check_own(own.shape(), width)?;
        let mut all = own.beside(self.all_rows(width).dims())?;
        let parts = self.all(own.clone(), |shard| [self.rows_of(shard).len(), width])?;
        for (shard, part) in (0..).zip(parts) {
            all.put_rows(self.rows_of(shard), &part)?;
        }
        Ok(all)
    }

    /// This shard's rows `[own rows, width]` of the sum over all shards, by the tree. Each has a part of the
    /// sum for all rows, `[.., width]`, in `f32`. A shard adds up its own groups before, by
    /// [`Division::sum_of_groups`](crate::Division::sum_of_groups): then the sum has the same bits for any
    /// number of shards. Its gradient is a [`Team::gather`].
    ///
    /// # Errors
    /// As for [`Team::gather`].
    pub fn sum(&self, partial: &Tensor) -> Result<Tensor> {
        let width = partial.shape().last();
        self.check_all(partial.shape(), width)?;
        if partial.dtype() != DType::F32 {
            return Err(Error::new(format!(
                "a part of a sum over shards is in {}: give it in f32",
                partial.dtype()
            )));
        }
        let parts: Result<Each> = (0..self.shard.of).map(|shard| partial.rows(self.rows_of(shard))).collect();
        let rows = self.own_rows().len();
        let mut parts = self.each(parts?, |_| [rows, width])?;
        add_by_tree(&mut parts)?;
        Ok(parts.swap_remove(0))
    }

    /// As [`Team::sum`], added to a row, if it is given, and rounded to this format.
    pub(crate) fn sum_in(&self, dtype: DType, partial: &Tensor, start: Option<Row<'_>>) -> Result<Tensor> {
        self.sum(partial)?.rounded(dtype, start)
    }
}

/// Fails unless a shard has sent what this one expects. Otherwise its layers or inputs are others.
fn check_from(coming: &Coming, part: &Tensor) -> Result<()> {
    if *part.shape() == coming.shape && part.dtype() == coming.dtype {
        return Ok(());
    }
    Err(Error::new(format!(
        "shard {} sent {} of {}, and {} of {} was expected: all shards of a rank must have the same layers \
         and inputs",
        coming.shard,
        part.dtype(),
        part.shape(),
        coming.dtype,
        coming.shape
    )))
}
