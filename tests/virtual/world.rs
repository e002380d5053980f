//! Ranks on threads of their own, of which one runs at a time, and a clock that only this world moves.
//!
//! A rank has its turn until it sends, computes or waits. Then the seed says who goes on. If nobody can, the
//! clock jumps to the next thing that happens: a frame that arrives, a rank that has computed. If there is
//! none, nobody will ever move again, and the world ends with the situation.

use std::collections::BTreeMap;
use std::fs;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pipewright::fabric::{Call, Links, Load, Parcel};
use pipewright::id::WorldRank;
use pipewright::stages::Tensor;

use crate::draw::Draw;
use crate::faults::Fault;
use crate::here::{FORWARD, Pass};
use crate::links::{Frame, Net, Weather};
use crate::timeline::{Timeline, What};

/// More than any run here needs.
const MOST_ENTRIES: usize = 3_000_000;

pub(crate) struct World {
    state: Mutex<State>,
    /// By rank: wakes it for its turn.
    turns: Vec<Condvar>,
}

struct State {
    /// In microseconds.
    now: u64,
    draw: Draw,
    ranks: Vec<Rank>,
    turn: Option<usize>,
    /// Whether ranks come to a call that has not begun.
    gathers: bool,
    due: BTreeMap<(u64, u64), Event>,
    /// Events so far.
    events: u64,
    net: Net,
    /// How often in a thousand a rank that sends lets others go first.
    yields: u64,
    faults: Vec<Fault>,
    /// A folder that will be gone when this rank needs it. Without a folder the rank will panic.
    doomed: Option<(usize, Option<PathBuf>)>,
    timeline: Timeline,
    /// Why the world has ended, if that is a bug.
    verdict: Option<String>,
    /// The world has ended: nobody waits for a turn, and nothing is carried.
    is_over: bool,
}

struct Rank {
    is: Is,
    stopped_until: u64,
    slow: u64,
    awaits: Option<(usize, Load)>,
    /// Passes so far.
    passes: u64,
    /// How often it was built again.
    built: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    /// In no call.
    Out,
    /// It can go on from this time.
    Ready(u64),
    Waiting,
    Gone,
}

