//! One of two GPUs that send each other, on a thread of its own.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use pipewright::stages::layers::Linear;
use pipewright::stages::nccl::{Communicator, Member as Place, UniqueId};
use pipewright::stages::{Clock, Device, Error, Init, Sequential, Stage, Tensor};

use crate::kernels::{Shapes, numbers};
use crate::sizes::Result;
use crate::timer::EVALUATE;

const PATIENCE: Duration = Duration::from_secs(30);

/// A GPU that computes products, and sends to or receives from the other one.
pub(crate) struct Member {
    pub(crate) number: u32,
    communicator: Communicator,
    shapes: Shapes,
    stage: Sequential,
    input: Tensor,
    clock: Box<dyn Clock>,
    to: Sender<()>,
    from: Receiver<()>,
}

/// What each of two members returns. The first one sends. They are `cuda:0` and `cuda:1`.
pub(crate) fn two<T: Send>(shapes: Shapes, task: impl Fn(&mut Member) -> Result<T> + Sync) -> Result<[T; 2]> {
    let id = UniqueId::make()?;
    let [(to_first, at_first), (to_second, at_second)] = [channel(), channel()];
    let play = |number, to, from| -> std::result::Result<T, String> {
        let member = Member::join(&id, number, shapes, (to, from));
        let played = member.and_then(|mut member| {
            let done = task(&mut member)?;
            // Transfers end when their communicator is dropped.
            member.meet()?;
            Ok(done)
        });
        played.map_err(|error| error.to_string())
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| play(1, to_first, at_second));
        let one = scope.spawn(|| play(0, to_second, at_first));
        let [one, other] = [one, other].map(|thread| thread.join().expect("no panic"));
        Ok([one?, other?])
    })
}

impl Member {
    fn join(
        id: &UniqueId,
        number: u32,
        shapes: Shapes,
        (to, from): (Sender<()>, Receiver<()>),
    ) -> Result<Self> {
        let device = Device::Cuda(number);
        let place = Place { number, of: 2, device };
        let on = || Ok::<(), Error>(());
        let communicator = Communicator::join(id, place, PATIENCE, on)?;
        let peer = [1 - number];
        communicator.connect(&peer, &peer, PATIENCE, on)?;
        let dim = shapes.gpt.dim;
        let linear = Linear::new("linear", [4 * dim, dim], Init::Normal(0.02), 0);
        let mut stage = Sequential::new(vec![Box::new(linear)]);
        stage.move_to(pipewright::stages::Place { device, ..shapes.place })?;
        Ok(Self {
            number,
            communicator,
            shapes,
            input: stage.load(numbers(&[shapes.tokens(), 4 * dim])?)?,
            clock: stage.clock()?.ok_or("a GPU has a clock")?,
            stage,
            to,
            from,
        })
    }

    /// Waits until the other member is here too.
    pub(crate) fn meet(&self) -> Result<()> {
        self.to.send(()).map_err(|_| "the other GPU's thread has failed")?;
        Ok(self.from.recv().map_err(|_| "the other GPU's thread has failed")?)
    }

    /// How many numbers a product's result has.
    pub(crate) fn count(&self) -> usize {
        self.shapes.tokens() * self.shapes.gpt.dim
    }

    /// Queues the product that ends a block of a GPT.
    pub(crate) fn product(&mut self) -> Result<Tensor> {
        Ok(self.stage.forward(EVALUATE, self.input.clone())?.0)
    }

    /// Numbers on this GPU, to send.
    pub(crate) fn numbers(&mut self, count: usize) -> Result<Tensor> {
        Ok(self.stage.load(numbers(&[count])?)?)
    }

    /// Queues a send to the other member.
    pub(crate) fn send(&mut self, tensor: &Tensor) -> Result<()> {
        Ok(self.communicator.send(tensor, 1 - self.number)?)
    }

    /// Queues a receive of `count` numbers. Computing does not wait for it.
    pub(crate) fn announce(&mut self, count: usize) -> Result<Tensor> {
        let dtype = self.shapes.place.dtype;
        Ok(self.communicator.receive(&[count], dtype, 1 - self.number)?)
    }

    /// The same, and later work waits for it.
    pub(crate) fn receive(&mut self, count: usize) -> Result<()> {
        let come = self.announce(count)?;
        self.stage.receive(come)?;
        Ok(())
    }

    /// The GPU's seconds until all is done that `work` queues.
    pub(crate) fn timed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<f64> {
        self.clock.reset();
        let from = self.clock.mark()?;
        work(self)?;
        let to = self.clock.mark()?;
        self.clock.wait()?;
        Ok(self.clock.seconds(from, to)?)
    }
}
