//! What one process does.

use serde::{Deserialize, Serialize};

use super::rank::RankState;
use crate::id::WorldRank;

/// What a process does, if it answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessState {
    /// Its number.
    pub process: u32,
    /// Its ranks.
    pub ranks: Vec<WorldRank>,
    /// What it answers.
    pub contact: Contact,
}

/// Whether a process answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Contact {
    /// It says what it does.
    Answers(Program),
    /// Nothing has ever come from it.
    NotLaunched {
        /// The seconds for which it has been waited for.
        seconds: f64,
    },
    /// It does not answer.
    Silent {
        /// The seconds for which nothing has come from it.
        seconds: f64,
        /// Whether its machine answers, if that can be known.
        machine: Option<bool>,
    },
    /// It has ended, or its connection has.
    Ended,
}

/// What the program of a process does, and its ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The call that it is in, such as `training`. `None`: it does something else.
    pub call: Option<String>,
    /// Which part of the call it is in.
    pub part: Part,
    /// The seconds for which it has been there.
    pub seconds: f64,
    /// The seconds for which nothing may move before it counts as a stall. `None`: any time.
    pub usual: Option<f64>,
    /// The processes that did not answer when it asked them last, a moment ago.
    pub unheard: Vec<u32>,
    /// Where its ranks' data comes from.
    pub source: String,
    /// What its ranks do.
    pub ranks: Vec<RankState>,
}

/// What the thread of a program that makes the calls does in one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// It waits for the ranks of its process.
    #[default]
    Ranks,
    /// It waits for other processes.
    Processes,
    /// It works itself, for example on the files of a checkpoint.
    Own,
}
