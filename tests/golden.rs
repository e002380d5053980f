//! Compares the engine with reference runs of PyTorch: every pair NAME.json + NAME.safetensors in
//! `tests/golden`, or in the folder that `PIPEWRIGHT_GOLDEN` names.
//!
//! A run holds the settings, the batches, the weights before the first and after the last step, the gradients
//! of the first step, and the loss and gradient norm of every step.

#[path = "common/batches.rs"]
mod batches;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use batches::{Batches, Recorded, floats};
use pipewright::data::DataSource;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::models::{Gpt, Mlp, Model};
use pipewright::stages::optimizer::{AdamW, Decay, LearningRate, Optimizer, Sgd, StateTensor, Update};
use pipewright::stages::{DType, Device, Parameter, Part, Place, Sequential, Stage, StageBuilder, Together};
use pipewright::{Pipeline, StepReport};
use safetensors::SafeTensors;
use serde_json::Value;

type Weights = BTreeMap<String, Vec<f32>>;

#[test]
fn losses_norms_gradients_and_weights_are_those_of_pytorch() {
    let folder = std::env::var_os("PIPEWRIGHT_GOLDEN")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), PathBuf::from);
    let names = runs(&folder);
    assert!(!names.is_empty(), "no NAME.json in {}", folder.display());
    for name in names {
        let run = Run::read(&folder, &name);
        let most = run.model().names().len().min(4) as u32;
        for stages in 1..=most {
            for schedule in ["gpipe", "1f1b"] {
                let place = format!("{name}, {stages} stages, {schedule}");
                run.check(&place, stages, schedule, Place::default());
            }
        }
    }
}

#[test]
fn on_a_gpu_too() {
    if emulator::start().is_none() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let device = Device::Cuda(0);
    for name in runs(&folder) {
        let run = Run::read(&folder, &name);
        for dtype in [DType::F32, DType::Bf16] {
            let place = Place { device, dtype };
            run.check(&format!("{name} on a GPU in {dtype}"), 2, "1f1b", place);
        }
    }
}

/// The largest relative difference of losses and norms from PyTorch's.
fn tolerance(place: Place) -> f64 {
    match (place.device, place.dtype) {
        (Device::Cpu, _) => 1e-5,
        (_, DType::F32) => 1e-4,
        (_, DType::Bf16) => 2e-2,
    }
}

