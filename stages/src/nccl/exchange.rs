//! Exchanges: transfers in both directions at once, on a stream of their own.

use cudarc::nccl::sys::{self, ncclDataType_t};

use super::{Communicator, Gpu};
use crate::cuda::Memory;
use crate::cuda::driver::Event;
use crate::device::DType;
use crate::error::Result;
use crate::tensor::{Bytes, Tensor};

impl Communicator {
    /// Queues tensors of this member's GPU, marked as ready, for sending to other members, and the receipt of
    /// `f32` numbers from others, as many as `taken` says. Returns one tensor for each entry of `taken`,
    /// marked as ready once its numbers are there. The members name each other in calls of the same order:
    /// what one sends in its n-th exchange with another, that one receives in its n-th.
    ///
    /// An exchange happens at once, so it cannot deadlock in itself. It waits for work that is on the compute
    /// stream now, and for earlier exchanges. It does not wait for [`Communicator::send`] and
    /// [`Communicator::receive`], which have another stream.
    ///
    /// # Errors
    /// As for [`Communicator::send`] and [`Communicator::receive`].
    pub fn exchange(&self, given: &[(u32, &Tensor)], taken: &[(u32, usize)]) -> Result<Vec<Tensor>> {
        let gpu = Gpu::of(self.gpu)?;
        let stream = gpu.exchanges();
        for (_, tensor) in given {
            self.check_here(tensor)?;
            tensor.device_memory().awaited_by(stream)?;
        }
        let memory = taken.iter().map(|(_, count)| {
            let memory = gpu.memory_of(count * DType::F32.bytes())?;
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
                for (to, tensor) in given {
                    let (at, dtype) = (tensor.device_memory().at().0, tensor.dtype());
                    let count = tensor.bytes() as usize / dtype.bytes();
                    sys::ncclSend(at as *const _, count, super::numbers(dtype), *to as i32, raw, stream);
                }
                for ((from, count), memory) in taken.iter().zip(&memory) {
                    let number = ncclDataType_t::ncclFloat32;
                    sys::ncclRecv(memory.at().0 as *mut _, *count, number, *from as i32, raw, stream);
                }
                sys::ncclGroupEnd()
            }
        })?;
        self.handle.succeeded("exchanging numbers between the GPUs", code)?;
        let given = given.iter().map(|(_, tensor)| tensor.device_memory());
        let all: Vec<_> = given.chain(&memory).collect();
        self.mark(stream, &all, |memory| memory.used_on(stream))?;
        let tensors = memory.into_iter().zip(taken);
        let tensors = tensors.map(|(memory, (_, count))| Tensor::in_memory(memory, DType::F32, &[*count]));
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
