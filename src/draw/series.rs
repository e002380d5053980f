//! Values over steps, in as little memory after 1,000,000 steps as after 1,000.

/// The most points of a series, a power of two. A chart has about as many columns of pixels.
const MOST: usize = 512;

/// Consecutive values, drawn at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The mean of the steps.
    pub step: f64,
    /// The mean of the values.
    pub mean: f64,
    /// The lowest value.
    pub low: f64,
    /// The highest value.
    pub high: f64,
}

/// Points, each of equally many values. There are never more than 512 of them. The lowest and the
/// highest value of each point are kept, so no peak is lost.
#[derive(Clone, Debug)]
pub struct Series {
    points: Vec<Point>,
    /// How many values a point has.
    each: u32,
    /// The values of the next point.
    open: Option<(Point, u32)>,
    last_step: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self { points: Vec::new(), each: 1, open: None, last_step: 0 }
    }
}

impl Series {
    /// Adds the value of a step, which comes after all others. A value that is not finite is left out.
    pub fn add(&mut self, step: u64, value: f64) {
        if !value.is_finite() {
            return;
        }
        let one = Point { step: step as f64, mean: value, low: value, high: value };
        self.last_step = step;
        let (point, count) = match self.open {
            Some((point, count)) => (joined((point, count), (one, 1)), count + 1),
            None => (one, 1),
        };
        self.open = Some((point, count));
        if count < self.each {
            return;
        }
        self.points.push(point);
        self.open = None;
        if self.points.len() == MOST {
            let pairs = self.points.chunks_exact(2);
            self.points = pairs.map(|pair| joined((pair[0], 1), (pair[1], 1))).collect();
            self.each *= 2;
        }
    }

    /// All points; the last may have fewer values.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        let open = self.open.map(|(point, _)| point);
        self.points.iter().copied().chain(open)
    }

    /// The step of the last value.
    pub fn last_step(&self) -> u64 {
        self.last_step
    }

    /// The most values that a point has.
    pub fn each(&self) -> u32 {
        self.each
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.open.is_none()
    }
}

/// One point of the values of two points. `of_a` and `of_b` are their numbers of values.
fn joined((a, of_a): (Point, u32), (b, of_b): (Point, u32)) -> Point {
    let (of_a, of_b) = (f64::from(of_a), f64::from(of_b));
    let mean = |a: f64, b: f64| (a * of_a + b * of_b) / (of_a + of_b);
    Point {
        step: mean(a.step, b.step),
        mean: mean(a.mean, b.mean),
        low: a.low.min(b.low),
        high: a.high.max(b.high),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lowest_and_the_highest_value_of_each_column_survive(
            values in prop::collection::vec(-1e3..1e3_f64, 1..5000)
        ) {
            let mut series = Series::default();
            for (step, value) in (0..).zip(&values) {
                series.add(step, *value);
            }
            let points: Vec<Point> = series.points().collect();
            prop_assert!(points.len() <= MOST);
            let each = series.each() as usize;
            prop_assert_eq!(points.len(), values.len().div_ceil(each));
            for (point, column) in points.iter().zip(values.chunks(each)) {
                prop_assert_eq!(point.low, column.iter().copied().fold(f64::INFINITY, f64::min));
                prop_assert_eq!(point.high, column.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                let mean = column.iter().sum::<f64>() / column.len() as f64;
                prop_assert!((point.mean - mean).abs() < 1e-9 * 1e3);
            }
        }
    }

    #[test]
    fn a_million_steps_are_at_most_512_points_and_a_spike_stays_visible() {
        let mut series = Series::default();
        for step in 0..1_000_000 {
            series.add(step, if step == 777_777 { 9.0 } else { 1.0 });
        }
        assert!(series.points().count() <= MOST);
        assert_eq!(series.points().map(|point| point.high).fold(0.0, f64::max), 9.0);
    }
}
