//! The losses of a run, in as little memory after 100,000 steps as after 1,000.

/// The most points of a series, a power of two.
const MOST: usize = 1024;

/// A step and a loss.
pub(super) type Point = (f64, f64);

/// The losses of training and validation.
#[derive(Debug, Default)]
pub(super) struct Curve {
    pub(super) training: Series,
    pub(super) validation: Series,
}

/// Points, each the mean of equally many numbers. There are never more than [`MOST`] of them.
#[derive(Debug)]
pub(super) struct Series {
    points: Vec<Point>,
    /// How many numbers a point is the mean of.
    each: u32,
    /// The sums of the next point, and how many numbers it has.
    open: (Point, u32),
}

impl Default for Series {
    fn default() -> Self {
        Self {
            points: Vec::new(),
            each: 1,
            open: ((0.0, 0.0), 0),
        }
    }
}

impl Series {
    pub(super) fn add(&mut self, step: u64, loss: f64) {
        let ((steps, losses), count) = self.open;
        self.open = ((steps + step as f64, losses + loss), count + 1);
        if self.open.1 < self.each {
            return;
        }
        self.points.extend(mean(self.open));
        self.open = Self::default().open;
        if self.points.len() == MOST {
            let middle = |pair: &[Point]| ((pair[0].0 + pair[1].0) / 2.0, (pair[0].1 + pair[1].1) / 2.0);
            self.points = self.points.chunks_exact(2).map(middle).collect();
            self.each *= 2;
        }
    }

    /// All points; the last may be the mean of fewer numbers.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> {
        self.points.iter().copied().chain(mean(self.open))
    }
}

fn mean(((steps, losses), count): (Point, u32)) -> Option<Point> {
    let share = 1.0 / f64::from(count);
    (count > 0).then_some((steps * share, losses * share))
}
