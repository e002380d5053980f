//! The thread that watches the ranks of this process, and asks other processes about theirs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::board::Board;
use super::inquiry::Inquiry;
use super::told::Told;
use super::typical_wait::StallWarning;
use crate::ended::await_end;
use crate::error::CallError;
use crate::fabric::Others;
use crate::interrupt::{Answering, questions};
use crate::mesh::Mesh;
use crate::situation::{Root, Situation, Stall};

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// The longest time that counts between two looks. If this process was stopped meanwhile, or got no core, its
/// ranks could not move either.
const AWAKE: Duration = Duration::from_millis(500);

/// The time between two inquiries while a stall is suspected.
const AGAIN: Duration = Duration::from_secs(1);

/// If another process holds the others up, it ends the call itself. If it does not do that within this time,
/// this one does.
const GRACE: Duration = Duration::from_secs(5);

/// Is told of stalls.
pub(crate) type OnStall = Arc<dyn Fn(&Stall) + Send + Sync>;

/// Looks once at the ranks of a process. It is told how much time has passed since the last look.
pub type Look = Box<dyn FnMut(Duration) + Send>;

/// Takes what looks at the ranks, and calls it instead of a thread.
pub(crate) type TakesLook = Arc<dyn Fn(Look) + Send + Sync>;

/// When ranks count as stalled, and who looks at them.
#[derive(Clone)]
pub(crate) struct StallRules {
    /// When it is told.
    pub(crate) warning: StallWarning,
    /// When the call ends. `None`: never.
    pub(crate) limit: Option<Duration>,
    /// `None`: a thread looks.
    pub(crate) looks: Option<TakesLook>,
}

/// Watches until it is dropped.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    /// `None` if somebody else looks.
    thread: Option<JoinHandle<()>>,
}

/// What the thread shares with others.
#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    /// Nothing more is to be told: the call has ended early.
    is_over: AtomicBool,
    listeners: Mutex<Vec<OnStall>>,
}

impl Watcher {
    /// Starts the thread, unless another one looks.
    ///
    /// # Errors
    /// When the system cannot start it.
    pub(super) fn start(
        board: Board,
        others: Others,
        mesh: Mesh,
        StallRules { limit, looks, .. }: StallRules,
    ) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let board = Arc::new(Mutex::new(board));
        let told = Arc::clone(&board);
        others.tell_by(move || {
            let program = lock(&told).program();
            postcard::to_stdvec(&program).expect("memory takes what is written")
        });
        let mut rounds = Rounds {
            shared: Arc::clone(&shared),
            board,
            inquiry: Inquiry::new(others.clone(), mesh),
            nudges: others.nudges(),
            others,
            limit,
            told: Told::default(),
            since: AGAIN,
            looked: Instant::now(),
            questions: questions(),
        };
        if let Some(take) = looks {
            take(Box::new(move |passed| {
                if !rounds.shared.ends.load(Ordering::Relaxed) {
                    rounds.look(passed);
                }
            }));
            let thread = None;
            return Ok(Self { shared, thread });
        }
        let watch = move || {
            let _answering = Answering::begin();
            while !rounds.shared.ends.load(Ordering::Relaxed) {
                let passed = since(&mut rounds.looked);
                rounds.look(passed);
                thread::park_timeout(LOOK);
            }
        };
        let thread = thread::Builder::new().name("watcher".to_owned()).spawn(watch)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// From now on this is told of stalls, on the watcher's thread.
    pub(super) fn add(&self, listener: OnStall) {
        lock(&self.shared.listeners).push(listener);
    }

