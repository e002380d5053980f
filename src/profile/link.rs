//! What a message between two ranks costs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pipewright_stages::Tensor;

use crate::error::{Error, Result, panic_message};
use crate::fabric::{End, Tag, Transport, connect};
use crate::id::WorldRank;
use crate::pipeline::cores;
use crate::plan::Link;
use crate::plan::median;

/// So many messages are timed.
pub(super) const ROUNDS: u64 = 40;

/// As long as a rank's wait, after which its thread sleeps and has to be woken.
const PAUSE: Duration = Duration::from_micros(300);

/// Measures messages of up to `bytes` bytes between two threads, pinned as ranks are when `pin` is set. A byte costs what
/// reading it costs for the first time, after the other thread has written it, beyond reading it again.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn measure(bytes: u64, pin: bool) -> Result<Link> {
    let numbers = (bytes / 4).max(1) as usize;
    let (latency, _) = one_way(1, pin)?;
    let (arrival, reading) = one_way(numbers, pin)?;
    let extra = (arrival - latency).max(0.0) + reading;
    Ok(Link {
        latency,
        per_byte: extra / (4 * numbers) as f64,
    })
}

/// Seconds until a message has usually arrived, and of reading it beyond reading it again.
fn one_way(numbers: usize, pin: bool) -> Result<(f64, f64)> {
    let mut ends = connect::<Tensor>(2, 2, ROUNDS as usize + 1).into_iter();
    let (Some(sender), Some(receiver)) = (ends.next(), ends.next()) else {
        unreachable!("connect gives as many ends as ranks");
    };
    let cores = cores(pin, 2);
    let pin = move |rank: usize| {
        if let Some(core) = cores.get(rank) {
            core_affinity::set_for_current(*core);
        }
    };
    let (sent, received) = std::thread::scope(|scope| {
        let pin = &pin;
        let receiving = scope.spawn(move || {
            pin(1);
            receive(receiver)
        });
        let sending = scope.spawn(move || {
            pin(0);
            send(sender, numbers)
        });
        (join(sending.join()), join(receiving.join()))
    });
    let (sent, received) = (sent?, received?);
    let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
    let arrivals = sent
        .iter()
        .zip(&received)
        .map(|(sent, times)| seconds(*sent, times[0]));
    let reading = |nth: usize| shortest(received.iter().map(|times| seconds(times[nth], times[nth + 1])));
    // Waking a thread is a part of what a message costs, and takes its time more often than not.
    let arrival = median(arrivals).unwrap_or(0.0);
    Ok((arrival, (reading(0) - reading(1)).max(0.0)))
}

/// Reading competes with all other threads: only the shortest time is its own.
fn shortest(times: impl Iterator<Item = f64>) -> f64 {
    times.reduce(f64::min).unwrap_or(0.0)
}

/// What a thread gave, or that it panicked.
pub(super) fn join<T>(joined: std::thread::Result<Result<T>>) -> Result<T> {
    joined.unwrap_or_else(|panic| Err(Error::Panicked(panic_message(panic.as_ref()))))
}

/// Sends messages with pauses between them; when each was sent.
fn send(mut transport: End<Tensor>, numbers: usize) -> Result<Vec<Instant>> {
    let mut sent = Vec::new();
    for round in 0..ROUNDS {
        std::thread::sleep(PAUSE);
        let mut message = Tensor::scratch(&[numbers]);
        message.f32_mut().fill(1.0);
        sent.push(Instant::now());
        transport.send(WorldRank(1), Tag(round), message)?;
    }
    // Leaving the link would take from the receiver what it has not yet received.
    transport.recv_bytes(WorldRank(1))?;
    Ok(sent)
}

/// Takes the messages; when each had come, was read, and was read again.
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
    transport.send_bytes(WorldRank(0), Vec::new())?;
    Ok(received)
}
