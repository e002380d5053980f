//! What the layers share that work on images.

use crate::error::{Error, Result, SettingError, check_positive};
use crate::layers::conv::cpu::window::{Image, Window};
use crate::shape::{Kind, Shape};

/// The number of images of at least one pixel, and their size. Without `channels`, any number of these is
/// right.
pub(crate) fn images(input: &Shape, channels: Option<usize>) -> Result<(usize, Image)> {
    match (input.kind(), input.dims()) {
        (Kind::F32, &[count, height, width, found])
            if height * width * found > 0 && channels.is_none_or(|channels| channels == found) =>
        {
            let image = Image { height, width, channels: found };
            Ok((count, image))
        }
        _ => {
            let channels = channels.map_or("channels".to_owned(), |channels| channels.to_string());
            Err(Error::shape(format!("f32[batch, height, width, {channels}]"), input))
        }
    }
}

/// The number of images, their size, and the size of what a window sees of one at all its places.
pub(crate) fn windows(
    input: &Shape,
    channels: Option<usize>,
    window: Window,
    outputs: impl Fn(usize) -> usize,
) -> Result<(usize, Image, Image)> {
    check_positive(&[("kernel", window.kernel), ("stride", window.stride)])?;
    let (count, image) = images(input, channels)?;
    if [image.height, image.width].into_iter().any(|side| window.places(side).is_none()) {
        let Window { kernel, padding, .. } = window;
        return Err(SettingError::Window { sides: [image.height, image.width], kernel, padding }.into());
    }
    let seen = image.seen_by(window, outputs(image.channels));
    Ok((count, image, seen))
}

/// The shape of `count` images.
pub(crate) fn shape(count: usize, image: Image) -> Shape {
    Shape::f32(&[count, image.height, image.width, image.channels])
}
