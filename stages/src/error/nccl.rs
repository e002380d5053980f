//! Transfers between GPUs that NCCL cannot do.

use std::fmt;
use std::time::Duration;

use crate::device::Device;

/// Transfers between GPUs that NCCL cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// CUDA is told to wait for each piece of work.
    #[error(
        "{variable}={value}: CUDA waits for each piece of work, so a rank that sends would wait for ever for \
         a rank of another process, which receives only when it hears of the send; unset {variable}, or run \
         all ranks in one process"
    )]
    LaunchesBlock {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// NCCL returns no id, which the members need to find each other.
    #[error("NCCL cannot begin: {meaning}")]
    CannotBegin {
        /// NCCL's error code.
        code: u32,
        /// NCCL's description of it.
        meaning: String,
    },
    /// A member that is not a GPU.
    #[error("NCCL links GPUs only, and {device} is not a GPU")]
    NoGpu {
        /// The member's device.
        device: Device,
    },
    /// Transfers that were ended, because another rank has stopped.
    #[error("the transfers of {member} have been ended, since another rank has stopped")]
    Ended {
        /// The member that they belong to.
        member: Member,
    },
    /// A call that it refused, or a transfer that it lost.
    #[error("NCCL: {call}: {member}: {meaning}; {remedy}")]
    Refused {
        /// The operation, such as "linking the GPUs".
        call: String,
        /// The member that did it.
        member: Member,
        /// NCCL's error code.
        code: u32,
        /// NCCL's description of it.
        meaning: String,
        /// What to do.
        remedy: NcclRemedy,
    },
    /// An operation that exceeded its deadline.
    #[error(
        "NCCL: {call}: {member}: not done within {} s, although all processes are there: NCCL_DEBUG=INFO \
         tells how far it came, NCCL_SOCKET_IFNAME names the network to use; or give more time \
         (launch.deadline)",
        deadline.as_secs_f64()
    )]
    TooLate {
        /// The operation.
        call: String,
        /// The member that did it.
        member: Member,
        /// The deadline.
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
    /// Let NCCL print more.
    #[error("NCCL_DEBUG=WARN tells more")]
    Debug,
}

/// One member of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// This member's number, from 0.
    pub number: u32,
    /// The number of members. Each must have a GPU of its own.
    pub of: u32,
    /// This member's GPU.
    pub device: Device,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, of, device } = self;
        write!(f, "{device} (member {number} of {of})")
    }
}
