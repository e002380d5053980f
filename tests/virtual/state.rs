//! The state of a virtual world: what time it is, what is due, where each rank is, and whose turn it is.

use super::*;
use crate::links::{Frame, Net};

/// The time between two looks at the ranks, in microseconds.
const LOOK: u64 = 500_000;

/// More than any run here needs.
const MOST_ENTRIES: usize = 3_000_000;

pub(crate) struct State {
    /// In microseconds.
    pub(crate) now: u64,
    /// Looks for stalls.
    pub(crate) look: Option<Look>,
    /// For so long nobody has looked.
    unseen: u64,
    pub(crate) draw: Draw,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) turn: Option<usize>,
    /// Whether ranks come to a call that has not begun.
    pub(crate) gathers: bool,
    pub(crate) due: BTreeMap<(u64, u64), Event>,
    /// Events so far.
    pub(crate) events: u64,
    pub(crate) net: Net,
    /// How often in a thousand a rank that sends or looks lets others go first.
    pub(crate) yields: u64,
    pub(crate) faults: Vec<Fault>,
    /// A folder that will be gone when this rank needs it. Without a folder the rank will panic.
    pub(crate) doomed: Option<(usize, Option<PathBuf>)>,
    pub(crate) timeline: Timeline,
    /// Why the world has ended, if that is a bug.
    pub(crate) verdict: Option<String>,
    /// The world has ended: nobody waits for a turn, and nothing is carried.
    pub(crate) is_over: bool,
}

pub(crate) struct Rank {
    pub(crate) is: Is,
    pub(crate) stopped_until: u64,
    pub(crate) slow: u64,
    pub(crate) awaits: Option<(usize, Load)>,
    /// Passes so far.
    pub(crate) passes: u64,
    /// How often it was built again.
    pub(crate) built: u64,
    /// How many more steps it will begin when it has done its part of one.
    pub(crate) returns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Is {
    /// In no call.
    Out,
    /// It has ended a step, and begins the next one without waiting for others.
    Returning,
    /// It can go on from this time.
    Ready(u64),
    Waiting,
    Gone,
}

pub(crate) enum Event {
    Frame(Frame),
    Fault(Fault),
}

/// How a rank's pass ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ends {
    Well,
    InError,
    InPanic,
}

impl State {
    pub(crate) fn new(ranks: usize, seed: u64, weather: Weather, faults: Vec<Fault>) -> Self {
        let mut draw = Draw::new(seed);
        let yields = *draw.one_of(&[0, 100, 300, 700]);
        let rank = |rank: usize| Rank {
            is: Is::Out,
            stopped_until: 0,
            slow: faults.iter().fold(1, |slow, fault| match fault {
                Fault::Slow { rank: of, times } if *of == rank => slow * times,
                _ => slow,
            }),
            awaits: None,
            passes: 0,
            built: 0,
            returns: 0,
        };
        let mut state = State {
            now: 0,
            look: None,
            unseen: 0,
            ranks: (0..ranks).map(rank).collect(),
            draw,
            turn: None,
            gathers: true,
            due: BTreeMap::new(),
            events: 0,
            net: Net::new(weather, &faults),
            yields,
            faults: Vec::new(),
            doomed: None,
            timeline: Timeline::default(),
            verdict: None,
            is_over: false,
        };
        for fault in faults {
            match fault {
                Fault::Stops { at, .. } | Fault::ClockJumps { at, .. } => state.add(at, Event::Fault(fault)),
                fault => state.faults.push(fault),
            }
        }
        state
    }

    pub(crate) fn note(&mut self, rank: usize, what: What) {
        self.timeline.note(self.now, Some(rank), what);
    }

    fn add(&mut self, at: u64, event: Event) {
        self.events += 1;
        self.due.insert((at, self.events), event);
    }

    pub(crate) fn queue(&mut self, frames: Vec<(u64, Frame)>) {
        frames.into_iter().for_each(|(at, frame)| self.add(at, Event::Frame(frame)));
    }

    /// Whether this fault is one of this world. Then it is noted.
    pub(crate) fn comes_true(&mut self, rank: usize, fault: &Fault) -> bool {
        let is_here = self.faults.contains(fault);
        if is_here {
            self.note(rank, What::Fault(fault.clone()));
        }
        is_here
    }

