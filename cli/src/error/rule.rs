//! Rules of a config about what is trained.

/// A rule of a config about what is trained that cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleProblem {
    /// A pattern that cannot be read.
    #[error("`{pattern}` is no pattern: {why}; write `*` for any text")]
    NoPattern {
        /// The pattern.
        pattern: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A pattern that fits no name.
    #[error("`{pattern}` fits nothing; there are {}", names.join(", "))]
    FitsNothing {
        /// The pattern.
        pattern: String,
        /// The names that there are, with `*` for the numbers of blocks.
        names: Vec<String>,
    },
    /// Nothing is left to train.
    #[error("every parameter is frozen: leave one to train")]
    AllFrozen,
    /// A group with a weight decay, in which no parameter decays.
    #[error(
        "the group of {} has a weight_decay, but no matrix, and optimizer.decay = \"matrices\" applies it to \
         matrices only: set optimizer.decay = \"all\", or leave weight_decay out",
        parameters.join(", ")
    )]
    DecaysNothing {
        /// The group's patterns.
        parameters: Vec<String>,
    },
    /// A group that names no parameter.
    #[error("a group names no parameters: give it some, such as parameters = [\"h.0.*\"]")]
    NoParameters,
    /// A key of adapters, without a rank.
    #[error("there are no adapters: set lora.rank too, for example to 8")]
    NoRank,
    /// A folder with adapters, without the model that they are for.
    #[error("adapters belong to a model: set model.path too, to its folder in Hugging Face's form")]
    NoModel,
    /// Adapters without targets.
    #[error("names no layer: give patterns such as [\"*.attn.q\", \"*.attn.v\"]")]
    NoTargets,
}
