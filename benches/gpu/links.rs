//! Copies between GPUs of a process, sends between GPUs as two processes do them, and what both cost those
//! who compute.

use std::time::Instant;

use pipewright::stages::devices::pairs;

use crate::kernels::{Setting, median};
use crate::member::{Member, two};
use crate::sizes::Result;
use crate::table::{Guess, Table, Unit};

/// Sends or products that are timed together.
const TOGETHER: usize = 16;
/// Numbers of a small send.
const SMALL: usize = 256;
/// The most blocks of a transfer's kernel. Each block takes a multiprocessor. As the communicators of
/// `stages/` ask for.
const BLOCKS: f64 = 8.0;

/// Copies between each two GPUs, then sends between the first two.
pub(crate) fn measure(table: &mut Table<'_>, setting: &Setting<'_>) -> Result<()> {
    let rate = setting.kind.map(|kind| kind.message().1);
    let pairs = pairs();
    if pairs.is_empty() {
        let guess = Guess { what: "a copy from GPU to GPU", unit: Unit::Bytes, predicted: rate };
        table.unmeasured(&guess, "needs two GPUs")?;
    }
    for pair in &pairs {
        let guess = Guess {
            what: &format!("a copy from {} to {}", pair.from, pair.to),
            unit: Unit::Bytes,
            predicted: rate,
        };
        let direct = ["the driver may take it through the host", "direct"][usize::from(pair.direct)];
        match &pair.speed {
            Ok(speed) => table.row(&guess, *speed, direct)?,
            Err(error) => table.unmeasured(&guess, &error.to_string())?,
        }
    }
    let guesses = guesses(setting)?;
    if pairs.is_empty() {
        for (guess, _) in guesses {
            table.unmeasured(&guess, "needs two GPUs")?;
        }
        return Ok(());
    }
    let [sender, receiver] = two(setting.shapes()?, |member| sends(member, setting.rounds))?;
    let measured = measured(&sender, &receiver, activation(setting)?);
    for ((guess, note), measured) in guesses.iter().zip(measured) {
        table.row(guess, measured, note)?;
    }
    Ok(())
}

/// The bytes of an activation.
fn activation(setting: &Setting<'_>) -> Result<f64> {
    let shapes = setting.shapes()?;
    Ok(shapes.bytes(shapes.tokens() * shapes.gpt.dim, 1))
}

/// The rows of sends, and what is to be known of each.
fn guesses(setting: &Setting<'_>) -> Result<[(Guess<'static>, &'static str); 6]> {
    let guess = |what, unit, predicted| Guess { what, unit, predicted };
    let bytes = activation(setting)?;
    let message = setting.kind.map(|kind| kind.message());
    let large = message.map(|(latency, rate)| bytes / (latency + bytes / rate));
    let free = setting.kind.map(|kind| kind.multiprocessors / (kind.multiprocessors - BLOCKS));
    let one = setting.kind.map(|_| 1.0);
    Ok([
        (
            guess("queuing a send, on the host", Unit::Time, None),
            "50 to 100 us were guessed, with a thread for each",
        ),
        (guess("a small send", Unit::Time, message.map(|(latency, _)| latency)), "one after the other"),
        (guess("a send of an activation", Unit::Bytes, large), "one after the other"),
        (
            guess("products whose results are sent, to products", Unit::Times, one),
            "does computing wait for sends?",
        ),
        (guess("products beside a receive that waits, to products", Unit::Times, free), "what 8 blocks take"),
        (
            guess("sends beside products, to sends", Unit::Times, one),
            "does the priority of their stream hold?",
        ),
    ])
}

/// The numbers of the rows, from the times of both members.
fn measured(sender: &Times, receiver: &Times, bytes: f64) -> [f64; 6] {
    [
        sender.queued,
        receiver.small,
        bytes / receiver.large,
        sender.products_sent / sender.products,
        receiver.beside / receiver.products,
        receiver.large_beside / receiver.large,
    ]
}

/// Seconds of one send or product. Each is measured by one member only.
struct Times {
    queued: f64,
    small: f64,
    large: f64,
    large_beside: f64,
    products: f64,
    products_sent: f64,
    beside: f64,
}

/// Both members call the same in the same order, so that their transfers meet.
fn sends(member: &mut Member, rounds: usize) -> Result<Times> {
    let mut median_of = |measure: &dyn Fn(&mut Member) -> Result<f64>| -> Result<f64> {
        measure(member)?;
        let times = (0..rounds).map(|_| {
            member.meet()?;
            Ok(measure(member)? / TOGETHER as f64)
        });
        Ok(median(times.collect::<Result<_>>()?))
    };
    Ok(Times {
        queued: median_of(&queued)?,
        small: median_of(&|member| small(member))?,
        large: median_of(&|member| large(member, false))?,
        large_beside: median_of(&|member| large(member, true))?,
        products: median_of(&|member| products(member, false))?,
        products_sent: median_of(&|member| products(member, true))?,
        beside: median_of(&beside)?,
    })
}

/// The host's time of small sends.
fn queued(member: &mut Member) -> Result<f64> {
    if member.number == 1 {
        return member.timed(|member| receive(member, SMALL));
    }
    let numbers = member.numbers(SMALL)?;
    let since = Instant::now();
    for _ in 0..TOGETHER {
        member.send(&numbers)?;
    }
    Ok(since.elapsed().as_secs_f64())
}

fn receive(member: &mut Member, count: usize) -> Result<()> {
    (0..TOGETHER).try_for_each(|_| member.receive(count))
}

/// The GPU's time of small sends.
fn small(member: &mut Member) -> Result<f64> {
    if member.number == 1 {
        member.meet()?;
        return member.timed(|member| receive(member, SMALL));
    }
    let numbers = member.numbers(SMALL)?;
    member.timed(|_| Ok(()))?;
    member.meet()?;
    (0..TOGETHER).try_for_each(|_| member.send(&numbers))?;
    Ok(0.0)
}

/// The time of sends of activations, while the sender computes or not.
fn large(member: &mut Member, computes: bool) -> Result<f64> {
    let result = member.product()?;
    member.timed(|_| Ok(()))?;
    member.meet()?;
    if member.number == 1 {
        let count = member.count();
        return member.timed(|member| receive(member, count));
    }
    // More than the sends take.
    for _ in 0..if computes { 4 * TOGETHER } else { 0 } {
        member.product()?;
    }
    (0..TOGETHER).try_for_each(|_| member.send(&result))?;
    Ok(0.0)
}

/// The time of products, whose results are sent or not.
fn products(member: &mut Member, sent: bool) -> Result<f64> {
    if member.number == 1 && sent {
        let count = member.count();
        return member.timed(|member| receive(member, count));
    }
    member.timed(|member| {
        for _ in 0..TOGETHER {
            let result = member.product()?;
            if sent {
                member.send(&result)?;
            }
        }
        Ok(())
    })
}

/// The time of products while a receive waits for its sender.
fn beside(member: &mut Member) -> Result<f64> {
    if member.number == 0 {
        let numbers = member.numbers(SMALL)?;
        member.meet()?;
        member.send(&numbers)?;
        return Ok(0.0);
    }
    let _come = member.announce(SMALL)?;
    let seconds = member.timed(|member| {
        for _ in 0..TOGETHER {
            member.product()?;
        }
        Ok(())
    })?;
    member.meet()?;
    Ok(seconds)
}
