//! Servers that cannot be.

use pipewright::PipelineBuilder;
use pipewright::stages::optimizer::{StateTensor, Update};
use pipewright::stages::{DType, Device, Parameter, Place, Sequential, Together};

use super::*;

/// Changes nothing, but only whole parameters.
#[derive(Debug)]
struct Whole;

impl Optimizer for Whole {
    fn states(&self, _: &str, _: &[usize]) -> Vec<StateTensor> {
        Vec::new()
    }

    fn update(&self, _: &mut Parameter, _: Update, _: &mut Together) -> pipewright::stages::Result<()> {
        Ok(())
    }
}

fn builder(tied: bool, sync: SyncMode) -> PipelineBuilder<Sequential> {
    let builder = recipe(1, tied, 4).builder(named("1f1b", 1, 4));
    builder.replicas(2).sync(sync)
}

fn refusal(builder: PipelineBuilder<Sequential>) -> String {
    let launched = builder.launch();
    launched.map(|_| ()).expect_err("it cannot be").to_string()
}

#[test]
fn servers_that_cannot_be_are_refused() {
    for max_staleness in [0, 2] {
        assert_eq!(
            refusal(builder(false, server(max_staleness)).optimizer(Whole)),
            "a server cannot use Whole: it updates whole parameters only (`Optimizer::updates_parts`), and \
             each rank of a server owns parts of them; take `SyncMode::Reduce` (`pipeline.sync = \
             \"reduce\"`)"
        );
    }
    assert_eq!(
        refusal(builder(true, server(1))),
        "weights may not be stale in a model with tied parameters (`wte.weight`), whose copies must stay \
         equal: set `max_staleness` (`pipeline.max_staleness`) to 0"
    );
    let gpu = Place { device: Device::Cuda(0), dtype: DType::F32 };
    assert_eq!(
        refusal(builder(false, server(1)).places(vec![gpu])),
        "weights may not be stale on cuda:0, only on cpu: set `max_staleness` (`pipeline.max_staleness`) to 0"
    );
}
