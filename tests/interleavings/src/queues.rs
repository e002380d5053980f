//! What the engine uses of `crossbeam-channel` and `crossbeam-queue`: a queue behind one lock of `loom`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex, MutexGuard};

struct Queue<T> {
    state: Mutex<State<T>>,
    /// Something was put in or taken out, or one of the sides has gone.
    changed: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    room: usize,
    has_receiver: bool,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no panic inside")
    }

    /// Waits until this gives something.
    fn wait<R>(&self, mut get: impl FnMut(&mut State<T>) -> Option<R>) -> R {
        let mut state = self.lock();
        loop {
            if let Some(got) = get(&mut state) {
                self.changed.notify_all();
                return got;
            }
            state = self.changed.wait(state).expect("no panic inside");
        }
    }
}

pub struct Sender<T>(Arc<Queue<T>>);

pub enum TrySendError<T> {
    Full(T),
    Disconnected(T),
}

/// Gives back what could not be sent: there is no receiver.
pub struct SendError<T>(pub T);

/// There is nothing, or there never will be.
#[derive(Debug)]
pub struct Nothing;

impl<T> Sender<T> {
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.lock();
        if !state.has_receiver {
            return Err(TrySendError::Disconnected(item));
        }
        if state.items.len() == state.room {
            drop(state);
            // A thread that tries again and again lets others make room.
            loom::thread::yield_now();
            return Err(TrySendError::Full(item));
        }
        state.items.push_back(item);
        self.0.changed.notify_all();
        Ok(())
    }

    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        let mut item = Some(item);
        self.0.wait(|state| {
            if !state.has_receiver {
                return item.take().map(|item| Err(SendError(item)));
            }
            if state.items.len() == state.room {
                return None;
            }
            state.items.extend(item.take());
            Some(Ok(()))
        })
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// `None`: nothing ever comes.
pub struct Receiver<T>(Option<Arc<Queue<T>>>);

impl<T> Receiver<T> {
    pub fn try_recv(&self) -> Result<T, Nothing> {
        let queue = self.0.as_ref().ok_or(Nothing)?;
        let item = queue.lock().items.pop_front().ok_or(Nothing)?;
        queue.changed.notify_all();
        Ok(item)
    }

    /// Waits for ever if there is no sender left: the engine's receivers have one themselves.
    pub fn recv(&self) -> Result<T, Nothing> {
        let queue = self.0.as_ref().expect("nobody waits for what never comes");
        Ok(queue.wait(|state| state.items.pop_front()))
    }

    /// Without time, the wait ends at once.
    pub fn recv_timeout(&self, _: Duration) -> Result<T, Nothing> {
        self.try_recv()
    }

    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|queue| queue.lock().items.is_empty())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            let mut state = queue.lock();
            state.has_receiver = false;
            let items = std::mem::take(&mut state.items);
            drop(state);
            queue.changed.notify_all();
            drop(items);
        }
    }
}

pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { items: VecDeque::new(), room, has_receiver: true };
    let queue = Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new() });
    (Sender(Arc::clone(&queue)), Receiver(Some(queue)))
}

pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

pub fn never<T>() -> Receiver<T> {
    Receiver(None)
}

/// The queue by which memory comes home.
pub struct ArrayQueue<T> {
    room: usize,
    items: Mutex<VecDeque<T>>,
}

impl<T> ArrayQueue<T> {
    pub fn new(room: usize) -> Self {
        let items = Mutex::new(VecDeque::new());
        Self { room, items }
    }

    pub fn push(&self, item: T) -> Result<(), T> {
        let mut items = self.items.lock().expect("no panic inside");
        if items.len() == self.room {
            return Err(item);
        }
        items.push_back(item);
        Ok(())
    }

    pub fn pop(&self) -> Option<T> {
        self.items.lock().expect("no panic inside").pop_front()
    }
}
