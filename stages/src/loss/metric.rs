//! What a loss can measure beside itself.

use std::fmt;

/// The longest name, in bytes.
const LONGEST: usize = 32;

/// A number that a loss measures beside itself, such as an accuracy: its name, and how its value follows from
/// what was summed. It is made as a `const`, so that a wrong name does not compile: see
/// [`Score`](super::Score).
///
/// A name has 1 to 32 characters: small letters, digits and `_`. It begins with a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Metric {
    name: Name,
    form: Form,
}

/// How a value follows from a sum and its weight, and how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
enum Form {
    Mean,
    Share,
    Exponential,
}

impl Metric {
    /// The share of targets for which the largest output was the right one.
    pub const ACCURACY: Self = Self::share("accuracy");
    /// `e` to the power of the mean negative log-likelihood of a token.
    pub const PERPLEXITY: Self = Self::exponential("perplexity");

    /// A metric whose value is the sum divided by the weight.
    ///
    /// # Panics
    /// When `name` is none: in a `const`, an error of the compiler.
    pub const fn mean(name: &str) -> Self {
        Self::new(name, Form::Mean)
    }

    /// A metric whose value is the sum divided by the weight, from 0 to 1. People see it in percent.
    ///
    /// # Panics
    /// As [`Metric::mean`].
    pub const fn share(name: &str) -> Self {
        Self::new(name, Form::Share)
    }

    /// A metric whose value is `e` to the power of the sum divided by the weight.
    ///
    /// # Panics
    /// As [`Metric::mean`].
    pub const fn exponential(name: &str) -> Self {
        Self::new(name, Form::Exponential)
    }

    const fn new(name: &str, form: Form) -> Self {
        match Name::new(name) {
            Some(name) => Self { name, form },
            None => {
                panic!("a metric's name is 1 to 32 small letters, digits and _, and begins with a letter")
            }
        }
    }

    /// What was summed over some targets, and their weight. The weight may differ from the loss's.
    pub const fn of(self, sum: f64, weight: f64) -> Measured {
        let metric = self;
        Measured { metric, sum, weight }
    }
}

/// A metric of some targets: a sum and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Measured {
    metric: Metric,
    sum: f64,
    weight: f64,
}

impl Measured {
    /// The name of the metric.
    pub fn name(&self) -> &str {
        self.metric.name.text()
    }

    /// The value of the metric. `None` if nothing was counted.
    pub fn value(&self) -> Option<f64> {
        let mean = (self.weight > 0.0).then(|| self.sum / self.weight);
        match self.metric.form {
            Form::Mean | Form::Share => mean,
            Form::Exponential => mean.map(f64::exp),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.weight += other.weight;
    }
}

/// The name and the value: `accuracy 97.5 %`.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match (self.value(), self.metric.form) {
            (None, _) => write!(f, "{name} of nothing"),
            (Some(value), Form::Share) => write!(f, "{name} {:.1} %", 100.0 * value),
            (Some(value), Form::Mean) => write!(f, "{name} {value:.4}"),
            (Some(value), Form::Exponential) if value < 100.0 => write!(f, "{name} {value:.2}"),
            (Some(value), Form::Exponential) if value < 1e6 => write!(f, "{name} {value:.1}"),
            (Some(value), Form::Exponential) => write!(f, "{name} {value:.2e}"),
        }
    }
}

/// A name, followed by zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name([u8; LONGEST]);

impl Name {
    const fn new(text: &str) -> Option<Self> {
        let (text, mut bytes, mut at) = (text.as_bytes(), [0; LONGEST], 0);
        if text.is_empty() || text.len() > LONGEST || !text[0].is_ascii_lowercase() {
            return None;
        }
        while at < text.len() {
            bytes[at] = match text[at] {
                byte @ (b'a'..=b'z' | b'0'..=b'9' | b'_') => byte,
                _ => return None,
            };
            at += 1;
        }
        Some(Self(bytes))
    }

    fn text(&self) -> &str {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(LONGEST);
        std::str::from_utf8(&self.0[..length]).expect("checked: letters, digits and _")
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameReader)
    }
}

/// Reads a name without a block of memory for it.
#[cfg(feature = "serde")]
struct NameReader;

#[cfg(feature = "serde")]
impl serde::de::Visitor<'_> for NameReader {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a metric")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Name, E> {
        Name::new(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}