fn runs(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| path.file_stem().expect("it has a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A reference run.
struct Run {
    settings: Value,
    losses: Vec<f64>,
    norms: Vec<f64>,
    init: Weights,
    grad: Weights,
    last: Weights,
    data: Arc<Batches>,
}

impl Run {
    fn read(folder: &Path, name: &str) -> Self {
        let text =
            std::fs::read_to_string(folder.join(format!("{name}.json"))).expect("the settings can be read");
        let json: Value = serde_json::from_str(&text).expect("the settings are JSON");
        let bytes =
            std::fs::read(folder.join(format!("{name}.safetensors"))).expect("the tensors can be read");
        let tensors = SafeTensors::deserialize(&bytes).expect("the tensors are whole");
        let part = |prefix: &str| -> Weights {
            let named = tensors.tensors();
            let of_part = named.iter().filter_map(|(name, view)| Some((name.strip_prefix(prefix)?, view)));
            of_part.map(|(name, view)| (name.to_owned(), floats(view.data()))).collect()
        };
        let list = |key: &str| {
            let list = json[key].as_array().unwrap_or_else(|| panic!("{name}.json has no {key}"));
            list.iter().map(|number| number.as_f64().expect("a number")).collect()
        };
        let settings = json["settings"].clone();
        let recorded = |key| Recorded::read(&tensors.tensor(key).expect("the batches are there"));
        let data = Batches {
            rows: integer(&settings, "micro_batch"),
            micro_batches: integer(&settings, "micro_batches"),
            input: recorded("x"),
            target: recorded("y"),
        };
        Self {
            losses: list("losses"),
            norms: list("grad_norms"),
            init: part("init."),
            grad: part("grad."),
            last: part("final."),
            data: Arc::new(data),
            settings,
        }
    }

    fn model(&self) -> Model {
        let number = |key| integer(&self.settings, key);
        let model = if self.settings["model"] == "gpt" {
            let tied = self.settings["tied"] == true;
            let (vocab, dim, layers, heads) =
                (number("vocab"), number("dim"), number("layers"), number("heads"));
            Gpt { vocab, dim, layers, heads, context: number("seq"), dropout: 0.0, tied, seed: 0 }.model()
        } else {
            let sizes = self.settings["sizes"].as_str().expect("sizes").split(',');
            let sizes = sizes.map(|size| size.parse().expect("a size")).collect();
            Mlp { sizes, dropout: 0.0, seed: 0 }.model()
        };
        model.expect("the settings make a model")
    }

    fn optimizer(&self) -> Arc<dyn Optimizer> {
        let number = |key: &str| self.settings[key].as_f64().expect("a number");
        let (weight_decay, decay) = (number("weight_decay"), Decay::All);
        if self.settings["optimizer"] == "sgd" {
            return Arc::new(Sgd { momentum: number("momentum"), weight_decay, decay });
        }
        let beta = |index: usize| self.settings["betas"][index].as_f64().expect("a number");
        Arc::new(AdamW {
            betas: (beta(0), beta(1)),
            eps: number("eps"),
            weight_decay,
            decay,
            ..AdamW::default()
        })
    }

    /// The model's stages, starting from the recorded weights.
    fn stages(&self, count: u32) -> Vec<StageBuilder<Sequential>> {
        let stages = self.model().split(count).expect("enough layers");
        let start = |build: StageBuilder<Sequential>| -> StageBuilder<Sequential> {
            let init = self.init.clone();
            Box::new(move || {
                let mut stage = build.build()?;
                for parameter in stage.parameters() {
                    let start = &init[parameter.name()];
                    parameter.value.copy_from_slice(start);
                }
                Ok(stage)
            })
        };
        stages.into_iter().map(start).collect()
    }

    fn check(&self, what: &str, stages: u32, schedule: &str, place: Place) {
        let micro_batches = self.data.micro_batches as u32;
        let recorder =
            Recorder { inner: self.optimizer(), steps: self.losses.len() as u64, seen: Arc::default() };
        let seen = Arc::clone(&recorder.seen);
        let mut builder = Pipeline::builder()
            .schedule(Schedule::named(schedule, stages, micro_batches).expect("the sizes fit"))
            .stages(self.stages(stages))
            .loss(CrossEntropy::default())
            .data(Arc::clone(&self.data) as Arc<dyn DataSource>)
            .optimizer(recorder)
            .learning_rate(LearningRate::Constant(self.settings["lr"].as_f64().expect("lr")))
            .places(vec![place])
            .pin(false);
        let clip = self.settings["clip"].as_f64().expect("clip");
        if clip > 0.0 {
            builder = builder.clip(clip);
        }
        let mut pipeline = builder.launch().expect("it starts");
        let reports: Vec<StepReport> =
            self.losses.iter().map(|_| pipeline.step().expect("the step succeeds")).collect();
        for (report, (loss, norm)) in reports.iter().zip(self.losses.iter().zip(&self.norms)) {
            let close = |got, expected, part| {
                let what = format!("{what}: {part} of step {}", report.step);
                assert_close(got, expected, tolerance(place), &what);
            };
            close(report.loss, *loss, "loss");
            close(report.grad_norm, *norm, "gradient norm");
        }
        if place.dtype == DType::Bf16 {
            return;
        }
        let seen = seen.lock().expect("no rank has panicked");
        self.check_weights(what, &seen, reports[0].weight as f32);
    }

    fn check_weights(&self, place: &str, seen: &Seen, weight: f32) {
        assert_eq!(
            seen.last.keys().collect::<Vec<_>>(),
            self.last.keys().collect::<Vec<_>>(),
            "{place}: names"
        );
        for (name, expected) in &self.grad {
            let mean: Vec<f32> = seen.first_grad[name].iter().map(|sum| sum / weight).collect();
            assert_near(&mean, expected, 1e-5, largest(expected), &format!("{place}: gradient of {name}"));
        }
        for (name, expected) in &self.last {
            let what = format!("{place}: final {name}");
            let got = &seen.last[name];
            let scale = largest(expected);
            if name.ends_with("attn.c_attn.bias") {
                // The key's bias does not change the softmax. Its true gradient is zero, so AdamW's steps
                // there are rounding noise.
                let third = expected.len() / 3;
                let key = third..2 * third;
                assert_near(&got[key.clone()], &expected[key], 2e-2, scale, &what);
                assert_near(&got[..third], &expected[..third], 1e-4, scale, &what);
                assert_near(&got[2 * third..], &expected[2 * third..], 1e-4, scale, &what);
            } else {
                assert_near(got, expected, 1e-4, scale, &what);
            }
        }
    }
}

/// What the optimizer got: the summed gradients of the first step, and the weights after the last.
#[derive(Debug, Default)]
struct Seen {
    first_grad: Weights,
    last: Weights,
}

/// An optimizer that records what it gets.
#[derive(Debug)]
struct Recorder {
    inner: Arc<dyn Optimizer>,
    steps: u64,
    seen: Arc<Mutex<Seen>>,
}

impl Optimizer for Recorder {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        self.inner.states(name, dims)
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn update(
        &self,
        parameter: &mut Parameter,
        update: Update,
        together: &mut Together,
    ) -> pipewright_stages::Result<()> {
        let name = parameter.name().to_owned();
        parameter.fetch(Part::Gradient)?;
        if update.step == 1 {
            self.seen.lock().expect("no panic").first_grad.insert(name.clone(), parameter.grad.to_vec());
        }
        self.inner.update(parameter, update, together)?;
        together.launch()?;
        parameter.fetch(Part::Value)?;
        if update.step == self.steps {
            self.seen.lock().expect("no panic").last.insert(name, parameter.value.to_vec());
        }
        Ok(())
    }
}

fn integer(settings: &Value, key: &str) -> usize {
    settings[key].as_u64().unwrap_or_else(|| panic!("the settings have no {key}")) as usize
}

fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |most, number| most.max(number.abs()))
}

fn assert_close(got: f64, expected: f64, tolerance: f64, what: &str) {
    let error = (got - expected).abs() / expected.abs();
    assert!(error <= tolerance, "{what}: {got}, PyTorch has {expected} (relative error {error:.1e})");
}

fn assert_near(got: &[f32], expected: &[f32], tolerance: f32, scale: f32, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (got - expected).abs();
        assert!(
            error <= tolerance * scale,
            "{what}[{index}]: {got}, PyTorch has {expected}; off by {:.1e} of the largest entry",
            error / scale
        );
    }
}
