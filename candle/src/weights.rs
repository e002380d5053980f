//! Weights as candle's variables and as parameters of the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Shape, Tensor, Var, bail};
use candle_nn::init::NormalOrUniform;
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init as CandleInit, VarBuilder};
use pipewright_stages::{Init, Parameter};

use crate::error::Result;
use crate::numbers::{check, read, write};

/// The variables that a model asks for while it is built.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<BTreeMap<String, Var>>>);

impl Asked {
    /// A builder that gives a model its variables, with starting weights from this seed.
    pub(crate) fn builder(&self, seed: u64) -> VarBuilder<'static> {
        let backend = Keyed { seed, asked: self.clone() };
        VarBuilder::from_backend(Box::new(backend), DType::F32, Device::Cpu)
    }

    /// All variables so far.
    pub(crate) fn vars(&self) -> BTreeMap<String, Var> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Makes variables whose starting weights are keyed by seed and name.
struct Keyed {
    seed: u64,
    asked: Asked,
}

impl SimpleBackend for Keyed {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        init: CandleInit,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        if dtype != DType::F32 || !device.is_cpu() {
            bail!("`{name}` was asked for in {dtype:?} on {device:?}: weights are trained in F32 on the CPU")
        }
        let mut asked = self.asked.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(var) = asked.get(name) {
            if var.shape() != &shape {
                bail!("`{name}` was asked for twice, as {:?} and as {shape:?}", var.shape())
            }
            return Ok(var.as_tensor().clone());
        }
        let numbers = start(init, &shape, name, self.seed);
        let var = Var::from_vec(numbers, shape, device)?;
        let tensor = var.as_tensor().clone();
        asked.insert(name.to_owned(), var);
        Ok(tensor)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle_core::Result<Tensor> {
        bail!("`{name}` was asked for without a shape, and there is no file that has one")
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.asked.vars().contains_key(name)
    }
}

/// Starting weights from candle's distributions and from our random numbers.
fn start(init: CandleInit, shape: &Shape, name: &str, seed: u64) -> Vec<f32> {
    let (init, factor, middle) = match init {
        CandleInit::Const(number) => (Init::Zeros, 1.0, number),
        CandleInit::Randn { mean, stdev } => (Init::Normal(stdev as f32), 1.0, mean),
        CandleInit::Uniform { lo, up } => (Init::Uniform(((up - lo) / 2.0) as f32), 1.0, (lo + up) / 2.0),
        CandleInit::Kaiming { dist, fan, non_linearity } => {
            let deviation = non_linearity.gain() / (fan.for_shape(shape) as f64).sqrt();
            match dist {
                NormalOrUniform::Normal => (Init::Normal(deviation as f32), 1.0, 0.0),
                NormalOrUniform::Uniform => (Init::Uniform(deviation as f32), 3_f64.sqrt(), 0.0),
            }
        }
    };
    let drawn = Parameter::new(name, shape.dims(), init, seed);
    let number = |drawn: &f32| (f64::from(*drawn) * factor + middle) as f32;
    drawn.value.iter().map(number).collect()
}

/// The weights of a layer: parameters of the engine, and candle's variables with the same numbers.
pub(crate) struct Weights {
    pairs: Vec<(Parameter, Var)>,
    /// Whether the parameters may have other numbers than the variables.
    changed: bool,
}

impl Weights {
    /// Parameters with the numbers of these variables.
    pub(crate) fn new(vars: BTreeMap<String, Var>) -> Result<Self> {
        let pair = |(name, var): (String, Var)| {
            check(&var, &format!("the weight `{name}`"))?;
            let mut parameter = Parameter::new(name, var.dims(), Init::Zeros, 0);
            read(&var, "", |numbers| parameter.value.copy_from_slice(numbers))?;
            Ok((parameter, var))
        };
        let pairs = vars.into_iter().map(pair).collect::<Result<_>>()?;
        Ok(Self { pairs, changed: false })
    }

    /// Copies changed numbers into the variables.
    pub(crate) fn copy_to_vars(&mut self) -> Result<()> {
        if std::mem::take(&mut self.changed) {
            self.pairs.iter().try_for_each(|(parameter, var)| write(var, &parameter.value))?;
        }
        Ok(())
    }

    /// The parameters that are trained, with their variables.
    pub(crate) fn trained(&mut self) -> impl Iterator<Item = &mut (Parameter, Var)> {
        self.pairs.iter_mut().filter(|(parameter, _)| !parameter.is_frozen())
    }

    /// All variables.
    pub(crate) fn vars(&self) -> impl Iterator<Item = &Var> {
        self.pairs.iter().map(|(_, var)| var)
    }

    /// Visits the parameters. The caller may change their numbers.
    pub(crate) fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.changed = true;
        self.visit_gradients(visit);
    }

    /// Visits the parameters. The caller changes gradients only.
    pub(crate) fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.pairs.iter_mut().for_each(|(parameter, _)| visit(parameter));
    }
}
