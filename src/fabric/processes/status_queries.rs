//! What processes tell each other aside from their frames, at any time: what they do.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Says what this process does. Any thread may call it, and it never waits for a rank.
type Tell = Box<dyn Fn() -> Vec<u8> + Send + Sync>;

/// What an answer begins with.
const ANSWER: u8 = b'!';

/// What processes say aside from their frames, in words: what they do, and that there may be a stall. A line
/// carries words by [`Line::say`](super::line::Line::say).
pub struct Aside {
    tell: OnceLock<Tell>,
    nudges: AtomicU64,
    /// By process.
    answers: Vec<Answer>,
}

/// The last answer of another process.
#[derive(Default)]
struct Answer {
    count: AtomicU64,
    said: Mutex<Vec<u8>>,
}

impl Aside {
    /// The longest word, in bytes: an answer of many more ranks than a process can have.
    pub const LONGEST: usize = 1 << 20;

    /// Asks another process what it does. It answers even if its ranks are busy, or if much data is on the
    /// way to them.
    pub const QUESTION: &[u8] = b"?";

    /// Asks another process to look for a stall.
    pub(super) const NUDGE: &[u8] = b"*";

    /// For a run of this many processes. Nobody has said anything.
    pub fn new(processes: u32) -> Self {
        Self {
            tell: OnceLock::new(),
            nudges: AtomicU64::new(0),
            answers: (0..processes).map(|_| Answer::default()).collect(),
        }
    }

    /// Takes a word of process `from`. Returns the word that is to be said in return, if there is one.
    ///
    /// # Errors
    /// When it is no word.
    pub fn hear(&self, from: u32, word: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match word {
            Self::QUESTION => {
                let told = self.tell.get().map_or_else(Vec::new, |tell| tell());
                return Ok(Some([&[ANSWER][..], &told].concat()));
            }
            Self::NUDGE => {
                self.nudges.fetch_add(1, Ordering::Relaxed);
            }
            [ANSWER, said @ ..] => {
                let answer = &self.answers[from as usize];
                said.clone_into(&mut answer.said());
                answer.count.fetch_add(1, Ordering::Release);
            }
            _ => return Err(ErrorKind::InvalidData.into()),
        }
        Ok(None)
    }

    /// From now on this says what the process does. Only the first one counts.
    pub(super) fn tell_by(&self, tell: Tell) {
        let _ = self.tell.set(tell);
    }

    /// How often others have suspected a stall.
    pub(super) fn nudges(&self) -> u64 {
        self.nudges.load(Ordering::Relaxed)
    }

    /// How many questions a process has answered.
    pub(super) fn answers(&self, process: u32) -> u64 {
        self.answers[process as usize].count.load(Ordering::Acquire)
    }

    /// What a process said last. Empty if it has not begun.
    pub(super) fn said(&self, process: u32) -> Vec<u8> {
        self.answers[process as usize].said().clone()
    }
}

impl Answer {
    fn said(&self) -> MutexGuard<'_, Vec<u8>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Aside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aside").field("processes", &self.answers.len()).finish_non_exhaustive()
    }
}
