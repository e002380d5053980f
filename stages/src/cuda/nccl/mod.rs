//! Transfers between GPUs of different processes, by NCCL.
//!
//! A communicator does not block: each call begins something, and is asked about until it has ended, with a question
//! of the caller's in between, and a deadline while connections are made. A transfer itself is work on the GPU's transfer stream, in the order of the calls; edges by events tie it
//! to what computes, and no host waits for it.

mod handle;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::nccl::sys::{self, ncclDataType_t, ncclResult_t, ncclUniqueId};

use super::{Gpu, Library};
use crate::device::{DType, Device, Place};
use crate::error::{DeviceError, Error, NcclError, Result};
use crate::stage::Bytes;
use crate::tensor::Tensor;
use handle::Handle;

/// For so long a call is asked about without a pause: most have ended by then.
const AWAKE: Duration = Duration::from_millis(1);

/// How long to pause between two questions after that.
const PAUSE: Duration = Duration::from_micros(100);

/// What the members of one communicator have in common: made by one of them, and told to the others.
#[derive(Clone, Copy, Debug)]
pub struct UniqueId(ncclUniqueId);

impl UniqueId {
    /// Its size.
    pub const BYTES: usize = 128;

    /// A new one. The process that makes it has to live until all members have joined.
    ///
    /// # Errors
    /// When there is no NCCL, or it finds no network: says what to do.
    pub fn make() -> Result<Self> {
        Library::Nccl.require()?;
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: the library is there, and the pointer is to a local.
        match unsafe { sys::ncclGetUniqueId(&mut id) } {
            ncclResult_t::ncclSuccess => Ok(Self(id)),
            code => Err(handle::cannot_begin(code)),
        }
    }

    /// As bytes, to be told to others.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.internal.map(|byte| byte as u8)
    }

    /// What [`UniqueId::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let internal = bytes.map(|byte| byte as _);
        Self(ncclUniqueId { internal })
    }
}

/// Who takes part in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// This one's number, from 0.
    pub number: u32,
    /// How many there are. No two of them may be on one GPU.
    pub of: u32,
    /// This one's GPU.
    pub device: Device,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, of, device } = self;
        write!(f, "{device} (member {number} of {of})")
    }
}

/// One member's part in transfers between GPUs. The thread that makes it is the one that uses it.
///
/// Dropping it ends transfers that are under way here; other members' transfers with this one never end then, and they have to [abort](Aborter)
/// too.
#[derive(Debug)]
pub struct Communicator {
    handle: Arc<Handle>,
    gpu: u32,
}

/// Ends a communicator's transfers from any thread, and with them whatever waits for them.
#[derive(Clone, Debug)]
pub struct Aborter(Arc<Handle>);

impl Aborter {
    /// Ends them. The memory that they were to fill holds anything then, and the communicator is of no more use.
    pub fn abort(&self) {
        self.0.abort();
    }
}

impl Communicator {
    /// Joins the members that have the same id: waits for all, asking `going_on` meanwhile.
    ///
    /// # Errors
    /// When there is no NCCL, no such GPU, two members are on one GPU, a member has not come in time, or NCCL finds no way to one: says what to do.
    pub fn join<E: From<Error>>(
        id: &UniqueId,
        member: Member,
        deadline: Duration,
        going_on: impl FnMut() -> Result<(), E>,
    ) -> Result<Self, E> {
        Library::Nccl.require()?;
        let Device::Cuda(gpu) = member.device else {
            let device = member.device;
            return Err(Error::from(NcclError::NoGpu { device }).into());
        };
        // Its context is the thread's from here on.
        Gpu::of(gpu)?;
        let (handle, code) = Handle::open(id.0, member);
        let communicator = Self {
            handle: Arc::new(handle),
            gpu,
        };
        communicator.settle("linking the GPUs", code, Some(deadline), going_on)?;
        Ok(communicator)
    }

    /// What ends its transfers from any thread.
    pub fn aborter(&self) -> Aborter {
        Aborter(Arc::clone(&self.handle))
    }

    /// Makes the connections to these members and from those, all at once: later calls do not wait for the other side then. Each member that one
    /// sends to has to receive from this one by the same call.
    ///
    /// # Errors
    /// What NCCL or `going_on` reports, or that the deadline has passed.
    pub fn connect<E: From<Error>>(
        &self,
        to: &[u32],
        from: &[u32],
        deadline: Duration,
        mut going_on: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        const NUMBER: usize = 4;
        let gpu = Gpu::of(self.gpu)?;
        let places = to.len() + from.len();
        let memory = gpu.memory_for_transfer(NUMBER * places)?;
        let stream = gpu.transfers().raw().cast();
        let at = |place: usize| memory.at().offset(NUMBER * place).0;
        let number = ncclDataType_t::ncclFloat32;
        let code = self.handle.call(|raw| {
            // SAFETY: the communicator is alive, and the memory is there until the stream is done, below.
            unsafe {
                sys::ncclGroupStart();
                for (place, &peer) in to.iter().enumerate() {
                    sys::ncclSend(at(place) as *const _, 1, number, peer as i32, raw, stream);
                }
                for (place, &peer) in (to.len()..).zip(from) {
                    sys::ncclRecv(at(place) as *mut _, 1, number, peer as i32, raw, stream);
                }
                sys::ncclGroupEnd()
            }
        })?;
        self.settle("connecting the GPUs", code, Some(deadline), &mut going_on)?;
        self.until(
            "the first transfer between the GPUs",
            Some(deadline),
            going_on,
            || Ok(gpu.transfers().is_idle()?.then_some(())),
        )
    }