    pub(crate) fn end_of(&mut self, rank: usize, of: Pass) -> Ends {
        if !of.trains {
            return Ends::Well;
        }
        let pass = self.ranks[rank].passes;
        self.ranks[rank].passes += 1;
        for (panics, ends) in [(false, Ends::InError), (true, Ends::InPanic)] {
            if self.comes_true(rank, &Fault::Fails { rank, pass, panics }) {
                return ends;
            }
        }
        let always = Fault::AlwaysFails { layer: of.layer, step: of.step, micro_batch: of.micro_batch };
        match of.what == FORWARD && self.comes_true(rank, &always) {
            true => Ends::InError,
            false => Ends::Well,
        }
    }

    /// Lets things happen until a rank can go on, which then has its turn.
    pub(crate) fn go_on(&mut self) {
        if self.is_over || self.ranks.iter().any(|rank| rank.is == Is::Returning) {
            return;
        }
        let is_in = |rank: &Rank| matches!(rank.is, Is::Ready(_) | Is::Waiting);
        if !self.ranks.iter().any(is_in) {
            self.gathers = true;
            return;
        }
        if self.gathers && self.ranks.iter().any(|rank| rank.is == Is::Out) {
            return;
        }
        self.gathers = false;
        loop {
            while let Some(entry) = self.due.first_entry()
                && entry.key().0 <= self.now
            {
                let event = entry.remove();
                self.happen(event);
            }
            let ready = |rank: &Rank| match rank.is {
                Is::Ready(at) => Some(at.max(rank.stopped_until)),
                _ => None,
            };
            let can: Vec<usize> = (0..self.ranks.len())
                .filter(|rank| ready(&self.ranks[*rank]).is_some_and(|at| at <= self.now))
                .collect();
            if self.timeline.len() > MOST_ENTRIES {
                return self.end_badly("they go on for ever");
            }
            if !can.is_empty() {
                self.turn = Some(*self.draw.one_of(&can));
                return;
            }
            let next = self.ranks.iter().filter_map(ready);
            let next = next.chain(self.due.first_key_value().map(|((at, _), _)| *at)).min();
            match next {
                Some(next) => self.pass_time(next),
                None => return self.end_badly("nobody can move"),
            }
        }
    }

    /// Nothing happens until then. Meanwhile somebody looks for stalls.
    fn pass_time(&mut self, until: u64) {
        self.unseen += until - self.now;
        self.now = until;
        for _ in 0..self.unseen / LOOK {
            if let Some(look) = &mut self.look {
                look(Duration::from_micros(LOOK));
            }
        }
        self.unseen %= LOOK;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Frame(frame) => {
                let arrival = self.net.arrive(self.now, &mut self.draw, frame);
                self.queue(arrival.frames);
                for (rank, what) in arrival.notes {
                    self.timeline.note(self.now, rank, what);
                }
                for parcel in arrival.parcels {
                    self.deliver(parcel);
                }
            }
            Event::Fault(fault) => {
                self.timeline.note(self.now, None, What::Fault(fault.clone()));
                match fault {
                    Fault::Stops { rank, micros, .. } => {
                        self.ranks[rank].stopped_until = self.now + micros;
                    }
                    Fault::ClockJumps { micros, .. } => self.now += micros,
                    _ => unreachable!("others happen to passes and frames"),
                }
            }
        }
    }

    fn deliver(&mut self, parcel: Parcel<Tensor>) {
        let (from, to) = (parcel.from().index(), parcel.to().index());
        self.note(to, What::Takes(from, parcel.load()));
        if parcel.deliver().is_some() {
            self.verdict = Some(format!("the inbox of rank {to} has no room"));
        }
        if self.ranks[to].is == Is::Waiting {
            self.ranks[to].is = Is::Ready(self.now);
        }
    }

    fn end_badly(&mut self, why: &str) {
        let mut situation = format!("{why}:");
        for (rank, is) in self.ranks.iter().enumerate() {
            let awaits = What::WaitsFor(is.awaits);
            situation += &match is.is {
                Is::Waiting => format!("\n  rank {rank} {awaits}"),
                Is::Ready(_) => format!("\n  rank {rank} can go on"),
                Is::Out => format!("\n  rank {rank} has done its part of the call"),
                Is::Returning => format!("\n  rank {rank} begins the next step"),
                Is::Gone => format!("\n  rank {rank} has stopped"),
            };
        }
        self.timeline.note(self.now, None, What::Says(situation.clone()));
        self.verdict = Some(situation);
        self.is_over = true;
    }
}
