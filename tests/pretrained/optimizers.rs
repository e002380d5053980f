//! What an optimizer sees as one tensor is one tensor of the family's folders.

use pipewright::stages::optimizer::{Adafactor, Muon};

use super::*;

/// An optimizer that records how much it changes each parameter.
#[derive(Debug)]
struct Watched {
    inner: Box<dyn Optimizer>,
    changes: Arc<Mutex<BTreeMap<String, Vec<f32>>>>,
}

impl Optimizer for Watched {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        self.inner.states(name, dims)
    }

    fn update(&self, parameter: &mut Parameter, update: Update, together: &mut Together) -> Result<()> {
        let before = parameter.value.to_vec();
        self.inner.update(parameter, update, together)?;
        let change = parameter.value.iter().zip(before).map(|(new, old)| new - old);
        let mut changes = self.changes.lock().expect("no panic");
        changes.insert(parameter.name().to_owned(), change.collect());
        Ok(())
    }
}

#[test]
fn parameters_are_fused_of_the_tensors_of_their_family() {
    for family in FAMILIES {
        let (architecture, _) = stages(&folder(family), 1, 1);
        let contents = architecture.model().expect("possible").contents().expect("made");
        let parameters = contents.into_iter().flat_map(|unit| unit.parameters);
        let fused: BTreeMap<String, Vec<usize>> = parameters.map(|one| (one.name, one.fused)).collect();
        for mapped in architecture.table() {
            let sizes: Vec<usize> = mapped.parts.iter().map(|part| part.dims[0]).collect();
            let expected = if sizes.len() > 1 { sizes } else { Vec::new() };
            assert_eq!(fused[&mapped.name], expected, "{family}: {}", mapped.name);
        }
    }
}

/// `optimizers.json` has what torch.optim.Muon (`adjust_lr_fn="match_rms_adamw"`, exact products) and
/// torch.optim.Adafactor make of each tensor of the folder by itself, with transformers' gradients:
/// `scripts/optimizers_golden.py`.
#[test]
fn a_first_step_changes_each_tensor_as_in_pytorch() {
    let path = folder("").join("optimizers.json");
    let golden: Value = serde_json::from_slice(&std::fs::read(path).expect("kept")).expect("JSON");
    for (family, kinds) in golden.as_object().expect("families") {
        for (kind, norms) in kinds.as_object().expect("kinds") {
            let changes = Arc::default();
            let inner: Box<dyn Optimizer> = match kind.as_str() {
                "muon" => Box::new(muon()),
                _ => Box::new(Adafactor::default()),
            };
            let watched = Watched { inner, changes: Arc::clone(&changes) };
            let (architecture, stages) = stages(&folder(family), 2, 1);
            let mut pipeline = Pipeline::builder()
                .schedule(Schedule::named("1f1b", 2, 4).expect("it fits"))
                .stages(stages)
                .loss(CrossEntropy::default())
                .data(Golden::read(family).batches() as Arc<dyn DataSource>)
                .optimizer(watched)
                .learning_rate(LearningRate::Constant(0.01))
                .pin(false)
                .launch()
                .expect("it starts");
            pipeline.step().expect("it trains");
            let changes = changes.lock().expect("no panic");
            for mapped in architecture.table() {
                let mut rest = &changes[&mapped.name][..];
                for part in &mapped.parts {
                    let (change, after) = rest.split_at(part.count());
                    rest = after;
                    let Some(expected) = norms.get(&part.name) else {
                        assert!(kind == "muon", "{family}, {kind}: {}", part.name);
                        continue;
                    };
                    let expected = expected.as_f64().expect("a norm");
                    let norm = change.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                    let off = (norm / expected - 1.0).abs();
                    assert!(off < 1e-3, "{family}, {kind}: {} by {norm}, not {expected}", part.name);
                }
            }
        }
    }
}

fn muon() -> Muon {
    let mut muon = Muon::default();
    muon.adamw.weight_decay = 0.0;
    muon
}