    /// Queues a tensor of this member's GPU, marked as ready, for another member. Its memory is not used again before it is sent.
    ///
    /// # Errors
    /// What NCCL or `going_on` reports; also when the tensor is elsewhere.
    pub fn send<E: From<Error>>(
        &self,
        tensor: &Tensor,
        to: u32,
        going_on: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let Place { device, dtype } = tensor.place();
        if device != Device::Cuda(self.gpu) {
            let error = DeviceError::Elsewhere {
                shape: *tensor.shape(),
                from: Device::Cuda(self.gpu),
                on: device,
            };
            return Err(Error::from(error).into());
        }
        let gpu = Gpu::of(self.gpu)?;
        let (memory, stream) = (tensor.device_memory(), gpu.transfers());
        memory.awaited_by(stream)?;
        let (at, count) = (memory.at().0 as *const _, tensor.bytes() as usize / dtype.bytes());
        let code = self.handle.call(|raw| {
            // SAFETY: the memory stays as it is until the stream is done with it, by the mark below.
            unsafe { sys::ncclSend(at, count, numbers(dtype), to as i32, raw, stream.raw().cast()) }
        })?;
        self.settle(&format!("sending to member {to}"), code, None, going_on)?;
        Ok(memory.used_on(stream)?)
    }

    /// Queues the receipt of numbers from another member: a tensor on this member's GPU, marked as ready once they are there.
    ///
    /// # Errors
    /// What NCCL or `going_on` reports; [`OutOfMemory`](crate::error::OutOfMemory).
    pub fn receive<E: From<Error>>(
        &self,
        dims: &[usize],
        dtype: DType,
        from: u32,
        going_on: impl FnMut() -> Result<(), E>,
    ) -> Result<Tensor, E> {
        let gpu = Gpu::of(self.gpu)?;
        let count: usize = dims.iter().product();
        let (memory, stream) = (gpu.memory_for_transfer(count * dtype.bytes())?, gpu.transfers());
        let at = memory.at().0 as *mut _;
        let code = self.handle.call(|raw| {
            // SAFETY: the memory is as large, and nobody uses it before the stream has filled it, by the mark below.
            unsafe { sys::ncclRecv(at, count, numbers(dtype), from as i32, raw, stream.raw().cast()) }
        })?;
        self.settle(&format!("receiving from member {from}"), code, None, going_on)?;
        memory.filled_by(stream)?;
        Ok(Tensor::in_memory(memory, dtype, dims))
    }

    /// Whether all goes well.
    ///
    /// # Errors
    /// What NCCL reports of transfers under way, such as a lost connection; also after it was aborted.
    pub fn check(&self) -> Result<()> {
        match self.handle.state()? {
            ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress => Ok(()),
            code => Err(self.handle.failed("transfers between GPUs", code)),
        }
    }

    /// Waits until what a call has begun has ended.
    fn settle<E: From<Error>>(
        &self,
        what: &str,
        begun: ncclResult_t,
        deadline: Option<Duration>,
        going_on: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = begun;
        self.until(what, deadline, going_on, || {
            if state == ncclResult_t::ncclInProgress {
                state = self.handle.state()?;
            }
            match state {
                ncclResult_t::ncclInProgress => Ok(None),
                ncclResult_t::ncclSuccess => Ok(Some(())),
                code => Err(self.handle.failed(what, code)),
            }
        })
    }

    /// Asks until there is an answer, as long as all goes on and there is time.
    fn until<E: From<Error>>(
        &self,
        what: &str,
        deadline: Option<Duration>,
        mut going_on: impl FnMut() -> Result<(), E>,
        mut ask: impl FnMut() -> Result<Option<()>>,
    ) -> Result<(), E> {
        let since = Instant::now();
        while ask()?.is_none() {
            going_on()?;
            let waited = since.elapsed();
            if let Some(deadline) = deadline.filter(|&deadline| waited > deadline) {
                return Err(self.handle.too_late(what, deadline).into());
            }
            if waited < AWAKE {
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

fn numbers(dtype: DType) -> ncclDataType_t {
    match dtype {
        DType::F32 => ncclDataType_t::ncclFloat32,
        DType::Bf16 => ncclDataType_t::ncclBfloat16,
    }
}
