//! Transfers between GPUs that NCCL cannot do.

use std::time::Duration;

use crate::cuda::nccl::Member;
use crate::device::Device;

/// Transfers between GPUs that NCCL cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// It gives no id for members to meet under.
    #[error("NCCL cannot begin: {meaning}")]
    CannotBegin {
        /// Its number for what went wrong.
        code: u32,
        /// What it says.
        meaning: String,
    },
    /// A member that is no GPU.
    #[error("NCCL links GPUs, and the {device} is none")]
    NoGpu {
        /// The member's device.
        device: Device,
    },
    /// Transfers that were ended here, as another rank has stopped.
    #[error("the transfers of {member} have been ended, since another rank has stopped")]
    Ended {
        /// Whose they are.
        member: Member,
    },
    /// A call that it refused, or a transfer that it lost.
    #[error("NCCL: {call}: {member}: {meaning}; {remedy}")]
    Refused {
        /// What was being done, such as "linking the GPUs".
        call: String,
        /// Who did it.
        member: Member,
        /// NCCL's number for what went wrong.
        code: u32,
        /// What NCCL says.
        meaning: String,
        /// What to do.
        remedy: NcclRemedy,
    },
    /// Something that has not ended in time.
    #[error(
        "NCCL: {call}: {member}: not done within {} s, although all processes are there: NCCL_DEBUG=INFO \
         tells how far it came, NCCL_SOCKET_IFNAME names the network to use; or give more time \
         (launch.deadline)",
        deadline.as_secs_f64()
    )]
    TooLate {
        /// What was being done.
        call: String,
        /// Who did it.
        member: Member,
        /// How long it was waited for.
        deadline: Duration,
    },
}

/// What to do about a call that NCCL refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclRemedy {
    /// Give each member a GPU of its own.
    #[error(
        "ranks that send to other processes need a GPU each: give each process its own (pipeline.devices, \
         CUDA_VISIBLE_DEVICES; {} is the first one that a process sees); to try things out, processes may \
         share one if each has its own NCCL_HOSTID",
        Device::Cuda(0)
    )]
    OwnGpu,
    /// Look at the other processes and the network.
    #[error("see the other processes' output, and the network (NCCL_SOCKET_IFNAME names the one to use)")]
    OthersOrNetwork,
    /// Have NCCL tell more.
    #[error("NCCL_DEBUG=WARN tells more")]
    Debug,
}
