//! What two processes say until each knows that the other belongs to the run. The one that connects speaks
//! first, and proves first. So the one that listens tells a stranger nothing but a random number.
//!
//! 1. The side that connects: a random number, its process, what the connection is for.
//! 2. The side that listens: a random number, its process.
//! 3. The side that connects: its proof.
//! 4. The side that listens: whether it takes that proof, and its own.
//!
//! A proof is made of all that was said, of the side that makes it, and of the key. Both random numbers are
//! new, so no proof can be used twice, nor be sent back to the process that it came from.

use std::io;

use super::key::Key;

/// The beginning of the first two messages. Anything else comes from another program.
pub(super) const MAGIC: [u8; 8] = *b"PIPEWRT4";

/// The answer to a proof that was taken. The other side's proof follows.
pub(super) const TAKEN: u8 = 1;

/// The answer to any other proof.
pub(super) const NOT_TAKEN: u8 = 0;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::fabric::sockets) enum Purpose {
    /// To process 0: to join the run.
    Join,
    /// Frames between two processes.
    Data,
    /// To see whether the other process's machine is there.
    Watch,
    /// To process 0: to wait beside the run, until a process is lost.
    Spare,
}

impl Purpose {
    const ALL: [Self; 4] = [Self::Join, Self::Data, Self::Watch, Self::Spare];
}

/// The side of a connection.
#[derive(Clone, Copy)]
pub(in crate::fabric::sockets) enum Side {
    Connects,
    Listens,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Connects => Self::Listens,
            Self::Listens => Self::Connects,
        }
    }

    /// What its proofs are for.
    pub(super) fn proves(self) -> &'static str {
        match self {
            Self::Connects => "connects",
            Self::Listens => "listens",
        }
    }
}

/// The first two messages of a connection.
#[derive(Clone)]
pub(in crate::fabric::sockets) struct Talk {
    ask: [u8; Self::ASK],
    answer: [u8; Self::ANSWER],
}

impl Talk {
    /// The bytes of the first message: the magic, a random number, the process, the purpose, and whether the
    /// connection is to be encrypted.
    pub(super) const ASK: usize = 8 + 32 + 4 + 1 + 1;

    /// The bytes of the second message: the same without a purpose.
    pub(super) const ANSWER: usize = Self::ASK - 1;

    /// The bytes of a proof.
    pub(super) const PROOF: usize = Key::SIZE;

    pub(super) fn ask(process: u32, purpose: Purpose, tls: bool) -> io::Result<[u8; Self::ASK]> {
        message(process, &[purpose as u8, u8::from(tls)])
    }

    pub(super) fn answer(process: u32, tls: bool) -> io::Result<[u8; Self::ANSWER]> {
        message(process, &[u8::from(tls)])
    }

    /// Both messages. `None` if one of them is of another program.
    pub(super) fn new(ask: [u8; Self::ASK], answer: [u8; Self::ANSWER]) -> Option<Self> {
        let known = [&ask[..8], &answer[..8]].iter().all(|begin| **begin == MAGIC);
        let talk = Self { ask, answer };
        (known && usize::from(talk.ask[44]) < Purpose::ALL.len()).then_some(talk)
    }

    /// What the connection is for.
    pub(in crate::fabric::sockets) fn purpose(&self) -> Purpose {
        Purpose::ALL[usize::from(self.ask[44])]
    }

    /// The process of one side.
    pub(in crate::fabric::sockets) fn process(&self, side: Side) -> u32 {
        u32::from_le_bytes(self.said(side)[40..44].try_into().expect("four bytes"))
    }

    /// Whether one side wants the connection to be encrypted.
    pub(in crate::fabric::sockets) fn wants_tls(&self, side: Side) -> bool {
        self.said(side).last() == Some(&1)
    }

    fn said(&self, side: Side) -> &[u8] {
        match side {
            Side::Connects => &self.ask,
            Side::Listens => &self.answer,
        }
    }

    /// This side's proof.
    pub(super) fn proof(&self, key: &Key, side: Side) -> [u8; Self::PROOF] {
        key.make(side.proves(), &[&self.ask, &self.answer])
    }

    /// Whether this is that side's proof.
    pub(super) fn is_proof(&self, proof: &[u8], key: &Key, side: Side) -> bool {
        key.is_made(proof, side.proves(), &[&self.ask, &self.answer])
    }

    /// A key for this connection alone.
    pub(super) fn key(&self, key: &Key) -> Key {
        key.derive("connection", &[&self.ask, &self.answer])
    }
}

/// The first message of a side.
fn message<const SIZE: usize>(process: u32, rest: &[u8]) -> io::Result<[u8; SIZE]> {
    let mut message = [0; SIZE];
    message[..8].copy_from_slice(&MAGIC);
    getrandom::fill(&mut message[8..40])?;
    message[40..44].copy_from_slice(&process.to_le_bytes());
    message[44..].copy_from_slice(rest);
    Ok(message)
}
