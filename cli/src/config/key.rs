//! A row of the table of keys: all that is known of a key. `section!` makes the rows of a section, and the
//! struct with its values.

use toml::Value;

use crate::error::ValueProblem;

/// The most layers: blocks of a GPT, or widths of an MLP.
pub(super) const LAYERS: usize = 1000;
pub(super) const WIDTH: usize = 1 << 24;
pub(super) const SEQUENCE: usize = 1 << 20;
pub(super) const ROWS: usize = 1 << 20;
/// A year, in seconds.
pub(super) const YEAR: usize = 365 * 24 * 3600;

/// Which numbers are allowed, and the sentence that says so. Numbers that are not finite never are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range(pub(super) fn(f64) -> bool, pub(super) &'static str);

pub(super) const ABOVE_0: Range = Range(|value| value > 0.0, "it must be above 0");
pub(super) const FROM_0: Range = Range(|value| value >= 0.0, "it must be 0 or more");
pub(super) const BELOW_1: Range = Range(is_below_1, "it must be from 0 to below 1");

pub(super) fn is_below_1(value: f64) -> bool {
    (0.0..1.0).contains(&value)
}

/// Names of other programs, and how the key differs.
type Noted = &'static [(&'static str, &'static str)];

/// A key of a section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// What it is, in the words of the guide.
    text: &'static str,
    /// What counts if it is not set, where that is no value.
    unset: &'static str,
    /// The guide's page about it.
    page: &'static str,
    least: usize,
    most: Option<(usize, &'static str)>,
    range: Option<Range>,
    is_probability: bool,
    /// It counts only if another key of its section has one of these values.
    pub(super) only: Option<(&'static str, &'static [&'static str])>,
    pub(super) changes_weights: bool,
    /// Whether each process of a run may have its own value.
    pub(super) is_local: bool,
    /// Its names in other programs.
    also: &'static str,
    noted: Noted,
    pub(super) values: Noted,
}

impl Key {
    pub(super) const fn new(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            unset: "",
            page: "",
            least: 0,
            most: None,
            range: None,
            is_probability: false,
            only: None,
            changes_weights: true,
            is_local: false,
            also: "",
            noted: &[],
            values: &[],
        }
    }

    /// It is for these values of another key of its section, which stands above it. Under others it is
    /// refused.
    pub(super) const fn only(mut self, by: &'static str, is: &'static [&'static str]) -> Self {
        self.only = Some((by, is));
        self
    }

    /// A count that must be 1 or more.
    pub(super) const fn positive(mut self) -> Self {
        self.least = 1;
        self
    }

    /// The largest count for which a machine can have the memory, or the time.
    pub(super) const fn at_most(mut self, most: usize, unit: &'static str) -> Self {
        self.most = Some((most, unit));
        self
    }

    /// The range of a number, or of each number of a list.
    pub(super) const fn within(mut self, range: Range) -> Self {
        self.range = Some(range);
        self
    }

    /// A probability below 1.
    pub(super) const fn probability(mut self) -> Self {
        self.is_probability = true;
        self
    }

    /// It changes speed, memory, output or kept files, but no weight.
    pub(super) const fn harmless(mut self) -> Self {
        self.changes_weights = false;
        self
    }

    /// Each process of a run may have its own value, and no weight depends on it.
    pub(super) const fn local(mut self) -> Self {
        self.is_local = true;
        self.harmless()
    }

    /// What the guide names as its default, where that is no value.
    pub(super) const fn unset(mut self, what: &'static str) -> Self {
        self.unset = what;
        self
    }

    /// The guide's page about it.
    pub(super) const fn page(mut self, page: &'static str) -> Self {
        self.page = page;
        self
    }

    /// Its names in other programs, in small letters, with spaces between them.
    pub(super) const fn also(mut self, names: &'static str) -> Self {
        self.also = names;
        self
    }

    /// Other names, with how the key differs from what is called so.
    pub(super) const fn noted(mut self, names: Noted) -> Self {
        self.noted = names;
        self
    }

    /// Values that other programs have, in small letters, and what to write.
    pub(super) const fn values(mut self, values: Noted) -> Self {
        self.values = values;
        self
    }

    /// Its names in other programs, each with how the key differs: empty if it does not.
    pub(super) fn names(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let noted = self.noted.iter().copied();
        let lists = std::iter::once((self.also, "")).chain(noted);
        lists.flat_map(|(names, note)| names.split_whitespace().map(move |name| (name, note)))
    }

    /// What to write in place of a value that another program has.
    pub(super) fn instead_of(&self, value: &Value) -> Option<&'static str> {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_lowercase);
        let found = self.values.iter().find(|(word, _)| *word == value);
        found.map(|(_, instead)| *instead)
    }

    /// What is wrong with a value of the right type.
    pub(super) fn problem(&self, value: &Value) -> Option<ValueProblem> {
        match *value {
            Value::Array(ref values) => values.iter().find_map(|value| self.problem(value)),
            Value::Integer(count) => self.problem_of_count(count as usize),
            Value::Float(value) if self.is_probability => (!is_below_1(value))
                .then(|| format!("{value} is not a probability below 1: choose from 0 to 0.9").into()),
            Value::Float(value) => {
                let Range(holds, must) = self.range?;
                let holds = holds(value) && value.is_finite();
                (!holds).then(|| format!("{value} is not allowed: {must}").into())
            }
            _ => None,
        }
    }

    fn problem_of_count(&self, value: usize) -> Option<ValueProblem> {
        let (limit, unit) = self.most.unwrap_or((usize::MAX, ""));
        match value {
            _ if value < self.least => Some(ValueProblem::Zero),
            _ if value > limit => Some(too_large(value, limit, unit).into()),
            _ => None,
        }
    }

    /// Its row in the guide.
    pub(super) fn row(&self, default: Option<&Value>) -> String {
        let name = match self.page {
            "" => format!("`{}`", self.name),
            page => format!("[`{}`]({page})", self.name),
        };
        let default = match (self.unset, default) {
            ("", None) => "none".to_owned(),
            ("", Some(Value::Array(values))) if values.is_empty() => "none".to_owned(),
            ("", Some(value)) => format!("`{value}`"),
            (unset, _) => unset.to_owned(),
        };
        format!("| {name} | {default} | {} |\n", self.text.trim())
    }
}

/// The sentence about a size that no machine has memory for.
pub(super) fn too_large(value: usize, limit: usize, unit: &str) -> String {
    format!("{value} is too large: at most {limit} {unit} are supported, lower it")
}

/// Makes a section from its keys: the struct with the values, and the rows of the table. A key is
/// `name: type = default`, with methods of [`Key`] after `=>`.
macro_rules! section {
    (
        $(#[$about:meta])*
        pub struct $Section:ident {$(
            $(#[doc = $doc:literal])+
            $(#[serde $serde:tt])?
            $key:ident: $type:ty = $default:expr $(=> [$($row:ident $(($($with:tt)*))?),+ $(,)?])?,
        )+}
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $Section {$(
            $(#[doc = $doc])+
            $(#[serde $serde])?
            pub $key: $type,
        )+}

        impl Default for $Section {
            fn default() -> Self {
                Self {$($key: $default,)+}
            }
        }

        impl $Section {
            /// The rows of its keys.
            pub(super) const KEYS: &[$crate::config::key::Key] = &[$(
                $crate::config::key::Key::new(stringify!($key), concat!($($doc),+))
                    $($(.$row($($($with)*)?))+)?,
            )+];
        }
    };
}
pub(super) use section;
