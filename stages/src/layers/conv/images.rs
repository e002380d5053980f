//! What the layers share that work on images.

use crate::error::{Error, Result, check_positive};
use crate::layers::conv::cpu::window::{Image, Window, Windows};
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

/// The images, and what a window sees of them, with this many outputs for their channels.
pub(crate) fn windows(
    input: &Shape,
    channels: Option<usize>,
    window: Window,
    outputs: impl Fn(usize) -> usize,
) -> Result<Windows> {
    check_positive(&[("kernel", window.kernel), ("stride", window.stride)])?;
    let (count, image) = images(input, channels)?;
    if [image.height, image.width].into_iter().any(|side| window.places(side).is_none()) {
        let (Window { kernel, padding, .. }, Image { height, width, .. }) = (window, image);
        return Err(Error::new(format!(
            "a window of {kernel} x {kernel} does not fit into images of {height} x {width} with a border of \
             {padding}: choose a smaller kernel, more padding or larger images"
        )));
    }
    let seen = image.seen_by(window, outputs(image.channels));
    Ok(Windows { count, image, seen, window })
}

impl Windows {
    /// The shape of what the window sees of all images.
    pub(crate) fn output_shape(self) -> Shape {
        let Image { height, width, channels } = self.seen;
        Shape::f32(&[self.count, height, width, channels])
    }
}
