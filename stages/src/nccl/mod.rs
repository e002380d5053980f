//! Transfers between GPUs of different processes, by NCCL.
//!
//! Joining and connecting wait for other members, until a deadline. Meanwhile they call a function of the
//! caller's, which can stop them. Transfers run on the GPU's transfer stream, in the order of the calls, and
//! exchanges on a stream of their own. Events order them with the compute stream, and the host does not wait.

pub(crate) mod exchange;
pub(crate) mod handle;

use std::env;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::nccl::sys::{self, ncclDataType_t, ncclResult_t, ncclUniqueId};

use crate::cuda::driver::Stream;
use crate::cuda::library::Library;
use crate::cuda::{Gpu, Memory};
use crate::device::{DType, Device};
use crate::error::{Error, Result};
use crate::tensor::{Bytes, Tensor};
use handle::Handle;

pub use handle::Member;

/// The pause between two polls.
const PAUSE: Duration = Duration::from_micros(100);

/// The id of one communicator. One member makes it and tells it to the others.
#[derive(Clone, Copy, Debug)]
pub struct UniqueId(ncclUniqueId);

impl UniqueId {
    /// The size in bytes.
    pub const BYTES: usize = 128;

    /// Makes a new id. The process that makes it must live until all members have joined.
    ///
    /// # Errors
    /// When there is no NCCL, or it finds no network. The error says what to do.
    pub fn make() -> Result<Self> {
        Library::Nccl.require()?;
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: the library is there, and the pointer is to a local.
        match unsafe { sys::ncclGetUniqueId(&mut id) } {
            ncclResult_t::ncclSuccess => Ok(Self(id)),
            code => Err(handle::cannot_begin(code)),
        }
    }

    /// The id as bytes, to send to the other members.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.internal.map(|byte| byte as u8)
    }

    /// The id from the bytes of [`UniqueId::to_bytes`].
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let internal = bytes.map(|byte| byte as _);
        Self(ncclUniqueId { internal })
    }
}

/// One member's part in transfers between GPUs. The thread that makes it is the one that uses it.
///
/// Dropping it ends this member's transfers. Transfers of other members with this one then never end, so
/// those members must [abort](Aborter) too.
#[derive(Debug)]
pub struct Communicator {
    handle: Arc<Handle>,
    gpu: u32,
}

/// Aborts a communicator from any thread. All that waits for its transfers then ends.
#[derive(Clone, Debug)]
pub struct Aborter(Arc<Handle>);

impl Aborter {
    /// Aborts the communicator. Memory that its transfers were filling then has unspecified contents, and the
    /// communicator cannot be used again.
    pub fn abort(&self) {
        self.0.abort();
    }
}

impl Communicator {
    /// Joins the members that have the same id. Waits for all of them, and calls `going_on` meanwhile.
    ///
    /// # Errors
    /// When there is no NCCL or no such GPU, two members are on one GPU, a member is too late, or NCCL cannot
    /// reach one. The error says what to do. Also the error of `going_on`.
    pub fn join<E: From<Error>>(
        id: &UniqueId,
        member: Member,
        deadline: Duration,
        going_on: impl FnMut() -> Result<(), E>,
    ) -> Result<Self, E> {
        Library::Nccl.require()?;
        let Device::Cuda(gpu) = member.device else {
            let device = member.device;
            return Err(Error::new(format!("NCCL links GPUs only, and {device} is not a GPU")).into());
        };
        // The context is there before other threads enter it.
        Gpu::of(gpu)?;
        let (id, call) = (id.0, "linking the GPUs");
        let joining = handle::aside(gpu, move || Handle::open(id, member))?;
        let late = || handle::too_late(member, call, deadline);
        let (handle, code) = until(deadline, late, going_on, || answer(&joining))?;
        handle.succeeded(call, code)?;
        Ok(Self { handle: Arc::new(handle), gpu })
    }

