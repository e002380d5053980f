//! Forward passes alone: evaluations, and the next tokens of a text. Also the checks that a run makes before
//! its first step.

use std::sync::Arc;

use pipewright_stages::loss::Score;
use pipewright_stages::{Shape, Stage};

use super::alike;
use super::report::Evaluation;
use super::running::Pipeline;
use super::shapes::check_shapes;
use crate::actor::Job;
use crate::checksum::Checksum;
use crate::data::DataSource;
use crate::error::{CallError, Result};
use crate::groups::GradientGroups;
use crate::worker::{Forwards, NextTokens};

/// The forward passes of one replica: the number of its first micro-batch, and its passes if it has any.
type Passes = (u32, Option<Arc<Forwards>>);

impl<S: Stage> Pipeline<S> {
    /// Runs only forward, over the first `micro_batches` micro-batches of a source's step 0.
    ///
    /// # Errors
    /// [`CallError`] when `micro_batches` is 0.
    /// [`LaunchError`](crate::error::LaunchError) when the stages refuse the shapes of the source: the
    /// pipeline continues to run. Otherwise as for [`Pipeline::step`].
    pub fn evaluate(&mut self, source: Arc<dyn DataSource>, micro_batches: u32) -> Result<Evaluation> {
        let mut total = Score::default();
        self.scores(source, micro_batches)?.into_iter().for_each(|score| total.add(score));
        Ok(Evaluation { loss: total.mean(), metrics: total.metrics, weight: total.weight })
    }

    /// As [`Pipeline::evaluate`]. Returns the score of each micro-batch, in order, in every process.
    ///
    /// # Errors
    /// As for [`Pipeline::evaluate`].
    pub fn scores(&mut self, source: Arc<dyn DataSource>, micro_batches: u32) -> Result<Vec<Score>> {
        let shapes = source.shapes();
        let (known, summed) = alike::known(self.processes(), &source);
        let call =
            self.begin(format_args!("evaluation of {micro_batches} micro-batches of {}{known}", shapes.0))?;
        let forwards = self.forwards(shapes, micro_batches)?;
        let source = summed.clone().map_or(source, |summed| summed as _);
        let mesh = self.ranks.mesh().clone();
        self.ranks.take_data_from(source.describe());
        let scores = self.ranks.ask_all("evaluating", |rank| {
            let (first, forwards) = forwards[mesh.coordinate(rank).replica as usize].clone();
            let source = Arc::clone(&source);
            Job::must(move |worker| worker.evaluate(call, &*source, first, forwards.as_deref()))
        });
        self.ranks.take_data_from(self.plan.data.describe());
        // Only ranks of the last stage have scores, all its shards the same. By replica, they are in the
        // order of the micro-batches.
        let scores = mesh.world().zip(self.note(scores)?);
        let mut scores: Vec<_> = scores.filter(|(rank, _)| mesh.coordinate(*rank).shard == 0).collect();
        scores.sort_by_key(|(rank, _)| mesh.coordinate(*rank).replica);
        let scores = scores.into_iter().flat_map(|(_, scores)| scores).collect();
        if let Some(data) = &summed {
            let same = alike::same_batches(&self.ranks, "the evaluation", data, 0..1);
            self.note(same)?;
        }
        Ok(scores)
    }

    /// Refuses processes whose parts differ. `parts` are names and values, in the same order in every
    /// process. `what` names the call.
    ///
    /// # Errors
    /// [`FabricError::Refused`](crate::error::FabricError::Refused), in all processes.
    pub(crate) fn compare(&mut self, what: &str, parts: Vec<(String, String)>) -> Result<()> {
        self.begin(format_args!("{what}"))?;
        let compared = self.ranks.together(what, |peers| peers.compare(what, Ok(parts)));
        self.note(compared)
    }

    /// Refuses an evaluation that [`Pipeline::evaluate`] would refuse. It evaluates nothing.
    ///
    /// # Errors
    /// As for [`Pipeline::evaluate`]. The pipeline continues to run.
    pub(crate) fn check_evaluation(&mut self, shapes: (Shape, Shape), micro_batches: u32) -> Result<()> {
        self.begin(format_args!("check of an evaluation of {micro_batches} micro-batches of {}", shapes.0))?;
        self.forwards(shapes, micro_batches).map(drop)
    }

    /// Whether calls are still possible: no failure has stopped the pipeline.
    pub(crate) fn goes_on(&self) -> bool {
        self.failure.is_none()
    }

    /// The forward passes of an evaluation, by replica: the number of its first micro-batch, and its passes
    /// if it has any. Refuses shapes that the stages refuse.
    fn forwards(&self, shapes: (Shape, Shape), micro_batches: u32) -> Result<Vec<Passes>> {
        if micro_batches == 0 {
            return Err(CallError::no_micro_batches().into());
        }
        let (replicas, placement) = (self.replicas(), self.schedule().placement());
        let shares = GradientGroups::new(micro_batches, replicas);
        let passes = |replica| {
            let share = shares.share(replica, replicas);
            let forwards = Forwards::new(placement, share.len() as u32);
            let forwards = (!share.is_empty()).then(|| forwards.map(Arc::new));
            Ok((share.start, forwards.transpose()?))
        };
        let forwards = (0..replicas).map(passes).collect::<Result<_>>()?;
        if shapes != self.plan.data.shapes() {
            let numbers = check_shapes(&self.ranks, self.schedule(), shapes)?;
            self.allow(numbers, &shapes.0)?;
        }
        Ok(forwards)
    }

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
        let next = Arc::new(NextTokens { past, tokens: tokens.to_vec() });
        let mesh = self.ranks.mesh().clone();
        let scores = self.ranks.ask_all("writing text", |rank| {
            let forwards = (mesh.coordinate(rank).replica == 0).then(|| Arc::clone(&forwards));
            let next = Arc::clone(&next);
            Job::must(move |worker| worker.next_scores(call, &next, forwards.as_deref()))
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
