//! What layers keep from forward to backward.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::pool::Shelves;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::tensor::{Bytes, Tensor};

/// How many tensors a [`Kept`] holds without an allocation of its own. Attention keeps this many. More room
/// would cost time, because a `Kept` is moved from layer to layer (`benches/RESULTS.md`).
const IN_PLACE: usize = 3;

/// What a layer keeps from forward to backward-input, or from there to backward-weight.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The context of the forward pass.
    pub ctx: ForwardContext,
    tensors: SmallVec<[Tensor; IN_PLACE]>,
    inner: List,
    foreign: Option<Rc<Foreign>>,
}

/// A value of another library.
struct Foreign {
    value: Box<dyn Any>,
    bytes: u64,
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({} bytes)", self.bytes)
    }
}

impl Kept {
    /// Keeps a layer's own tensors.
    pub fn new(ctx: ForwardContext, tensors: impl IntoIterator<Item = Tensor>) -> Self {
        Self { ctx, tensors: tensors.into_iter().collect(), inner: List::default(), foreign: None }
    }

    /// Keeps a value of another library too, such as its tape. It holds `bytes` bytes, besides the tensors.
    /// Clones share it.
    #[must_use]
    pub fn with_foreign(self, value: impl Any, bytes: u64) -> Self {
        let value = Box::new(value);
        Self { foreign: Some(Rc::new(Foreign { value, bytes })), ..self }
    }

    /// The value of another library that the layer put in, if it is of this type.
    pub fn foreign<T: Any>(&self) -> Option<&T> {
        self.foreign.as_ref()?.value.downcast_ref()
    }

    /// Keeps what the layers inside a composite layer keep.
    pub fn nested(
        ctx: ForwardContext,
        inner: impl IntoIterator<Item = Kept, IntoIter: ExactSizeIterator>,
    ) -> Self {
        let inner = inner.into_iter();
        let mut list = List::with_room(inner.len());
        inner.for_each(|kept| list.push(kept));
        Self::listed(ctx, list)
    }

    /// Like [`Kept::nested`], from a list that exists already.
    pub(crate) fn listed(ctx: ForwardContext, inner: List) -> Self {
        Self { ctx, tensors: SmallVec::new(), inner, foreign: None }
    }

    /// The tensors that the layer put in.
    ///
    /// # Panics
    /// When there are not exactly `N`: the layer's forward and backward disagree.
    pub fn into_tensors<const N: usize>(self) -> [Tensor; N] {
        let count = self.tensors.len();
        exactly(self.tensors.into_iter())
            .unwrap_or_else(|| panic!("the layer kept {count} tensors and asks for {N}"))
    }

    /// Keeps what layers inside keep too.
    #[must_use]
    pub(crate) fn with_inner<const N: usize>(self, inner: [Kept; N]) -> Self {
        let mut list = List::with_room(N);
        inner.into_iter().for_each(|kept| list.push(kept));
        Self { inner: list, ..self }
    }

    /// The layer's own tensors, however many there are.
    pub(crate) fn take_tensors(&mut self) -> impl ExactSizeIterator<Item = Tensor> {
        self.tensors.drain(..)
    }

    /// Like [`Kept::into_tensors`], of a layer that may have put in one more.
    pub(crate) fn into_tensors_and_one<const N: usize>(mut self) -> ([Tensor; N], Option<Tensor>) {
        let last = if self.tensors.len() > N { self.tensors.pop() } else { None };
        (self.into_tensors(), last)
    }

    /// What the layers inside a composite layer keep.
    ///
    /// # Panics
    /// When there are not exactly `N`: the layer's forward and backward disagree.
    pub fn into_inner<const N: usize>(mut self) -> [Kept; N] {
        let count = self.inner.0.len();
        exactly(self.take_inner())
            .unwrap_or_else(|| panic!("the layer kept {count} inner layers and asks for {N}"))
    }

    /// Takes out what the layers inside a composite layer keep, in forward order.
    pub fn take_inner(&mut self) -> impl DoubleEndedIterator<Item = Kept> + ExactSizeIterator {
        self.take_entries().map(|entry| entry.kept)
    }

    /// Like [`Kept::take_inner`], with the shapes of the layers' inputs.
    pub(crate) fn take_entries(&mut self) -> impl DoubleEndedIterator<Item = Entry> + ExactSizeIterator {
        self.inner.0.drain(..)
    }

    fn blocks(&self, found: &mut Vec<(usize, u64)>) {
        found.extend(self.tensors.iter().map(|tensor| (tensor.memory(), tensor.bytes())));
        if let Some(foreign) = &self.foreign {
            found.push((Rc::as_ptr(foreign).addr(), foreign.bytes));
        }
        self.inner.0.iter().for_each(|entry| entry.kept.blocks(found));
    }

    /// Calls `show` with the blocks of memory held. Each block is its identity ([`Tensor::memory`]) and its
    /// bytes. A block that several tensors share appears once.
    pub fn with_blocks<T>(&self, show: impl FnOnce(&[(usize, u64)]) -> T) -> T {
        let mut blocks = BLOCKS.take();
        self.blocks(&mut blocks);
        blocks.sort_unstable();
        blocks.dedup_by_key(|block| block.0);
        let shown = show(&blocks);
        blocks.clear();
        BLOCKS.set(blocks);
        shown
    }
}

impl Bytes for Kept {
    /// The memory held. Memory that several tensors share counts once.
    fn bytes(&self) -> u64 {
        self.with_blocks(|blocks| blocks.iter().map(|block| block.1).sum())
    }

    /// Not what is inside of a value of another library.
    fn visit_tensors(&mut self, visit: &mut dyn FnMut(&mut Tensor)) {
        self.tensors.iter_mut().for_each(&mut *visit);
        let inner = self.inner.0.iter_mut();
        inner.for_each(|entry| entry.kept.visit_tensors(visit));
    }
}

/// All items, if there are exactly `N`.
fn exactly<T, const N: usize>(mut items: impl ExactSizeIterator<Item = T>) -> Option<[T; N]> {
    (items.len() == N).then(|| std::array::from_fn(|_| items.next().expect("there are N")))
}

thread_local! {
    static LISTS: Shelves<Vec<Entry>> = const { Shelves::new() };
    static BLOCKS: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) };
}

/// What one layer of a chain keeps.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kept: Kept,
    /// The shape of the layer's input. `None` after backward-input.
    pub(crate) input: Option<Shape>,
}

/// What the layers of a chain keep. When it is dropped, its allocation goes to this thread's shelf of its
/// capacity, to be used again.
#[derive(Debug, Default)]
pub(crate) struct List(Vec<Entry>);

impl List {
    /// An empty list with room for this many entries.
    pub(crate) fn with_room(room: usize) -> Self {
        let reused = LISTS.with(|lists| lists.take(room));
        Self(reused.unwrap_or_else(|| Vec::with_capacity(room)))
    }

    pub(crate) fn push(&mut self, kept: Kept) {
        self.0.push(Entry { kept, input: None });
    }

    /// Adds what a layer keeps, with the shape of its input.
    pub(crate) fn push_of(&mut self, input: Shape, kept: Kept) {
        let input = Some(input);
        self.0.push(Entry { kept, input });
    }
}

impl Clone for List {
    fn clone(&self) -> Self {
        let mut copy = Self::with_room(self.0.len());
        copy.0.extend_from_slice(&self.0);
        copy
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let mut list = std::mem::take(&mut self.0);
        if list.capacity() > 0 {
            list.clear();
            // While a thread ends, its shelves may be gone already.
            let _ = LISTS.try_with(|lists| lists.put(list.capacity(), list));
        }
    }
}
