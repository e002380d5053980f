//! Which layer a thread runs now. Other threads may read it, to tell where a stage that hangs is.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    static OWN: RefCell<Option<CurrentLayer>> = const { RefCell::new(None) };
}

/// The place in its stage of the layer that a thread runs. [`Sequential`](crate::Sequential) writes it before
/// each layer: one number, without a lock.
#[derive(Clone, Debug, Default)]
pub struct CurrentLayer(Arc<Slot>);

/// It has cache lines of its own. If it shared a line with another thread's, each write would wait for that
/// thread's core.
#[derive(Debug)]
#[repr(align(128))]
struct Slot(AtomicU32);

/// No layer.
const NONE: u32 = u32::MAX;

impl Default for Slot {
    fn default() -> Self {
        Self(AtomicU32::new(NONE))
    }
}

impl CurrentLayer {
    /// From now on, the layers of the calling thread are written here.
    pub fn write_here(&self) {
        OWN.replace(Some(self.clone()));
    }

    /// The layer's place in its stage, from 0: of [`Stage::layer_names`](crate::Stage::layer_names). `None`
    /// if no layer was begun since [`CurrentLayer::forget`].
    pub fn index(&self) -> Option<usize> {
        let index = self.0.0.load(Ordering::Relaxed);
        (index != NONE).then_some(index as usize)
    }

    /// No layer runs.
    pub fn forget(&self) {
        self.0.0.store(NONE, Ordering::Relaxed);
    }
}

/// This thread begins a layer. `first` is the place in the stage of the chain's first layer: `None` for a
/// chain inside of another layer, which is not told.
#[inline]
pub(crate) fn begin(first: Option<usize>, index: usize) {
    let Some(first) = first else { return };
    OWN.with_borrow(|own| {
        if let Some(own) = own {
            own.0.0.store((first + index) as u32, Ordering::Relaxed);
        }
    });
}
