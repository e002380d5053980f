//! Causal attention. The masked half is not counted as work.

use pipewright_stages::Result;
use pipewright_stages::layers::Attention;

use crate::layers::layer_run;
use crate::table::{Kernel, Work};
use crate::{FORMATS, place, tensor};

/// Name of the size in the comparison; number of sequences, their length, heads and the width of a head.
const SHAPES: [(&str, [usize; 4]); 2] = [("A", [4, 128, 8, 32]), ("B", [2, 256, 8, 64])];

/// Attention of sizes A and B, in both number formats.
pub(crate) fn kernels() -> Result<Vec<Kernel>> {
    let all = SHAPES
        .into_iter()
        .flat_map(|shape| FORMATS.map(|format| (shape, format)));
    all.map(|((size, [batch, time, heads, width]), (dtype, format))| {
        // Two products forward and four backward. The recomputation in backward is not counted.
        let product = (2 * batch * heads * width * time * (time + 1) / 2) as f64;
        let flops = |flops| Work::Flops {
            flops,
            dtype: Some(dtype),
        };
        let dim = heads * width;
        let layer = Attention::new("attention", dim, heads)?;
        Ok(Kernel::new(
            format!("attention {size}: {batch} x {time}, {heads} x {width}{format}"),
            vec![("forward", flops(2.0 * product)), ("I", flops(4.0 * product))],
            layer_run(
                Box::new(layer),
                tensor(&[batch, time, 3 * dim])?.to(place(dtype))?,
            )?,
        ))
    })
    .collect()
}
