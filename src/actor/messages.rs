//! The messages to a rank, and its answers.

use std::sync::{Arc, Mutex, OnceLock};

use actix::{Handler, Message};
use pipewright_stages::loss::Score;
use pipewright_stages::threads::{self, Threads};
use pipewright_stages::{Shape, Stage};
use sha2::Sha256;
use sha2::digest::common::hazmat::SerializableState;

use super::stage_actor::StageActor;
use crate::checkpoint::{Checkpoint, Copies, Draft, Written};
use crate::data::DataSource;
use crate::error::{Finding, LaunchError, Result, caught};
use crate::fabric::Call;
use crate::id::{MicroBatch, Rank, StageId};
use crate::worker::{
    Forwards, NextTokens, ParameterInfo, Plan, Restarting, Seat, Settled, Site, StepRequest, Tie, Trained,
    Worker,
};

/// Declares a message, its answer, and what the worker does for it, or the actor.
macro_rules! message {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* } -> $answer:ty,
     $how:ident |$worker:ident, $message:ident| $job:expr) => {
        $(#[$doc])*
        #[allow(missing_debug_implementations, reason = "some carry data sources and hash states")]
        pub(crate) struct $name { $($(#[$field_doc])* pub(crate) $field: $type),* }

        impl Message for $name {
            type Result = Result<$answer>;
        }

        impl<S: Stage> Handler<$name> for StageActor<S> {
            type Result = Result<$answer>;

            fn handle(&mut self, $message: $name, _: &mut Self::Context) -> Self::Result {
                message!(self, $how |$worker| $job)
            }
        }
    };
    ($self:ident, actor |$actor:ident| $job:expr) => {{
        let $actor = $self;
        $job
    }};
    ($self:ident, $how:ident |$worker:ident| $job:expr) => { $self.$how(|$worker| $job) };
}

/// Makes the worker, on the actor's own thread.
#[allow(missing_debug_implementations, reason = "holds builders, which are closures")]
pub(crate) struct Build<S: Stage> {
    /// What all ranks share.
    pub(crate) plan: Arc<Plan>,
    /// What the rank has for itself.
    pub(crate) seat: Seat<S>,
    /// The cores for its threads, of which the actor's own is the first. Empty: any cores.
    pub(crate) cores: Vec<core_affinity::CoreId>,
}

impl<S: Stage> Message for Build<S> {
    type Result = Result<Vec<ParameterInfo>>;
}

impl<S: Stage> Handler<Build<S>> for StageActor<S> {
    type Result = Result<Vec<ParameterInfo>>;

    fn handle(&mut self, message: Build<S>, _: &mut Self::Context) -> Self::Result {
        let Build { plan, seat, cores } = message;
        let _at_work = self.at_work();
        self.restarting = Restarting::new(plan.restarts);
        let rank = plan.mesh.coordinate(seat.transport.rank()).rank;
        self.threads = Some(start_threads(rank, plan.threads, cores)?);
        self.worker = Some(Box::new(caught(|| Worker::build(plan, seat))?));
        if self.restarting.is_allowed() {
            self.must(Worker::sum_frozen)?;
        }
        self.must(Worker::parameters)
    }
}

/// Makes the current thread the first of the rank's threads.
fn start_threads(rank: Rank, count: usize, cores: Vec<core_affinity::CoreId>) -> Result<Threads> {
    let pin = move |thread: usize| {
        if let Some(core) = cores.get(thread) {
            // Some systems do not let threads be pinned. The thread then runs unpinned.
            core_affinity::set_for_current(*core);
        }
    };
    pin(0);
    threads::start(count, pin).map_err(|source| LaunchError::Threads { rank, source }.into())
}

message! {
    /// Connects the ranks, and makes the copies of tied parameters equal.
    Tied {
        /** All of them. */ ties: Vec<Tie>,
        /** The stages before this one are frozen. */ first_trained: StageId
    } -> (),
    renew |worker, message| worker.tie(message.ties, message.first_trained)
}

message! {
    /// Asks a stage for the shape of its output.
    OutputShape { /** The stage. */ stage: StageId, /** Its input. */ input: Shape } -> Shape,
    ask |worker, message| worker.output_shape(message.stage, &message.input)
}

message! {
    /// Asks the loss whether it takes these shapes.
    CheckLoss {
        /** The last stage's output. */ output: Shape,
        /** The data's target. */ target: Shape
    } -> (),
    ask |worker, message| worker.check_loss(&message.output, &message.target)
}

message! {
    /// Runs one training step.
    Train { /** What to do. */ request: StepRequest } -> Trained,
    actor |actor, message| actor.train(message.request)
}

message! {
    /// Waits until no weight is stale any more. Answers with what was not reported yet.
    Settle {} -> Settled,
    must |worker, _message| worker.settle()
}

message! {
    /// Runs forward over micro-batches of a source, and answers with their scores.
    Evaluate {
        /** The call. */ call: Call,
        /** The source. */ source: Arc<dyn DataSource>,
        /** The number of the rank's first micro-batch. */ first: u32,
        /** The passes, if the rank has any. */ forwards: Option<Arc<Forwards>>
    } -> Vec<Score>,
    must |worker, message| worker.evaluate(
        message.call,
        message.source.as_ref(),
        message.first,
        message.forwards.as_deref(),
    )
}

message! {
    /// Runs the next tokens of a text through the stages. The rank of the last stage answers with the scores
    /// of what may follow.
    Next {
        /** The call. */ call: Call,
        /** The tokens. */ next: Arc<NextTokens>,
        /** The passes over one micro-batch, if the rank has any. */ forwards: Option<Arc<Forwards>>
    } -> Vec<f32>,
    must |worker, message| worker.next_scores(message.call, &message.next, message.forwards.as_deref())
}

message! {
    /// Searches for the first layer whose output is not finite.
    Search {
        /** The call. */ call: Call,
        /** The training data. */ source: Arc<dyn DataSource>,
        /** The step. */ step: u64,
        /** The micro-batch. */ micro_batch: MicroBatch,
        /** The passes over one micro-batch. */ forwards: Arc<Forwards>
    } -> Option<Finding>,
    must |worker, message| worker.search(
        message.call,
        message.source.as_ref(),
        message.step,
        message.micro_batch,
        &message.forwards,
    )
}

message! {
    /// Writes weights and optimizer state into a checkpoint. Answers with their checksums. A rank that cannot
    /// write continues.
    Write { /** The call. */ call: Call, /** The checkpoint. */ draft: Arc<Draft> } -> Vec<Written>,
    actor |actor, message| actor.must(|worker| worker.write(message.call, &message.draft))?
}

message! {
    /// Copies weights and optimizer state.
    CopyAll {
        /** The call. */ call: Call,
        /** Where to. */ copies: Arc<Mutex<Copies>>
    } -> (),
    must |worker, message| worker.copy(message.call, &message.copies)
}

message! {
    /// Makes a snapshot that its process keeps too.
    Snap { /** Where the process finds it. */ snapshot: Arc<OnceLock<Arc<Vec<u8>>>> } -> (),
    actor |actor, message| {
        let snapshot = actor.snap()?;
        message.snapshot.get_or_init(|| snapshot);
        Ok(())
    }
}

message! {
    /// Takes the weights and optimizer state of such a snapshot.
    TakeBack { /** The snapshot. */ snapshot: Arc<Vec<u8>> } -> (),
    actor |actor, message| actor.take_back(message.snapshot)
}

message! {
    /// Compares what the rank will read from a checkpoint with its checksums.
    Verify { /** The checkpoint. */ checkpoint: Arc<Checkpoint> } -> (),
    ask |worker, message| worker.verify(&message.checkpoint)
}

message! {
    /// Reads weights and optimizer state from a checkpoint.
    Read { /** The checkpoint. */ checkpoint: Arc<Checkpoint> } -> (),
    renew |worker, message| worker.read(&message.checkpoint)
}

message! {
    /// Adds weights to the hash of all weights. Answers with the hash's state.
    Hash { /** The hash so far. */ hash: Sha256, /** The weights, in order. */ sites: Vec<Site> } -> Vec<u8>,
    ask |worker, message| Ok(worker.hash(message.hash, &message.sites)?.serialize().to_vec())
}
