//! Exchanges: transfers in both directions at once, on a stream of their own.

use cudarc::nccl::sys;

use super::{Communicator, Gpu};
use crate::cuda::Memory;
use crate::cuda::driver::Event;
use crate::device::DType;
use crate::error::Result;
use crate::shape::Shape;
use crate::tensor::Tensor;

impl Communicator {
    /// Queues tensors of this member's GPU, marked as ready, for sending to other members, and the receipt of
    /// tensors from others, as `taken` says. Returns one tensor for each entry of `taken`, marked as ready
    /// once its numbers are there. The members name each other in calls of the same order:
    /// what one sends in its n-th exchange with another, that one receives in its n-th.
    ///
    /// An exchange happens at once, so it cannot deadlock in itself. It waits for work that is on the compute
    /// stream now, and for earlier exchanges. It does not wait for [`Communicator::send`] and
    /// [`Communicator::receive`], which have another stream.
    ///
    /// # Errors
    /// As for [`Communicator::send`] and [`Communicator::receive`].
    pub fn exchange(&self, given: &[(u32, &Tensor)], taken: &[(u32, Shape, DType)]) -> Result<Vec<Tensor>> {
        let gpu = Gpu::of(self.gpu)?;
        let stream = gpu.exchanges();
        for (_, tensor) in given {
            self.check_here(tensor)?;
            tensor.device_memory().awaited_by(stream)?;
        }
        let memory = taken.iter().map(|(_, shape, dtype)| {
            let memory = gpu.memory_of(shape.count() * dtype.bytes())?;
            gpu.mark_ready(&memory)?;
            memory.awaited_by(stream)?;
            Ok(memory)
        });
        let memory = memory.collect::<Result<Vec<Memory>>>()?;
        let code = self.handle.call(|raw| {
            let stream = stream.raw().cast();
            // SAFETY: the communicator is alive, and the memory is large enough. Nobody changes what is sent,
            // or uses what is received, before the stream is done. The marks below ensure that.
            unsafe {
                sys::ncclGroupStart();
                for (to, tensor) in given.iter().filter(|(_, tensor)| tensor.shape().count() > 0) {
                    let (at, count) = (tensor.device_memory().at().0, tensor.shape().count());
                    let number = super::numbers(tensor.dtype());
                    sys::ncclSend(at as *const _, count, number, *to as i32, raw, stream);
                }
                let taken = taken.iter().zip(&memory);
                for ((from, shape, dtype), memory) in taken.filter(|((_, shape, _), _)| shape.count() > 0) {
                    let (at, number) = (memory.at().0 as *mut _, super::numbers(*dtype));
                    sys::ncclRecv(at, shape.count(), number, *from as i32, raw, stream);
                }
                sys::ncclGroupEnd()
            }
        })?;
        let queued = self.handle.succeeded("exchanging numbers between the GPUs", code);
        let given = given.iter().map(|(_, tensor)| tensor.device_memory());
        let all: Vec<_> = given.chain(&memory).collect();
        let marked = queued.and_then(|()| all.iter().try_for_each(|memory| memory.used_on(stream)));
        self.end_unmarked(stream, &all, marked)?;
        let tensors = memory.into_iter().zip(taken);
        let tensors =
            tensors.map(|(memory, (_, shape, dtype))| Tensor::in_memory(memory, *dtype, shape.dims()));
        Ok(tensors.collect())
    }

    /// Makes later work on the compute stream wait for all exchanges so far.
    ///
    /// # Errors
    /// When the GPU reports an error.
    pub fn await_exchanges(&self) -> Result<()> {
        let gpu = Gpu::of(self.gpu)?;
        let event = Event::new(false)?;
        event.record(gpu.exchanges())?;
        gpu.stream().wait(&event)
    }
}
