//! Where the documents of a micro-batch begin.

use std::cell::RefCell;
use std::iter;
use std::ops::Range;
use std::rc::Rc;

use crate::cuda::{Gpu, Memory};
use crate::error::{Error, Result};
use crate::shape::{Kind, Shape};
use crate::stage::context::{ForwardContext, Mode};
use crate::tensor::Tensor;

/// The borders between the documents of each micro-batch that a stage works on. Its layers keep a clone
/// ([`Layer::keep_apart`](crate::Layer::keep_apart)), and ask for the borders of a micro-batch in each pass.
///
/// A row of a micro-batch can have several documents, one after the other. No token of a document sees
/// another one, and its positions begin at 0.
#[derive(Clone, Debug, Default)]
pub struct Borders(Rc<RefCell<Vec<Entry>>>);

/// The borders of a micro-batch.
#[derive(Debug)]
struct Entry {
    ctx: ForwardContext,
    starts: Tensor,
    on_gpu: Option<Rc<OnGpu>>,
}

/// The borders of a micro-batch on a GPU.
#[derive(Debug)]
pub(crate) struct OnGpu {
    /// The starts of all tokens.
    pub(crate) starts: Memory,
    /// For each document, the number of its first token among all, and how many tokens it has.
    pub(crate) documents: Memory,
    /// How many documents there are.
    pub(crate) count: usize,
    /// How many tokens the longest has.
    pub(crate) longest: usize,
}

impl Borders {
    /// Sets the borders of a micro-batch. `starts` is `ids[rows, time]`: for each token, the place in its row
    /// of the first token of its document. Backward passes need them too, so in training all borders of a
    /// step are kept. Otherwise only the last ones are.
    ///
    /// # Errors
    /// When a start is not the first token of a document.
    pub fn set(&self, ctx: ForwardContext, starts: Tensor) -> Result<()> {
        check(&starts)?;
        let of_step = |ctx: &ForwardContext| (ctx.step, ctx.mode == Mode::Train);
        let stays = |other: &ForwardContext| {
            of_step(other) == of_step(&ctx) && ctx.mode == Mode::Train && *other != ctx
        };
        let mut all = self.0.borrow_mut();
        all.retain(|entry| stays(&entry.ctx));
        all.push(Entry { ctx, starts, on_gpu: None });
        Ok(())
    }

    /// Whether the borders of a micro-batch are set.
    pub fn has(&self, ctx: ForwardContext) -> bool {
        self.0.borrow().iter().any(|entry| entry.ctx == ctx)
    }

    /// All tokens of each row of a micro-batch are one document.
    pub fn remove(&self, ctx: ForwardContext) {
        self.0.borrow_mut().retain(|entry| entry.ctx != ctx);
    }

    /// The starts of a micro-batch with this many rows and tokens of each, as [`Borders::set`] has them.
    /// `None` if all tokens of a row are one document.
    ///
    /// # Errors
    /// When the starts are for other rows.
    pub fn of(&self, ctx: ForwardContext, [rows, time]: [usize; 2]) -> Result<Option<Tensor>> {
        let all = self.0.borrow();
        let Some(entry) = all.iter().find(|entry| entry.ctx == ctx) else {
            return Ok(None);
        };
        check_shape(&entry.starts, [rows, time])?;
        Ok(Some(entry.starts.clone()))
    }

    /// As [`Borders::of`], on a GPU.
    pub(crate) fn on_gpu(
        &self,
        gpu: &Gpu,
        ctx: ForwardContext,
        [rows, time]: [usize; 2],
    ) -> Result<Option<Rc<OnGpu>>> {
        let mut all = self.0.borrow_mut();
        let Some(entry) = all.iter_mut().find(|entry| entry.ctx == ctx) else {
            return Ok(None);
        };
        check_shape(&entry.starts, [rows, time])?;
        let there = match &entry.on_gpu {
            Some(there) => Rc::clone(there),
            None => Rc::new(OnGpu::new(gpu, Spans { time, starts: Some(entry.starts.ids()) }, rows)?),
        };
        entry.on_gpu = Some(Rc::clone(&there));
        Ok(Some(there))
    }
}

impl OnGpu {
    fn new(gpu: &Gpu, spans: Spans<'_>, rows: usize) -> Result<Self> {
        // Room for the most documents that there can be, so that its memory is used again for others.
        let mut table = Tensor::scratch_ids(&[2 * rows * spans.time]);
        let documents = (0..rows).flat_map(|row| spans.of(row).map(move |document| (row, document)));
        let (mut count, mut longest) = (0, 0);
        for (entry, (row, document)) in table.ids_mut().as_chunks_mut().0.iter_mut().zip(documents) {
            *entry = [(row * spans.time + document.start) as u32, document.len() as u32];
            (count, longest) = (count + 1, longest.max(document.len()));
        }
        let starts = spans.starts.expect("there are documents");
        Ok(Self {
            starts: gpu.upload(bytemuck::cast_slice(starts))?,
            documents: gpu.upload(bytemuck::cast_slice(&table.ids()[..2 * count]))?,
            count,
            longest,
        })
    }
}

