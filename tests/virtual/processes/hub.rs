//! Processes as groups of threads, and a clock that only the hub moves. One group runs at a time.
//!
//! A process has its turn until it waits for another one, joins or dies. Inside of a process, its rank and
//! the thread that calls it take turns anyway: one waits for the other. Then the seed says who goes on.

use pipewright::fabric::World;
use pipewright::fabric::line::FromProcess;

use super::lines::Living;
use super::state::{Is, Line, State};
use super::story::Story;
use crate::*;

/// When nobody can move, some may be waiting for a moment of real time. After this number of looks it is a
/// bug.
const STUCK: u32 = 150;

/// The time of a look.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Hub {
    state: Mutex<State>,
    /// By process: wakes it for its turn.
    turns: Vec<Condvar>,
    readers: Mutex<HashMap<Line, Arc<Mutex<FromProcess>>>>,
}

impl Hub {
    pub(super) fn new(story: &Story) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new(story)),
            turns: (0..story.processes()).map(|_| Condvar::new()).collect(),
            readers: Mutex::default(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process joins the next world, when all others do.
    pub(super) fn join(self: &Arc<Self>, process: usize) -> Result<World> {
        let mut state = self.lock();
        state.processes[process].is = Is::Joining;
        state = self.hand_over(state, process);
        if state.has_ended() || state.is_over {
            return Err(Error::Stopped { cause: Some("the run has ended".to_owned()) });
        }
        let living = Living {
            hub: Arc::clone(self),
            process,
            world: state.worlds,
            life: state.processes[process].deaths,
        };
        let (processes, goes_on) = (state.processes.len() as u32, state.worlds > 1);
        Ok(living.connect(processes, goes_on))
    }

    /// How often a process has died.
    pub(super) fn deaths(&self, process: usize) -> u64 {
        self.lock().processes[process].deaths
    }

    /// A process has launched its pipeline.
    pub(super) fn launched(&self, process: usize) {
        self.lock().launched(process);
    }

    /// A process has done all steps.
    pub(super) fn done(&self) {
        self.lock().is_done = true;
    }

    /// A process will do nothing more.
    pub(super) fn leave(&self, process: usize) {
        let mut state = self.lock();
        state.processes[process].is = Is::Gone;
        if state.turn == Some(process) {
            state.turn = None;
        }
        drop(self.go_on(state));
    }

    /// A process begins a step.
    pub(super) fn begins_step(&self, process: usize, step: u64) {
        self.lock().begins_step(process, step);
    }

    /// A process has joined again, and goes on from a snapshot, or not.
    pub(super) fn returns(&self, process: usize, step: Option<u64>) {
        self.lock().returns(process, step);
    }

    /// A process is told of a failure.
    pub(super) fn is_told(&self, process: usize, failure: &str) {
        self.lock().is_told(process, failure);
    }

    /// From now on these take in what comes to a process, by the process that sends it.
    pub(super) fn read_by(&self, world: u64, process: usize, from: Vec<Option<FromProcess>>) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        for (other, from) in from.into_iter().enumerate() {
            if let Some(from) = from {
                readers.insert((world, other, process), Arc::new(Mutex::new(from)));
            }
        }
    }

    /// A process waits until something has come.
    pub(super) fn wait(&self, process: usize, life: u64) {
        let mut state = self.lock();
        if !state.is_over && state.processes[process].deaths == life && !state.dies(process) {
            state.processes[process].is = Is::Waiting;
            state = self.hand_over(state, process);
        } else {
            state = self.go_on(state);
        }
        let is_over = state.is_over || state.processes[process].deaths != life;
        drop(state);
        if is_over && !thread::panicking() {
            // This ends the thread without a message.
            resume_unwind(Box::new("the process has died".to_owned()));
        }
    }

    /// Gives the turn to the next process, and waits for its own next turn.
    fn hand_over<'a>(&'a self, mut state: MutexGuard<'a, State>, process: usize) -> MutexGuard<'a, State> {
        if state.turn == Some(process) {
            state.turn = None;
        }
        state = self.go_on(state);
        while !state.is_over && state.turn != Some(process) {
            state = self.turns[process].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Lets things happen until a process can go on, which then has its turn.
    pub(super) fn go_on<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.moves {
            return state;
        }
        state.moves = true;
        while !state.is_over && state.turn.is_none() {
            let now = state.now;
            if let Some(first) = state.due.first_entry()
                && first.key().0 <= now
            {
                let (line, bytes) = first.remove();
                state = self.deliver(state, line, bytes);
                continue;
            }
            match next(&mut state) {
                Next::Again => {}
                Next::Turn(process) => state.turn = Some(process),
                Next::Nobody => break,
                Next::Look => thread::sleep(LOOK),
            }
        }
        state.moves = false;
        match state.turn {
            _ if state.is_over => self.turns.iter().for_each(Condvar::notify_all),
            Some(process) => self.turns[process].notify_all(),
            None => {}
        }
        state
    }

    /// Hands over what has arrived. What takes it may send something itself.
    fn deliver<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        line: Line,
        bytes: Option<Vec<u8>>,
    ) -> MutexGuard<'a, State> {
        let (_, from, to) = line;
        if matches!(state.processes[to].is, Is::Starting | Is::Joining | Is::Gone) {
            // It has left that world.
            return state;
        }
        let what = bytes.as_deref().map_or("the end of its line".to_owned(), shown);
        state.note(to, What::Says(format!("<- {from}  {what}")));
        drop(state);
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = readers.get(&line).cloned();
        drop(readers);
        if let Some(reader) = reader {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            match &bytes {
                Some(bytes) => reader.take(bytes),
                None => reader.end(),
            }
        }
        state = self.lock();
        state.stuck = 0;
        if state.processes[to].is == Is::Waiting {
            let wakes = *state.draw.one_of(&[0, 10, 300]);
            state.processes[to].is = Is::Ready(state.now + wakes);
        }
        state
    }

    /// Ends the hub: nobody waits any more.
    pub(super) fn end(&self) -> (Timeline, Option<String>) {
        let mut state = self.lock();
        state.is_over = true;
        let told = (state.timeline.clone(), state.verdict.clone());
        drop(state);
        // The readers hold the lines, and these the hub.
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = std::mem::take(&mut *readers);
        drop(readers);
        drop(ended);
        told
    }
}

