//! Linear layers without bias, and the same products with the `gemm` crate.

use pipewright_stages::layers::{Layout, Linear};
use pipewright_stages::{DType, Init, Result};

use crate::clock::{Clock, Run};
use crate::gemm::{Operand, multiply};
use crate::layers::layer_run;
use crate::table::{Kernel, Work};
use crate::{FORMATS, numbers, place, tensor};

/// Name of the size in the comparison, rows of a micro-batch, layout, inputs and outputs.
const SHAPES: [(&str, usize, Layout, [usize; 2]); 13] = [
    ("A", 512, Layout::InOut, [256, 768]),
    ("A", 512, Layout::InOut, [256, 256]),
    ("A", 512, Layout::InOut, [256, 1024]),
    ("A", 512, Layout::InOut, [1024, 256]),
    ("A", 512, Layout::OutIn, [256, 256]),
    ("B", 512, Layout::InOut, [512, 1536]),
    ("B", 512, Layout::InOut, [512, 512]),
    ("B", 512, Layout::InOut, [512, 2048]),
    ("B", 512, Layout::InOut, [2048, 512]),
    ("B", 512, Layout::OutIn, [512, 256]),
    ("D", 64, Layout::OutIn, [784, 2048]),
    ("D", 64, Layout::OutIn, [2048, 2048]),
    ("D", 64, Layout::OutIn, [2048, 10]),
];

/// The linear layers of sizes A, B and D, in both number formats.
pub(crate) fn kernels() -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    for (size, rows, layout, sizes) in SHAPES {
        for (dtype, format) in FORMATS {
            let [inputs, outputs] = sizes;
            let turned = if layout == Layout::OutIn { " turned" } else { "" };
            let work = Work::Flops { flops: (2 * rows * inputs * outputs) as f64, dtype: Some(dtype) };
            let layer = Linear::new("linear", sizes, Init::Normal(0.02), 0);
            let layer = layer.with_layout(layout).without_bias();
            let input = tensor(&[rows, inputs])?.to(place(dtype))?;
            let kernel = Kernel::new(
                format!("linear {size}: {rows} x {inputs} x {outputs}{turned}{format}"),
                vec![("forward", work), ("I", work), ("W", work)],
                layer_run(Box::new(layer), input)?,
            );
            kernels.push(match dtype {
                DType::F32 => kernel.beside_gemm(gemm_run(rows, layout, sizes)),
                DType::Bf16 => kernel,
            });
        }
    }
    Ok(kernels)
}

/// The three products of a linear layer.
fn gemm_run(rows: usize, layout: Layout, [inputs, outputs]: [usize; 2]) -> Run {
    let [x, w, dy] = [rows * inputs, inputs * outputs, rows * outputs].map(numbers);
    let [mut dx, mut dw, mut y] = [&x, &w, &dy].map(Vec::clone);
    Box::new(move |clock: &mut Clock| {
        let (x, dy) = (Operand::new(&x, inputs), Operand::new(&dy, outputs));
        let weight = match layout {
            Layout::InOut => Operand::new(&w, outputs),
            Layout::OutIn => Operand::new(&w, inputs).t(),
        };
        clock.time(|| multiply(&mut y, false, x, weight));
        clock.time(|| multiply(&mut dx, false, dy, weight.t()));
        clock.time(|| match layout {
            Layout::InOut => multiply(&mut dw, true, x.t(), dy),
            Layout::OutIn => multiply(&mut dw, true, dy.t(), x),
        });
        Ok(())
    })
}
