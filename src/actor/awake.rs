//! A rank that has answered stays awake for a moment, since the next call often comes at once.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use actix::{Actor, ActorFuture};
use pipewright_stages::Stage;

use super::stage_actor::StageActor;

/// How long. To wake a sleeping thread takes about as long.
const AWAKE: Duration = Duration::from_micros(20);

/// Keeps an actor's thread awake after an answer. It leaves its core to any thread that wants it.
pub(super) struct Awake;

impl<S: Stage> ActorFuture<StageActor<S>> for Awake {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut StageActor<S>,
        _: &mut <StageActor<S> as Actor>::Context,
        task: &mut Context<'_>,
    ) -> Poll<()> {
        if actor.answered.is_some_and(|at| at.elapsed() < AWAKE) {
            thread::yield_now();
            task.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
