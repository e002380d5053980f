//! The cost of a message between two ranks.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pipewright::stages::Tensor;

use pipewright::error::panic_message;
use pipewright::fabric::{End, Tag, Transport, connect};
use pipewright::id::WorldRank;
use pipewright::pipeline::cores;
use pipewright::plan::LinkCost;
use pipewright::plan::median;
use pipewright::{Error, Result};

/// How many messages are timed.
pub(super) const ROUNDS: u64 = 40;

/// How often it is measured, if there is time. Other programs make a message slower, never faster, so the
/// quickest counts.
const RUNS: usize = 4;

/// The time after which it is not measured again.
const LONGEST: Duration = Duration::from_millis(100);

/// Longer than a waiting rank stays awake: so the thread sleeps, and waking it is measured too.
const PAUSE: Duration = Duration::from_micros(300);

/// Measures messages of up to `bytes` bytes between two threads. With `pin` they are pinned, as ranks are.
/// The cost of a byte is the time to read it just after the other thread has written it, minus the time to
/// read it again.
///
/// # Errors
/// When the system cannot start a thread.
pub(super) fn measure(bytes: u64, pin: bool) -> Result<LinkCost> {
    let numbers = (bytes / 4).max(1) as usize;
    let quickest = |numbers| -> Result<[f64; 2]> {
        let mut quickest = [f64::INFINITY; 2];
        let began = Instant::now();
        for _ in 0..RUNS {
            let (arrival, reading) = one_way(numbers, pin)?;
            quickest = [arrival.min(quickest[0]), reading.min(quickest[1])];
            if began.elapsed() > LONGEST {
                break;
            }
        }
        Ok(quickest)
    };
    let [latency, _] = quickest(1)?;
    let [arrival, reading] = quickest(numbers)?;
    let extra = (arrival - latency).max(0.0) + reading;
    Ok(LinkCost { latency, per_byte: extra / (4 * numbers) as f64 })
}

/// The usual seconds until a message arrives, and the seconds that its first reading takes longer than its
/// second.
fn one_way(numbers: usize, pin: bool) -> Result<(f64, f64)> {
    let cores = cores(pin, 2);
    let pin = move |rank: usize| {
        if let Some(core) = cores.get(rank) {
            core_affinity::set_for_current(*core);
        }
    };
    let receiving = |end| {
        pin(1);
        receive(end)
    };
    let sending = |end| {
        pin(0);
        send(end, numbers)
    };
    let (sent, received) = at_both_ends(sending, receiving);
    let (sent, received) = (sent?, received?);
    let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
    let arrivals = sent.iter().zip(&received).map(|(sent, times)| seconds(*sent, times[0]));
    let reading = |nth: usize| shortest(received.iter().map(|times| seconds(times[nth], times[nth + 1])));
    // The cost of a message includes waking a thread, which usually takes about its median time.
    let arrival = median(arrivals).unwrap_or(0.0);
    Ok((arrival, (reading(0) - reading(1)).max(0.0)))
}

/// Other threads compete for memory. Only the shortest time is undisturbed.
fn shortest(times: impl Iterator<Item = f64>) -> f64 {
    times.reduce(f64::min).unwrap_or(0.0)
}

/// Runs both on threads of their own, each with an end of a link. A panic becomes an error.
pub(super) fn at_both_ends<S: Send, R: Send>(
    send: impl FnOnce(End<Tensor>) -> Result<S> + Send,
    receive: impl FnOnce(End<Tensor>) -> Result<R> + Send,
) -> (Result<S>, Result<R>) {
    let mut ends = connect::<Tensor>(2, 2, ROUNDS as usize + 1).into_iter();
    let (Some(sender), Some(receiver)) = (ends.next(), ends.next()) else {
        unreachable!("connect gives as many ends as ranks");
    };
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || receive(receiver));
        let sending = scope.spawn(move || send(sender));
        (join(sending.join()), join(receiving.join()))
    })
}

/// A thread's result.
fn join<T>(joined: std::thread::Result<Result<T>>) -> Result<T> {
    joined.unwrap_or_else(|panic| Err(Error::Panicked(panic_message(panic.as_ref()))))
}

/// Sends messages with pauses between them. Returns when each was sent.
fn send(mut transport: End<Tensor>, numbers: usize) -> Result<Vec<Instant>> {
    let mut sent = Vec::new();
    for round in 0..ROUNDS {
        std::thread::sleep(PAUSE);
        let mut message = Tensor::scratch(&[numbers]);
        message.f32_mut().fill(1.0);
        sent.push(Instant::now());
        transport.send(WorldRank(1), Tag(round), message)?;
    }
    // If this end were dropped now, the receiver would lose the messages that it has not taken yet.
    transport.recv_bytes(WorldRank(1), Tag(0))?;
    Ok(sent)
}

/// Receives the messages. Returns when each arrived, when it was read, and when it was read again.
fn receive(mut transport: End<Tensor>) -> Result<Vec<[Instant; 3]>> {
    let mut received = Vec::new();
    for round in 0..ROUNDS {
        let message = transport.wait(WorldRank(0), Tag(round))?;
        let mut times = [Instant::now(); 3];
        for time in &mut times[1..] {
            black_box(message.f32().iter().sum::<f32>());
            *time = Instant::now();
        }
        received.push(times);
    }
    transport.send_bytes(WorldRank(0), Tag(0), Vec::new())?;
    Ok(received)
}
