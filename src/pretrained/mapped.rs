//! From which tensors of another form a parameter is made.

/// A parameter and its parts: tensors that are stacked, one under the other, along the first dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Our name.
    pub name: String,
    /// Our dimensions.
    pub dims: Vec<usize>,
    /// The tensors, in order.
    pub parts: Vec<Part>,
}

/// A tensor of another form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name there.
    pub name: String,
    /// Its dimensions.
    pub dims: Vec<usize>,
}

impl Mapped {
    /// A parameter that is one tensor.
    pub(super) fn one(name: impl Into<String>, dims: &[usize], there: impl Into<String>) -> Self {
        Self::stacked(name, vec![(there.into(), dims.to_vec())])
    }

    /// A parameter of several tensors, each a name and dimensions. All but the first dimension are equal.
    pub(super) fn stacked(name: impl Into<String>, parts: Vec<(String, Vec<usize>)>) -> Self {
        let mut dims = parts[0].1.clone();
        dims[0] = parts.iter().map(|(_, dims)| dims[0]).sum();
        let part = |(name, dims)| Part { name, dims };
        Self { name: name.into(), dims, parts: parts.into_iter().map(part).collect() }
    }
}

impl Part {
    /// How many numbers it has.
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }
}

/// What is wrong with a tensor that a file does not have.
pub(super) const MISSING: &str = "is missing";

/// What is wrong with a tensor that belongs to no parameter.
pub(super) const LEFT_OVER: &str = "is no part of this model";

/// What is wrong with a tensor of another shape.
pub(super) fn other_shape(found: &[usize], expected: &[usize]) -> String {
    format!("is {found:?}, the model has {expected:?}")
}
