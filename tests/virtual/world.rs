//! Ranks on threads of their own, and a clock that only this world moves. One rank runs at a time.
//!
//! A rank has its turn until it sends, computes or waits. Then the seed says who goes on. If nobody can, the
//! clock jumps to the next thing that happens: a frame that arrives, a rank that has computed. If there is
//! none, nobody will ever move again, and the world ends with the situation.

use super::*;
use crate::settled::Settled;
use crate::state::{Is, State};

pub(crate) struct World {
    state: Mutex<State>,
    /// By rank: wakes it for its turn.
    turns: Vec<Condvar>,
    /// What has to hold where weights may be stale.
    pub(crate) settled: Settled,
}

impl World {
    pub(crate) fn new(ranks: usize, seed: u64, weather: Weather, faults: Vec<Fault>) -> Arc<Self> {
        let state = State::new(ranks, seed, weather, faults);
        Arc::new(Self {
            state: Mutex::new(state),
            turns: (0..ranks).map(|_| Condvar::new()).collect(),
            settled: Settled::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this looks for stalls, in the time of this world.
    pub(crate) fn watch_by(&self, look: Look) {
        self.lock().look = Some(look);
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

    /// A rank does something. Where weights may be stale, a call has many steps, and only the first begins.
    fn come(&self, rank: usize) {
        if matches!(self.lock().ranks[rank].is, Is::Out | Is::Returning) {
            self.enter(rank, None);
        }
    }

    /// A rank has done its part of the call.
    pub(crate) fn leave(&self, rank: usize) {
        let mut state = self.lock();
        if state.ranks[rank].is != Is::Out {
            state.note(rank, What::Ends);
            let is = match &mut state.ranks[rank].returns {
                0 => Is::Out,
                returns => {
                    *returns -= 1;
                    Is::Returning
                }
            };
            self.depart(state, rank, is);
        }
    }

    /// Each rank will end a step and begin the next one without waiting for others, this number of times.
    pub(crate) fn expect_back(&self, times: u64) {
        self.lock().ranks.iter_mut().for_each(|rank| rank.returns = times);
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
        self.come(rank);
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

    /// A rank looks whether something has come. Others may go first.
    pub(crate) fn look(&self, rank: usize) {
        self.come(rank);
        self.may_yield(self.lock(), rank);
    }

    fn may_yield(&self, mut state: MutexGuard<'_, State>, rank: usize) {
        let yields = state.yields;
        if !state.is_over && state.turn == Some(rank) && state.draw.chance(yields) {
            // Something may arrive meanwhile.
            let most = *state.draw.one_of(&[1, 100, 10_000]);
            let until = state.now + state.draw.below(most);
            state.ranks[rank].is = Is::Ready(until);
            self.hand_over(state, rank);
        }
    }

    /// Gives the turn to the next rank, and waits for its own next turn.
    fn hand_over(&self, mut state: MutexGuard<'_, State>, rank: usize) {
        state.turn = None;
        state.go_on();
        self.wake(&state);
        while !state.is_over && state.turn != Some(rank) {
            state = self.turns[rank].wait(state).unwrap_or_else(PoisonError::into_inner);
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
        if parcel.load() != Load::Stopped {
            self.come(parcel.from().index());
        }
        let mut state = self.lock();
        if state.is_over {
            return;
        }
        let rank = parcel.from().index();
        state.note(rank, What::Sends(parcel.to().index(), parcel.load()));
        let State { net, draw, now, .. } = &mut *state;
        let frames = net.send(*now, draw, parcel);
        state.queue(frames);
        self.may_yield(state, rank);
    }

    fn await_parcel(&self, rank: WorldRank) {
        let rank = rank.index();
        self.come(rank);
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