    /// A handle that aborts this communicator from any thread.
    pub fn aborter(&self) -> Aborter {
        Aborter(Arc::clone(&self.handle))
    }

    /// Makes the connections to and from these members, all at once. Later calls then do not wait for the
    /// other side. If this member sends to another one, that one must receive from this one in its own call
    /// of `connect`.
    ///
    /// # Errors
    /// When NCCL reports an error, `going_on` fails, or the deadline has passed.
    pub fn connect<E: From<Error>>(
        &self,
        to: &[u32],
        from: &[u32],
        deadline: Duration,
        mut going_on: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        const NUMBER: usize = 4;
        let gpu = Gpu::of(self.gpu)?;
        let (to, from) = (to.to_vec(), from.to_vec());
        // If the other members do not come, NCCL may use it until the process ends.
        let memory = ManuallyDrop::new(gpu.memory_for_transfer(NUMBER * (to.len() + from.len()))?);
        let (at, stream) = (memory.at(), gpu.transfers().raw() as usize);
        let handle = Arc::clone(&self.handle);
        let connect = move |raw| {
            let at = |place: usize| at.offset(NUMBER * place).0;
            let (number, stream) = (ncclDataType_t::ncclFloat32, stream as *mut _);
            // SAFETY: the communicator is alive. The memory and the stream stay until the stream is done, or
            // for ever.
            unsafe {
                sys::ncclGroupStart();
                for (place, &peer) in to.iter().enumerate() {
                    sys::ncclSend(at(place) as *const _, 1, number, peer as i32, raw, stream);
                }
                for (place, &peer) in (to.len()..).zip(&from) {
                    sys::ncclRecv(at(place) as *mut _, 1, number, peer as i32, raw, stream);
                }
                sys::ncclGroupEnd()
            }
        };
        let connecting = handle::aside(self.gpu, move || handle.call(connect))?;
        let late = |call| move || handle::too_late(self.handle.member(), call, deadline);
        let call = "connecting the GPUs";
        let connected = until(deadline, late(call), &mut going_on, || answer(&connecting));
        if connected.is_err() {
            self.handle.give_up();
        }
        let queued = connected.and_then(|code| Ok(self.handle.succeeded(call, code?)?));
        let late = late("the first transfer between the GPUs");
        let come = queued
            .and_then(|()| until(deadline, late, going_on, || Ok(gpu.transfers().is_idle()?.then_some(()))));
        if come.is_ok() || self.end_on(gpu.transfers()) {
            drop(ManuallyDrop::into_inner(memory));
        }
        come
    }

    /// Queues a tensor of this member's GPU, marked as ready, for sending to another member. Its memory is
    /// not used again before it is sent.
    ///
    /// # Errors
    /// When the tensor is not on this GPU, or NCCL reports an error.
    pub fn send(&self, tensor: &Tensor, to: u32) -> Result<()> {
        self.check_here(tensor)?;
        let (gpu, dtype) = (Gpu::of(self.gpu)?, tensor.dtype());
        let (memory, stream) = (tensor.device_memory(), gpu.transfers());
        memory.awaited_by(stream)?;
        let (at, count) = (memory.at().0 as *const _, tensor.bytes() as usize / dtype.bytes());
        let code = self.handle.call(|raw| {
            // SAFETY: the memory does not change until the stream is done with it. The mark below ensures
            // that.
            unsafe { sys::ncclSend(at, count, numbers(dtype), to as i32, raw, stream.raw().cast()) }
        })?;
        let queued = self.handle.succeeded(&format!("sending to member {to}"), code);
        self.end_unmarked(stream, &[memory], queued.and_then(|()| memory.used_on(stream)))
    }

