//! The cost of a message between two ranks on GPUs: how long the receiver's GPU works on it.

use pipewright::stages::{ForwardContext, Mode, Place, Sequential, Stage, Tensor};

use super::link::{ROUNDS, at_both_ends};
use pipewright::fabric::{End, Tag, Transport};
use pipewright::id::WorldRank;
use pipewright::plan::LinkCost;
use pipewright::plan::median;
use pipewright::{Error, Result};

/// Measures messages of up to `bytes` bytes from each rank to the next one. The result is the slowest pair's.
/// One place stands for all ranks.
///
/// # Errors
/// When the system cannot start a thread. Also whatever a GPU reports.
pub(super) fn measure(bytes: u64, ranks: u32, places: &[Place]) -> Result<LinkCost> {
    let place = |rank: u32| places[rank as usize % places.len()];
    let mut ways: Vec<[Place; 2]> = (1..ranks).map(|rank| [place(rank - 1), place(rank)]).collect();
    ways.sort_by_key(|[from, to]| (from.device, to.device));
    ways.dedup();
    let mut slowest = LinkCost::default();
    for [from, to] in ways {
        let numbers = (bytes as usize / to.dtype.bytes()).max(1);
        let latency = one_way(1, from, to)?;
        let extra = (one_way(numbers, from, to)? - latency).max(0.0);
        slowest.latency = slowest.latency.max(latency);
        slowest.per_byte = slowest.per_byte.max(extra / (to.dtype.bytes() * numbers) as f64);
    }
    Ok(slowest)
}

/// The usual time, in seconds, to receive a message.
fn one_way(numbers: usize, from: Place, to: Place) -> Result<f64> {
    let (sent, received) = at_both_ends(|end| send(end, from, numbers), |end| receive(end, to));
    // If one side fails, the other reports that its peer is gone. So return the error that is the cause.
    match (sent, received) {
        (Ok(()), received) => Ok(median(received?).unwrap_or(0.0)),
        (Err(Error::PeerGone(_)), Err(error)) | (Err(error), _) => Err(error),
    }
}

/// A stage without layers, at a place.
fn stage(place: Place) -> Result<Sequential> {
    let mut stage = Sequential::new(Vec::new());
    stage.move_to(place)?;
    Ok(stage)
}

/// Sends messages. Each is sent after the receiver has taken the previous one.
fn send(mut transport: End<Tensor>, place: Place, numbers: usize) -> Result<()> {
    let mut stage = stage(place)?;
    let at = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Evaluate };
    let message = Tensor::zeros(&[numbers]).to(place)?;
    for round in 0..ROUNDS {
        let (wire, _) = stage.forward(at, message.clone())?;
        while !stage.is_idle()? {
            std::thread::yield_now();
        }
        transport.send(WorldRank(1), Tag(round), wire)?;
        transport.recv_bytes(WorldRank(1), Tag(0))?;
    }
    Ok(())
}

/// Receives the messages as a rank does. Returns how long the GPU worked on each.
fn receive(mut transport: End<Tensor>, place: Place) -> Result<Vec<f64>> {
    let mut stage = stage(place)?;
    let mut times = Vec::new();
    let Some(mut clock) = stage.clock()? else {
        unreachable!("GPUs have clocks");
    };
    for round in 0..ROUNDS {
        let wire = transport.wait(WorldRank(0), Tag(round))?;
        clock.reset();
        let before = clock.mark()?;
        let _arrived = stage.receive(wire)?;
        let after = clock.mark()?;
        clock.wait()?;
        times.push(clock.seconds(before, after)?);
        transport.send_bytes(WorldRank(0), Tag(0), Vec::new())?;
    }
    Ok(times)
}
