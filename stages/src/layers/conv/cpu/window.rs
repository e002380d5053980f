//! Windows, images, and where pixels lie.

/// A window that moves over images, where it is a square, or over sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The length of its sides.
    pub(crate) kernel: usize,
    /// How far it moves.
    pub(crate) stride: usize,
    /// The width of the border around an image, or before and after a sequence.
    pub(crate) padding: usize,
}

impl Window {
    /// How many places it has along a side of this length.
    pub(crate) fn places(self, side: usize) -> Option<usize> {
        let rest = (side + 2 * self.padding).checked_sub(self.kernel)?;
        Some(rest / self.stride + 1)
    }
}

/// The size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Image {
    /// How many numbers it has.
    pub(crate) fn count(self) -> usize {
        self.height * self.width * self.channels
    }

    /// The image of what a window sees at each of its places.
    ///
    /// # Panics
    /// When the window is larger than the image and its border.
    pub(crate) fn seen_by(self, window: Window, channels: usize) -> Self {
        let places = |side| window.places(side).expect("checked: the window fits");
        Self { height: places(self.height), width: places(self.width), channels }
    }
}

/// Images, and a window that moves over them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    /// The number of images.
    pub(crate) count: usize,
    pub(crate) image: Image,
    /// What the window sees of an image at all its places.
    pub(crate) seen: Image,
    pub(crate) window: Window,
}

/// Where pixels lie: the first one, and the distances of pixels, lines and images.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) first: usize,
    pub(crate) across: usize,
    pub(crate) down: usize,
    pub(crate) image: usize,
}

/// Every `step`-th pixel of both directions, from this line and column on.
pub(crate) fn places(image: Image, [line, column]: [usize; 2], step: usize) -> Places {
    let down = image.width * image.channels;
    Places {
        first: line * down + column * image.channels,
        across: step * image.channels,
        down: step * down,
        image: image.count(),
    }
}