/// What comes next.
enum Next {
    /// Something has changed.
    Again,
    Turn(usize),
    /// A thread will come, or all are gone.
    Nobody,
    /// Those who wait look whether some moment of real time is over.
    Look,
}

fn next(state: &mut State) -> Next {
    let ready = |is: Is| match is {
        Is::Ready(at) => Some(at),
        _ => None,
    };
    let all = || state.processes.iter().map(|process| process.is).enumerate();
    let can = all().filter(|(_, is)| ready(*is).is_some_and(|at| at <= state.now));
    let can: Vec<usize> = can.map(|(process, _)| process).collect();
    if !can.is_empty() {
        return Next::Turn(*state.draw.one_of(&can));
    }
    let times = all().filter_map(|(_, is)| ready(is));
    let times = times.chain(state.due.first_key_value().map(|((at, _), _)| *at));
    if let Some(time) = times.min() {
        state.now = time;
        return Next::Again;
    }
    let has = |wanted: Is| all().any(|(_, is)| is == wanted);
    if has(Is::Starting) {
        return Next::Nobody;
    }
    if has(Is::Waiting) {
        state.stuck += 1;
        if state.stuck > STUCK {
            state.end_badly("nobody can move:");
        }
        let now = state.now;
        for process in state.processes.iter_mut().filter(|process| process.is == Is::Waiting) {
            process.is = Is::Ready(now);
        }
        return Next::Look;
    }
    match has(Is::Joining) {
        true => {
            state.begin();
            Next::Again
        }
        false => Next::Nobody,
    }
}

/// Bytes in words.
pub(super) fn shown(bytes: &[u8]) -> String {
    format!("{} bytes", bytes.len())
}