enum Event {
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

impl World {
    pub(crate) fn new(ranks: usize, seed: u64, weather: Weather, faults: Vec<Fault>) -> Arc<Self> {
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
        };
        let mut state = State {
            now: 0,
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
        Arc::new(Self {
            state: Mutex::new(state),
            turns: (0..ranks).map(|_| Condvar::new()).collect(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rank begins a call, when all others have come to it too.
    pub(crate) fn enter(&self, rank: usize, call: Option<Call>) {
        let mut state = self.lock();
        let now = state.now;
        state.ranks[rank].is = Is::Ready(now);
        self.hand_over(state, rank);
        // The order in which threads come here says nothing.
        if let Some(call) = call {
            self.lock().note(rank, What::Begins(call));
        }
    }

    /// A rank has done its part of the call.
    pub(crate) fn leave(&self, rank: usize) {
        let mut state = self.lock();
        if state.ranks[rank].is != Is::Out {
            state.note(rank, What::Ends);
            self.depart(state, rank, Is::Out);
        }
    }

    /// A rank does nothing any more.
    pub(crate) fn stop(&self, rank: usize) {
        let mut state = self.lock();
        if state.ranks[rank].is != Is::Out {
            state.note(rank, What::Stops);
        }
        self.depart(state, rank, Is::Gone);
    }

    fn depart(&self, mut state: MutexGuard<'_, State>, rank: usize, is: Is) {
        state.ranks[rank].is = is;
        if state.turn == Some(rank) {
            state.turn = None;
        }
        if state.turn.is_none() {
            state.go_on();
            self.wake(&state);
        }
    }

    /// A rank begins a pass. Returns how it ends.
    pub(crate) fn pass(&self, rank: usize, pass: Pass) -> Ends {
        let mut state = self.lock();
        if state.is_over {
            return Ends::Well;
        }
        state.note(rank, What::Passes(pass));
        let ends = state.end_of(rank, pass);
        let most = 100 * state.ranks[rank].slow;
        let until = state.now + state.draw.within(most / 2, most);
        state.ranks[rank].is = Is::Ready(until);
        self.hand_over(state, rank);
        ends
    }

    /// Whether a rank can be built again now.
    pub(crate) fn builds(&self, rank: usize) -> bool {
        let mut state = self.lock();
        state.ranks[rank].built += 1;
        let time = state.ranks[rank].built;
        !state.comes_true(rank, &Fault::NotBuilt { rank, time })
    }

    /// When a rank looks for its parameters next, to write them, this folder is gone, or the rank panics.
    pub(crate) fn doom(&self, rank: usize, folder: Option<PathBuf>) {
        self.lock().doomed = Some((rank, folder));
    }

    /// A rank looks for its parameters.
    pub(crate) fn visit(&self, rank: usize) {
        let mut state = self.lock();
        let Some((_, folder)) = state.doomed.take_if(|(doomed, _)| *doomed == rank) else {
            return;
        };
        let panics = folder.is_none();
        state.note(rank, What::Fault(Fault::NotWritten { rank, panics }));
        drop(state);
        match folder {
            Some(folder) => fs::remove_dir_all(folder).expect("it is there"),
            None => resume_unwind(Box::new("a bug".to_owned())),
        }
    }

    /// A rank will wait for this.
    pub(crate) fn awaits(&self, rank: usize, what: Option<(usize, Load)>) {
        let mut state = self.lock();
        state.ranks[rank].awaits = what;
    }

    /// Something happens that ranks do not do.
    pub(crate) fn say(&self, text: impl Into<String>) {
        let mut state = self.lock();
        let at = state.now;
        state.timeline.note(at, None, What::Says(text.into()));
    }

    /// Ends the world: what comes then does not count.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        self.wake(&state);
    }

    pub(crate) fn verdict(&self) -> Option<String> {
        self.lock().verdict.clone()
    }

    pub(crate) fn timeline(&self) -> Timeline {
        self.lock().timeline.clone()
    }

    /// Gives the turn to whoever is next, and waits for the next own one.
    fn hand_over(&self, mut state: MutexGuard<'_, State>, rank: usize) {
        state.turn = None;
        state.go_on();
        self.wake(&state);
        while !state.is_over && state.turn != Some(rank) {
            state = self.turns[rank]
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self, state: &State) {
        match state.turn {
            _ if state.is_over => self.turns.iter().for_each(Condvar::notify_one),
            Some(rank) => self.turns[rank].notify_one(),
            None => {}
        }
    }
}

impl Links<Tensor> for World {
    fn carry(&self, parcel: Parcel<Tensor>) {
        let mut state = self.lock();
        if state.is_over {
            return;
        }
        let rank = parcel.from().index();
        state.note(rank, What::Sends(parcel.to().index(), parcel.load()));
        let State { net, draw, now, .. } = &mut *state;
        let frames = net.send(*now, draw, parcel);
        state.queue(frames);
        let yields = state.yields;
        if state.turn == Some(rank) && state.draw.chance(yields) {
            let now = state.now;
            state.ranks[rank].is = Is::Ready(now);
            self.hand_over(state, rank);
        }
    }

    fn await_parcel(&self, rank: WorldRank) {
        let rank = rank.index();
        let mut state = self.lock();
        let awaits = state.ranks[rank].awaits;
        state.note(rank, What::WaitsFor(awaits));
        state.ranks[rank].is = Is::Waiting;
        self.hand_over(state, rank);
        if self.lock().is_over {
            // Nothing will come any more. This ends the rank without a message.
            resume_unwind(Box::new("the virtual world has ended".to_owned()));
        }
    }
}

impl State {
    fn note(&mut self, rank: usize, what: What) {
        self.timeline.note(self.now, Some(rank), what);
    }

    fn add(&mut self, at: u64, event: Event) {
        self.events += 1;
        self.due.insert((at, self.events), event);
    }

    fn queue(&mut self, frames: Vec<(u64, Frame)>) {
        frames
            .into_iter()
            .for_each(|(at, frame)| self.add(at, Event::Frame(frame)));
    }

    /// Whether this fault is one of this world. Then it is noted.
    fn comes_true(&mut self, rank: usize, fault: &Fault) -> bool {
        let is_here = self.faults.contains(fault);
        if is_here {
            self.note(rank, What::Fault(fault.clone()));
        }
        is_here
    }

    fn end_of(&mut self, rank: usize, of: Pass) -> Ends {
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
        let always = Fault::AlwaysFails {
            layer: of.layer,
            step: of.step,
            micro_batch: of.micro_batch,
        };
        match of.what == FORWARD && self.comes_true(rank, &always) {
            true => Ends::InError,
            false => Ends::Well,
        }
    }

    /// Lets things happen until a rank can go on, which then has its turn.
    fn go_on(&mut self) {
        if self.is_over {
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
            let next = next
                .chain(self.due.first_key_value().map(|((at, _), _)| *at))
                .min();
            match next {
                Some(next) => self.now = next,
                None => return self.end_badly("nobody can move"),
            }
        }
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
                Is::Gone => format!("\n  rank {rank} has stopped"),
            };
        }
        self.timeline.note(self.now, None, What::Says(situation.clone()));
        self.verdict = Some(situation);
        self.is_over = true;
    }
}
