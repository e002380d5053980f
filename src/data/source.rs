//! What a source of micro-batches must provide.

use pipewright_stages::{Shape, Tensor};

use super::Fingerprint;
use crate::error::Result;
use crate::id::MicroBatch;

/// The target of a row that no loss counts. It fills the last micro-batch if there is not enough data.
pub const IGNORED: u32 = u32::MAX;

/// A source of micro-batches: a pure function of the position, so that resuming needs no state.
pub trait DataSource: Send + Sync + 'static {
    /// The input and the target of a micro-batch. Micro-batches are numbered from 0 over the whole batch of a
    /// step. If several replicas share a batch, each asks for its own numbers. How many a step has is not
    /// told: a source that goes through epochs is made with that number, as [`Rows`](super::Rows) is.
    ///
    /// # Errors
    /// When the data cannot be read.
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)>;

    /// Where the documents of a micro-batch begin, if a row can have several and none may see another:
    /// `ids[rows, time]`, for each token the place in its row of the first token of its document. `None`: all
    /// of a row is one, which is the default. Each rank of a pipeline asks for them, so they should take
    /// little time. A source around another one passes the call on.
    ///
    /// # Errors
    /// As [`DataSource::micro_batch`].
    fn documents(&self, _step: u64, _micro_batch: MicroBatch) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// The shapes of every input and target. If micro-batches have different shapes: of one that has at least
    /// as many numbers, and rows at least as long, as any. The memory for wires is taken for these, and
    /// processes refuse what is larger.
    fn shapes(&self) -> (Shape, Shape);

    /// The shapes of the input and the target of a micro-batch. The default is for sources whose
    /// micro-batches all have one shape. Where a rank has several shards, each asks before each pass, so this
    /// should take little time; and a training micro-batch needs as many rows as there are shards. A source
    /// around another one passes the call on.
    fn shapes_of(&self, _step: u64, _micro_batch: MicroBatch) -> (Shape, Shape) {
        self.shapes()
    }

    /// How many sequences a step takes from each of its sources, by their names, if it is made of several.
    /// The default: nothing. A source around another one passes the call on.
    fn sequences_of(&self, _step: u64) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// The fingerprint of this data: it differs for other data. The processes of a run compare it, and
    /// checkpoints contain it.
    ///
    /// The sources of this module use all of their data. The default uses only micro-batch 0 of step 0. Then
    /// several processes also compare each batch, after the step that used it.
    ///
    /// # Errors
    /// When the data cannot be read.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let (input, target) = self.micro_batch(0, MicroBatch(0))?;
        Ok(Fingerprint::of_sample(std::any::type_name::<Self>(), &input, &target))
    }

    /// Where the data comes from, in words, for messages. Default: the name of the type.
    fn describe(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }

    /// Whether there is data for every step, even for steps after the last one of a training.
    ///
    /// If `true`, micro-batches are always prepared a step ahead. If `false`, they are prepared ahead only
    /// when it is known that another step follows, as in a [`Run`](crate::run::Run). Otherwise the source is
    /// asked when the step begins.
    fn is_endless(&self) -> bool {
        false
    }
}
