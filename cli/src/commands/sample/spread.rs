//! Where a model writes text: ranks, devices and threads.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use clap::ValueEnum;

use crate::commands::cuda_env;
use crate::commands::saved::SavedModel;
use crate::error::{Error, Result};
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::pipeline::Pipeline;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::AnyLoss;
use pipewright::stages::{DType, Device, Kind, Place, Sequential, Shape, Tensor};

/// Where a model computes.
#[derive(Debug, clap::Args)]
pub(in crate::commands) struct Spread {
    /// Over how many ranks the model is spread, as pipeline stages [default: as many as --devices]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// The devices of the ranks: one for all, or one for each, such as cuda:0,cuda:1
    #[arg(long, value_name = "DEVICE", value_delimiter = ',', default_value = "cpu")]
    devices: Vec<Device>,
    /// The number type of the weights. With bf16 they take half the memory. The CPU computes in f32 with
    /// them, a GPU in bf16
    #[arg(long, value_name = "TYPE", value_enum, default_value = "f32")]
    dtype: Dtype,
    /// How many threads compute [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

impl Spread {
    /// Looks for CUDA's libraries, if it needs any. This may start the command again, so call it early.
    pub(in crate::commands) fn enter(&self) {
        if self.devices.iter().any(|device| *device != Device::Cpu) {
            cuda_env::enter();
        }
    }

    fn ranks(&self) -> u32 {
        self.ranks.unwrap_or(self.devices.len() as u32)
    }

    /// Refuses what a model cannot be spread over.
    pub(in crate::commands) fn check(&self, model: &SavedModel) -> Result<()> {
        let (ranks, devices) = (self.ranks(), self.devices.len());
        if devices != 1 && devices != ranks as usize {
            return Err(Error::refused(format!(
                "--devices: {devices} devices for {ranks} ranks: name one for all, or one for each"
            )));
        }
        model.check_ranks(ranks)
    }

    /// In which numbers the CPU holds weights for this device, and the place to compute in.
    fn numbers(&self, device: Device) -> (DType, Place) {
        let wanted = match self.dtype {
            Dtype::F32 => DType::F32,
            Dtype::Bf16 => DType::Bf16,
        };
        let (held, dtype) = match device {
            Device::Cpu => (wanted, DType::F32),
            Device::Cuda(_) => (DType::F32, wanted),
        };
        (held, Place { device, dtype })
    }

    /// Reads the model and starts its ranks, for inputs and targets of these shapes. `busy` ranks share the
    /// threads.
    pub(in crate::commands) fn launch(
        &self,
        model: SavedModel,
        loss: AnyLoss,
        shapes: (Shape, Shape),
        busy: Busy,
    ) -> Result<Pipeline<Sequential>> {
        let ranks = self.ranks();
        let threads = self.threads.or_else(|| available_parallelism().ok());
        let share = match busy {
            Busy::One => 1,
            Busy::All => ranks as usize,
        };
        let devices: Vec<Device> = match self.devices[..] {
            [device] => vec![device; ranks as usize],
            _ => self.devices.clone(),
        };
        let (held, places): (Vec<_>, Vec<_>) = devices.into_iter().map(|device| self.numbers(device)).unzip();
        let pipeline = Pipeline::builder()
            .schedule(Schedule::gpipe(ranks, 1)?)
            .stages(model.stages(&held)?)
            .places(places)
            .threads_per_rank((threads.map_or(1, NonZero::get) / share).max(1))
            .pin(false)
            .loss(loss)
            .data(Arc::new(NoData(shapes)))
            .launch()?;
        Ok(pipeline)
    }
}

/// How many ranks compute at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Busy {
    /// One: a token is in one rank at a time.
    One,
    /// All: each has another micro-batch.
    All,
}

/// The value of `--dtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dtype {
    F32,
    Bf16,
}

/// The data of a pipeline that is never trained: only their shapes.
struct NoData((Shape, Shape));

impl DataSource for NoData {
    fn micro_batch(&self, _: u64, _: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let zeros = |shape: Shape| match shape.kind() {
            Kind::Ids => Tensor::from_ids(shape.dims(), vec![0; shape.count()]),
            Kind::F32 => Ok(Tensor::zeros(shape.dims())),
        };
        let (input, target) = self.0;
        Ok((zeros(input)?, zeros(target)?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.0
    }
}
