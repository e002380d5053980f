//! Images between zeros.

use crate::layers::conv::cpu::window::{Image, Places};
use crate::pool::Buffer;

/// Images with a border of zeros, or as they are if they need none.
pub(crate) struct Padded<'a> {
    pub(crate) numbers: &'a [f32],
    /// How many images there are.
    pub(crate) count: usize,
    line: usize,
    channels: usize,
    image: usize,
}

impl<'a> Padded<'a> {
    /// The images with borders: before and after, of lines and of columns. `room` is for a copy.
    pub(crate) fn new(
        images: &'a [f32],
        image: Image,
        borders: [[usize; 2]; 2],
        room: &'a mut Buffer,
    ) -> Self {
        let [lines, columns] = borders;
        let padded = Image {
            height: image.height + lines[0] + lines[1],
            width: image.width + columns[0] + columns[1],
            ..image
        };
        let count = images.len() / image.count();
        let numbers = match borders == [[0; 2]; 2] {
            true => images,
            false => {
                let length = count * padded.count();
                if room.len() < length {
                    *room = Buffer::pooled(length);
                }
                let room = &mut room[..length];
                let pairs = room.chunks_exact_mut(padded.count()).zip(images.chunks_exact(image.count()));
                pairs.for_each(|(to, from)| pad(to, from, image, borders));
                room
            }
        };
        Self {
            numbers,
            count,
            line: padded.width * padded.channels,
            channels: padded.channels,
            image: padded.count(),
        }
    }

    /// The distance from one line to the next.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// Where every `step`-th pixel of both directions lies, from this line and column on.
    pub(crate) fn places(&self, [line, column]: [usize; 2], step: usize) -> Places {
        Places {
            first: line * self.line + column * self.channels,
            across: step * self.channels,
            down: step * self.line,
            image: self.image,
        }
    }
}

fn pad(to: &mut [f32], from: &[f32], image: Image, [lines, columns]: [[usize; 2]; 2]) {
    let line = image.width * image.channels;
    let [before, after] = columns.map(|columns| columns * image.channels);
    let wide = before + line + after;
    let (top, rest) = to.split_at_mut(lines[0] * wide);
    let (middle, bottom) = rest.split_at_mut(image.height * wide);
    top.fill(0.0);
    bottom.fill(0.0);
    for (to, from) in middle.chunks_exact_mut(wide).zip(from.chunks_exact(line)) {
        to[..before].fill(0.0);
        to[before..before + line].copy_from_slice(from);
        to[before + line..].fill(0.0);
    }
}
