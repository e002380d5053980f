//! An axis: from values to places, with round values for labels.

use super::page::shorten;

/// The values that an axis shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Whether equal distances are equal ratios. Then `from` is above 0.
    pub(super) is_log: bool,
}

/// Digits of the labels of a logarithmic axis, from many labels to few.
const DIGITS: [&[f64]; 4] =
    [&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0], &[1.0, 2.0, 3.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0]];

impl Axis {
    /// An axis from 0 on.
    pub(super) fn from_zero(most: f64) -> Self {
        Self { from: 0.0, to: if most > 0.0 { most } else { 1.0 }, is_log: false }
    }

    /// Where a value is: 0 at the beginning, 1 at the end.
    pub(super) fn share(&self, value: f64) -> f64 {
        match self.is_log {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        }
    }

    /// Round values, about `count` of them, with their labels.
    pub(super) fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        let values = match self.is_log {
            true => self.of_ratios(count),
            false => self.of_distances(count),
        };
        let most = values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let least = values.windows(2).map(|pair| pair[1] - pair[0]);
        let step = least.fold(f64::INFINITY, f64::min).min(most.max(f64::MIN_POSITIVE));
        values.into_iter().map(|value| (value, label(value, step, most))).collect()
    }

    fn of_distances(&self, count: usize) -> Vec<f64> {
        let step = round_step((self.to - self.from) / count as f64);
        let (first, last) = ((self.from / step * 0.9999).ceil(), (self.to / step * 1.0001).floor());
        (0..=(last - first).max(0.0) as u64).map(|index| (first + index as f64) * step).collect()
    }

    fn of_ratios(&self, count: usize) -> Vec<f64> {
        let powers = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        let all = |digits: &'static [f64]| -> Vec<f64> {
            let values =
                powers.clone().flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
            values.filter(|value| (self.from..=self.to).contains(value)).collect()
        };
        let mut choices = DIGITS.iter().map(|digits| all(digits));
        let fitting = choices.find(|values| values.len() <= 2 * count);
        match fitting.unwrap_or_else(|| all(DIGITS[3])) {
            values if values.len() < 2 => Axis { is_log: false, ..*self }.of_distances(count),
            values if values.len() > 2 * count => {
                let every = values.len().div_ceil(count);
                values.into_iter().step_by(every).collect()
            }
            values => values,
        }
    }
}

/// A round number that is not below `rough`: 1, 2 or 5 times a power of ten.
pub(super) fn round_step(rough: f64) -> f64 {
    let rough = rough.max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough)
}

/// A value beside others. These are at least `step` apart, and the largest is `most`.
fn label(value: f64, step: f64, most: f64) -> String {
    let (unit, name) = match most {
        1e9.. => (1e9, "G"),
        1e6.. => (1e6, "M"),
        1e4.. => (1e3, "k"),
        _ => (1.0, ""),
    };
    if value == 0.0 {
        return "0".to_owned();
    }
    if most < 1e-2 {
        let exponent = value.abs().log10().floor();
        let digits = format!("{:.2}", value / 10f64.powf(exponent));
        return format!("{}e{exponent}", shorten(&digits));
    }
    let decimals = (-(step / unit).log10() + 0.999).floor().clamp(0.0, 9.0) as usize;
    format!("{}{name}", shorten(&format!("{:.decimals$}", value / unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from: f64, to: f64, is_log: bool) -> String {
        let ticks = Axis { from, to, is_log }.ticks(5);
        ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn labels_are_round_and_short() {
        assert_eq!(labels(0.0, 59.0, false), "0 20 40");
        assert_eq!(labels(0.0, 1e6, false), "0 0.2M 0.4M 0.6M 0.8M 1M");
        assert_eq!(labels(1.93, 5.7, false), "2 3 4 5");
        assert_eq!(labels(0.0, 5e-3, false), "0 1e-3 2e-3 3e-3 4e-3 5e-3");
        assert_eq!(labels(0.0, 53_000.0, false), "0 20k 40k");
        assert_eq!(labels(1.9, 5.7, true), "2 3 4 5");
        assert_eq!(labels(1e-3, 100.0, true), "0.001 0.01 0.1 1 10 100");
    }
}