/// Refuses starts of other rows.
fn check_shape(starts: &Tensor, [rows, time]: [usize; 2]) -> Result<()> {
    match *starts.dims() == [rows, time] {
        true => Ok(()),
        false => {
            let expected = format!("ids[{rows}, {time}], the first token of each token's document");
            Err(Error::shape(expected, starts.shape()))
        }
    }
}

fn check(starts: &Tensor) -> Result<()> {
    let shape: &Shape = starts.shape();
    let (Kind::Ids, &[_, time]) = (shape.kind(), shape.dims()) else {
        return Err(Error::shape("ids[rows, time], the first token of each token's document", shape));
    };
    let rows = starts.ids().chunks_exact(time.max(1)).enumerate();
    for (row, starts) in rows {
        for document in documents(starts) {
            if starts[document.start] as usize != document.start {
                return Err(Error::new(format!(
                    "row {row}: a document is said to begin at token {}, and its first token is number {}",
                    starts[document.start], document.start
                )));
            }
        }
    }
    Ok(())
}

/// The tokens of each document in a row, whose tokens have these starts.
fn documents(starts: &[u32]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    iter::from_fn(move || {
        let first = *starts.get(at)?;
        let own = starts[at..].iter().take_while(|start| **start == first).count();
        at += own;
        Some(at - own..at)
    })
}

/// The documents in the rows of a micro-batch, with `time` tokens in each row.
#[derive(Clone, Copy)]
pub(crate) struct Spans<'a> {
    pub(crate) time: usize,
    /// The starts of all tokens. `None`: each row is one document.
    pub(crate) starts: Option<&'a [u32]>,
}

impl<'a> Spans<'a> {
    /// The tokens of each document in a row.
    pub(crate) fn of(self, row: usize) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let starts = self.starts.map(|starts| &starts[row * self.time..][..self.time]);
        let whole = starts.is_none().then_some(0..self.time);
        whole.into_iter().chain(starts.into_iter().flat_map(documents))
    }

    /// The length of the longest document.
    pub(crate) fn longest(self) -> usize {
        let Some(starts) = self.starts else { return self.time };
        let rows = 0..starts.len() / self.time.max(1);
        rows.flat_map(|row| self.of(row)).map(|document| document.len()).max().unwrap_or(0)
    }

    /// The position of a token in its document. Tokens are numbered through all rows.
    pub(crate) fn position(self, token: usize) -> usize {
        token % self.time - self.starts.map_or(0, |starts| starts[token] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::context::WRITING;

    fn ids(dims: [usize; 2], ids: &[u32]) -> Tensor {
        let mut tensor = Tensor::scratch_ids(&dims);
        tensor.ids_mut().copy_from_slice(ids);
        tensor
    }

    #[test]
    fn a_row_is_divided_into_its_documents() {
        let starts = [0, 0, 2, 3, 3, 3, 0, 0, 0, 0, 0, 5];
        let spans = Spans { time: 6, starts: Some(&starts) };
        assert_eq!(spans.of(0).collect::<Vec<_>>(), [0..2, 2..3, 3..6]);
        assert_eq!(spans.of(1).collect::<Vec<_>>(), [0..5, 5..6]);
        assert_eq!(spans.longest(), 5);
        assert_eq!(
            (0..12).map(|token| spans.position(token)).collect::<Vec<_>>(),
            [0, 1, 0, 0, 1, 2, 0, 1, 2, 3, 4, 0]
        );
        let whole = Spans { time: 6, starts: None };
        assert_eq!(whole.of(1).collect::<Vec<_>>(), vec![0..6; 1]);
        assert_eq!((whole.longest(), whole.position(7)), (6, 1));
    }

    #[test]
    fn wrong_starts_are_refused() {
        let borders = Borders::default();
        let refused = |starts| borders.set(WRITING, starts).expect_err("they are wrong").to_string();
        assert!(refused(ids([1, 3], &[0, 0, 1])).contains("row 0: a document is said to begin at token 1"));
        assert!(refused(ids([2, 2], &[0, 0, 1, 1])).contains("row 1"));
        assert!(refused(Tensor::zeros(&[1, 2])).contains("ids[rows, time]"));
        borders.set(WRITING, ids([1, 3], &[0, 0, 2])).expect("they are right");
        assert!(borders.of(WRITING, [1, 3]).expect("its shape").is_some());
        assert!(borders.of(WRITING, [1, 4]).is_err(), "another shape");
        let later = ForwardContext { micro_batch: 1, ..WRITING };
        borders.set(later, ids([1, 3], &[0, 1, 2])).expect("they are right");
        assert!(!borders.has(WRITING) && borders.has(later), "outside of training the last ones are kept");
        let training = |step, micro_batch| ForwardContext { step, micro_batch, mode: Mode::Train };
        for micro_batch in 0..3 {
            borders.set(training(1, micro_batch), ids([1, 2], &[0, 0])).expect("they are right");
        }
        assert!(borders.has(training(1, 0)) && !borders.has(later));
        borders.remove(training(1, 1));
        assert!(!borders.has(training(1, 1)) && borders.has(training(1, 2)));
        borders.set(training(2, 0), ids([1, 2], &[0, 1])).expect("they are right");
        assert!(!borders.has(training(1, 0)), "of the step before");
    }
}
