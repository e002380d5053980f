//! What is told of a stall.

use std::fmt;

use super::roots::Root;
use super::whole::Situation;

/// What a pipeline tells when nothing moves any more, and when it moves again. Each stall is told once, and
/// again only after ten times as long.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Stall {
    /// Nothing moves.
    Began {
        /// Who holds the others up.
        roots: Vec<Root>,
        /// What all ranks do.
        situation: Situation,
    },
    /// It still does not, ten times as long after it was told last.
    GoesOn {
        /// Who holds the others up.
        roots: Vec<Root>,
        /// What all ranks do.
        situation: Situation,
    },
    /// It moves again.
    Over {
        /// The seconds after which it moves.
        seconds: f64,
    },
}

impl Stall {
    /// As a line for a person.
    pub fn line(&self) -> String {
        match self {
            Self::Over { .. } => self.to_string(),
            _ => format!("warning: {self}"),
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (roots, situation, word) = match self {
            Self::Began { roots, situation } => (roots, situation, "nothing has moved"),
            Self::GoesOn { roots, situation } => (roots, situation, "still nothing has moved"),
            Self::Over { seconds } => return write!(f, "it moves again, after {seconds:.1} s"),
        };
        if let Some(still) = situation.still().filter(|still| *still >= 0.3) {
            write!(f, "{word} for {still:.1} s: ")?;
        }
        f.write_str(&situation.explain(roots))
    }
}
