//! Layers of a config that cannot be made.

/// An entry of `model.stack` that is no layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackProblem {
    /// A model without layers.
    #[error("a stack needs layers: add a table [[model.stack]] with a kind for each")]
    Empty,
    /// An entry without a kind.
    #[error("layer {layer} has no kind: add one, such as kind = \"linear\"")]
    NoKind {
        /// The number of the layer, from 0.
        layer: String,
    },
    /// A kind that nobody knows.
    #[error("layer {layer} is of an unknown kind \"{kind}\"{}", known_kinds(kind, meant.as_deref(), known))]
    UnknownKind {
        /// The number of the layer, from 0.
        layer: String,
        /// The kind.
        kind: String,
        /// The kind that was probably meant.
        meant: Option<String>,
        /// All kinds that are known.
        known: Vec<String>,
    },
    /// Settings that do not fit the kind.
    #[error("layer {layer}: {why}")]
    Settings {
        /// The number of the layer, from 0.
        layer: String,
        /// What does not fit.
        why: String,
    },
    /// A size for which no machine has memory.
    #[error("layer {layer}: {number} is too large: at most 16777216")]
    TooLarge {
        /// The number of the layer, from 0.
        layer: String,
        /// The number.
        number: i64,
    },
    /// A layer of one's own with a name that ready layers might have.
    #[error("\"{kind}\" has no dot: name layers of your own such as \"my.{kind}\"")]
    OwnName {
        /// The name.
        kind: String,
    },
}

fn known_kinds(kind: &str, meant: Option<&str>, known: &[String]) -> String {
    match meant {
        None if kind.contains('.') => {
            ": a name with a dot is that of a layer of a program's own, so run this command with that \
             program, which has all commands of `pipewright`"
                .to_owned()
        }
        Some(meant) => format!(": did you mean \"{meant}\"?"),
        None => format!("; known are {}", known.join(", ")),
    }
}
