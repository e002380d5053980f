//! Buffers that go back to where they came from: a steady training step allocates nothing.
//!
//! Each thread (so each rank) has one pool. A buffer remembers its pool and returns there when the last tensor
//! that shares it is dropped, on whatever thread that happens: a wire that crosses to another rank comes home.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

type Shelves = Mutex<HashMap<usize, Vec<Vec<f32>>>>;

thread_local! {
    static POOL: Arc<Shelves> = Arc::default();
}

/// Numbers in memory that a pool takes back.
#[derive(Debug)]
pub(crate) struct Buffer {
    numbers: Vec<f32>,
    home: Option<Arc<Shelves>>,
}

impl Buffer {
    /// `count` numbers from the current thread's pool, contents unspecified.
    pub(crate) fn pooled(count: usize) -> Self {
        POOL.with(|pool| {
            let reused = pool.lock().get_mut(&count).and_then(Vec::pop);
            Self {
                numbers: reused.unwrap_or_else(|| vec![0.0; count]),
                home: Some(Arc::clone(pool)),
            }
        })
    }
}

impl From<Vec<f32>> for Buffer {
    /// A buffer that no pool takes back.
    fn from(numbers: Vec<f32>) -> Self {
        Self { numbers, home: None }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Self::pooled(self.numbers.len());
        copy.numbers.copy_from_slice(&self.numbers);
        copy
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            let numbers = std::mem::take(&mut self.numbers);
            home.lock().entry(numbers.len()).or_default().push(numbers);
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.numbers
    }
}
