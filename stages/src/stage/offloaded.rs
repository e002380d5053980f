//! Activations in host memory, between a forward and its backward.
//!
//! Numbers leave and come back on streams of their own, one for each direction, beside computing. Device
//! memory is taken and freed in the order of the compute stream, as all other memory is: a copy begins after
//! the work before it, and the compute stream waits for it where the caller says. So how much memory is in
//! use depends on the order of the calls alone, and not on how fast copies are.

use std::rc::Rc;

use crate::cuda::driver::Event;
use crate::cuda::memory::offload::{Block, Direction, GRAIN, Room};
use crate::cuda::{Gpu, Pinned};
use crate::device::Device;
use crate::error::{Purpose, Result};
use crate::tensor::Bytes;

/// The numbers of a value that was kept on a GPU, while they are not there: on their way to the host, there,
/// or on their way back. What is kept on the host is left as it is.
///
/// The memory of the host is used again for later values of the same size, or of about the same size. A value
/// that is dropped before it [came back](Offloaded::finish) gives back all that it has.
#[derive(Debug)]
pub struct Offloaded {
    gpu: Rc<Gpu>,
    blocks: Vec<Block>,
    room: Option<Room>,
    copying: Option<Direction>,
    bytes: u64,
}

impl Offloaded {
    /// Starts to copy what the value holds on a GPU to the host, after all work so far. `None` if it holds
    /// nothing there. The value cannot be used until [`Offloaded::finish`].
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::error::OutOfMemory) if the host has too little memory that a GPU can read and
    /// write by itself, and whatever the GPU reports.
    pub fn start(value: &mut impl Bytes) -> Result<Option<Self>> {
        let mut device = None;
        value.visit_tensors(&mut |tensor| {
            if let Device::Cuda(index) = tensor.place().device {
                device = Some(index);
            }
        });
        let Some(index) = device else {
            return Ok(None);
        };
        let mut offloaded = Self::of(Gpu::of(index)?, value)?;
        offloaded.copy(Direction::Out)?;
        Ok(Some(offloaded))
    }

    /// Takes the device memory out of the value.
    fn of(gpu: Rc<Gpu>, value: &mut impl Bytes) -> Result<Self> {
        let mut blocks = gpu.offloads()?.lists.borrow_mut().pop().unwrap_or_default();
        let (before, mut room) = (value.bytes(), 0);
        value.visit_tensors(&mut |tensor| {
            let (at, bytes) = (tensor.memory(), tensor.bytes() as usize);
            let shared = |block: &Block| block.memory.as_ref().is_some_and(|memory| memory.address() == at);
            let known = blocks.iter().position(shared);
            let memory = tensor.vacate(known.unwrap_or(blocks.len()));
            if let (Some(memory), None) = (memory, known) {
                blocks.push(Block { memory: Some(memory), start: room, bytes });
                room += bytes.next_multiple_of(GRAIN);
            }
        });
        let mut offloaded = Self { gpu, blocks, room: None, copying: None, bytes: before - value.bytes() };
        offloaded.room = Some(offloaded.room_of(room)?);
        Ok(offloaded)
    }

    fn room_of(&self, bytes: usize) -> Result<Room> {
        let offloads = self.gpu.offloads()?;
        if let Some(room) = offloads.rooms.take(bytes).or_else(|| offloads.rooms.take_larger(bytes)) {
            return Ok(room);
        }
        if offloads.rooms.would_be_too_much(bytes) {
            // Copies that began earlier may still read or write the others.
            offloads.rooms.clear_if(|room| room.copied.is_done().unwrap_or(false));
        }
        let host = Pinned::new(bytes).map_err(|error| error.wanted_for(Purpose::Offload))?;
        let room = Room { size: bytes, host, copied: Event::new(false)? };
        offloads.rooms.made(bytes);
        Ok(room)
    }

    /// How many bytes left the device.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn room(&self) -> &Room {
        self.room.as_ref().expect("there until it is dropped")
    }

    fn copy(&mut self, direction: Direction) -> Result<()> {
        let offloads = self.gpu.offloads()?;
        offloads.begin(direction, self.gpu.stream())?;
        self.copying = Some(direction);
        for block in &self.blocks {
            offloads.copy(direction, block, self.room())?;
        }
        self.room().copied.record(offloads.stream(direction))
    }

    /// Frees the device memory: later work on the device waits until all is copied.
    ///
    /// # Errors
    /// Whatever the GPU reports.
    pub fn free(&mut self) -> Result<()> {
        self.await_copies()?;
        self.blocks.iter_mut().for_each(|block| block.memory = None);
        Ok(())
    }

    /// Takes device memory again, and starts to copy back, after all work so far. What is copied must have
    /// been [freed](Offloaded::free).
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::error::OutOfMemory), and whatever the GPU reports.
    pub fn fetch(&mut self) -> Result<()> {
        for block in &mut self.blocks {
            block.memory = Some(self.gpu.memory_of(block.bytes)?);
        }
        self.copy(Direction::Back)
    }

    /// Gives the value its numbers back, which are on their way: later work on the device waits for them.
    ///
    /// # Errors
    /// Whatever the GPU reports.
    pub fn finish(mut self, value: &mut impl Bytes) -> Result<()> {
        self.await_copies()?;
        value.visit_tensors(&mut |tensor| {
            if let Some(number) = tensor.vacant() {
                let memory = self.blocks[number].memory.clone();
                tensor.occupy(memory.expect("it is fetched before it is finished"));
            }
        });
        Ok(())
    }

    /// Makes the compute stream wait for what is copied.
    fn await_copies(&mut self) -> Result<()> {
        self.gpu.stream().wait(&self.room().copied)?;
        self.copying = None;
        Ok(())
    }

    /// Makes the compute stream wait for copies that nobody has waited for, so that their memory can be used
    /// again.
    fn settle(&mut self) -> Result<()> {
        let (Some(direction), Some(room)) = (self.copying.take(), &self.room) else {
            return Ok(());
        };
        let offloads = self.gpu.offloads()?;
        let stream = offloads.stream(direction);
        let marked = room.copied.record(stream);
        marked.and_then(|()| self.gpu.stream().wait(&room.copied)).or_else(|_| stream.synchronize())
    }
}

impl Drop for Offloaded {
    fn drop(&mut self) {
        // If the wait fails, the device has failed, and the next call reports it.
        let _ = self.settle();
        let Ok(offloads) = self.gpu.offloads() else { return };
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.clear();
        offloads.lists.borrow_mut().push(blocks);
        if let Some(room) = self.room.take() {
            offloads.rooms.put(room.size, room);
        }
    }
}
