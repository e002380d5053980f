//! Settings with their own form in a config.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use pipewright::stages::Recompute;
use serde::de::value::StrDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

/// Files and folders: one, or a list. Relative paths start at the current directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "OneOrMany", into = "OneOrMany")]
pub struct Paths(pub Vec<PathBuf>);

impl Paths {
    /// The path that stands for the built-in text.
    pub const BUILT_IN: &str = "builtin:shakespeare";

    /// The prefix of all paths for built-in data.
    pub(super) const IN_PROGRAM: &str = "builtin:";

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is the built-in text.
    pub fn is_built_in(&self) -> bool {
        self.0 == [PathBuf::from(Self::BUILT_IN)]
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a path in quotes or a list of them")]
enum OneOrMany {
    One(PathBuf),
    Many(Vec<PathBuf>),
}

impl From<OneOrMany> for Paths {
    fn from(paths: OneOrMany) -> Self {
        match paths {
            OneOrMany::One(path) => Self(vec![path]),
            OneOrMany::Many(paths) => Self(paths),
        }
    }
}

impl From<Paths> for OneOrMany {
    fn from(mut paths: Paths) -> Self {
        if paths.0.len() == 1 { Self::One(paths.0.remove(0)) } else { Self::Many(paths.0) }
    }
}

/// The widths of a multi-layer perceptron, as `"784,128,10"` or a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SizesForm", into = "SizesForm")]
pub struct Sizes(pub Vec<usize>);

const SIZES: &str = "widths such as \"784,128,10\" or [784, 128, 10]";

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "widths such as \"784,128,10\" or [784, 128, 10]")]
enum SizesForm {
    Text(String),
    List(Vec<usize>),
}

impl TryFrom<SizesForm> for Sizes {
    type Error = String;

    fn try_from(form: SizesForm) -> Result<Self, String> {
        match form {
            SizesForm::List(sizes) => Ok(Self(sizes)),
            SizesForm::Text(text) => {
                let sizes = text.split(',').map(|size| size.trim().parse()).collect::<Result<_, _>>();
                sizes.map(Self).map_err(|_| SIZES.to_owned())
            }
        }
    }
}

impl From<Sizes> for SizesForm {
    fn from(sizes: Sizes) -> Self {
        Self::List(sizes.0)
    }
}

/// How layers are distributed over stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "\"balanced\" or a list of layer names for each stage, such as [[\"embed\"], [\"head\"]]"
)]
pub enum Partition {
    /// Balanced by estimated cost.
    Named(Balanced),
    /// The number of layers of each stage.
    Lists(Vec<Vec<String>>),
}

/// The word `balanced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balanced {
    /// The largest cost of a stage is as small as possible.
    Balanced,
}

/// After how many seconds without a move a stall is told: a number, or the word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "\"auto\" or seconds (0 for never)")]
pub enum WarnOfStall {
    /// By the times that were seen so far.
    Named(Auto),
    /// After this number of seconds; 0 for never.
    Seconds(f64),
}

/// The word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    /// Chosen by what was seen.
    Auto,
}

/// What is recomputed in backward: one word for all stages, or a list with one word for each.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RecomputeBy {
    /// The same for all stages.
    All(Recompute),
    /// A word for each stage.
    Each(Vec<Recompute>),
}

impl<'de> Deserialize<'de> for RecomputeBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RecomputeVisitor)
    }
}

/// Reads a word or a list of words. An untagged enum would not name the accepted words in its error.
struct RecomputeVisitor;

impl<'de> Visitor<'de> for RecomputeVisitor {
    type Value = RecomputeBy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`none`, `cheap`, `selective`, `full` or a list of these with one for each stage")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<RecomputeBy, E> {
        Recompute::deserialize(StrDeserializer::new(word)).map(RecomputeBy::All)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<RecomputeBy, A::Error> {
        let mut each = Vec::new();
        while let Some(word) = words.next_element()? {
            each.push(word);
        }
        Ok(RecomputeBy::Each(each))
    }
}

/// Reads an address and a port. A port alone can be reached from this machine only.
pub(super) fn endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    from.deserialize_any(Endpoint).map(Some)
}

struct Endpoint;

impl Visitor<'_> for Endpoint {
    type Value = SocketAddr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port such as 9400, or an address and a port such as \"10.0.0.1:9400\"")
    }

    fn visit_i64<E: Error>(self, port: i64) -> Result<SocketAddr, E> {
        match u16::try_from(port) {
            Ok(port @ 1..) => Ok((Ipv4Addr::LOCALHOST, port).into()),
            _ => Err(E::invalid_value(Unexpected::Signed(port), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SocketAddr, E> {
        let parsed = text.parse();
        parsed.map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}
