//! Another cut of a run's model, or another order of its passes: what asks for it, and what is told of it.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::time::{SystemTime, UNIX_EPOCH};

use pipewright_stages::Recompute;
use pipewright_stages::units::counted;
use serde::{Deserialize, Serialize};

use super::folder::RunDir;
use crate::error::RunError;
use crate::pipeline::Cut;
use crate::{Error, Result, whole};

/// How the answer to a question begins, in the history, if the cut stays.
pub const NOT_CHANGED: &str = "not changed: ";

/// A run goes on with another cut of its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NewCut {
    /// The steps done.
    pub step: u64,
    /// The cut before.
    pub from: Cut,
    /// The cut now.
    pub to: Cut,
    /// Why.
    pub reason: Reason,
    /// How many parameters went to another rank, or to more or fewer ranks.
    pub moved: usize,
    /// The seconds for which the steps waited.
    pub seconds: f64,
}

/// Why a cut is changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// A step should become shorter.
    Faster {
        /// How many times as long each rank takes as its layers should.
        slowness: Vec<f64>,
        /// The seconds of a step before: a median.
        was: f64,
        /// The seconds that it should take.
        will_be: f64,
    },
    /// The cut before was faster.
    ItWasFaster {
        /// The seconds of a step with the newer cut: a median.
        was: f64,
        /// The seconds of a step with the cut before it.
        before: f64,
    },
    /// Somebody has asked for it.
    Asked,
}

/// What shall change in a run's cut. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Change {
    /// The layers of each stage.
    pub layers: Option<Vec<usize>>,
    /// The schedule's name.
    pub schedule: Option<String>,
    /// What all stages recompute.
    pub recompute: Option<Recompute>,
    /// The number of replicas. There are as many ranks in all as before: so a replica has more ranks, or
    /// fewer.
    pub replicas: Option<u32>,
    /// The number of shards of a rank. As for replicas.
    pub shards: Option<u32>,
}

impl Change {
    /// Only the layers of each stage.
    pub fn layers(layers: Vec<usize>) -> Self {
        Self { layers: Some(layers), ..Self::default() }
    }

    /// The cut after it, if the run has this one now.
    pub fn of(self, now: &Cut) -> Cut {
        Cut {
            layers: self.layers.unwrap_or_else(|| now.layers.clone()),
            schedule: self.schedule.unwrap_or_else(|| now.schedule.clone()),
            recompute: self.recompute.or(now.recompute),
            replicas: self.replicas.unwrap_or(now.replicas),
            shards: self.shards.unwrap_or(now.shards),
        }
    }
}

/// The file in a run directory by which somebody asks for a cut.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct Asked {
    pub(in crate::run) change: Change,
    /// By which the answer in the history is known.
    pub(in crate::run) question: u64,
}

impl RunDir {
    /// Asks the run that trains here for another cut of its model. The run takes the file away when it comes
    /// to it, and notes in its history what it did. The answer has the number that is returned: see
    /// [`HistoryEntry::answers`](super::history::HistoryEntry::answers).
    ///
    /// # Errors
    /// [`RunError`] when somebody else asks at the moment. [`Error::Io`].
    pub fn ask_for_cut(&self, change: Change) -> Result<u64> {
        let path = self.asked_cut();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let question = now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_right(16);
        let asked = Asked { change, question };
        let text = serde_json::to_string(&asked).expect("numbers always serialise");
        match whole::write_new(&path, &format!("{text}\n"))? {
            true => Ok(question),
            false => Err(RunError::new(format!(
                "somebody asks for another cut already, in `{}`: wait until the run has come to it, or \
                 remove the file",
                path.display()
            ))
            .into()),
        }
    }

    /// Takes a question back, if the run has not come to it yet.
    pub fn ask_no_more(&self, question: u64) {
        let text = fs::read_to_string(self.asked_cut()).unwrap_or_default();
        if serde_json::from_str(&text).is_ok_and(|asked: Asked| asked.question == question) {
            // If it is gone, the run has just come to it.
            let _ = fs::remove_file(self.asked_cut());
        }
    }