    /// Queues the receipt of numbers from another member. Returns a tensor on this member's GPU, marked as
    /// ready once the numbers are there.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory), or when NCCL reports an error.
    pub fn receive(&self, dims: &[usize], dtype: DType, from: u32) -> Result<Tensor> {
        let gpu = Gpu::of(self.gpu)?;
        let count: usize = dims.iter().product();
        let (memory, stream) = (gpu.memory_for_transfer(count * dtype.bytes())?, gpu.transfers());
        let at = memory.at().0 as *mut _;
        let code = self.handle.call(|raw| {
            // SAFETY: the memory is large enough, and nobody uses it before the stream has filled it. The
            // mark below ensures that.
            unsafe { sys::ncclRecv(at, count, numbers(dtype), from as i32, raw, stream.raw().cast()) }
        })?;
        let queued = self.handle.succeeded(&format!("receiving from member {from}"), code);
        self.end_unmarked(stream, &[&memory], queued.and_then(|()| memory.filled_by(stream)))?;
        Ok(Tensor::in_memory(memory, dtype, dims))
    }

    /// Ends all transfers if queueing or marking some of them on this stream has failed. Without a mark
    /// nobody would wait for a transfer before its memory is used again.
    fn end_unmarked(&self, stream: &Stream, memory: &[&Memory], marked: Result<()>) -> Result<()> {
        if marked.is_err() && !self.end_on(stream) {
            // NCCL may use it until the process ends, so nobody else ever may.
            memory.iter().for_each(|&memory| mem::forget(memory.clone()));
        }
        marked
    }

    /// Ends all transfers. Returns whether those on this stream use no memory any more.
    fn end_on(&self, stream: &Stream) -> bool {
        // The stream of transfers that have not ended may never be done.
        let has_ended = self.handle.abort();
        if has_ended {
            // If this fails too, the device has failed, and the next call reports it.
            let _ = stream.synchronize();
        }
        has_ended
    }

    fn check_here(&self, tensor: &Tensor) -> Result<()> {
        let (here, on) = (Device::Cuda(self.gpu), tensor.place().device);
        match on == here {
            true => Ok(()),
            false => Err(Error::new(format!(
                "a tensor of {} cannot be sent from {here}: it is on {on}",
                tensor.shape()
            ))),
        }
    }

    /// Checks that the transfers under way have not failed.
    ///
    /// # Errors
    /// When NCCL reports an error, such as a lost connection, or the communicator was aborted.
    pub fn check(&self) -> Result<()> {
        match self.handle.state()? {
            ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress => Ok(()),
            code => Err(self.handle.failed("transfers between GPUs", code)),
        }
    }
}

/// Polls until there is an answer, `going_on` fails or the deadline has passed.
fn until<T, E: From<Error>>(
    deadline: Duration,
    late: impl FnOnce() -> Error,
    mut going_on: impl FnMut() -> Result<(), E>,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T, E> {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        going_on()?;
        if since.elapsed() > deadline {
            return Err(late().into());
        }
        thread::sleep(PAUSE);
    }
}

/// The result of a call on another thread, if it has ended.
fn answer<T>(call: &Receiver<Result<T>>) -> Result<Option<T>> {
    match call.try_recv() {
        Ok(result) => result.map(Some),
        Err(TryRecvError::Empty) => Ok(None),
        Err(TryRecvError::Disconnected) => Err(Error::other("a call of NCCL panicked")),
    }
}

/// With this variable, each launch waits until the device has done it.
const BLOCKING: &str = "CUDA_LAUNCH_BLOCKING";

/// Checks that sends do not wait on the host until they are received.
///
/// # Errors
/// When CUDA is told to wait for each piece of work.
pub fn refuse_blocking_launches() -> Result<()> {
    match env::var(BLOCKING) {
        Ok(value) if !matches!(value.as_str(), "" | "0") => Err(Error::new(format!(
            "{BLOCKING}={value}: CUDA waits for each piece of work, so a rank that sends would wait for \
                 ever for a rank of another process, which receives only when it hears of the send; unset \
                 {BLOCKING}, or run all ranks in one process"
        ))),
        _ => Ok(()),
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
