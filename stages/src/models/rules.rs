//! Which parts of a model are trained, and how.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::parameter::description::Training;
use crate::quantised::Quantisation;
use crate::stage::layer::{Layer, Lora};

/// What is chosen for each name.
type Choice<T> = Arc<dyn Fn(&str) -> T + Send + Sync>;

/// Which parts of a model are trained, and how: what a [`Model`](super::Model) does with its stages right
/// after they are made. By default, all parameters are trained alike, and there are no adapters.
///
/// ```
/// use pipewright_stages::models::{Mlp, Rules};
/// use pipewright_stages::{Lora, Stage, Training};
///
/// let lora = Lora { rank: 4, alpha: 8.0, dropout: 0.0, seed: 1 };
/// let rules = Rules::default()
///     .with_lora(move |target| (target == "fc0").then_some(lora))
///     .with_training(|name| Training { frozen: !name.contains(".lora_"), ..Training::default() });
/// let mlp = Mlp { sizes: vec![16, 8, 2], dropout: 0.0, seed: 1 };
/// let mut model = mlp.model()?.with_rules(rules).whole()?;
/// let trained = model.parameters().iter().map(|parameter| parameter.trained()).sum::<usize>();
/// assert_eq!(trained, 4 * 16 + 8 * 4);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Clone)]
pub struct Rules {
    lora: Choice<Option<Lora>>,
    training: Choice<Training>,
    quantisation: Choice<Option<Quantisation>>,
    /// Whether some parameters may be trained in their own way.
    differ: bool,
    settings: String,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            lora: Arc::new(|_| None),
            training: Arc::new(|_| Training::default()),
            quantisation: Arc::new(|_| None),
            differ: false,
            settings: String::new(),
        }
    }
}

impl Rules {
    /// The same rules, with adapters for the linear layers that `choose` names: see [`Lora`].
    #[must_use]
    pub fn with_lora(self, choose: impl Fn(&str) -> Option<Lora> + Send + Sync + 'static) -> Self {
        let lora = Arc::new(choose);
        Self { lora, ..self }
    }

    /// The same rules, with `choose` to say how the parameter of a name is trained.
    #[must_use]
    pub fn with_training(self, choose: impl Fn(&str) -> Training + Send + Sync + 'static) -> Self {
        Self { training: Arc::new(choose), differ: true, ..self }
    }

    /// The same rules, with `choose` to say in which blocks the frozen matrix of a name is stored: see
    /// [`Parameter::quantise`](crate::Parameter::quantise). What is trained stays in `f32`, and so do rows
    /// that are no whole blocks.
    #[must_use]
    pub fn with_quantisation(
        self,
        choose: impl Fn(&str) -> Option<Quantisation> + Send + Sync + 'static,
    ) -> Self {
        Self { quantisation: Arc::new(choose), ..self }
    }

    /// The same rules in words: all that the numbers of a stage depend on. The processes of a run compare
    /// them.
    #[must_use]
    pub fn with_settings(self, settings: String) -> Self {
        Self { settings, ..self }
    }

    /// Whether some parameters may be trained in their own way.
    pub(super) fn differ(&self) -> bool {
        self.differ
    }

    /// The rules in words.
    pub(super) fn settings(&self) -> &str {
        &self.settings
    }

    /// Applies the rules to new layers.
    pub(super) fn apply(&self, layers: &mut [Box<dyn Layer>]) -> Result<()> {
        for layer in &mut *layers {
            layer.adapt(&mut |target| (self.lora)(target))?;
        }
        let mut parameters = layers.iter_mut().flat_map(|layer| layer.parameters());
        parameters.try_for_each(|parameter| {
            let training = (self.training)(parameter.name());
            parameter.train_by(training);
            let columns = parameter.dims().last().copied().unwrap_or(0);
            let fits = parameter.is_frozen() && parameter.takes_blocks();
            match (self.quantisation)(parameter.name()).filter(|kind| fits && kind.fits(columns)) {
                Some(kind) => parameter.quantise(kind),
                None => Ok(()),
            }
        })
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("settings", &self.settings).finish_non_exhaustive()
    }
}