    /// Takes away what somebody asks for, if there is something.
    pub(in crate::run) fn take_asked_cut(&self) -> Result<Option<Asked>> {
        let path = self.asked_cut();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        // By this, whoever asks sees that the run has come to it.
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        serde_json::from_str(&text).map(Some).map_err(|error| {
            let text = format!("`{}` is no question for another cut: {error}", path.display());
            RunError::because(text, error).into()
        })
    }
}

/// By how much a rank may differ from what its layers should take, and nobody is told.
const USUAL: f64 = 0.05;

impl NewCut {
    /// What is other than before, in words.
    fn changes(&self) -> String {
        let (from, to) = (&self.from, &self.to);
        let list = |layers: &[usize]| layers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let mut changes = Vec::new();
        if to.replicas != from.replicas {
            let replicas = counted(to.replicas.into(), "replica");
            changes.push(format!("the run has {replicas} instead of {}", from.replicas));
        }
        if to.shards != from.shards {
            let shards = counted(to.shards.into(), "shard");
            changes.push(format!("a rank has {shards} instead of {}", from.shards));
        }
        if to.schedule != from.schedule {
            changes.push(format!("the schedule is {} instead of {}", to.schedule, from.schedule));
        }
        if to.recompute != from.recompute {
            changes.push(match to.recompute {
                Some(recompute) => format!("the stages recompute {}", word(recompute)),
                None => "the stages recompute what they did at launch".to_owned(),
            });
        }
        if to.layers != from.layers {
            let (all, from) = (list(&to.layers), list(&from.layers));
            changes.push(match to.layers.len() {
                1 => format!("the only stage has all {all} layers instead of {from}"),
                _ => format!("the stages have {all} layers instead of {from}"),
            });
        }
        match changes.len() {
            0..=2 => changes.join(" and "),
            _ => [&changes[..changes.len() - 1].join(", "), " and ", &changes[changes.len() - 1]].concat(),
        }
    }
}

/// What is recomputed, in a word.
fn word(recompute: Recompute) -> &'static str {
    match recompute {
        Recompute::None => "nothing",
        Recompute::Cheap => "what is cheap",
        Recompute::Selective => "the insides of layers",
        Recompute::Full => "everything",
    }
}

impl fmt::Display for NewCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_recut = self.to.layers != self.from.layers;
        let what = if is_recut { "cut anew" } else { "changed" };
        write!(f, "{what} after {}: {}, ", counted(self.step, "step"), self.changes())?;
        match &self.reason {
            Reason::Faster { slowness, was, will_be } => {
                let slow = slowness.iter().enumerate().filter(|(_, times)| (**times - 1.0).abs() > USUAL);
                let slow: Vec<_> = slow
                    .map(|(rank, times)| format!("rank {rank} takes {times:.2} times as long as it should"))
                    .collect();
                let order = |cut: &Cut| (cut.schedule.clone(), cut.replicas, cut.shards);
                match (order(&self.to) == order(&self.from) && is_recut, slow.is_empty()) {
                    (true, false) => write!(f, "because {}", slow.join(", "))?,
                    (true, true) => {
                        write!(f, "because the layers of the stages do not take equally long")?;
                    }
                    // Ranks that are fast are no reason for another schedule, but they count.
                    (false, false) => write!(f, "because steps should be shorter ({})", slow.join(", "))?,
                    (false, true) => write!(f, "because steps should be shorter")?,
                }
                let [was, will_be] = [*was, *will_be].map(seconds);
                write!(f, "; a step took {was} and should take {will_be}")?;
            }
            Reason::ItWasFaster { was, before } => {
                let [was, before] = [*was, *before].map(seconds);
                write!(
                    f,
                    "as before, because steps were not slower then: a step took {before}, and takes {was} now"
                )?;
            }
            Reason::Asked => write!(f, "as asked")?,
        }
        write!(f, " (the change took {})", seconds(self.seconds))
    }
}

/// Seconds, or milliseconds where they are few.
pub(in crate::run) fn seconds(seconds: f64) -> String {
    match seconds < 0.1 {
        true => format!("{:.2} ms", 1e3 * seconds),
        false => format!("{seconds:.3} s"),
    }
}