    /// The call has ended early. Nothing more is told.
    pub(super) fn end(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

impl Watcher {
    /// Stops the thread.
    pub(super) fn stop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            await_end(thread);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The time since the last look, as far as it counts. This is the next one.
fn since(looked: &mut Instant) -> Duration {
    let passed = looked.elapsed().min(AWAKE);
    *looked = Instant::now();
    passed
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of the thread.
struct Rounds {
    shared: Arc<Shared>,
    board: Arc<Mutex<Board>>,
    inquiry: Inquiry,
    others: Others,
    nudges: u64,
    limit: Option<Duration>,
    told: Told,
    /// The time since the last inquiry.
    since: Duration,
    /// When this thread looked last.
    looked: Instant,
    /// How often SIGUSR1 had come when that was looked at.
    questions: u64,
}

impl Rounds {
    fn look(&mut self, passed: Duration) {
        lock(&self.board).look(passed);
        self.inquiry.look(passed);
        self.told.pass(passed);
        self.since += passed;
        if self.questions != questions() {
            self.questions = questions();
            let situation = self.inquire();
            eprintln!("what all ranks do, as process {} sees it:\n{situation}", self.others.process());
        }
        let nudged = self.others.nudges() != self.nudges;
        if nudged || self.since >= AGAIN && (self.told.is_open() || self.suspects()) {
            self.nudges = self.others.nudges();
            let situation = self.inquire();
            self.judge(&situation);
        }
    }

    /// Whether there may be a stall, by what this process does.
    fn suspects(&self) -> bool {
        let board = lock(&self.board);
        let Some(least) = board.usual().into_iter().chain(self.limit).min() else {
            return false;
        };
        if board.longest() < least {
            return false;
        }
        let own = Situation::of_one(self.others.process(), board.program());
        own.roots(least.as_secs_f64()).is_some()
    }

    fn inquire(&mut self) -> Situation {
        self.since = Duration::ZERO;
        let (board, told, shared) = (&self.board, &mut self.told, &self.shared);
        let looked = &mut self.looked;
        let mut look = || {
            let passed = since(looked);
            lock(board).look(passed);
            told.pass(passed);
            (!shared.ends.load(Ordering::Relaxed)).then_some(passed)
        };
        let own = |unheard| {
            let mut board = lock(board);
            board.set_unheard(unheard);
            board.program()
        };
        self.inquiry.ask(&mut look, &own)
    }

    fn judge(&mut self, situation: &Situation) {
        if self.shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        // The process with the lowest number that answers tells it, so it is told once. The process that has
        // told it tells its end too.
        match situation.first() {
            Some(first) if first < self.others.process() && !self.told.is_open() => {
                if situation.usual().is_some_and(|usual| situation.roots(usual).is_some()) {
                    self.others.nudge(first);
                }
            }
            _ => {
                if let Some(stall) = self.told.next(situation, situation.usual()) {
                    self.tell(&stall);
                }
            }
        }
        if let Some(limit) = self.limit
            && let Some(roots) = self.ends_call(situation, limit)
        {
            self.shared.is_over.store(true, Ordering::Relaxed);
            self.end_call(limit, roots, situation.clone());
        }
    }

    /// Ends the call, or gives up the processes that hold the others up, if others may take their places.
    fn end_call(&self, limit: Duration, roots: Vec<Root>, situation: Situation) {
        let lost = self.replaced(&situation, &roots).unwrap_or_default();
        if !lost.is_empty() && !lost.contains(&self.others.process()) {
            if !self.told.is_open() {
                // The loss of a process does not say it.
                self.tell(&Stall::Began { roots, situation });
            }
        } else {
            self.others.end_call(CallError::Stalled { limit, roots, situation: Box::new(situation) });
        }
        self.others.give_up(&lost);
    }

    fn tell(&self, stall: &Stall) {
        // A listener that hangs must not keep others from being added.
        let listeners = lock(&self.shared.listeners).clone();
        listeners.iter().for_each(|listener| listener(stall));
    }

    /// Who holds the others up for so long that this process ends its call.
    fn ends_call(&self, situation: &Situation, limit: Duration) -> Option<Vec<Root>> {
        let this = self.others.process();
        let roots = situation.roots(limit.as_secs_f64()).filter(|_| situation.is_in_call(this))?;
        let is_theirs = |root: &Root| match root {
            Root::Rank(rank) => situation.home(*rank) != Some(this),
            Root::Program(process) => *process != this,
            Root::Silent(_) | Root::Link(..) => false,
        };
        match !roots.is_empty() && roots.iter().all(is_theirs) {
            true => situation.roots(limit.saturating_add(GRACE).as_secs_f64()),
            false => Some(roots),
        }
    }

    /// The processes that hold the others up, if others may take the places of them all.
    fn replaced(&self, situation: &Situation, roots: &[Root]) -> Option<Vec<u32>> {
        let homes = roots.iter().map(|root| situation.process_of(*root));
        let homes: Option<Vec<u32>> = homes.collect();
        homes.filter(|homes| !homes.is_empty() && self.others.replaces())
    }
}
