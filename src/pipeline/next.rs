//! Writing text: the scores of what may follow some tokens.

use std::sync::Arc;

use pipewright_stages::{Shape, Stage};

use super::running::Pipeline;
use crate::actor::Next;
use crate::checksum::Checksum;
use crate::error::{CallError, Result};
use crate::worker::{Forwards, NextTokens};

impl<S: Stage> Pipeline<S> {
    /// Runs the next tokens of a text through all stages. They follow `past` tokens of earlier calls: at 0 a
    /// new text begins, and with fewer than there were the text goes on from there. Returns the scores of
    /// what may follow the last token, one for each token of the vocabulary, in every process.
    ///
    /// The stages keep what later tokens need, such as keys and values, until a new text begins. After a
    /// training step, or new weights from a checkpoint, a new text must begin. The scores are the same, bit
    /// for bit, for any cut and placement of the model. Of several replicas, the first one computes them:
    /// all have the same weights.
    ///
    /// # Errors
    /// [`CallError`] without tokens, or when `past` is too large: the pipeline continues to run. When a
    /// stage fails, for example at a token outside of its vocabulary or a text that is longer than its
    /// context, [`Error::Action`](crate::Error::Action). Otherwise as for [`Pipeline::step`].
    pub fn next_scores(&mut self, past: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        let sum = Checksum::of(bytemuck::cast_slice(tokens));
        let count = tokens.len();
        let call = self.begin(format_args!("{count} next tokens {sum} after {past}"))?;
        self.check_next(past, tokens)?;
        let allowed = self.allow_for(Shape::ids(&[1, count]));
        self.note(allowed)?;
        let forwards = match &self.text.forwards {
            Some(forwards) => Arc::clone(forwards),
            None => Arc::new(Forwards::new(self.schedule().placement(), 1)?),
        };
        self.text.forwards = Some(Arc::clone(&forwards));
        let next = Arc::new(NextTokens {
            past,
            tokens: tokens.to_vec(),
        });
        let mesh = self.ranks.mesh().clone();
        let scores = self.ranks.ask_all("writing text", |rank| Next {
            call,
            next: Arc::clone(&next),
            forwards: (mesh.coordinate(rank).replica == 0).then(|| Arc::clone(&forwards)),
        });
        self.text.had = past + count;
        // Only the rank of the last stage has scores.
        Ok(self.note(scores)?.concat())
    }

    fn check_next(&self, past: usize, tokens: &[u32]) -> Result<()> {
        let had = self.text.had;
        Err(match () {
            () if tokens.is_empty() => CallError::new("a text goes on from one token at least: give some"),
            () if past > had => CallError::new(format!(
                "tokens cannot follow {past} others: the stages have had {had} of this text (none after a \
                 training step or a checkpoint was read); begin a new one with `past` 0"
            )),
            () => return Ok(()),
        }
        .into())
    }
}
