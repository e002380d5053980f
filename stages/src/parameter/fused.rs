//! Parameters that are several tensors of a model's family in one.

use crate::parameter::Parameter;

impl Parameter {
    /// Says that it is several tensors of the model's family, one behind the other along the first dimension,
    /// such as queries, keys and values: these are their sizes there. An optimizer whose update of a number
    /// depends on other numbers treats each tensor by itself, as it would if they were apart.
    ///
    /// ```
    /// use pipewright_stages::{Init, Parameter};
    ///
    /// let mut qkv = Parameter::new("attn.qkv.weight", &[8, 3], Init::Zeros, 1);
    /// assert_eq!(qkv.tensors(), [24]);
    /// qkv.fuse(&[4, 2, 2]);
    /// assert_eq!(qkv.tensors(), [12, 6, 6]);
    /// ```
    ///
    /// # Panics
    /// When the sizes do not add up to the first dimension.
    pub fn fuse(&mut self, sizes: &[usize]) {
        assert_eq!(
            Some(&sizes.iter().sum()),
            self.dims().first(),
            "{}: the sizes of its tensors",
            self.name()
        );
        self.fused = sizes.to_vec();
    }

    /// The sizes of its tensors along the first dimension: see [`Parameter::fuse`]. Empty if it is one
    /// tensor.
    pub fn fused(&self) -> &[usize] {
        &self.fused
    }

    /// How many numbers each of its tensors has: see [`Parameter::fuse`].
    pub fn tensors(&self) -> Vec<usize> {
        match (&self.fused[..], self.dims()) {
            ([], dims) => vec![dims.iter().product()],
            (sizes, [_, rest @ ..]) => {
                let each = rest.iter().product::<usize>();
                sizes.iter().map(|size| size * each).collect()
            }
            (_, []) => unreachable!("`fuse`: the sizes add up to the first dimension"),
        }
    }
}
