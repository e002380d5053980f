//! What happened in a virtual world, as lines of text: the time, who, and what.

use super::*;

/// All that has happened, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline(Vec<Entry>);

#[derive(Clone, Debug)]
struct Entry {
    /// In microseconds.
    at: u64,
    rank: Option<usize>,
    what: What,
}

/// Something that happened, mostly to a rank.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Begins(Call),
    Ends,
    Stops,
    Passes(Pass),
    Sends(usize, Load),
    WaitsFor(Option<(usize, Load)>),
    Takes(usize, Load),
    /// A frame of a link to this rank was lost, and will come again.
    Lost(usize, Load),
    /// A frame of a link came a second time.
    Again(usize),
    Fault(Fault),
    /// Of a process, which is its rank.
    Dies,
    Says(String),
}

impl Timeline {
    pub(crate) fn note(&mut self, at: u64, rank: Option<usize>, what: What) {
        self.0.push(Entry { at, rank, what });
    }

    /// The time of the last entry, in microseconds.
    pub(crate) fn time(&self) -> u64 {
        self.0.last().map_or(0, |entry| entry.at)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The faults that came true.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter().filter_map(|entry| match &entry.what {
            What::Fault(fault) => Some(fault),
            _ => None,
        })
    }

    /// The processes that have died.
    pub(crate) fn deaths(&self) -> impl Iterator<Item = usize> {
        let dies = self.0.iter().filter(|entry| matches!(entry.what, What::Dies));
        dies.filter_map(|entry| entry.rank)
    }

    /// How often somebody has said something that begins so.
    pub(crate) fn said(&self, begin: &str) -> u64 {
        let says = |entry: &&Entry| matches!(&entry.what, What::Says(text) if text.starts_with(begin));
        self.0.iter().filter(says).count() as u64
    }

    /// The last lines, and all faults before them.
    pub(crate) fn end(&self, lines: usize) -> String {
        let start = self.0.len().saturating_sub(lines);
        let is_fault = |entry: &&Entry| matches!(entry.what, What::Fault(_) | What::Dies);
        let faults = self.0[..start].iter().filter(is_fault);
        let shown = faults.chain(&self.0[start..]);
        shown.map(|entry| format!("{entry}\n")).collect()
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.rank.map_or(String::new(), |rank| format!("rank {rank}"));
        write!(f, "{:>12.3} ms  {who:8} {}", self.at as f64 / 1000.0, self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begins(call) => write!(f, "begins call {}, attempt {}", call.number, call.attempt),
            Self::Ends => write!(f, "has done its part of the call"),
            Self::Stops => write!(f, "has stopped"),
            Self::Passes(pass) => write!(f, "{pass}"),
            Self::Sends(to, load) => write!(f, "-> {to}  {}", Shown(*load)),
            Self::WaitsFor(Some((from, load))) => write!(f, "waits for rank {from}: {}", Shown(*load)),
            Self::WaitsFor(None) => write!(f, "waits for whatever comes"),
            Self::Takes(from, load) => write!(f, "<- {from}  {}", Shown(*load)),
            Self::Lost(to, load) => write!(f, "-> {to}  lost on the way: {}", Shown(*load)),
            Self::Again(from) => write!(f, "<- {from}  the same once more, dropped by the link"),
            Self::Fault(fault) => write!(f, "*** {fault}"),
            Self::Dies => write!(f, "*** dies with its process"),
            Self::Says(text) => write!(f, "{text}"),
        }
    }
}

/// A load in words.
pub(crate) struct Shown(pub(crate) Load);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Load::Stopped => write!(f, "that it has stopped"),
            Load::Wire(Tag(tag)) => {
                let flow = ["activation", "gradient"][(tag >> 63) as usize];
                let (stage, micro_batch) = (tag << 1 >> 33, tag as u32);
                write!(f, "{flow} {micro_batch} at the start of stage {stage}")
            }
            Load::Block(Tag(tag)) => {
                let topics = ["numbers for all", "sums", "answer", "weights", "state", "told"];
                let topic = topics.get((tag >> 32) as usize).unwrap_or(&"block");
                write!(f, "{topic} of stage {}", tag as u32)
            }
        }
    }
}
