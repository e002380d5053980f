//! How tokens choose experts.

use crate::error::{Error, Result, check_positive};

/// How tokens choose the experts of [`Experts`](super::Experts).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// How many experts there are.
    pub experts: usize,
    /// How many of them compute a token.
    pub chosen: usize,
    /// The coefficient of the auxiliary loss, 0 for none. The loss of a layer and a micro-batch of `T` tokens
    /// is `T auxiliary experts sum_i f_i p_i`: `f_i` is the number of tokens that chose expert `i`, divided
    /// by `T`, and `p_i` is the mean over the tokens of the softmax of all scores. It is smallest where all
    /// experts have equally many tokens. Fedus et al., "Switch transformers" (2021), equation 4, here times
    /// `T`: all losses are sums over tokens, and the step divides once.
    ///
    /// Only its gradient is used. No reported loss contains it.
    pub auxiliary: f32,
}

impl Routing {
    pub(crate) fn check(self) -> Result<()> {
        check_positive(&[("the number of experts", self.experts)])?;
        if self.chosen == 0 || self.chosen > self.experts {
            let (chosen, experts) = (self.chosen, self.experts);
            return Err(Error::new(format!(
                "a token cannot choose {chosen} of {experts} experts: it must be 1 to {experts}"
            )));
        }
        if !(self.auxiliary >= 0.0 && self.auxiliary.is_finite()) {
            return Err(Error::new(format!(
                "the auxiliary loss's coefficient is {}: it must be 0 or more, such as 0.01",
                self.auxiliary
            )));
        }
        Ok(())
    }

    /// By how much a row of an expert raises the slope of the expert's probability in the auxiliary loss of
    /// `tokens` tokens.
    pub(super) fn share(self, tokens: usize) -> f32 {
        self.auxiliary * self.experts as f32 / tokens as f32
    }
}
