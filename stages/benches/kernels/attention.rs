//! Causal attention and rotary embeddings. What attention's mask hides is not counted as work.

use pipewright_stages::layers::{Attention, Heads, Rope, RopeLayout, RopeScaling, Rotary};
use pipewright_stages::{Borders, DType, Layer, Result, Tensor};

use crate::bounds::Needs;
use crate::layers::{AT, layer_run};
use crate::plain::Plain;
use crate::table::{Kernel, Work};
use crate::{FORMATS, place, tensor};

/// Sequences and the heads that read them.
#[derive(Clone, Copy)]
struct Shape {
    /// What has this shape: a size of the comparison, or a model.
    name: &'static str,
    batch: usize,
    time: usize,
    heads: Heads,
    window: Option<usize>,
}

const fn heads([query, key_value, width]: [usize; 3]) -> Heads {
    Heads { query, key_value, width }
}

const fn shape(name: &'static str, [batch, time]: [usize; 2], heads: Heads, window: Option<usize>) -> Shape {
    Shape { name, batch, time, heads, window }
}

const SHAPES: [Shape; 4] = [
    shape("A", [4, 128], heads([8, 8, 32]), None),
    shape("B", [2, 256], heads([8, 8, 64]), None),
    shape("SmolLM2", [1, 256], heads([9, 3, 64]), None),
    shape("SmolLM2", [1, 1024], heads([9, 3, 64]), Some(256)),
];

/// Attention and rotary embeddings of these shapes, in both number formats.
pub(crate) fn kernels() -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    for shape in SHAPES {
        for format in FORMATS {
            kernels.push(attention(shape, format)?);
        }
    }
    for format in FORMATS {
        kernels.extend(documents(format)?);
    }
    for layout in [RopeLayout::Halves, RopeLayout::Pairs] {
        for format in FORMATS {
            kernels.push(rotary(SHAPES[2], layout, format)?);
        }
    }
    Ok(kernels)
}

/// The documents in a sequence of 1,024 tokens, and their length.
const DOCUMENTS: [usize; 2] = [8, 128];

/// Documents in one sequence, and the same documents in a sequence each.
fn documents((dtype, format): (DType, &str)) -> Result<[Kernel; 2]> {
    let [count, time] = DOCUMENTS;
    let alone = shape("alone", [count, time], SHAPES[2].heads, None);
    let starts = (0..count).flat_map(|document| vec![(document * time) as u32; time]).collect();
    let borders = Borders::default();
    borders.set(AT, Tensor::from_ids(&[1, count * time], starts)?)?;
    let mut layer = Attention::grouped("attention", alone.heads, None)?;
    layer.keep_apart(&borders)?;
    let input = tensor(&[1, count * time, alone.heads.row()])?.to(place(dtype))?;
    let one = attention(alone, (dtype, format))?;
    let name = format!("attention apart: {count} documents of {time}{format}");
    Ok([Kernel::new(name, passes(alone, dtype), layer_run(Box::new(layer), input)?), one])
}

/// Two products forward and four backward. The recomputation in backward is not counted.
fn passes(shape: Shape, dtype: DType) -> Vec<(&'static str, Work)> {
    let Shape { batch, time, heads, window, .. } = shape;
    let seen: usize = (1..=time).map(|keys| keys.min(window.unwrap_or(time))).sum();
    let product = (2 * batch * heads.query * heads.width * seen) as f64;
    let flops = |flops| Work::Flops { flops, dtype: Some(dtype) };
    vec![("forward", flops(2.0 * product)), ("I", flops(4.0 * product))]
}

fn attention(shape: Shape, (dtype, format): (DType, &str)) -> Result<Kernel> {
    let Shape { name, batch, time, heads, window } = shape;
    let shared = match heads.key_value {
        all if all == heads.query => String::new(),
        some => format!(" on {some}"),
    };
    let last = window.map_or(String::new(), |window| format!(", last {window}"));
    Ok(Kernel::new(
        format!(
            "attention {name}: {batch} x {time}, {}{shared} x {}{last}{format}",
            heads.query, heads.width
        ),
        passes(shape, dtype),
        layer_run(
            Box::new(Attention::grouped("attention", heads, window)?),
            tensor(&[batch, time, heads.row()])?.to(place(dtype))?,
        )?,
    ))
}

/// Forward and backward do the same in place: four multiplications and two additions for a pair, and its
/// angles are read.
fn rotary(shape: Shape, layout: RopeLayout, (dtype, format): (DType, &str)) -> Result<Kernel> {
    let Shape { batch, time, heads, .. } = shape;
    let rope = Rope { theta: 1e5, scaling: RopeScaling::None, layout };
    let turned = heads.query + heads.key_value;
    let angles = 4.0 / turned as f64;
    let needs = Needs { read: angles, ..Needs::new([0.0, 4.0, 0.0], 2.0, 0.0).in_format(dtype) };
    let work = Work::Each { what: "number", count: batch * time * turned * heads.width, needs };
    let input = tensor(&[batch, time, heads.row()])?.to(place(dtype))?;
    let plain = Plain { in_place: true, changed: turned * heads.width };
    let kernel = Kernel::new(
        format!("rotary {}, {layout:?}: {batch} x {time}, {turned} x {}{format}", shape.name, heads.width),
        vec![("forward", work), ("I", work)],
        layer_run(Box::new(Rotary::new("rotary", heads, rope)?), input.clone())?,
    );
    Ok(kernel.beside_plain(layer_run(Box::new(plain), input)?))
}
