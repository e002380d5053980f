//! Where the documents of a micro-batch begin.

use std::cell::RefCell;
use std::iter;
use std::ops::Range;
use std::rc::Rc;

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
pub struct Borders(Rc<RefCell<Vec<(ForwardContext, Tensor)>>>);

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
        all.retain(|(other, _)| stays(other));
        all.push((ctx, starts));
        Ok(())
    }

    /// Whether the borders of a micro-batch are set.
    pub fn has(&self, ctx: ForwardContext) -> bool {
        self.0.borrow().iter().any(|(other, _)| *other == ctx)
    }

    /// The starts of a micro-batch with this many rows and tokens of each. `None` if all tokens of a row are
    /// one document.
    pub(crate) fn of(&self, ctx: ForwardContext, [rows, time]: [usize; 2]) -> Result<Option<Tensor>> {
        let all = self.0.borrow();
        let Some((_, starts)) = all.iter().find(|(other, _)| *other == ctx) else {
            return Ok(None);
        };
        match *starts.dims() == [rows, time] {
            true => Ok(Some(starts.clone())),
            false => {
                let expected = format!("ids[{rows}, {time}], the first token of each token's document");
                Err(Error::shape(expected, starts.shape()))
            }
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

/// The error for documents on a GPU.
pub(crate) fn on_cpu_only() -> Error {
    Error::new(
        "documents are kept apart on the CPU only: put the ranks on the CPU, or give each document a \
         sequence of its own",
    )
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
        borders.set(training(2, 0), ids([1, 2], &[0, 1])).expect("they are right");
        assert!(!borders.has(training(1, 0)), "of the step before");
    }
}
