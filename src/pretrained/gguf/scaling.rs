//! How a file scales the angles of positions.

use pipewright_stages::layers::{Rope, RopeScaling};

use super::file::Gguf;
use crate::error::{Error, Result};
use crate::pretrained::json::Json;

/// The tensor by which Llama 3.1 to 3.3 are scaled: each frequency is divided by its number.
pub(super) const FACTORS: &str = "rope_freqs.weight";

/// The scaling of a file. `rope` has no scaling yet.
pub(super) fn scaling(
    file: &Gguf,
    keys: Json<'_>,
    prefix: &str,
    rope: Rope,
    width: usize,
) -> Result<RopeScaling> {
    let key = |name: &str| format!("{prefix}rope.{name}");
    let kind = key("scaling.type");
    let named = keys.text(&kind)?;
    let is_known = ["none", "linear"].map(Some).contains(&named);
    keys.require(is_known, &kind, "`none` or `linear`: take the folder of Hugging Face for other scalings")?;
    let factor = match keys.get(&key("scaling.factor")) {
        Some(_) => keys.number(&key("scaling.factor"))?,
        None => keys.number(&key("scale_linear"))?,
    };
    // llama.cpp takes 0 for none.
    let is_linear = named == Some("linear") && factor != 1.0 && factor != 0.0;
    match (file.dims(FACTORS), is_linear) {
        (None, true) => Ok(RopeScaling::Linear { factor }),
        (None, false) => Ok(RopeScaling::None),
        (Some(dims), false) if *dims == [width / 2] => {
            file.check(FACTORS)?;
            llama3(&file.read(FACTORS)?, rope, width).ok_or_else(|| unknown(file))
        }
        _ => Err(unknown(file)),
    }
}

fn unknown(file: &Gguf) -> crate::Error {
    let found = file.dims(FACTORS).map(|dims| format!("a tensor of {dims:?} other numbers"));
    let expected = "the factors of Llama 3.1 to 3.3: take the folder of Hugging Face for other ones";
    Error::wrong_key(file.path(), FACTORS, expected, found)
}

/// The scaling of Llama 3.1 that divides the frequencies by these factors. Its low and high factors are 1 and
/// 4, as Meta has them, and the original length is a power of two.
fn llama3(factors: &[f32], rope: Rope, width: usize) -> Option<RopeScaling> {
    let factor = factors.iter().fold(1.0, |largest, &factor| f64::from(factor).max(largest));
    if factors.iter().all(|&factor| factor == 1.0) {
        return Some(RopeScaling::None);
    }
    let scalings =
        (4..=20).map(|power| RopeScaling::Llama3 { factor, low: 1.0, high: 4.0, original: 1 << power });
    let fits = |scaling: &RopeScaling| {
        let scaled = Rope { scaling: *scaling, ..rope };
        factors.iter().enumerate().all(|(pair, &factor)| {
            let expected = rope.frequency(pair, width) / scaled.frequency(pair, width);
            (f64::from(factor) / expected - 1.0).abs() < 1e-5
        })
    };
    scalings.into_iter().find(fits)
}
