//! Wires and sums in fewer bits: where they are possible.

use crate::config::{Config, SyncKind};
use crate::error::Result;
use pipewright::stages::{DType, WireFormat};

impl Config {
    /// Refuses wires and sums in fewer bits where nothing can round them.
    pub(crate) fn check_short(&self) -> Result<()> {
        let pipeline = &self.pipeline;
        let has_gpu = pipeline.devices.has_gpu();
        let is_served = pipeline.replicas > 1 && pipeline.sync == SyncKind::Server;
        if pipeline.wires == WireFormat::Blocks {
            let are_f32_on_cpus = !has_gpu && pipeline.dtype == DType::F32;
            self.require(
                are_f32_on_cpus,
                "pipeline.wires",
                || "wires of 8 bits are for ranks on the CPU that compute in f32: take \"bf16\"",
            )?;
        }
        if pipeline.sums == DType::Bf16 {
            let require = |holds: bool, why: &'static str| self.require(holds, "pipeline.sums", || why);
            require(!has_gpu, "GPUs add up gradients in f32: set this to \"f32\"")?;
            require(
                !self.is_private(),
                "a sum that is rounded may be further from another than privacy.clip allows: set this to \
                 \"f32\"",
            )?;
            require(!is_served, "a parameter server adds up gradients in f32: set this to \"f32\"")?;
        }
        Ok(())
    }
}
