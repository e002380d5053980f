//! The kinds of layers that a config can name.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use pipewright::stages::{self as stages, Layer};
use serde::de::DeserializeOwned;
use toml::Table;

use crate::error::ConfigError;
use pipewright::nearest::nearest;

/// Where a layer of a config stands.
#[derive(Clone, Debug)]
pub struct LayerPlace {
    /// The name of the layer, and the beginning of its parameters' names: its number in `model.stack`, from
    /// 0, such as `3`; inside of another layer such as `3.0`.
    pub name: String,
    /// The seed of the model, for starting weights and dropout.
    pub seed: u64,
}

/// Why a layer is not made.
pub(super) enum Failure {
    /// Its settings.
    Settings(String),
    /// The layer itself.
    Layer(stages::Error),
}

impl From<stages::Error> for Failure {
    fn from(error: stages::Error) -> Self {
        Self::Layer(error)
    }
}

/// Makes a layer of a kind from its settings.
pub(super) type Make = Arc<dyn Fn(&LayerPlace, Table) -> Result<Box<dyn Layer>, Failure> + Send + Sync>;

static KINDS: RwLock<BTreeMap<String, Make>> = RwLock::new(BTreeMap::new());

/// Adds a kind.
pub(super) fn add(kind: String, make: Make) {
    let mut kinds = KINDS.write().unwrap_or_else(PoisonError::into_inner);
    kinds.insert(kind, make);
}

/// Lets configs name a kind of layer of your own, in `model.stack`. Call it before `cli::main` or before a
/// config is used. `make` makes a layer from the keys that stand beside its `kind`; each call makes the same
/// layer.
///
/// The name has a dot, such as `my.swish`, so that it differs from the names of ready layers. A name that is
/// given again takes the place of the first.
///
/// ```
/// use pipewright_cli::compose::{LayerPlace, register_layer};
/// use pipewright::stages::layers::{Block, Linear};
/// use pipewright::stages::{Init, chain};
///
/// #[derive(serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Bottleneck {
///     outside: usize,
///     inside: usize,
/// }
///
/// register_layer("my.bottleneck", |place: &LayerPlace, sizes: Bottleneck| {
///     let linear = |which: &str, sizes| {
///         Linear::new(&format!("{}.{which}", place.name), sizes, Init::Normal(0.02), place.seed)
///     };
///     let down = linear("down", [sizes.outside, sizes.inside]);
///     let up = linear("up", [sizes.inside, sizes.outside]);
///     Ok(Block::residual(&place.name, chain![down, up]))
/// })?;
/// # Ok::<(), pipewright_cli::Error>(())
/// ```
///
/// # Errors
/// When the name has no dot.
pub fn register_layer<L: Layer, S: DeserializeOwned>(
    kind: &str,
    make: impl Fn(&LayerPlace, S) -> stages::Result<L> + Send + Sync + 'static,
) -> crate::Result<()> {
    if !kind.contains('.') {
        let problem = format!("\"{kind}\" has no dot: name layers of your own such as \"my.{kind}\"");
        return Err(ConfigError::Other(problem).into());
    }
    add(kind.to_owned(), made_from(move |place, settings| Ok(make(place, settings)?)));
    Ok(())
}

/// What makes a layer from settings of one type.
pub(super) fn made_from<L: Layer, S: DeserializeOwned>(
    make: impl Fn(&LayerPlace, S) -> Result<L, Failure> + Send + Sync + 'static,
) -> Make {
    Arc::new(move |place, table| {
        let settings = table.try_into().map_err(|error: toml::de::Error| {
            Failure::Settings(format!("layer {}: {}", place.name, error.message()))
        })?;
        Ok(Box::new(make(place, settings)?))
    })
}

/// Makes the layer of an entry of `model.stack`.
pub(super) fn make(place: &LayerPlace, entry: &Table) -> Result<Box<dyn Layer>, Failure> {
    let layer = &place.name;
    let mut settings = entry.clone();
    let Some(toml::Value::String(kind)) = settings.remove("kind") else {
        let problem = format!("layer {layer} has no kind: add one, such as kind = \"linear\"");
        return Err(Failure::Settings(problem));
    };
    let kinds = KINDS.read().unwrap_or_else(PoisonError::into_inner);
    let Some(make) = kinds.get(&kind).map(Arc::clone) else {
        let meant = match nearest(&kind, kinds.keys().map(String::as_str)) {
            None if kind.contains('.') => {
                ": a name with a dot is that of a layer of a program's own, so run this command with that \
                 program, which has all commands of `pipewright`"
                    .to_owned()
            }
            Some(meant) => format!(": did you mean \"{meant}\"?"),
            None => {
                let known: Vec<_> = kinds.keys().map(String::as_str).collect();
                format!("; known are {}", known.join(", "))
            }
        };
        let problem = format!("layer {layer} is of an unknown kind \"{kind}\"{meant}");
        return Err(Failure::Settings(problem));
    };
    // A layer may have layers inside, which are looked up too.
    drop(kinds);
    make(place, settings)
}
